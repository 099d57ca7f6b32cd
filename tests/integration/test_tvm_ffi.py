"""A tvm-ffi kernel, compiled against the headers of tvm-ffi's wheel, checked, loaded by the client and called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from conftest import ProjectMaker, Tool
from kernel_builder.interface.read import functions_of_library

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.xdist_group("tvm-ffi")]

VARIANT = "tvm-ffi01-cpu-x86_64-linux"
TOML = """\
[general]
name = "negate-it"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[tvm-ffi]
src = ["bind.cpp"]
cxx-flags = ["-DBINDING"]

[kernel.host]
backend = "cpu"
depends = []
src = ["negate.cpp"]
cxx-flags = ["-DKERNEL"]
"""
BIND = """\
#include <tvm/ffi/tvm_ffi.h>
#if !defined(BINDING) || defined(KERNEL)
#error "the flags of the framework's section are for its own sources"
#endif
#ifdef CPU_KERNEL
void negate(tvm::ffi::TensorView out, tvm::ffi::TensorView input);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(negate, negate);
#endif
"""
KERNEL = """\
#include <tvm/ffi/tvm_ffi.h>
#if defined(BINDING) || !defined(KERNEL)
#error "the flags of a kernel's section are for its sources"
#endif
void negate(tvm::ffi::TensorView out, tvm::ffi::TensorView input) {
  TVM_FFI_CHECK(input.dtype() == (DLDataType{kDLFloat, 32, 1}), TypeError) << "only float32 is negated";
  const float *from = static_cast<const float *>(input.data_ptr());
  float *to = static_cast<float *>(out.data_ptr());
  for (int64_t i = 0; i < input.numel(); ++i) to[i] = -from[i];
}
"""
PACKAGE = """\
from ._ops import has_jax, ops

__all__ = ["negate"]


def negate(out, x):
    ops.negate(out, x)
    return out
"""
FILES = {"bind.cpp": BIND, "negate.cpp": KERNEL, "tvm-ffi-ext/negate_it/__init__.py": PACKAGE}
CALL = """
import json, sys
from pathlib import Path
from typing import Any, cast
import kernels, numpy as np
found = []
for root in sys.argv[1:]:
    kernel = kernels.get_local_kernel(Path(root), backend="cpu")
    x = np.linspace(-2, 2, 101, dtype=np.float32)
    found.append(bool((kernel.negate(np.empty_like(x), x) == -x).all()))
try:
    kernel.negate(x.astype(np.float64), x.astype(np.float64))
except TypeError as error:
    found.append("only float32 is negated" in str(error))
import torch
y = torch.randn(33, 7)
found.append(bool(torch.equal(kernel.negate(torch.empty_like(y), y), -y)))
print(json.dumps(found))
"""


HIDE_TORCH = """
import importlib.machinery, sys
class Hidden(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else super().find_spec(name, path, target)
sys.meta_path = [Hidden if one is importlib.machinery.PathFinder else one for one in sys.meta_path]
"""
"""Makes an interpreter one without torch, for what is imported from here on."""
WITHOUT_TORCH = (
    HIDE_TORCH
    + CALL.partition("import torch\n")[0]
    + """
found.append("torch" not in sys.modules and not kernels.compat.has_torch)
print(json.dumps(found))
"""
)


def call(*roots: Path, script: str = CALL) -> list[bool]:
    command = [sys.executable, "-B", "-c", script, *map(str, roots)]
    found: list[bool] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


@pytest.mark.torch
def test_a_kernel_is_built_checked_and_called_and_two_versions_live_together(
    tool: Tool, make_project: ProjectMaker
) -> None:
    for module in ("tvm_ffi", "numpy", "torch"):
        pytest.importorskip(module, reason=f"{module} is not installed in this environment")
    first, second = (make_project("negate-it", FILES, toml=TOML, directory=name) for name in ("first", "second"))
    init = second / "tvm-ffi-ext" / "negate_it" / "__init__.py"
    init.write_text(f"{PACKAGE}\n\nNEWER = True\n", encoding="utf-8")
    for root in (first, second):
        result = tool("build", root, "--variant", VARIANT, "--json")
        assert result.code == 0, result.stderr
        entry = result.variant(VARIANT)
        assert entry["load"]["functions"] == ["negate"]  # type: ignore[index]
        assert entry["load"]["status"] == "loaded"  # type: ignore[index]
    metadata = json.loads((first / "build" / VARIANT / "metadata.json").read_text(encoding="utf-8"))
    files = {path.name for path in (first / "build" / VARIANT).iterdir()}
    assert files == {f"{metadata['id']}.so", "__init__.py", "_ops.py", "metadata.json", "negate_it"}
    assert functions_of_library(first / "build" / VARIANT / f"{metadata['id']}.so") == ("negate",)
    assert call(first, second) == [True] * 4
    assert call(first, second, script=WITHOUT_TORCH) == [True] * 4
    checked = tool("check", first / "build", "--strict")
    assert (checked.code, "no warnings" in checked.stdout) == (0, True), checked.stdout


def test_the_plan_names_no_other_framework(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("negate-it", FILES, toml=TOML)
    planned = tool("build", root, "--variant", VARIANT, "--dry-run", "--json")
    assert planned.code == 0, planned.stderr
    [variant] = cast("list[dict[str, Any]]", planned.json["variants"])
    assert "torch" not in variant["toolchain"]
    assert variant["toolchain"]["tvm-ffi"].startswith("0.1.")
    commands = [word for step in variant["steps"] for word in step["command"]]
    assert "-l:libtvm_ffi.so" in commands
    assert not [word for word in commands if "torch" in word]


def test_names_that_no_release_has_are_refused_with_the_way_out(tool: Tool, make_project: ProjectMaker) -> None:
    wrong = 'extern "C" int TVMFFIMadeUp();\nextern "C" void *PyLong_FromLong(long);\n'
    use = 'extern "C" __attribute__((visibility("default"))) void *use() { return PyLong_FromLong(TVMFFIMadeUp()); }\n'
    root = make_project("negate-it", {**FILES, "negate.cpp": KERNEL + wrong + use}, toml=TOML)
    result = tool("build", root, "--variant", VARIANT)
    assert result.code == 1
    assert "PyLong_FromLong (used by negate.cpp)" in result.stderr
    assert "a tvm-ffi kernel must load into any program" in result.stderr
    assert "TVMFFIMadeUp (used by negate.cpp)" in result.stderr
    assert not (root / "build").exists()


def test_a_header_of_torchs_is_told_for_what_it_is(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("negate-it", {**FILES, "negate.cpp": f"#include <torch/library.h>\n{KERNEL}"}, toml=TOML)
    result = tool("build", root, "--variant", VARIANT)
    assert result.code == 1
    assert "torch/library.h is a torch header; only [torch] kernels have these" in result.stderr


@pytest.mark.torch
def test_the_project_that_init_writes_passes_its_tests(tool: Tool, tmp_path: Path) -> None:
    for module in ("tvm_ffi", "numpy", "torch"):
        pytest.importorskip(module, reason=f"{module} is not installed in this environment")
    written = tool("init", tmp_path / "scale", "--framework", "tvm-ffi", "--backends", "cpu")
    assert written.code == 0, written.stderr
    tested = tool.apart("test", tmp_path / "scale")
    said = tested.stdout + tested.stderr
    assert (tested.code, "8 passed" in said) == (0, True), said
    checked = tool("check", tmp_path / "scale", "--strict")
    assert checked.code == 0, checked.stdout


TESTS = """\
from pathlib import Path

import kernels
import numpy as np

kernel = kernels.get_local_kernel(Path(__file__).resolve().parent.parent, backend="cpu")


def test_negates():
    x = np.linspace(-2, 2, 101, dtype=np.float32)
    assert (kernel.negate(np.empty_like(x), x) == -x).all()
"""
BENCHMARK = """\
import numpy as np
from kernels.benchmark import Benchmark


class Negate(Benchmark):
    seed = 1

    def setup(self):
        self.x = np.random.rand(1000).astype(np.float32)
        self.out = np.empty_like(self.x)

    def benchmark_base(self):
        self.kernel.negate(self.out, self.x)

    def verify_base(self):
        return -self.x
"""


@pytest.fixture
def without_torch(tmp_path: Path) -> Path:
    """An interpreter with tvm-ffi, NumPy, pytest and the client, and without torch."""
    for module in ("tvm_ffi", "numpy", "kernels"):
        pytest.importorskip(module, reason=f"{module} is not installed in this environment")
    home = tmp_path / "without-torch"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    [packages] = (home / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    (packages / "sitecustomize.py").write_text(HIDE_TORCH)
    return home / "bin" / "python"


def test_tests_benchmarks_and_shells_run_where_there_is_no_torch(
    tool: Tool, make_project: ProjectMaker, without_torch: Path
) -> None:
    files = {**FILES, "tests/test_negate.py": TESTS, "benchmarks/benchmark.py": BENCHMARK}
    root = make_project("negate-it", files, toml=TOML)
    here = ("--python", without_torch)
    tested = tool.apart("test", root, *here)
    said = tested.stdout + tested.stderr
    assert (tested.code, "1 passed" in said, "without torch" in said) == (0, True, True), said
    measured = tool.apart("bench", root, *here, "--against", "torch", "--rounds", "5", "--json")
    assert measured.code == 0, measured.stderr
    [result] = json.loads(measured.stdout)["variants"]
    [workload] = result["workloads"]
    assert (result["machine"]["torch"], workload["size"], len(workload["sides"])) == (None, 1000, 2)
    script = "python -c 'import negate_it, sys; print(negate_it.__all__, \"torch\" in sys.modules)'"
    shell = tool.apart("testshell", root, *here, "-c", script)
    assert (shell.code, shell.stdout.strip()) == (0, "['negate'] False"), shell.stderr
    checked = tool("check", root / "build", "--load", *here)
    assert (checked.code, "0 errors" in checked.stdout or "No errors" in checked.stdout) == (0, True), checked.stdout


def test_what_needs_torch_does_not_run_without_it(tool: Tool, make_project: ProjectMaker, without_torch: Path) -> None:
    tests = TESTS.replace("import numpy", "import torch\nimport numpy")
    root = make_project("negate-it", {**FILES, "tests/test_negate.py": tests}, toml=TOML)
    result = tool("test", root, "--python", without_torch)
    assert result.code == 2
    assert "its tests need torch, but tvm-ffi" in result.stderr
