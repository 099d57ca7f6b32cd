"""Toolchains from the configured package index: how much is fetched, and that it compiles and links."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import BUILD_TOML, ProjectMaker, Tool
from kernel_builder.backends import toolkit_kinds
from kernel_builder.backends.cuda.driver import SHELL, Invocation, Pipeline, Question, pipeline
from kernel_builder.backends.cuda.module_id import Guess, ahead, guess, settled
from kernel_builder.binary.elf import read_elf
from kernel_builder.events import Recorder
from kernel_builder.store.cache import Store
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.host import HostCompilers
from kernel_builder.toolchain.model import HostCompiler
from kernel_builder.toolchain.provide import Toolchains
from kernel_builder.toolchain.settings import INDEX, ToolchainSettings
from kernel_builder.toolchain.sources import open_sources
from kernel_builder.variants.names import Machine
from toolkits import cuda

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("toolchain network")]

BINDING = """
#include <ATen/core/Tensor.h>
#include <torch/library.h>
#ifdef WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublas_v2.h>
void launch(float*, int, cudaStream_t);
#endif
void twice(at::Tensor& x) {
  TORCH_CHECK(x.is_contiguous(), "not contiguous: ", x.sizes());
#ifdef WITH_CUDA
  const c10::cuda::CUDAGuard guard(x.device());
  launch(x.mutable_data_ptr<float>(), x.numel(), at::cuda::getCurrentCUDAStream());
  cublasHandle_t handle = nullptr;
  TORCH_CHECK(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
#endif
}
TORCH_LIBRARY(example, m) { m.def("twice(Tensor! x) -> ()"); m.impl("twice", c10::kCPU, &twice); }
"""
KERNEL = """
#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
__global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}
void launch(float* x, int n, cudaStream_t stream) { twice<<<(n + 255) / 256, 256, 0, stream>>>(x, n); }
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


def toolchains(root: Path, host: HostCompiler) -> Toolchains:
    recorder = Recorder()
    store = Store(root, recorder)
    sources = open_sources(ToolchainSettings(order=(INDEX,)), store, recorder, toolkit_kinds(), environ=os.environ)
    return Toolchains(sources, store, HostCompilers(found=(host,), environ=os.environ), recorder, toolkit_kinds())


def run(*command: object) -> None:
    completed = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr


def test_a_cpu_toolchain_is_small_and_compiles_and_links(root: Path, tmp_path: Path, host: HostCompiler) -> None:
    kit = toolchains(root, host)
    sdk = kit.provide(kit.resolve(ToolchainRequest(release="2.13", machine=Machine.X86_64))).framework
    assert sdk.version.startswith("2.13.")
    assert kit.bytes_received <= 25 * 2**20
    sizes = {table.name: len(table.read_text().splitlines()) for table in sdk.exports}
    assert sizes["libtorch_cpu.so.txt"] > 60_000
    source, library = tmp_path / "binding.cpp", tmp_path / "binding.so"
    source.write_text(BINDING)
    include = [f"-I{folder}" for folder in sdk.include]
    link = [f"-L{sdk.libraries}", "-Wl,--no-as-needed", "-ltorch", "-Wl,--as-needed", "-ltorch_cpu", "-lc10"]
    run(host.cxx, "-std=c++20", "-O0", "-fPIC", "-shared", *include, source, "-o", library, *link, "-Wl,-z,defs")


def test_a_cuda_toolchain_stays_below_its_limit_and_compiles_and_links(
    root: Path, tmp_path: Path, host: HostCompiler
) -> None:
    kit = toolchains(tmp_path / "store", host)
    provided = kit.provide(kit.resolve(ToolchainRequest(release="2.13", machine=Machine.X86_64, toolkit=cuda("13.0"))))
    assert provided.toolkit is not None
    assert kit.bytes_received <= 150 * 2**20
    binding, kernel, library = tmp_path / "b.cpp", tmp_path / "k.cu", tmp_path / "k.so"
    binding.write_text(BINDING)
    kernel.write_text(KERNEL)
    nvcc = [provided.toolkit.compiler, "-ccbin", host.cxx, "-std=c++17", "-arch=sm_90", "-Xcompiler", "-fPIC"]
    run(*nvcc, "-c", kernel, "-o", tmp_path / "k.o")
    include = [f"-I{folder}" for folder in (*provided.framework.include, *provided.toolkit.include)]
    run(host.cxx, "-std=c++20", "-O0", "-fPIC", "-DWITH_CUDA", *include, "-c", binding, "-o", tmp_path / "b.o")
    link = [f"-L{provided.framework.libraries}", f"-L{provided.toolkit.libraries}", "-Wl,--no-as-needed", "-ltorch"]
    link += ["-Wl,--as-needed", "-ltorch_cpu", "-ltorch_cuda", "-lc10_cuda", "-lc10", "-lcudart", "-lcublas"]
    run(host.cxx, "-shared", tmp_path / "k.o", tmp_path / "b.o", "-o", library, *link, "-Wl,-z,defs")


def test_the_index_has_a_complete_compiler_for_the_cuda_releases_of_torch(root: Path, host: HostCompiler) -> None:
    for version in ("13.0", "13.2"):
        chain = (
            toolchains(root, host)
            .resolve(ToolchainRequest(release="2.13", machine=Machine.X86_64, toolkit=cuda(version)))
            .chain
        )
        assert {taken.source for taken in chain.taken} == {INDEX}


STEPS = """
#include <cuda_runtime.h>
static __device__ int counter;
template <typename T> __global__ void twice(T *x) { x[threadIdx.x] *= sin(x[threadIdx.x]); atomicAdd(&counter, 1); }
void launch(float *x, double *y) { twice<<<1, 32>>>(x); twice<<<1, 32>>>(y); }
"""
LOCAL = """
namespace {
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
struct Once { Once() { twice<<<1, 1>>>(nullptr); } } once;
}
"""
ONE = ("-gencode=arch=compute_90,code=sm_90",)
SEVERAL = (
    *("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"),
    *("-gencode=arch=compute_90,code=compute_90", "--use_fast_math", "-lineinfo", "-Xptxas=-O2", "-DA={{b}}"),
)


class Steps:
    """nvcc, and its steps for a source ``a b/k.cu`` in ``folder``."""

    def __init__(self, root: Path, folder: Path, host: HostCompiler, version: str, options: tuple[str, ...]) -> None:
        kit = toolchains(root, host)
        request = ToolchainRequest(release="2.13", machine=Machine.X86_64, toolkit=cuda(version))
        toolkit = kit.provide(kit.resolve(request)).toolkit
        assert toolkit is not None
        self.folder, self.target, self.source = folder, folder / "k.o", folder / "a b" / "k.cu"
        self.source.parent.mkdir(parents=True)
        (folder / "steps").mkdir()
        question = Question(nvcc=toolkit.compiler, cxx=host.cxx, digest="", options=("-std=c++17", "-O3", *options))
        words = {"source": "{project}/a b/k.cu", "target": "{project}/k.o", "folder": "{project}/steps"}
        self.plain = pipeline(question, **words, shown=str(self.source))
        keep = ("--keep", "--keep-dir", folder / "steps", "-ccbin", host.cxx)
        self._nvcc = (toolkit.compiler, *keep, "-c", self.source, "-o", self.target, *map(self._word, question.options))

    def nvcc(self) -> bytes:
        """The object that nvcc makes."""
        run(*self._nvcc)
        return self.target.read_bytes()

    def side_by_side(self, steps: Pipeline) -> bytes:
        """The object that ``steps`` make, each as soon as what it reads is there."""
        first = [steps.split, *steps.devices] if steps.assemblies else [steps.split]
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._make, first))
            list(pool.map(self._make, steps.assemblies or steps.devices))
        self._make(steps.compile)
        return self.target.read_bytes()

    def _make(self, group: Iterable[Invocation]) -> None:
        for step in group:
            path = step.path if "/" in step.path or step.program == SHELL else f"{self.plain.programs}/{step.path}"
            run(*map(self._word, step.before), path, *map(self._word, step.arguments))

    def _word(self, text: str) -> str:
        return text.replace("{project}", str(self.folder)).replace("{{", "{").replace("}}", "}")


@pytest.mark.parametrize("version", ["13.0", "13.2"])
@pytest.mark.parametrize("options", [ONE, SEVERAL], ids=["one architecture", "several, with PTX and flags"])
def test_the_steps_of_nvcc_make_the_same_object_as_nvcc(
    root: Path, tmp_path: Path, host: HostCompiler, version: str, options: tuple[str, ...]
) -> None:
    """Byte for byte, whether or not device code waits for the host's half, with the same folder for steps."""
    steps = Steps(root, tmp_path, host, version, options)
    steps.source.write_text(STEPS)
    assert len(steps.plain.devices) == len({option for option in options if "code=sm" in option})
    guessed = guess(STEPS)
    assert guessed is Guess.NAME
    early = ahead(steps.plain, guessed)
    assert len(early.assemblies) == len(early.devices)
    nvcc = steps.nvcc()
    assert steps.side_by_side(early) == nvcc
    assert steps.side_by_side(steps.plain) == nvcc


def test_a_source_that_defines_nothing_for_others_is_the_same_in_every_build(
    root: Path, tmp_path: Path, host: HostCompiler
) -> None:
    """nvcc takes the time of the file and the number of its process for it."""
    steps = Steps(root, tmp_path, host, "13.0", ONE)
    steps.source.write_text(LOCAL)
    assert steps.nvcc() != steps.nvcc()
    guessed = guess(LOCAL)
    assert guessed is Guess.NOTHING
    plain = replace(steps.plain, split=tuple(map(settled, steps.plain.split)))
    ours = steps.side_by_side(ahead(plain, guessed))
    os.utime(steps.source, (1, 1))
    assert steps.side_by_side(ahead(plain, guessed)) == ours
    assert steps.side_by_side(plain) == ours


TINY = """
#include <torch/library.h>
#include "registration.h"
namespace {
void twice(at::Tensor &out, at::Tensor const &x, std::string const &how) {
  TORCH_CHECK(x.numel() == out.numel(), "sizes differ in ", how);
}
}  // namespace
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("twice(Tensor! out, Tensor x, str how) -> ()");
  ops.impl("twice", at::kCPU, twice);
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


def test_a_kernel_for_the_old_abi_uses_its_names_and_shares_its_empty_string(
    tool: Tool, make_project: ProjectMaker
) -> None:
    project = make_project("old-abi", {"binding.cpp": TINY})
    result = tool("build", project, "--variant", "torch26-cxx98-cpu-x86_64-linux", "--json")
    assert result.code == 0, result.stderr
    (library,) = (project / "build" / "torch26-cxx98-cpu-x86_64-linux").glob("*.abi3.so")
    elf = read_elf(library.read_bytes())
    undefined = {symbol.name for symbol in elf.undefined}
    assert "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs" in undefined
    assert not any("__cxx11" in name for name in undefined)
    assert "libstdc++.so.6" not in elf.needed
    exports = {symbol.name: symbol.binding for symbol in elf.exports if not symbol.name.startswith("PyInit_")}
    assert exports["_ZNSs4_Rep20_S_empty_rep_storageE"] == "unique"
    assert all("_S_empty_rep_storage" in name for name in exports)
    assert tool("check", project, "--ignore", "KB4").code == 0
    assert result.variant("torch26-cxx98-cpu-x86_64-linux")["status"] == "built"


def test_a_variant_whose_wheel_has_another_abi_is_refused_with_what_helps(
    tool: Tool, make_project: ProjectMaker
) -> None:
    result = tool("toolchain", "explain", "torch26-cxx11-cu126-x86_64-linux", cwd=make_project("none", {}))
    assert result.code == 4
    assert "its libc10.so has the old C++ ABI (cxx98)" in result.stderr
    assert "kernel-builder.toml" in result.stderr


def test_explain_tells_parts_sources_and_reasons(tool: Tool, make_project: ProjectMaker) -> None:
    project = make_project("some", {})
    result = tool("toolchain", "explain", "torch213-cxx11-cu130-x86_64-linux", "--json", cwd=project)
    assert result.code == 0, result.stderr
    taken = result.json["taken"]
    assert isinstance(taken, list)
    assert [entry["part"] for entry in taken][:3] == ["torch", "nvcc", "nvvm"]
    assert {entry["source"] for entry in taken} == {"index"}
    text = tool("toolchain", "explain", "torch213-cxx11-cu130-x86_64-linux", cwd=project).stdout
    assert "sources, in order: index, debian, redistrib, local" in text
    assert "host compiler" in text
    assert all(entry["bytes-to-fetch"] < 80 << 20 for entry in taken)  # torch's wheel has half a gigabyte
    assert re.search(r"torch +index +torch-2\.13\S+\.whl \((\d+\.\d MiB|nothing) to fetch\)", text)


def test_explain_knows_the_variants_of_a_project_on_the_stable_abi(tool: Tool, make_project: ProjectMaker) -> None:
    variant = "torch-stable-abi211-cpu-x86_64-linux"
    elsewhere = tool("toolchain", "explain", variant, cwd=make_project("none", {}))
    assert elsewhere.code == 0, elsewhere.stderr
    assert f"{variant}: torch 2." in elsewhere.stdout  # the newest release of all
    assert f"{variant}: torch 2.13 " not in elsewhere.stdout
    toml = BUILD_TOML.replace("src = []", 'src = []\nstable-abi = "2.11"\nmaxver = "2.13"')
    project = make_project("stable", {"a.cpp": "int a;\n"}, toml=toml.format(name="stable", sources='"a.cpp"'))
    result = tool("toolchain", "explain", variant, cwd=project)
    assert result.code == 0, result.stderr
    assert f"{variant}: torch 2.13 (cxx11)" in result.stdout  # the newest that the project admits
