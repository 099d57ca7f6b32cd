"""A ROCm kernel, compiled for real by the clang and the headers that Debian packages.

Its sources include none of torch's headers, so that little is compiled: ops are registered by the functions of torch's
stable ABI. What is proved here: the sources become code objects, the library links, and it loads with stand-ins for
what a machine without ROCm lacks.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import Tool, commit
from kernel_builder.binary.device_code import read_offload_bundle
from kernel_builder.binary.elf import mapped, read_elf
from kernel_builder.check.subject import LibraryFile

pytestmark = [pytest.mark.network, pytest.mark.slow]
NAME = "torch213-cxx11-rocm72-x86_64-linux"
BUILD = """\
[general]
name = "light-ways"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["rocm"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.scale]
backend = "rocm"
depends = []
rocm-archs = ["gfx90a", "gfx1100"]
src = ["cuda/scale.cu", "cuda/times.cuh", "cuda/handle.cpp"]
"""
BINDING = """\
#include <cstdint>
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
typedef struct Library *Handle;
extern "C" {
int aoti_torch_library_init_def(const char *, const char *, uint32_t, Handle *);
int aoti_torch_library_init_impl(const char *, const char *, const char *, uint32_t, Handle *);
int aoti_torch_library_def(Handle, const char *);
int aoti_torch_library_impl(Handle, const char *, void (*)(uint64_t *, uint64_t, uint64_t));
}
int launch_scale(float *out, const float *in, float factor, int count);
int new_handle(void **made);
static void run(uint64_t *stack, uint64_t, uint64_t) {
  if (new_handle(reinterpret_cast<void **>(&stack[1]))) return;
  launch_scale(reinterpret_cast<float *>(stack[0]), nullptr, 2.0f, 0);
}
static const bool registered = [] {
  Handle own, device;
  aoti_torch_library_init_def(TEXT(TORCH_EXTENSION_NAME), __FILE__, 1, &own);
  aoti_torch_library_def(own, "scale(Tensor x) -> Tensor");
  aoti_torch_library_init_impl(TEXT(TORCH_EXTENSION_NAME), "CUDA", __FILE__, 2, &device);
  aoti_torch_library_impl(device, "scale", run);
  return true;
}();
"""
HEADER = """\
#pragma once
#include <cuda_runtime.h>
inline __device__ float times(float x, float factor) { return x * factor; }
"""
HANDLE = """\
#include <hipblas/hipblas.h>
#include <hipblaslt/hipblaslt.h>
int new_handle(void **made) { return hipblasCreate(made) | hipblasLtCreate(made); }
"""
KERNEL = """\
#include "times.cuh"

__global__ void scale_kernel(float *out, const float *in, float factor, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = times(in[i], factor);
}

int launch_scale(float *out, const float *in, float factor, int count) {
  scale_kernel<<<(count + 255) / 256, 256>>>(out, in, factor, count);
  return static_cast<int>(cudaGetLastError());
}
"""


def write(root: Path) -> Path:
    """The project in ``root``, committed."""
    files = {
        "build.toml": BUILD,
        "torch-ext/binding.cpp": BINDING,
        "torch-ext/light_ways/__init__.py": '"""Scales."""\n\nfrom ._ops import ops\n\n__all__ = ["ops"]\n',
        "cuda/times.cuh": HEADER,
        "cuda/scale.cu": KERNEL,
        "cuda/handle.cpp": HANDLE,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    commit(root)
    return root


@pytest.fixture(scope="module")
def with_debian(session_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """The command line of a user who takes Debian's packages, whatever the date of the mirror."""
    if shutil.which("gpgv") is None:
        pytest.skip("needs gpgv (apt-get install gpgv)")
    config = tmp_path_factory.mktemp("config") / "kernel-builder.toml"
    config.write_text('sources = ["index", "debian"]\n[debian]\ncheck-valid-until = false\n', encoding="ascii")
    tool = Tool({**os.environ, "KERNEL_BUILDER_CACHE": str(session_store), "KERNEL_BUILDER_CONFIG": str(config)})
    fetched = tool("toolchain", "fetch", NAME)
    if fetched.code != 0:
        pytest.skip(f"Debian's packages of ROCm are not to be had here: {fetched.stderr.strip()[-300:]}")
    return tool


@pytest.fixture(scope="module")
def built(with_debian: Tool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The variant. Not to be changed."""
    root = write(tmp_path_factory.mktemp("rocm") / "light ways")
    result = with_debian("build", root, "--variant", NAME, "--json")
    assert result.code == 0, result.stderr
    load = result.variant(NAME)["load"]
    assert isinstance(load, dict)
    assert load["status"] in {"loaded with stand-ins", "not loaded here"}, load
    return root / "build" / NAME


def test_code_objects_are_for_the_architectures_and_the_link_is_as_for_every_kernel(built: Path) -> None:
    (library,) = built.glob("*.abi3.so")
    with mapped(library) as data:
        code = read_offload_bundle(data, LibraryFile(library, "").sections)
    assert code is not None
    assert (set(code.machine_code), set(code.versions), list(code.unread)) == ({"gfx90a", "gfx1100"}, {6}, [])
    elf = read_elf(library.read_bytes())
    blas = ("libhipblas.so.3", "libhipblaslt.so.1")
    assert elf.needed == ("libtorch.so", "libtorch_cpu.so", "libamdhip64.so.7", *blas, "libc.so.6")
    assert [symbol.name for symbol in elf.exports] == [f"PyInit_{library.name.removesuffix('.abi3.so')}"]
    metadata = json.loads((built / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["backend"] == {"type": "rocm", "archs": ["gfx1100", "gfx90a"]}
    assert metadata["provenance"]["framework-headers"] == "made of those of a build for another backend"


def test_it_is_told_that_it_is_a_trial_and_never_uploaded(built: Path, with_debian: Tool) -> None:
    checked = with_debian("check", built)
    assert checked.code == 0, checked.stdout
    assert "KB435 trial-build" in checked.stdout
    refused = with_debian("upload", built.parents[1], "--repo-id", "me/light-ways", "--dry-run")
    assert refused.code == 1
    assert "built for trying out, not for publishing" in refused.stderr.replace("\n", " ")


def test_the_same_bytes_come_of_another_directory(built: Path, with_debian: Tool, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    subprocess.run(["git", "clone", "-q", built.parents[1], other], check=True)
    again = with_debian("build", other, "--variant", NAME, "--no-cache", "--json")
    assert again.code == 0, again.stderr
    folders = (built, other / "build" / NAME)
    one, two = ({path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} for folder in folders)
    assert one == two


def test_mistakes_are_told_where_they_are_in_the_projects_own_files(with_debian: Tool, tmp_path: Path) -> None:
    root = write(tmp_path / "wrong")
    (root / "cuda" / "times.cuh").write_text(HEADER.replace("x * factor", "x * faktor"), encoding="utf-8")
    # hipify's words are shorter than those they replace.
    text = KERNEL.replace("blockIdx", "blokIdx").replace(
        "(cudaGetLastError())", "(cudaGetLastError()) + (cudaSuccess + wrong)"
    )
    (root / "cuda" / "scale.cu").write_text(text, encoding="utf-8")
    failed = with_debian("build", root, "--variant", NAME, "--arch", "gfx90a")
    assert failed.code == 1
    assert "cuda/times.cuh:3:67: error: use of undeclared identifier 'faktor'" in failed.stderr
    assert "cuda/scale.cu:4:11: error: use of undeclared identifier 'blokIdx'" in failed.stderr
    [line] = [line for line in text.splitlines() if "+ wrong" in line]
    column, number = line.index("wrong") + 1, text.splitlines().index(line) + 1
    assert f"cuda/scale.cu:{number}:{column}: error: use of undeclared identifier 'wrong'" in failed.stderr
    assert f"{line}\n          | {' ' * (column - 1)}^" in failed.stderr


TWO_WAYS = """\
[general]
name = "two-ways"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["rocm"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.made-hip]
backend = "rocm"
depends = []
rocm-archs = ["gfx90a", "gfx1100"]
include = ["one"]
hip-flags = ['-DNAME="two words"', "-DVALUE=1 + 2"]
src = ["one/scale.cu", "one/common.h"]

[kernel.hip]
backend = "rocm"
depends = []
rocm-archs = ["gfx942", "gfx90a"]
include = ["in two"]
src = ["in two/other.hip", "in two/common.h", "in two/more.cuh"]
"""
MADE_HIP = """\
#include "common.h"
#include <cuda_runtime.h>
static_assert(FACTOR == 2 && sizeof(NAME) == 10 && 2 * VALUE == 4);
__global__ void scale_kernel(float *out) { *out *= FACTOR; }
int launch_other();
int launch_scale(float *out, const float *, float, int) {
  scale_kernel<<<1, 1>>>(out);
  return static_cast<int>(cudaGetLastError()) + launch_other();
}
"""
AS_IT_IS = """\
#include "more.cuh"
static_assert(FACTOR == 3);
__global__ void other_kernel() {}
int launch_other() {
  other_kernel<<<1, 1>>>();
  return static_cast<int>(hipGetLastError());
}
"""


def test_sections_have_their_own_architectures_flags_and_headers(with_debian: Tool, tmp_path: Path) -> None:
    root = write(tmp_path / "two-ways")
    shutil.move(root / "torch-ext" / "light_ways", root / "torch-ext" / "two_ways")
    binding = BINDING.replace("  if (new_handle(reinterpret_cast<void **>(&stack[1]))) return;\n", "")
    files = {
        "build.toml": TWO_WAYS,
        "torch-ext/binding.cpp": binding,
        "one/scale.cu": MADE_HIP,
        "one/common.h": "#define FACTOR 2\n",
        "in two/other.hip": AS_IT_IS,
        "in two/common.h": "#define FACTOR 3\n",
        "in two/more.cuh": '#include <hip/hip_runtime.h>\n#include "common.h"\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    result = with_debian("build", root, "--variant", NAME, "--no-load")
    assert result.code == 0, result.stderr
    (library,) = (root / "build" / NAME).glob("*.abi3.so")
    with mapped(library) as data:
        code = read_offload_bundle(data, LibraryFile(library, "").sections)
    assert code is not None
    assert sorted(code.machine_code) == ["gfx1100", "gfx90a", "gfx942"]

    (root / "in two" / "more.cuh").write_text("#include <cuda_runtime.h>\n", encoding="utf-8")
    failed = with_debian("build", root, "--variant", NAME, "--arch", "gfx942")
    assert failed.code == 1
    assert "in two/more.cuh:1:10: fatal error: 'cuda_runtime.h' file not found" in failed.stderr
    assert "a .hip file is compiled as it is" in " ".join(failed.stderr.split())


BARE = """\
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *);
extern "C" int __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, void **);
__attribute__((global)) void k(float *x) { x[0] = 1; }
"""


@pytest.mark.parametrize("option", ["--no-offload-compress", "--offload-compress"])
def test_bundles_of_clangs_own_driver_are_read(option: str, with_debian: Tool, tmp_path: Path) -> None:
    """What other build systems make: the driver bundles by itself."""
    store = Path(with_debian.environment["KERNEL_BUILDER_CACHE"]) / "store"
    clang = next(store.glob("rocm-7.2-*/lib/llvm/wrap/clang++"))
    source, made, library = tmp_path / "k.hip", tmp_path / "k.o", tmp_path / "k.so"
    source.write_text(BARE, encoding="ascii")
    command: list[str | Path] = [
        clang,
        "-x",
        "hip",
        "-nogpuinc",
        "-nogpulib",
        "-c",
        "-fPIC",
        option,
        "-o",
        made,
        source,
    ]
    subprocess.run([*command, "--offload-arch=gfx942", "--offload-arch=gfx1201"], check=True, capture_output=True)
    subprocess.run(["g++", "-shared", "-nostdlib", "-o", library, made], check=True)
    with mapped(library) as data:
        code = read_offload_bundle(data, LibraryFile(library, "").sections)
    assert code is not None
    assert (set(code.machine_code), set(code.versions), list(code.unread)) == ({"gfx942", "gfx1201"}, {6}, [])


SLIM_WAYS = BUILD.replace("light-ways", "slim-ways").replace('"gfx90a", "gfx1100"', '"gfx90a"')
SLIM_WAYS = SLIM_WAYS.replace(
    '"cuda/scale.cu", "cuda/times.cuh", "cuda/handle.cpp"', '"same.hip", "not.hip", "other.hip"'
)
SMALL = """\
#include <ATen/ceil_div.h>
#include <hip/hip_runtime.h>
#ifdef AT_PER_OPERATOR_HEADERS
  SLIM
#endif
#ifndef FACTOR
#define FACTOR 2
#endif
__global__ void NAME_kernel(float *out, float x) { *out = x * FACTOR; }
int NAME(float *out) { NAME_kernel<<<1, 1>>>(out, 1); return at::ceil_div(7, 2); }
"""


def test_slim_headers_are_proved_and_what_differs_counts_as_with_all_headers(with_debian: Tool, tmp_path: Path) -> None:
    root = write(tmp_path / "slim-ways")
    shutil.move(root / "torch-ext" / "light_ways", root / "torch-ext" / "slim_ways")
    launch = "return;\n  launch_scale(reinterpret_cast<float *>(stack[0]), nullptr, 2.0f, 0);"
    binding = BINDING.replace(
        "int new_handle(void **made);", "int same(float *); int other(float *); int refuse(float *);"
    )
    binding = binding.replace(
        f"if (new_handle(reinterpret_cast<void **>(&stack[1]))) {launch}", "same((float *)stack[0]);"
    )
    slim = {"same": "", "other": "#define FACTOR 3", "refuse": "#error not slim"}
    files = {name: SMALL.replace("NAME", name).replace("SLIM", text) for name, text in slim.items()}
    (root / "build.toml").write_text(SLIM_WAYS.replace("not.hip", "refuse.hip"), encoding="utf-8")
    (root / "torch-ext" / "binding.cpp").write_text(binding, encoding="utf-8")
    for name, text in files.items():
        (root / f"{name}.hip").write_text(text, encoding="utf-8")
    result = with_debian("build", root, "--variant", NAME, "--verify-slim", "--no-load")
    assert result.code == 0, result.stderr
    metadata = json.loads((root / "build" / NAME / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["provenance"]["headers"] == "verify"
    assert metadata["provenance"]["full-headers"] == ["other.hip", "refuse.hip"]
    assert "other.hip" in result.stderr
    (root / ".kernel-builder" / "slim-differs.json").unlink()
    result = with_debian("build", root, "--variant", NAME, "--no-load")  # uses them unasked, and proves nothing
    assert result.code == 0, result.stderr
    metadata = json.loads((root / "build" / NAME / "metadata.json").read_text(encoding="utf-8"))
    assert (metadata["provenance"]["headers"], metadata["provenance"]["full-headers"]) == ("slim", ["refuse.hip"])
    assert "refuse.hip (gfx90a, host code) is compiled with torch's full headers: " in result.stderr
