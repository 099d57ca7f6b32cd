"""What a kernel registers with torch, in every form: outside its namespace, and for which devices."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from conftest import CPU, ProjectMaker, Tool, once, room_to_build, shared_folder
from kernel_trees import variant

torch = pytest.importorskip("torch", reason="torch is not installed in this environment")

pytestmark = [pytest.mark.slow, pytest.mark.torch]

OWN = "_forms_cpu_1a2b3c4"
FORMS = (
    """\
#include <Python.h>
#include <csignal>
#include <torch/csrc/api/include/torch/types.h>
#include <torch/custom_class.h>
#include <torch/library.h>
#include <ATen/core/op_registration/op_registration.h>

using at::Tensor;
static Tensor same(const Tensor &x) { return x; }
static int64_t count(int64_t x) { return x; }

// --- outside of the namespace ---
static auto first = torch::RegisterOperators().op("by_object::f", &same);
static auto second = torch::RegisterOperators("by_schema::g(Tensor x) -> Tensor", &same);
#define PROJECT_LIBRARY(m) TORCH_LIBRARY_FRAGMENT(by_macro, m)
PROJECT_LIBRARY(m) { m.def("f(Tensor x) -> Tensor", &same); }
TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("hardswish", &same); }
TORCH_LIBRARY_IMPL(aten, QuantizedXPU, m) { m.impl("relu6", &same); }
TORCH_LIBRARY_IMPL(nobody, CPU, m) { m.impl("nothing", &same); }
static void fall_back(const c10::OperatorHandle &, torch::jit::Stack *) {}
TORCH_LIBRARY_IMPL(_, PrivateUse2, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>()); }
// Nothing of this is there once the library is loaded.
static void late(int64_t how) {
  if (how == 2) {
    static torch::Library at_import(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, "late.cpp", 2);
    at_import.impl("sinc", &same);
  } else {
    static torch::Library in_a_call(torch::Library::IMPL, "_", c10::DispatchKey::AutogradPrivateUse3, "late.cpp", 1);
    in_a_call.fallback(torch::CppFunction::makeFallthrough());
  }
}
struct Kept : torch::CustomClassHolder { int64_t get() { return 1; } };
static auto kept = torch::class_<Kept>("by_class", "Kept").def(torch::init<>()).def("get", &Kept::get);

// --- within it ---
static auto own = torch::class_<Kept>("NAMESPACE", "Own");
TORCH_LIBRARY(NAMESPACE, m) {
  for (auto name : {"on_cpu", "on_cuda", "on_both", "meta_alone", "sparse", "autograd_alone", "autograd_and_cuda"})
    m.def(c10::str(name, "(Tensor x) -> Tensor").c_str());
  m.def("nowhere(Tensor[] x) -> Tensor");
  m.def("inferred", &same);
  m.def("chosen(Tensor? x) -> Tensor?");
  m.impl("chosen", [](const std::optional<Tensor> &x) { return x; });
  m.def("no_tensor(int x) -> int", &count);
  m.def("crashes(Tensor x) -> ()");
  m.def("writes(Tensor out, Tensor x) -> ()");
  m.def("writes_traced(Tensor out, Tensor x) -> ()", [](Tensor out, const Tensor &) { out.zero_(); });
  m.def("no_tensor_for_cpu(int x) -> int");
  m.def("late(int how) -> ()", &late);
  m.def("idle(Tensor x, Tensor out) -> ()");
}
TORCH_LIBRARY_IMPL(NAMESPACE, CPU, m) {
  m.impl("on_cpu", &same);
  m.impl("on_both", &same);
  m.impl("on_bth", &same);
  m.impl("idle", [](const Tensor &, const Tensor &) { TORCH_CHECK(false, "never right"); });
  m.impl("no_tensor_for_cpu", &count);
  m.impl("crashes", [](const Tensor &) { std::raise(SIGSEGV); });
  m.impl("writes", [](Tensor out, const Tensor &) { *static_cast<char *>(out.mutable_data_ptr()) += 1; });
}
TORCH_LIBRARY_IMPL(NAMESPACE, CUDA, m) {
  m.impl("on_cuda", &same);
  m.impl("on_both", &same);
  m.impl("autograd_and_cuda", &same);
}
TORCH_LIBRARY_IMPL(NAMESPACE, SparseCPU, m) { m.impl("sparse", &same); }
TORCH_LIBRARY_IMPL(NAMESPACE, Meta, m) {
  m.impl("on_cuda", &same);
  m.impl("meta_alone", &same);
}
TORCH_LIBRARY_IMPL(NAMESPACE, Autograd, m) {
  m.impl("autograd_alone", &same);
  m.impl("autograd_and_cuda", &same);
}
PyMODINIT_FUNC PyInit_NAMESPACE() {
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAMESPACE", nullptr, 0, nullptr};
  return PyModule_Create(&module);
}
"""
).replace("NAMESPACE", OWN)

LINES = (
    "PROJECT_LIBRARY(m) {",
    "TORCH_LIBRARY_IMPL(aten, CPU",
    "TORCH_LIBRARY_IMPL(aten, QuantizedXPU",
    "TORCH_LIBRARY_IMPL(_, PrivateUse2",
    "TORCH_LIBRARY_IMPL(nobody",
    "TORCH_LIBRARY_IMPL(NAMESPACE, CPU".replace("NAMESPACE", OWN),
)


def compiled(factory: pytest.TempPathFactory, name: str, source: str) -> Path:
    """A library of ``source``, made once in this session. Not to be changed."""

    def make(folder: Path) -> None:
        (folder / f"{name}.cpp").write_text(source, encoding="ascii")
        home = Path(torch.__file__).parent
        includes = [home / "include", home / "include/torch/csrc/api/include", sysconfig.get_paths()["include"]]
        with room_to_build():
            subprocess.run(
                [compiler, "-std=c++20", "-O0", "-shared", "-fPIC", *(f"-I{path}" for path in includes), f"{name}.cpp",
                 "-o", f"{OWN}.abi3.so", f"-L{home / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"],
                cwd=folder, check=True,
            )  # fmt: skip

    compiler = "clang++" if shutil.which("clang++") else "g++"  # the faster one: all of it is torch's headers
    if shutil.which(compiler) is None:
        pytest.skip("this machine has no C++ compiler")
    return once(shared_folder(factory) / name, make) / f"{OWN}.abi3.so"


def wrapped(build: Path, library: Path, files: Mapping[str, str | bytes] | None = None) -> Path:
    """A variant around ``library``."""
    package: dict[str, str | bytes] = {"__init__.py": f"from . import _ops\nfrom . import {OWN}\n\n__all__ = []\n"}
    package |= {library.name: library.read_bytes(), **(files or {})}
    return variant(build, CPU, package, ops_id=OWN, name="forms", backend={"type": "cpu"})


def found(tool: Tool, path: Path, *rules: str) -> dict[str, list[str]]:
    """Rule -> messages of what ``check --load`` finds."""
    chosen = [word for rule in rules for word in ("--select", rule)]
    result = tool("check", path, "--load", *chosen, "--format", "json")
    findings = result.json["findings"]
    assert isinstance(findings, list)
    return {rule: [finding["message"] for finding in findings if finding["code"] == rule] for rule in rules}


def test_every_form_of_registration_is_seen(
    tool: Tool, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    start = f"import torch\n\nfrom . import _ops\nfrom . import {OWN}\n\n__all__ = []\ntorch.ops.{OWN}.late(2)\n"
    path = wrapped(tmp_path, compiled(tmp_path_factory, "forms", FORMS), {"__init__.py": start})
    messages = found(tool, path, "KB500", "KB501", "KB502", "KB503", "KB504", "KB505", "KB509", "KB515", "KB516")
    process = "loading it changes ops of namespace 'aten' for the whole process"
    instead = f"instead of its own, '{OWN}'"
    line = {form: f"(forms.cpp:{FORMS[: FORMS.index(form)].count(chr(10)) + 1})" for form in LINES}
    fallback = "loading it changes what all ops without a kernel do for a dispatch key"
    aten = f"aten::hardswish (CPU) {line[LINES[1]]}, aten::relu6 (QuantizedXPU) {line[LINES[2]]}"
    assert messages["KB503"] == [
        f"{fallback}: AutogradPrivateUse3 (late.cpp:1), PrivateUse2 {line[LINES[3]]}",
        f"{process}: {aten}, aten::sinc (CPU) (late.cpp:2)",
        f"loading it registers classes in namespace 'by_class' {instead}: by_class.Kept",
        f"loading it registers ops in namespace 'by_macro' {instead}: by_macro::f {line[LINES[0]]}",
        f"loading it registers ops in namespace 'by_object' {instead}: by_object::f",
        f"loading it registers ops in namespace 'by_schema' {instead}: by_schema::g",
        f"loading it registers ops in namespace 'nobody' {instead}: nobody::nothing {line[LINES[4]]}",
    ]
    only = "is implemented for {} only, but the variant is for CPU"
    without = "takes no tensor, so torch cannot choose its implementation for CPU, and every call raises an error"
    none = "has no implementation, but the variant is for CPU"
    assert messages["KB504"] == [
        f"{OWN}::autograd_and_cuda {only.format('CUDA')}",
        f"{OWN}::meta_alone {none}",
        f"{OWN}::no_tensor_for_cpu {without}",
        f"{OWN}::nowhere {none}",
        f"{OWN}::on_cuda {only.format('CUDA')}",
    ]
    assert messages["KB509"] == [
        f"{OWN}::autograd_alone is implemented for autograd only, so it raises an error under torch.inference_mode()"
    ]
    (undefined,) = messages["KB515"]
    assert undefined.startswith(f"{OWN}::on_bth is implemented {line[LINES[5]]}, but nothing defines it; the nearest")
    assert undefined.endswith(f" op that is defined: {OWN}::on_both")
    assert messages["KB516"] == [
        f"{OWN}::{name} takes tensors, returns nothing and, according to its schema, writes to none of them"
        for name in ("crashes", "idle")
    ]
    (clash,) = messages["KB505"]  # the second version registers the same for the process
    assert clash.startswith("cannot load a second version with it: ")
    assert "\n  full output: " in clash
    assert not messages["KB500"] + messages["KB501"] + messages["KB502"]


OWN_TENSORS = ("on_both", "on_cpu", "autograd_alone", "autograd_and_cuda")


def test_what_ops_do_is_compared_with_their_schemas(
    tool: Tool, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One that ends the process does not keep the others from being called."""
    path = wrapped(tmp_path, compiled(tmp_path_factory, "forms", FORMS))
    result = tool("check", path, "--load", "--select", "KB50", "--select", "KB51", "--format", "json")
    findings = result.json["findings"]
    assert isinstance(findings, list)
    told = {(one["code"], one["severity"], one["message"].replace(f"{OWN}::", "")) for one in findings}
    said = "{0} writes its argument 'out', but its schema does not say so; write the schema as {0}(Tensor! out,"
    said += " Tensor x) -> ()"
    assert ("KB511", "error", said.format("writes")) in told
    traced = " (torch.compile sees it nevertheless, because the op is implemented for all devices)"
    assert ("KB511", "warning", said.format("writes_traced") + traced) in told
    crash = "crashes, called with small made-up arguments, crashed the process: was killed by signal 11"
    assert ("KB507", "warning", crash) in told
    returned = {message for code, severity, message in told if (code, severity) == ("KB512", "error")}
    assert returned == {f"{name} returns its argument 'x'" for name in OWN_TENSORS}
    assert any(code == "KB508" and message.startswith("on_cuda cannot be called") for code, _, message in told)


PYTHON = """\
import torch
from torch.library import Library, custom_op, impl, register_kernel

from ._ops import add_op_namespace_prefix

__all__ = ["kept"]
kept = []


def fixed(name):
    return custom_op(name, mutates_args=())


@fixed("by_decorator::f")
def f(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def own(kind, *rest):
    kept.append(Library("by_" + "library", kind, *rest))
    return kept[-1]


own("FRAGMENT").define("g(Tensor x) -> Tensor")
override = Library("aten", "IMPL", "QuantizedXPU")
override.impl("relu6", lambda x: x)
torch.library.define("by_" + "function::h", "(Tensor x) -> Tensor")


@custom_op(add_op_namespace_prefix("for_cuda"), mutates_args=(), device_types="cuda")
def for_cuda(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@custom_op(add_op_namespace_prefix("everywhere"), mutates_args=())
def everywhere(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
"""
NOARCH = """\
[general]
name = "hidden"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch-noarch]
"""


def test_what_is_registered_elsewhere_is_not_installed(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("hidden", {"torch-ext/hidden/__init__.py": PYTHON}, toml=NOARCH)
    command = ["build", str(root), "--variant", "torch-cpu", "--ignore", "KB2", "--ignore", "KB3"]
    refused = tool(*command)
    assert refused.code == 1
    assert list((root / "build").iterdir()) == []
    for words in ("by_decorator::f", "by_library::g", "by_function::h", "'aten'", "aten::relu6", "__init__.py:"):
        assert words in refused.stderr
    assert "for_cuda is implemented for CUDA only, but the variant is for CPU" in refused.stderr
    assert "everywhere" not in refused.stderr
    assert '-> Name it add_op_namespace_prefix("g"), with: from ._ops import add_op_namespace_prefix' in refused.stderr
    assert tool(*command, "--ignore", "foreign-registration", "--ignore", "KB504").code == 0
    # What was remembered is judged again.
    assert "by_library::g" in tool(*command).stderr
    upload = ["upload", str(root), "--repo-id", "me/hidden", "--dry-run", *command[4:]]
    kept = tool(*upload)
    assert kept.code == 1
    assert "KB503 foreign-registration: loading it registers ops in namespace 'by_library'" in kept.stderr
    shutil.rmtree(root / ".kernel-builder")  # another machine's build is loaded here
    assert "registers ops in namespace 'by_function'" in tool(*upload).stderr
    # That an op is for one device alone may be meant.
    (root / "kernel-builder.toml").write_text('[check]\naccept = { KB504 = "a test on the other device" }\n')
    accepted = tool(*command, "--ignore", "KB503")
    assert accepted.code == 0, accepted.stderr
    assert "KB481" not in tool("check", root, "--select", "KB481").stdout


LIAR = """\
import torch
from torch.library import Library, custom_op

from . import layers
from ._ops import add_op_namespace_prefix, ops

__all__ = ["layers"]
library = Library(add_op_namespace_prefix("x").partition("::")[0], "FRAGMENT")
library.define("scale(Tensor out, Tensor x, float factor) -> ()")


def scale(out, x, factor):
    out.copy_(x * factor)


library.impl("scale", scale, "CPU")


@custom_op(add_op_namespace_prefix("double"), mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@double.register_fake
def _(x):
    return x.new_empty(x.shape, dtype=torch.float16)
"""
LIAR_LAYERS = """\
import torch
from torch import nn

from ._ops import ops


class Double(nn.Module):
    has_backward = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.double(x)


class Silent(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.double(x)
"""


def test_a_kernel_that_does_not_do_what_it_says_is_not_installed(tool: Tool, make_project: ProjectMaker) -> None:
    files = {"torch-ext/hidden/__init__.py": LIAR, "torch-ext/hidden/layers.py": LIAR_LAYERS}
    root = make_project("hidden", files, toml=NOARCH)
    command = ["build", str(root), "--variant", "torch-cpu", "--ignore", "KB2", "--ignore", "KB3"]
    refused = tool(*command)
    assert refused.code == 1
    assert list((root / "build").iterdir()) == []
    for words in (
        "KB511 undeclared-write: _hidden_cpu_",
        "::scale writes its argument 'out', but its schema does not say so",
        "write the schema as scale(Tensor! out, Tensor x, float factor) -> ()",
        "::double returns dtype torch.float16, but the op returns torch.float32",
        "layers.Double claims has_backward, but its ops have no gradient: double",
        "-> Fix the fake.",
        "-> Mark the argument in the schema: Tensor! instead of Tensor.",
    ):
        assert words in refused.stderr
    assert "layers.Silent" not in refused.stderr  # a warning
    package, layers = root / "torch-ext/hidden/__init__.py", root / "torch-ext/hidden/layers.py"
    right = LIAR.replace("scale(Tensor out", "scale(Tensor! out").replace(", dtype=torch.float16", "")
    package.write_text(right, encoding="ascii")
    layers.write_text(LIAR_LAYERS.replace("has_backward = True", "has_backward = False"), encoding="ascii")
    built = tool(*command, "--verbose")
    assert built.code == 0, built.stderr
    assert "variants are loaded " in built.stderr  # in a sandbox, or why not
    assert (
        "note: kernels were loaded " in tool("check", root / "build" / "torch-cpu", "--load", "--select", "KB5").stdout
    )
    assert "layers.Silent claims has_backward, as it does not say False, but its ops have no gradient" in built.stderr
    gradient = "\n\ndouble.register_autograd(lambda context, grad: grad * 2)\n"
    package.write_text(right + gradient, encoding="ascii")
    layers.write_text(LIAR_LAYERS, encoding="ascii")
    trained = tool(*command)
    assert trained.code == 0, trained.stderr
    assert "has_backward" not in trained.stderr


WRONG = """\
#include <Python.h>
#include <dlfcn.h>
#include <fstream>
#include <torch/library.h>
static at::Tensor f(const at::Tensor &x, int64_t n) { return x; }
static std::string form() {
  Dl_info here;
  dladdr(reinterpret_cast<void *>(&form), &here);
  std::string path = here.dli_fname, word;
  std::ifstream(path.substr(0, path.rfind('/') + 1) + "form") >> word;
  return word;
}
TORCH_LIBRARY(NAMESPACE, m) {
  if (form() == "types") m.def("f(Tensor x, float n) -> Tensor", &f);
  if (form() == "inside") m.def("other::f(Tensor x, int n) -> Tensor", &f);
  if (form() == "schema") m.def("f(Tensor x, flot n) -> Tensor");
}
static auto blocks = form() == "blocks"
    ? std::make_unique<torch::Library>(torch::Library::DEF, "NAMESPACE", std::nullopt, "second.cpp", 77) : nullptr;
PyMODINIT_FUNC PyInit_NAMESPACE() {
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAMESPACE", nullptr, 0, nullptr};
  return PyModule_Create(&module);
}
""".replace("NAMESPACE", OWN)


def test_the_cause_of_a_failure_survives(tool: Tool, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    library = compiled(tmp_path_factory, "wrong", WRONG)
    expected = {
        "types": ["expected schema:", "f(Tensor x, float n)", "inferred schema: (Tensor _0, int _1)", "wrong.cpp:13",
                  "reason: Type mismatch in argument 2: float vs int."],
        "inside": ["Explicitly provided namespace (other)", "wrong.cpp:13"],
        "schema": ["flot n", "~~~~ <--- HERE"],
        "blocks": ["Only a single TORCH_LIBRARY can be used", "second.cpp:77", "wrong.cpp:13"],
    }  # fmt: skip
    for form, words in expected.items():
        path = wrapped(tmp_path / form, library, {"form": form})
        (message,) = found(tool, path, "KB502")["KB502"]
        assert [word for word in words if word not in message] == []
        assert "frame #" not in message
        assert "what()" not in message
        log = Path(message.splitlines()[-1].rpartition("full output: ")[2])
        assert "frame #0" in log.read_text(encoding="utf-8") or form == "schema"


def test_the_cause_survives_a_build(tool: Tool, make_project: ProjectMaker) -> None:
    package = (
        "import ctypes\n\n__all__ = []\n\n\ndef go():\n    try:\n        ctypes.CDLL('/no/such/library.so')\n"
        "    except OSError:\n        raise RuntimeError('cannot start:\\n' + '\\n'.join(map(str, range(40))))\n"
        "\n\ngo()\n"
    )
    root = make_project("hidden", {"torch-ext/hidden/__init__.py": package}, toml=NOARCH)
    command = ["build", str(root), "--variant", "torch-cpu", "--ignore", "KB3"]
    result = tool(*command, "--json")
    load = result.variant("torch-cpu")["load"]
    assert isinstance(load, dict)
    reason, log = str(load["reason"]), Path(str(load["log"]))
    assert reason.startswith("RuntimeError: cannot start:\n0\n1\n")
    assert reason.splitlines()[-1].startswith("  caused by OSError: /no/such/library.so: cannot open")
    assert reason in str(result.variant("torch-cpu")["problem"])
    assert "Traceback (most recent call last)" in log.read_text(encoding="utf-8")
    assert log.is_relative_to(root / ".kernel-builder")
    assert str(log) in result.stderr
    assert "  caused by OSError" in result.stderr
    assert "  caused by OSError" in tool(*command, "-v").stderr
