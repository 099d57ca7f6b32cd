"""Variants for aarch64-linux, compiled on another machine, with Debian's cross compiler."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_abi_check import ObjectFile

from conftest import Result, Tool, commit
from kernel_builder.binary.elf import read_elf
from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.host import find_host_compiler

GXX = shutil.which("aarch64-linux-gnu-g++")
QEMU = shutil.which("qemu-aarch64")
NAMES = ("torch213-cxx11-cpu-aarch64-linux", "torch213-cxx11-cu130-aarch64-linux")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="compiles for aarch64 on x86_64 Linux"
)
needs_compiler = pytest.mark.skipif(GXX is None, reason="aarch64-linux-gnu-g++ is missing: g++-aarch64-linux-gnu")

TOML = """\
[general]
name = "cross"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["twice.cpp"]

[kernel.cuda]
backend = "cuda"
depends = ["torch"]
cuda-capabilities = ["9.0"]
src = ["twice.cu"]
"""
BINDING = """\
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "registration.h"

#if !defined(__aarch64__)
#error "this is not for aarch64"
#endif

void twice(float *x, long n);

static void twice_(at::Tensor &x) {
  TORCH_CHECK(x.is_contiguous() && x.scalar_type() == at::kFloat, "twice_: not contiguous float32: ", x.sizes());
  twice(x.mutable_data_ptr<float>(), x.numel());
}

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("twice_(Tensor(a!) x) -> ()"); }
#if defined(CUDA_KERNEL)
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) { ops.impl("twice_", &twice_); }
#else
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) { ops.impl("twice_", &twice_); }
#endif
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
CPU_CODE = """\
#include <cmath>
#include <stdexcept>
void twice(float *x, long n) {
  if (n < 0) throw std::invalid_argument("n");
  for (long i = 0; i < n; ++i) x[i] = std::pow(x[i], 1.0f) * 2;
}
"""
CUDA_CODE = """\
__global__ void kernel(float *x, long n) {
  long i = blockIdx.x * 256L + threadIdx.x;
  if (i < n) x[i] *= 2;
}
void twice(float *x, long n) { kernel<<<(n + 255) / 256, 256>>>(x, n); }
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def built(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Both variants of a small kernel for cpu and cuda."""
    files = {"build.toml": TOML, "torch-ext/binding.cpp": BINDING, "twice.cpp": CPU_CODE, "twice.cu": CUDA_CODE}
    root = write(tmp_path_factory.mktemp("cross"), {**files, "torch-ext/cross/__init__.py": "from . import _ops\n"})
    wanted = [word for name in NAMES for word in ("--variant", name)]
    result = tool("build", root, "--json", *wanted)  # the names say which platform is meant
    assert result.code == 0, result.stderr + result.stdout
    return root, result


@needs_compiler
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.xdist_group("cross")
@pytest.mark.parametrize("name", NAMES)
def test_a_variant_for_aarch64_conforms(built: tuple[Path, Result], name: str) -> None:
    root, result = built
    (library,) = (root / "build" / name).glob("*.abi3.so")
    elf = read_elf(library.read_bytes())
    assert elf.machine == "aarch64"
    foreign = {
        "libtorch.so",
        "libtorch_cpu.so",
        "libc10.so",
        "libgcc_s.so.1",
        "libc.so.6",
        "libm.so.6",
        "libpthread.so.0",
    }
    cuda = {"libtorch_cuda.so", "libc10_cuda.so", "libcudart.so.13"} if "cu130" in name else set()
    assert set(elf.needed) <= foreign | cuda
    assert ("libcudart.so.13" in elf.needed) == ("cu130" in name)
    versions = {symbol.version for symbol in elf.undefined if symbol.version and symbol.version.startswith("GLIBC_")}
    assert versions
    assert all(tuple(map(int, version.removeprefix("GLIBC_").split("."))) <= (2, 27) for version in versions), versions
    checked = ObjectFile(library)
    assert checked.check_python_abi("3.9") == []
    assert checked.check_manylinux("manylinux_2_27") == []
    if "cu130" in name:
        assert b"sm_90" in library.read_bytes()
    load = result.variant(name)["load"]
    assert isinstance(load, dict)
    assert load["status"] == "not loaded here"


@needs_compiler
def test_the_variable_of_the_platform_names_the_compiler(tmp_path: Path) -> None:
    assert GXX is not None
    alias = tmp_path / "my-cross-compiler"
    alias.symlink_to(GXX)
    environ = {"PATH": os.environ["PATH"], "CXX": "g++", "CXX_AARCH64_LINUX": str(alias)}
    assert find_host_compiler(environ, machine="aarch64").cxx == alias
    environ["CXX_AARCH64_LINUX"] = "g++"
    with pytest.raises(ToolchainError, match="compiles for x86_64-linux-gnu, not for aarch64"):
        find_host_compiler(environ, machine="aarch64")


def test_without_a_cross_compiler_the_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"no C\+\+ compiler for aarch64") as caught:
        find_host_compiler({"PATH": str(tmp_path)}, machine="aarch64")
    hint = caught.value.hint or ""
    assert "g++-aarch64-linux-gnu" in hint
    assert "CXX_AARCH64_LINUX" in hint


NOARCH = """\
[general]
name = "plain"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
"""


@pytest.fixture
def noarch(tmp_path: Path) -> Path:
    """A kernel without compiled code: building it takes no compiler, and still asks the interpreter."""
    root = write(tmp_path / "plain", {"build.toml": NOARCH, "torch-ext/plain/__init__.py": ""})
    commit(root)
    return root


def test_a_python_of_another_machine_needs_qemu(tool: Tool, noarch: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(44))
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(git)
    result = tool("build", noarch, "--python", python, env={"PATH": str(tmp_path / "bin")})
    assert result.code == 2
    assert f"{python} is a program for aarch64, but qemu-aarch64 is not installed" in result.stderr


FAKE_PYTHON = """\
#include <cstdio>
int main(int, char **) {
  std::puts("kernel-builder-probe: {\\"problem\\": \\"this is " ARCHITECTURE "\\", \\"torch\\": null}");
}
"""


@needs_compiler
@pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 is missing: qemu-user")
def test_a_python_of_another_machine_is_asked_under_qemu(tool: Tool, noarch: Path, tmp_path: Path) -> None:
    assert GXX is not None
    source, python = tmp_path / "fake.cpp", tmp_path / "python"
    source.write_text(FAKE_PYTHON, encoding="utf-8")
    architecture = '-DARCHITECTURE="aarch64"'
    subprocess.run([GXX, "-static", architecture, str(source), "-o", str(python)], check=True)
    result = tool("build", noarch, "--python", python)
    assert result.code == 2
    assert f"--python {python} cannot load kernels: {python}: this is aarch64" in result.stderr
