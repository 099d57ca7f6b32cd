"""torch for ROCm kernels: PyTorch's own builds where an index has them, laid out as those are; else headers that are
made of another build's. Wheels and ROCm are made up, the index is on loopback, libraries are real ELF files.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from loopback_index import LoopbackIndex, make_wheel, serve

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.backends import Backend
from kernel_builder.errors import NetworkError, ToolchainError
from kernel_builder.events import Recorder
from kernel_builder.store.cache import Store
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.host import HostCompilers
from kernel_builder.toolchain.model import HostCompiler, Toolkit
from kernel_builder.toolchain.provide import Toolchains
from kernel_builder.toolchain.recipe import default_recipe
from kernel_builder.toolchain.settings import load_settings
from kernel_builder.toolchain.sources import open_sources
from kernel_builder.variants.names import Abi, Machine

ROCM = Toolkit(backend=Backend("rocm"), version="7.2")
REQUEST = ToolchainRequest(release="2.13", machine=Machine.X86_64, abi=Abi.CXX11, toolkit=ROCM)
C10 = "#include <string>\nnamespace c10 { void check(char const *, std::string const &) {} }\n"
NAMES = {"libc10_hip.so": "void hip_stream() {}", "libtorch_hip.so": "void hip_kernels() {}"}
HIPIFY = '''\
"""What makes headers of ROCm's: here, a copy with another word in it."""
import pathlib


def hipify(*, project_directory, **_):
    root = pathlib.Path(project_directory)
    made = root / "ATen" / "hip" / "HIPContext.h"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text((root / "ATen" / "cuda" / "CUDAContext.h").read_text().replace("cuda", "hip"))
'''
CLANG = "#!/bin/sh\nprintf '\\tgfx90a\\n\\tgfx1100\\n' >&2\n"
FILE = "torch-{}-cp312-cp312-manylinux_2_28_x86_64.whl"


def library(folder: Path, soname: str, source: str) -> bytes:
    path = folder / soname
    command = ["g++", "-x", "c++", "-", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{soname}", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
    return path.read_bytes()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """torch's libraries, and HIP's runtime, by their sonames."""
    folder = tmp_path_factory.mktemp("libraries")
    cuda = {"libc10_cuda.so": "void c10_cuda(struct CUstream_st *) {}", "libtorch_cuda.so": "void torch_cuda() {}"}
    others = {"libtorch.so": "", "libtorch_cpu.so": "void cpu() {}", "libamdhip64.so.7": "void hipMalloc() {}"}
    return {name: library(folder, name, text) for name, text in {"libc10.so": C10, **cuda, **NAMES, **others}.items()}


def torch_files(flavour: str, libraries: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of torch 2.13.0 as a build for CUDA or ROCm has them, relative to ``site-packages``."""
    device, own = ("hip", "HIPContext.h") if flavour.startswith("rocm") else ("cuda", "CUDAContext.h")
    names = ["libc10.so", "libtorch.so", "libtorch_cpu.so", f"libc10_{device}.so", f"libtorch_{device}.so"]
    bundled = {"torch/lib/libamdhip64.so": libraries["libamdhip64.so.7"]} if device == "hip" else {}
    config = b'#pragma once\n#define AT_CUDNN_ENABLED() 1\n#define AT_ROCM_ENABLED() 0\n#define NVCC_FLAGS_EXTRA "-a"\n'
    return {
        "torch/version.py": f"__version__ = '2.13.0+{flavour}'\n".encode(),
        "torch/include/torch/library.h": b"#pragma once\n",
        # PyTorch's builds for ROCm have these, too: they are what the others were made of.
        "torch/include/ATen/cuda/CUDAConfig.h": config,
        f"torch/include/ATen/{device}/{own}": f"// {device} of {flavour}\n".encode(),
        "torch/utils/hipify/__init__.py": b"",
        "torch/utils/hipify/hipify_python.py": HIPIFY.encode(),
        **{f"torch/lib/{name}": libraries[name] for name in names},
        **bundled,
    }


def wheel(flavour: str, libraries: Mapping[str, bytes]) -> bytes:
    return make_wheel("torch", f"2.13.0+{flavour}", torch_files(flavour, libraries))


@pytest.fixture
def public(libraries: Mapping[str, bytes]) -> Iterator[LoopbackIndex]:
    """The index that everybody has: torch for CUDA."""
    with serve() as index:
        index.add(FILE.format("2.13.0"), make_wheel("torch", "2.13.0", torch_files("cu130", libraries)))
        yield index


@pytest.fixture
def pytorch(libraries: Mapping[str, bytes]) -> Iterator[LoopbackIndex]:
    """PyTorch's own, a page of links: builds for two releases of ROCm, and for CUDA."""
    with serve() as index:
        index.html = True
        for flavour in ("cpu", "cu130", "rocm7.1", "rocm7.2"):
            index.add(FILE.format(f"2.13.0+{flavour}"), wheel(flavour, libraries))
        yield index


@pytest.fixture
def rocm(tmp_path: Path, libraries: Mapping[str, bytes]) -> Path:
    """ROCm 7.2 as it is installed."""
    root = tmp_path / "rocm-7.2"
    headers = {
        component.declares: f"include/{component.name}/{component.name}.h"
        for component in default_recipe().toolkits[ROCM.backend].components("7.2")
    }
    files = {
        **dict.fromkeys((f"lib/llvm/bin/{name}" for name in ("clang-20", "lld", "clang-offload-bundler")), CLANG),
        "lib/llvm/lib/clang/20/include/a.h": "",
        "amdgcn/bitcode/ocml.bc": "BC",
        "include/hip/hip_version.h": "\n".join(
            f"#define HIP_VERSION_{name} {value}" for name, value in (("MAJOR", 7), ("MINOR", 2), ("PATCH", 1))
        ),
        "include/hip/hip_runtime.h": "",
        **dict.fromkeys(headers.values(), ""),
        **dict.fromkeys(OTHER_HEADERS, ""),
        ".info/version": "7.2.0-1\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    for program in (root / "lib/llvm/bin").iterdir():
        program.chmod(0o755)
    (root / "lib" / "libamdhip64.so.7").write_bytes(libraries["libamdhip64.so.7"])
    return root


OTHER_HEADERS = (
    *("include/hsa/hsa.h", "include/amd_comgr/amd_comgr.h", "include/rocprim/rocprim.hpp"),
    *("include/hipcub/hipcub.hpp", "include/thrust/version.h", "include/hip/hiprtc.h"),
)


def tools(
    tmp_path: Path, host: HostCompiler | None, public: LoopbackIndex, rocm: Path, settings: str = "", **environ: str
) -> Toolchains:
    project = tmp_path / "project"
    project.mkdir(parents=True, exist_ok=True)
    (project / "kernel-builder.toml").write_text(settings, encoding="utf-8")
    (tmp_path / "user.toml").touch()
    variables = {
        "KERNEL_BUILDER_CONFIG": str(tmp_path / "user.toml"),
        "KERNEL_BUILDER_INDEX_URL": public.url,
        "PATH": "/usr/bin:/bin",
        "ROCM_PATH": str(rocm),
        **environ,
    }
    recorder = Recorder()
    store = Store(tmp_path / "store", recorder)
    sources = open_sources(load_settings(project, variables), store, recorder, toolkit_kinds(), environ=variables)
    compilers = HostCompilers(found=(host,) if host is not None else (), environ=variables)
    return Toolchains(sources, store, compilers, recorder, toolkit_kinds())


def named(index: LoopbackIndex) -> str:
    return f'[[index]]\nname = "pytorch"\nurl = "{index.url}"\n'


def test_a_build_for_rocm_is_preferred_wherever_its_index_stands(
    public: LoopbackIndex, pytorch: LoopbackIndex, rocm: Path, tmp_path: Path, host: HostCompiler
) -> None:
    order = 'sources = ["index", "pytorch", "local"]\n'
    kit = tools(tmp_path, host, public, rocm, order + named(pytorch))
    resolved = kit.resolve(REQUEST)
    torch = resolved.chain.taken[0]
    assert (torch.source, torch.artefact.version) == ("pytorch", "2.13.0+rocm7.2")
    assert not resolved.framework.made
    framework = kit.provide(resolved).framework
    assert (framework.include[0] / "ATen/hip/HIPContext.h").read_text() == "// hip of rocm7.2\n"
    exports = {path.name.removesuffix(".txt"): path.read_text().split() for path in framework.exports}
    assert set(exports) == {"libc10.so", "libtorch.so", "libtorch_cpu.so", *NAMES}
    assert (exports["libc10_hip.so"], exports["libtorch_hip.so"]) == (["_Z10hip_streamv"], ["_Z11hip_kernelsv"])
    assert {path.name for path in framework.libraries.iterdir()} >= {*NAMES}
    fetched = {path for path, _ in pytorch.requests if "/files/" in path}
    assert fetched == {f"/files/{FILE.format('2.13.0+rocm7.2')}".replace("+", "%2B")}


def test_without_such_an_index_headers_are_made_and_that_is_marked(
    public: LoopbackIndex, rocm: Path, tmp_path: Path, host: HostCompiler
) -> None:
    kit = tools(tmp_path, host, public, rocm)
    resolved = kit.resolve(REQUEST)
    assert (resolved.chain.taken[0].source, resolved.framework.made) == ("index", True)
    framework = kit.provide(resolved).framework
    include = framework.include[0]
    assert (include / "ATen/hip/HIPContext.h").read_text() == "// hip of cu130\n"
    assert "AT_ROCM_ENABLED() 1" in (include / "ATen/hip/HIPConfig.h").read_text()
    exports = {path.name.removesuffix(".txt"): path.read_text().split() for path in framework.exports}
    assert exports["libc10_hip.so"] == ["_Z8c10_cudaP12ihipStream_t"]


def test_a_build_for_another_rocm_of_its_release_serves_before_anything_is_made(
    public: LoopbackIndex, pytorch: LoopbackIndex, rocm: Path, tmp_path: Path, host: HostCompiler
) -> None:
    """Their headers are the same, as those of all builds for CUDA are."""
    del pytorch.pages["torch"][FILE.format("2.13.0+rocm7.2")]
    resolved = tools(tmp_path, host, public, rocm, named(pytorch)).resolve(REQUEST)
    assert (resolved.chain.taken[0].artefact.version, resolved.framework.made) == ("2.13.0+rocm7.1", False)
    pytorch.pages["torch"] = {FILE.format("2.13.0+cpu"): pytorch.pages["torch"][FILE.format("2.13.0+cpu")]}
    del public.pages["torch"]
    with pytest.raises(ToolchainError) as caught:
        tools(tmp_path, host, public, rocm, named(pytorch)).resolve(REQUEST, fresh=True)
    assert caught.value.message.startswith("no source has torch 2.13 (cxx11) with ROCm 7.2 for Linux on x86_64:")
    assert "+cpu-cp312-cp312-manylinux_2_28_x86_64.whl: cpu builds have different headers" in caught.value.message


def test_an_index_that_does_not_answer_is_not_replaced_without_a_word(
    public: LoopbackIndex, pytorch: LoopbackIndex, rocm: Path, tmp_path: Path, host: HostCompiler
) -> None:
    """Whether headers are made must not depend on the weather: a choice that was kept is kept to."""
    first = tools(tmp_path, host, public, rocm, named(pytorch))
    first.provide(first.resolve(REQUEST))
    pytorch.faults["torch"] = ["error*"]
    again = tools(tmp_path, host, public, rocm, named(pytorch)).resolve(REQUEST, fresh=True)
    assert again.chain.taken[0].artefact.version == "2.13.0+rocm7.2"
    public.faults["torch"] = ["error*"]
    with pytest.raises(NetworkError) as caught:
        tools(tmp_path / "elsewhere", host, public, rocm, named(pytorch)).resolve(REQUEST)
    assert caught.value.message.count("/simple/torch/") == 2  # both that do not answer


def test_an_installed_torch_for_rocm_is_used_with_its_libraries(
    public: LoopbackIndex, rocm: Path, tmp_path: Path, host: HostCompiler, libraries: Mapping[str, bytes]
) -> None:
    packages = tmp_path / "environment" / "lib" / "python3.12" / "site-packages"
    for name, data in torch_files("rocm7.2", libraries).items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_bytes(data)
    environment = str(tmp_path / "environment")
    kit = tools(tmp_path, host, public, rocm, 'sources = ["local", "index"]\n', VIRTUAL_ENV=environment)
    resolved = kit.resolve(REQUEST)
    assert (resolved.chain.taken[0].source, resolved.framework.made) == ("local", False)
    framework = kit.provide(resolved).framework
    assert {path.name for path in framework.exports} >= {f"{name}.txt" for name in NAMES}
    assert framework.include[0] == packages / "torch" / "include"


def test_a_machine_without_a_compiler_is_told_what_else_is_lacking(
    public: LoopbackIndex, rocm: Path, tmp_path: Path
) -> None:
    del public.pages["torch"]
    nowhere = rocm.with_name("nowhere")
    with pytest.raises(ToolchainError) as caught:
        tools(tmp_path, None, public, nowhere).resolve(REQUEST)
    first, *others = caught.value.message.splitlines()
    assert first.startswith("no C++ compiler")
    assert "no source has these parts of torch 2.13 (cxx11) with ROCm 7.2 for Linux on x86_64:" in others
    assert f"        local: ROCm 7.2: {nowhere}: it does not exist" in others
    assert "ROCM_PATH" in str(caught.value.hint)
