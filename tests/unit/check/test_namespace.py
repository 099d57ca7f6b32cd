"""Rules about the op namespace (case T12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_trees import codes, compiled_toml, findings, source, variant, write

FIXED = [
    '@torch.library.custom_op("myns::f", mutates_args=())\ndef f(x): ...\n',
    'import torch.library as tl\n@tl.register_fake("myns::f")\ndef f(x): ...\n',
    'from torch.library import triton_op as register\n@register("myns::f", mutates_args={})\ndef f(x): ...\n',
    'from torch import library\n@library.custom_op(name="myns::f", mutates_args=())\ndef f(x): ...\n',
    'name = "f"\n@torch.library.register_fake(f"myns::{name}")\ndef f(x): ...\n',
    'torch.library.register_kernel("myns::f", "cuda", lambda x: x)\n',
    'torch.library.register_autograd("myns::f", None)\n',
    'torch.library.register_vmap("myns::f", None)\n',
    'torch.library.register_torch_dispatch("myns::f", None, None)\n',
    'torch.library.define("myns::f", "(Tensor x) -> Tensor")\n',
    '@torch.library.impl("myns::f", "cpu")\ndef f(x): ...\n',
    'lib = torch.library.Library("myns", "DEF")\n',
    'lib = torch.library.Library(ns="myns", kind="FRAGMENT")\n',
    'NS = "myns"\n@torch.library.custom_op(NS + "::f", mutates_args=())\ndef f(x): ...\n',
    'NAME = "myns::f"\n@torch.library.custom_op(NAME, mutates_args=())\ndef f(x): ...\n',
    '@torch.library.custom_op("{}::f".format("a") and "myns::f" if 0 else "myns::f", mutates_args=())\ndef f(x): ...\n',
    '@torch.library.custom_op("myns::%s" % "f", mutates_args=())\ndef f(x): ...\n',
    '@torch.library.custom_op("::".join(["myns", "f"]), mutates_args=())\ndef f(x): ...\n',
    'class A:\n    def g(self):\n        @torch.library.custom_op("myns::f", mutates_args=())\n        def f(x): ...\n',
    'register = torch.library.register_fake\nregister("myns::f")(None)\n',
    'from functools import partial\nop = partial(torch.library.custom_op, mutates_args=())\nop("myns::f")(None)\n',
    "torch.library.register_fake(torch.ops.myns.f.default)(None)\n",
]
OWN = [
    '# @torch.library.custom_op("myns::f")\n',
    'def f():\n    """@torch.library.custom_op("myns::f", mutates_args=())"""\n',
    '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(x): ...\n',
    'NAME = add_op_namespace_prefix("f")\n@torch.library.custom_op(NAME, mutates_args=())\ndef f(x): ...\n',
    'prefix = add_op_namespace_prefix\n@torch.library.custom_op(prefix("f"), mutates_args=())\ndef f(x): ...\n',
    (
        'for n in ("a", "b"):\n    torch.library.custom_op(add_op_namespace_prefix(n), mutates_args=())(None)\n'
        "    torch.library.register_fake(add_op_namespace_prefix(n))(None)\n"
    ),
    'op = custom_op(add_op_namespace_prefix("f"), mutates_args=())\n@op.register_kernel("cuda")\ndef g(x): ...\n',
    'lib = torch.library.Library(ops.__name__.split(".")[-1], "FRAGMENT")\n',
    'def custom_op(name): ...\ncustom_op("myns::f")\n',
    "torch.library.wrap_triton(None)\n",
]
HEAD = "import torch\nfrom ._ops import add_op_namespace_prefix, ops\n"


@pytest.mark.parametrize("code", FIXED)
def test_fixed_namespaces_are_found_in_every_spelling(tmp_path: Path, code: str) -> None:
    (found,) = findings(source(tmp_path, {"op.py": HEAD + code}), "KB2")
    assert found.rule.code == "KB201"
    assert (found.path, found.symbol) == (f"{tmp_path}/torch-ext/my_kernel/op.py", "myns")
    assert found.line is not None
    assert "(" in (HEAD + code).splitlines()[found.line - 1]


@pytest.mark.parametrize("code", OWN)
def test_the_kernels_own_namespace_and_mere_text_pass(tmp_path: Path, code: str) -> None:
    assert codes(source(tmp_path, {"op.py": HEAD + code}), "KB2") == []


def test_an_op_without_any_namespace_is_found(tmp_path: Path) -> None:
    code = HEAD + '@torch.library.custom_op("f", mutates_args=())\ndef f(x): ...\n'
    assert codes(source(tmp_path, {"op.py": code}), "KB2") == ["KB201"]


def test_tests_and_setup_of_a_source_tree_are_not_the_kernel(tmp_path: Path) -> None:
    root = source(tmp_path, {})
    write(root, {"tests/test_it.py": HEAD + FIXED[0], "setup.py": HEAD + FIXED[0]})
    assert codes(root, "KB2") == []


def test_a_variant_may_write_its_own_id(tmp_path: Path) -> None:
    code = '@torch.library.custom_op("{}::f", mutates_args=())\ndef f(x): ...\n'
    own = variant(tmp_path / "own", files={"op.py": HEAD + code.format("_my_kernel_cuda_1a2b3c4")})
    other = variant(tmp_path / "other", files={"op.py": HEAD + code.format("_my_kernel_cuda_0000000")})
    assert codes(own, "KB201") == []
    assert codes(other, "KB201") == ["KB201"]


def test_fallbacks_and_wrappers_of_the_prefix(tmp_path: Path) -> None:
    fallback = """\
try:
    from ._ops import add_op_namespace_prefix
except ImportError:
    def add_op_namespace_prefix(name):
        return f"my_kernel::{name}"
"""
    wrapper = """\
from ._ops import add_op_namespace_prefix

def prefixed(name):
    return add_op_namespace_prefix(f"quack_{name}")
"""
    plain = "from ._ops import add_op_namespace_prefix\n"
    assert set(codes(source(tmp_path / "a", {"op.py": fallback}), "KB2")) == {"KB202"}
    assert codes(source(tmp_path / "b", {"op.py": wrapper}), "KB2") == ["KB203"]
    assert codes(source(tmp_path / "c", {"op.py": plain}), "KB2") == []


COMPILED = compiled_toml("torch-ext/bind.cpp", "kernel.cpp", section="main")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {}\n", []),
        ("TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {}\n", []),
        ("#define TORCH_LIBRARY_EXPAND(NAME, M) TORCH_LIBRARY(NAME, M)\n", []),
        ("#define X(NAME, M) \\\n  TORCH_LIBRARY(NAME, M)\n", []),
        ('// TORCH_LIBRARY(myns, ops)\n/* TORCH_LIBRARY(myns, m) */ const char *s = "TORCH_LIBRARY(a, b)";\n', []),
        ("TORCH_LIBRARY(myns, ops) {}\n", ["KB204"]),
        ("\nTORCH_LIBRARY_IMPL(myns, CUDA, ops) {}\nTORCH_LIBRARY_FRAGMENT(myns, m) {}\n", ["KB204", "KB204"]),
        ("TORCH_LIBRARY(TORCH_EXTENSION_NAME, ops) {}\n", ["KB204"]),
        ('static auto r = torch::RegisterOperators().op("ns::f", &f).op("ns::g", &g);\n', ["KB204"]),
        ('static auto r = torch::RegisterOperators().op("ns::f", &f).op("b::g", &g);\n', ["KB204", "KB204"]),
        ('static auto r = c10::RegisterOperators("ns::f(Tensor x) -> Tensor", &f);\n', ["KB204"]),
        ('static torch::RegisterOperators r{torch::RegisterOperators()\n  .op("ns::f", &f)};\n', ["KB204"]),
        ('#define ADD(n) torch::RegisterOperators().op("ns::" #n, &n);\n', []),
        ('// torch::RegisterOperators().op("ns::f", &f);\nconst char *t = "RegisterOperators";\n', []),
        ("#include <torch/csrc/RegisterOperators.h>\nint a;\n", []),
    ],
)
def test_registrations_in_c_plus_plus(tmp_path: Path, text: str, expected: list[str]) -> None:
    root = source(tmp_path, {}, toml=COMPILED)
    write(root, {"torch-ext/bind.cpp": text, "kernel.cpp": "int one() { return 1; }\n"})
    assert codes(root, "KB204") == expected


SCATTER = """\
#include <torch/script.h>

class Sum : public torch::autograd::Function<Sum> {};

torch::Tensor sum(torch::Tensor src, std::optional<torch::Tensor> out, std::optional<int64_t> size) {
  return Sum::apply(src, out, size)[0];
}
std::tuple<torch::Tensor, at::Tensor> both(const torch::Tensor &src, std::string how) { return {src, src}; }
int64_t version() { return 3; }

static auto registry = torch::RegisterOperators()
                           .op("scatter::sum", &sum)
                           .op("scatter::both", both)
                           .op("scatter::version", &version)
                           .op("scatter::lambda", [] { return 1; });
"""
LINES = """\
write instead (in a schema, Tensor! for what the op writes):
#include "registration.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("sum(Tensor src, Tensor? out, int? size) -> Tensor");
  ops.def("both(Tensor src, str how) -> (Tensor, Tensor)");
  ops.def("version() -> int", &version);
  ops.def("lambda(Tensor x) -> Tensor");  // write its own schema
}

#if defined(CPU_KERNEL)
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
#elif defined(CUDA_KERNEL)
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
#endif
  ops.impl("sum", &sum);
  ops.impl("both", &both);
  ops.impl("lambda", &lambda);
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, Autograd, ops) {
  ops.impl("sum", &sum);
}  // torch::autograd::Function records gradients only there; without it they are lost
// (torch.compile takes gradients in Python instead: torch.library.register_autograd, with a fake)

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
and call it in Python: from ._ops import ops; ops.sum(...), not torch.ops.scatter.sum(...);
for torch.compile, give it a fake: torch.library.register_fake(add_op_namespace_prefix("sum"))"""


def test_registrar_objects_bring_the_lines_to_write_instead(tmp_path: Path) -> None:
    section = '\n[kernel.gpu]\nbackend = "cuda"\ndepends = ["torch"]\nsrc = ["other.cpp"]\n'
    toml = COMPILED.replace('backends = ["cpu"]', 'backends = ["cpu", "cuda"]') + section
    root = source(tmp_path, {}, toml=toml)
    other = 'static auto r = torch::RegisterOperators().op("scatter::f", &f);\n'
    write(root, {"torch-ext/bind.cpp": SCATTER, "kernel.cpp": other, "other.cpp": ""})
    first, second = sorted(findings(root, "KB204"), key=lambda one: one.path, reverse=True)
    assert first.hint == LINES
    assert second.hint is not None
    assert "TORCH_LIBRARY_FRAGMENT_EXPAND" in second.hint
    assert "REGISTER_EXTENSION" not in second.hint
