"""A project with two halves, and its plan by toolchains that nobody has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_builder.actions.headers import Headers
from kernel_builder.actions.places import Places
from kernel_builder.config.backends import Backend
from kernel_builder.config.reader import load_project
from kernel_builder.frameworks.torch import RULES
from kernel_builder.plan.model import BuildPlan
from kernel_builder.plan.narrowing import NOT_NARROWED, Narrowing
from kernel_builder.plan.planner import Planning, plan_build
from kernel_builder.project.identity import Identity
from kernel_builder.project.inputs import build_inputs
from kernel_builder.project.survey import survey
from kernel_builder.toolchain.model import (
    AppleSdk,
    Family,
    FrameworkSdk,
    HostCompiler,
    LibraryHeaders,
    PythonHeaders,
    Sysroot,
    Toolchain,
    Toolkit,
    ToolkitSdk,
)
from kernel_builder.variants.build_type import RELEASE, BuildType
from kernel_builder.variants.matrix import all_variants, choose
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import VariantSet, load_support

STORE = Path("/store")
TOML = """\
[general]
name = "two-halves"
version = 2
edition = 5
license = "MIT"
upstream = "https://example.invalid/a.git"
backends = ["cpu", "cuda", "metal"]

[general.cuda]
maxver = "13.0"

[general.hub]
repo-id = "someone/two-halves"
branch = "trial"

[torch]
src = ["torch-ext/bind.cpp"]
include = ["."]
cxx-flags = ["-DBINDING"]
minver = "2.13"
maxver = "2.13"

[kernel.host]
backend = "cpu"
depends = ["torch"]
src = ["src/host.cpp", "src/plain.c"]
cxx-flags = ["-mavx2", "-std=c++17"]

[kernel.device]
backend = "cuda"
depends = ["torch"]
src = ["src/device.cu", "src/launch.cc"]
include = ["src"]
cuda-flags = ["--maxrregcount=64"]
cuda-capabilities = ["7.0", "8.0", "9.0a", "9.0", "12.0+PTX"]
"""
FOR_ROCM = (
    TOML.replace('"metal"]', '"rocm"]')
    + """
[kernel.amd]
backend = "rocm"
depends = ["torch"]
src = ["src/device.cu", "src/own.hip", "src/launch.cc"]
include = ["src"]
hip-flags = ["-munsafe-fp-atomics", "--offload-compress"]
rocm-archs = ["gfx942", "gfx940", "gfx90a", "gfx1100"]
"""
)
ROCM_NAMES = ("torch213-cxx11-rocm72-x86_64-linux",)
NAMES = ("torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux", "torch-metal")
FILES = {
    "torch-ext/bind.cpp": "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}",
    "src/host.cpp": "const char *name = STRINGIFY(TORCH_EXTENSION_NAME);",
    "src/plain.c": "",
    "src/device.cu": "",
    "src/launch.cc": "",
    "src/own.hip": "",
    "csrc/shared.h": "",
    "torch-ext/two_halves/notes.txt": "",
}


GXX = HostCompiler(cxx=Path("/usr/bin/g++"), version="12.2.0", target="x86_64-linux-gnu", library=12)


CUDA = ToolkitSdk(
    toolkit=Toolkit(backend=Backend("cuda"), version="13.0"),
    compiler=STORE / "cuda" / "bin" / "nvcc",
    include=(STORE / "cuda" / "include",),
    libraries=STORE / "cuda-stubs",
    exports=(STORE / "cuda" / "exports" / "libcudart.so.13.txt",),
    identity="cuda-13.0-0123456789abcdef",
)


def oneapi(version: str = "2026.0") -> ToolkitSdk:
    """Intel's compiler of a release."""
    return ToolkitSdk(
        toolkit=Toolkit(backend=Backend("xpu"), version=version),
        compiler=STORE / "xpu" / "bin" / "icpx",
        include=(STORE / "xpu" / "include",),
        libraries=STORE / "xpu-stubs",
        exports=(STORE / "xpu" / "exports" / "libsycl.so.9.txt",),
        identity=f"xpu-{version}-0123456789abcdef",
    )


def amd(unfit: str | None = None) -> ToolkitSdk:
    """A ROCm toolkit."""
    return ToolkitSdk(
        toolkit=Toolkit(backend=Backend("rocm"), version="7.2"),
        compiler=STORE / "rocm" / "lib" / "llvm" / "wrap" / "clang++",
        include=(STORE / "rocm" / "include",),
        libraries=STORE / "rocm-stubs",
        exports=(STORE / "rocm" / "exports" / "libamdhip64.so.7.txt",),
        identity="rocm-7.2-0123456789abcdef",
        unfit=unfit,
    )


FLOOR = Sysroot(
    libraries=STORE / "floor" / "lib",
    shim=STORE / "floor" / "libfloor.a",
    floor="2.27",
    others=("libmvec.so.1",),
)
APPLE_CLANG = HostCompiler(
    cxx=Path("/usr/bin/clang++"), version="17.0.0", target="arm64-apple-darwin25.0.0", library=0, family=Family.CLANG
)
APPLE_SDK = AppleSdk(
    root=Path("/Xcode/MacOSX26.0.sdk"),
    version="26.0",
    identity="0123456789abcdef",
    metal=Path("/Xcode/bin/metal"),
    metallib=Path("/Xcode/bin/metallib"),
)
TORCH = FrameworkSdk(
    version="2.13.0",
    include=(STORE / "torch" / "include", STORE / "torch" / "include" / "api"),
    libraries=STORE / "torch-stubs",
    exports=tuple(STORE / "torch" / "exports" / f"{name}.so.txt" for name in ("libc10", "libtorch", "libtorch_cpu")),
    identity="torch-2.13.0-0123456789abcdef",
)


def make_plan(
    root: Path,
    names: tuple[str, ...],
    host: HostCompiler,
    narrowing: Narrowing = NOT_NARROWED,
    *,
    toolkits: Sequence[ToolkitSdk] = (CUDA,),
    libraries: Sequence[LibraryHeaders] = (),
    platform: str = "x86_64-linux",
    headers: Headers = Headers.SLIM,
    differing: frozenset[str] = frozenset(),
    build_type: BuildType = RELEASE,
    torch: FrameworkSdk = TORCH,
) -> BuildPlan:
    """``differing`` are the sources that a proof found to need all headers, in every variant."""
    project, _ = load_project(root)
    known = {sdk.toolkit.compute: sdk for sdk in toolkits}
    table = load_support()
    everything = all_variants(project, table, Platform.parse(platform))
    matrix = choose(everything, patterns=names, within=VariantSet.REQUIRED)
    toolchains = {
        kept.name: Toolchain(
            host=host,
            sysroot=None if host.is_apple else FLOOR,
            sdk=APPLE_SDK if host.is_apple else None,
            framework=torch,
            toolkit=next((sdk for compute, sdk in known.items() if f"-{compute}-" in kept.name), None),
            libraries=tuple(libraries),
            python=PythonHeaders(include=Path("/python/include"), version="3.11", identity="3.11.7"),
        )
        for kept in matrix.kept
    }
    places = Places(root=root, work=root / ".kernel-builder" / build_type.folder, output=root / "build", store=STORE)
    return plan_build(
        Planning(
            project=project,
            variants=matrix.kept,
            toolchains=toolchains,
            table=table,
            identity=Identity(unique="1a2b3c4", commit="1a2b3c4" + "0" * 33, dirty=False),
            survey=survey(
                project, build_inputs(project, places.output), RULES.marks_of, RULES.needs_of if torch.slim else None
            ),
            places=places,
            headers=headers,
            differing={kept.name: differing for kept in matrix.kept},
            narrowing=narrowing,
            build_type=build_type,
        )
    )
