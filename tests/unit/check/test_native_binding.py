"""Python modules in native sources: found before a compiler is, with the lines to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.check.engine import check_paths
from kernel_builder.check.model import Settings
from kernel_builder.cli.check_view import show_report
from kernel_builder.config.reader import load_project
from kernel_builder.errors import BuildError
from kernel_builder.events import Silent
from kernel_builder.workflow.conformance import Conformance
from kernel_trees import findings, source

TOML = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
src = [{torch}]

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["my_kernel_cpu/op.cpp"]
"""
OP = """\
#include <ATen/core/Tensor.h>

at::Tensor scale(at::Tensor const &x, double factor, bool round = false) { return x; }
void scale_out(at::Tensor &out, const at::Tensor &x, int64_t times) {}
std::vector<at::Tensor> several(std::vector<at::Tensor> xs, c10::optional<at::Tensor> bias) { return xs; }
float narrow(at::Tensor x, int k = 3);
static Odd odd(Odd x) { return x; }
"""
PYBIND = """\
#include <torch/extension.h>

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "m.def(\\"nothing\\", &nothing)";
  m.def("scale", &scale, "Scales");
  m.def("scale_out", scale_out);
  // m.def("gone", &gone);
  m.def("several", &ns::several, py::arg("xs"));
  m.def("narrow", &narrow);
  m.def("odd", &odd);
  m.def("lambda", [](at::Tensor x) { return x; });
}
"""

REGISTERED = """\
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("f() -> ()"); }
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


def project(tmp_path: Path, binding: str, *, op: str = OP, **files: str) -> Path:
    root = source(tmp_path, {}, toml=TOML.format(torch='"torch-ext/torch_binding.cpp"'))
    more = {name.replace("__", "/").replace("_h", ".h"): text for name, text in files.items()}
    for name, text in {"torch-ext/torch_binding.cpp": binding, "my_kernel_cpu/op.cpp": op, **more}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_pybind_is_found_with_the_lines_to_write_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(tmp_path, PYBIND)
    header, module = findings(root, "KB206")
    assert (header.line, header.symbol, module.line) == (1, "torch/extension.h", 3)
    expected = """\
write instead:
#include "registration.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("scale(Tensor x, float factor, bool round=False) -> Tensor");
  ops.def("scale_out(Tensor! out, Tensor x, int times) -> ()");
  ops.def("several(Tensor[] xs, Tensor? bias) -> Tensor[]");
  ops.def("narrow(Tensor x, int k=3) -> float");
  ops.def("odd(TYPE x) -> TYPE");  // write a type of schemas instead of TYPE: Odd x; Odd
  ops.def("lambda(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("scale", &scale);
  ops.impl("scale_out", &scale_out);
  ops.impl("several", &ns::several);
  ops.impl("narrow", &narrow);
  ops.impl("odd", &odd);
  ops.impl("lambda", &lambda);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
(and int64_t and double in the functions, where they have int and float)"""
    assert module.hint == expected
    show_report(check_paths([root], Settings(required=False), select=["KB206"]))
    assert '          #include "registration.h"\n\n          TORCH_LIBRARY_EXPAND' in capsys.readouterr().out


SCHEMAS = {
    "numbers": (
        "void f(int a, float b, size_t c, uint8_t d, unsigned int e) {}",
        "&f",
        "(int a, float b, int c, int d, int e) -> ()",
    ),
    "texts": ("std::string f(const std::string &a, std::string_view b) {}", "&f", "(str a, str b) -> str"),
    "torch's": (
        "void f(at::ScalarType a, c10::Device b, const at::Scalar &c) {}",
        "&f",
        "(ScalarType a, Device b, Scalar c) -> ()",
    ),
    "lists": (
        "bool f(at::IntArrayRef a, std::vector<bool> b, at::TensorList c) {}",
        "&f",
        "(int[] a, bool[] b, Tensor[] c) -> bool",
    ),
    "optional": ("int64_t f(std::optional<double> a, c10::optional<int64_t> b) {}", "&f", "(float? a, int? b) -> int"),
    "several results": ("std::tuple<at::Tensor, int64_t> f() {}", "&f", "() -> (Tensor, int)"),
    "defaults of C++": (
        "void f(double a = 1e-5f, int64_t b = -1L, bool c = true) {}",
        "&f",
        "(float a=1e-5, int b=-1, bool c=True) -> ()",
    ),
    "names of pybind": (
        "void f(at::Tensor const &, double, bool);",
        '&f, "doc", py::arg("x"), pybind11::arg("eps") = 1e-6, py::arg("flag").noconvert() = false',
        "(Tensor x, float eps=1e-6, bool flag=False) -> ()",
    ),
    "literals of pybind": (
        "void f(int64_t a, std::string b);",
        '&f, "n"_a = 3, "mode"_a = "sum"',
        "(int n=3, str mode='sum') -> ()",
    ),
    "none": ("void f(c10::optional<at::Tensor> a);", '&f, py::arg("bias") = py::none()', "(Tensor? bias=None) -> ()"),
    "a lambda": ("", "[](at::Tensor &x, float k) -> at::Tensor { return g(x); }", "(Tensor! x, float k) -> Tensor"),
    "a lambda of nothing": ("", "[&](int k) { g(k); }", "(int k) -> ()"),
    "no type of schemas": ("void f(std::map<int, int> a, bool b) {}", "&f", "(TYPE a, bool b) -> ()"),
}


@pytest.mark.parametrize(("op", "bound", "schema"), SCHEMAS.values(), ids=SCHEMAS)
def test_schemas_are_those_of_the_functions(tmp_path: Path, op: str, bound: str, schema: str) -> None:
    binding = f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n  m.def("f", {bound});\n}}\n'
    (found,) = findings(project(tmp_path, binding, op=f"{op}\n"), "KB206")
    assert found.hint is not None
    assert f'  ops.def("f{schema}"' in found.hint.replace('\\"', '"')


def test_a_build_refuses_it_before_anything_is_compiled(tmp_path: Path) -> None:
    root = project(tmp_path, PYBIND)
    loaded, _ = load_project(root)
    conformance = Conformance(project=loaded, work=root / ".work", variants=("torch213-cxx11-cpu-x86_64-linux",))
    with pytest.raises(BuildError) as caught:
        conformance.check_sources("identity", Silent())
    assert "torch-ext/torch_binding.cpp:3: KB206" in caught.value.message
    assert '#include "registration.h"' in caught.value.message


@pytest.mark.parametrize(
    "code",
    [
        "PYBIND11_MODULE(my_kernel, m) {}\n",
        "PYBIND11_MODULE (TORCH_EXTENSION_NAME,\n  m) { }\n",
        "PYBIND11_EMBEDDED_MODULE(my_kernel, m) {}\n",
        "NB_MODULE(my_kernel, m) {}\n",
        "PyMODINIT_FUNC PyInit_my_kernel(void)\n{\n  return nullptr;\n}\n",
        'extern "C" PyObject *PyInit__C() { return nullptr; }\n',
        "#include <torch/extension.h>\n",
        '#include "torch/extension.h"\n',
        "#include<torch/python.h>\n",
        "#  include  <pybind11/pybind11.h>  // why\n",
        "#include <pybind11/numpy.h>\n",
        "#include <torch/csrc/utils/pybind.h>\n",
        "#include <nanobind/nanobind.h>\n",
        "#if 1\n#include <torch/extension.h>\n#endif\n",
        "#ifdef TORCH_EXTENSION_NAME\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n#endif\n",
        "#if 0\n#else\nNB_MODULE(a, m) {}\n#endif\n",
        "#ifndef OP_H\n#define OP_H\n#include <torch/extension.h>\n#endif\n",
        'char const *s = "//"; PYBIND11_MODULE(a, m) {} // "\n',
        "int n = 1'000'000; PYBIND11_MODULE(a, m) {} // '\n",
    ],
)
def test_every_spelling_is_found(tmp_path: Path, code: str) -> None:
    assert [found.rule.code for found in findings(project(tmp_path, code), "KB206")] == ["KB206"]


@pytest.mark.parametrize(
    "code",
    [
        "// PYBIND11_MODULE(a, m) {}\n// #include <torch/extension.h>\n",
        "/*\n#include <torch/extension.h>\nPYBIND11_MODULE(a, m) {}\n*/\n",
        "// goes on \\\nPYBIND11_MODULE(a, m) {}\n",
        'char const *s = "PYBIND11_MODULE(a, m) {} #include <torch/extension.h>";\n',
        'char const *s = R"x(\nPYBIND11_MODULE(a, m) {}\n)x";\n',
        "#if 0\n#include <torch/extension.h>\nPYBIND11_MODULE(a, m) {}\n#endif\n",
        "#ifndef TORCH_EXTENSION_NAME\nPYBIND11_MODULE(a, m) {}\n#endif\n",
        "#if !defined(TORCH_EXTENSION_NAME)\nPYBIND11_MODULE(a, m) {}\n#endif\n",
        "#if 1\nint x;\n#else\nPYBIND11_MODULE(a, m) {}\n#endif\n",
        "#ifdef BUILD_FOR_PIP\n#include <torch/extension.h>\nPYBIND11_MODULE(a, m) {}\n#endif\n",
        "#define MODULE PYBIND11_MODULE(a, m) \\\n  { PYBIND11_MODULE(b, m) }\n",
        "PyMODINIT_FUNC PyInit_other(void);\n",
        "#include <torch/all.h>\n#include <torch/extension.hpp>\nint pybind11_module(int);\n",
        REGISTERED,
    ],
)
def test_what_no_compiler_sees_is_no_module(tmp_path: Path, code: str) -> None:
    assert findings(project(tmp_path, code), "KB206") == []


def test_only_what_is_compiled_counts(tmp_path: Path) -> None:
    root = project(tmp_path, '#include "used.h"\n', my_kernel_cpu__left_h=PYBIND, torch__left_h=PYBIND)
    (root / "my_kernel_cpu" / "pybind.cpp").write_text(PYBIND, encoding="utf-8")
    assert findings(root, "KB206") == []
    (root / "torch-ext" / "used.h").write_text("#include <torch/extension.h>\n", encoding="utf-8")
    (found,) = findings(root, "KB206")
    assert found.path.endswith("torch-ext/used.h")


def test_a_header_of_the_project_may_have_any_name(tmp_path: Path) -> None:
    root = project(tmp_path, '#include "pybind11/mine.h"\n', pybind11__mine_h="int x;\n")
    assert findings(root, "KB206") == []


def test_a_left_over_beside_registered_ops_is_to_be_removed(tmp_path: Path) -> None:
    (found,) = findings(project(tmp_path, REGISTERED, op="PYBIND11_MODULE(a, m) {}\n"), "KB206")
    assert found.hint is not None
    assert found.hint.startswith("remove it: torch-ext/torch_binding.cpp registers the ops already")


def test_a_kernel_for_the_stable_abi_is_told_of_its_own_macros(tmp_path: Path) -> None:
    root = project(tmp_path, PYBIND)
    toml = root / "build.toml"
    toml.write_text(
        toml.read_text(encoding="utf-8").replace("[torch]\n", '[torch]\nstable-abi = "2.11"\n'), encoding="utf-8"
    )
    header, module = findings(root, "KB206")
    assert "torch/extension.h is not part of torch's stable ABI" in header.message
    assert header.hint is not None
    assert "include torch/csrc/stable/library.h" in header.hint
    assert module.hint is not None
    assert "STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {" in module.hint
    assert '  ops.impl("scale", TORCH_BOX(&scale));' in module.hint
