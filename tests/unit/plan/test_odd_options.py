"""One project for five backends with the options that few use: its whole commands, as a golden file.

``KERNEL_BUILDER_UPDATE_GOLDEN=1`` writes it; read the difference before committing it.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.errors import KernelBuilderError
from kernel_builder.plan.model import BuildPlan
from kernel_builder.toolchain.model import LibraryHeaders
from planned import APPLE_CLANG, CUDA, GXX, STORE, amd, make_plan, oneapi

TOML = """\
[general]
name = "odd-ways"
version = 3
edition = 5
license = "MIT"
backends = ["cpu", "cuda", "rocm", "xpu", "metal"]

[general.xpu]
python-depends = ["onednn"]

[torch]
src = ["torch-ext/bind.cpp", "torch-ext/more.cpp", "torch-ext/bind.h"]
include = [".", "include"]
cxx-flags = ["-DBINDING=1", "-DTEXT=\\"two words\\""]
pyext = ["py", "json"]
minver = "2.13"
maxver = "2.13"

[kernel.plain]
backend = "cpu"
depends = ["torch"]
src = ["cpu/a.cpp", "cpu/b.c"]
cxx-flags = ["-mavx512f"]

[kernel.none]
backend = "cpu"
depends = []
include = ["cpu/own"]
src = ["cpu/c.cc"]

[kernel.old]
backend = "cuda"
depends = ["torch"]
cuda-capabilities = ["7.5", "8.0", "8.9"]
cuda-flags = ["-Xptxas=-v", "--use_fast_math", "-DCOUNT=(1+2)"]
src = ["gpu/a.cu"]

[kernel.new]
backend = "cuda"
depends = ["torch"]
cuda-capabilities = ["9.0a", "10.0f", "12.0+PTX"]
cxx-flags = ["-O1"]
src = ["gpu/b.cu", "gpu/launch.cpp"]

[kernel.newest]
backend = "cuda"
depends = ["torch"]
cuda-minver = "13.2"
src = ["gpu/c.cu"]

[kernel.compute]
backend = "rocm"
depends = ["torch"]
rocm-archs = ["gfx90a", "gfx942", "gfx940"]
hip-flags = ["-munsafe-fp-atomics", "-DTILE=64", "-DNAME=\\"a b\\"", "--offload-compress"]
cxx-flags = ["-DHOST_ALONE"]
include = ["include", "gpu"]
src = ["gpu/a.cu", "gpu/own.hip", "gpu/launch.cpp", "include/shared.cuh"]

[kernel.graphics]
backend = "rocm"
depends = ["torch"]
rocm-archs = ["gfx1201", "gfx1030"]
src = ["gpu/b.cu"]

[kernel.every]
backend = "rocm"
depends = []
src = ["gpu/c.cu"]

[kernel.sycl]
backend = "xpu"
depends = ["torch", "sycl_tla"]
sycl-flags = ["-D__SYCL_TARGET_INTEL_GPU_CRI__", "-fno-sycl-instrument-device-code"]
cxx-flags = ["-DHOST=2"]
include = ["include"]
src = ["xpu/a.cpp", "xpu/b.c"]

[kernel.dnn]
backend = "xpu"
depends = ["torch"]
src = ["xpu/dnn.cpp"]

[kernel.shaders]
backend = "metal"
depends = ["torch", "metal-cpp"]
include = ["metal"]
cxx-flags = ["-fobjc-arc"]
src = ["metal/a.metal", "metal/b.metal", "metal/a.mm", "metal/b.m", "metal/c.cpp", "metal/shared.h"]
"""
SOURCES = (
    *("torch-ext/more.cpp", "torch-ext/bind.h", "cpu/a.cpp", "cpu/b.c", "cpu/c.cc", "cpu/own/own.h"),
    *("gpu/a.cu", "gpu/b.cu", "gpu/c.cu", "gpu/own.hip", "gpu/launch.cpp", "include/shared.cuh"),
    *("xpu/a.cpp", "xpu/b.c", "xpu/dnn.cpp"),
    *("metal/a.metal", "metal/b.metal", "metal/a.mm", "metal/b.m", "metal/c.cpp", "metal/shared.h"),
)
FILES = {
    **dict.fromkeys(SOURCES, ""),
    "torch-ext/bind.cpp": "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}",
    "torch-ext/odd_ways/__init__.py": "",
    "torch-ext/odd_ways/table.json": "{}",
}
LIBRARIES = [
    LibraryHeaders(name="sycl_tla", library="sycl-tla", version="0.9.2", include=(STORE / "tla" / "include",)),
    LibraryHeaders(name="metal-cpp", library="metal-cpp", version="26", include=(STORE / "metal-cpp",)),
]
GOLDEN = Path(__file__).parent.parent.parent / "golden" / "plan" / "odd-options.txt"
LINUX = tuple(f"torch213-cxx11-{compute}-x86_64-linux" for compute in ("cpu", "cu130", "rocm72", "xpu20260"))
MACOS = ("torch213-cpu-aarch64-darwin", "torch213-metal-aarch64-darwin")


def planned(root: Path) -> list[BuildPlan]:
    """For Linux, and for macOS."""
    kits = [CUDA, amd(), oneapi()]
    linux = make_plan(root, LINUX, GXX, toolkits=kits, libraries=LIBRARIES)
    return [linux, make_plan(root, MACOS, APPLE_CLANG, libraries=LIBRARIES, platform="aarch64-darwin")]


def commands(plan: BuildPlan) -> list[str]:
    """What is told, and each command on a line of its own below what it makes."""
    lines = [f"note: {text}" for text in (*plan.warnings, *plan.notes)]
    for variant in plan.variants:
        lines += ["", f"== {variant.name}", f"metadata: {variant.metadata['backend']}"]
        for action in variant.actions:
            made = " ".join(filter(None, (action.kind.value, action.source, action.architecture)))
            lines += [f"{made}: {shlex.join(step.command)}" for step in action.steps]
    return lines


def test_commands_of_odd_options_for_every_backend(make_project: ProjectMaker, tmp_path: Path) -> None:
    root = make_project("odd-ways", FILES, toml=TOML)
    text = "".join(f"{line}\n" for plan in planned(root) for line in commands(plan))
    assert str(tmp_path) not in text
    if os.environ.get("KERNEL_BUILDER_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "name", "told"),
    [
        ('["gfx1201", "gfx1030"]', '["gfx803", "gfx940"]', LINUX[2], "graphics"),
        ('["7.5", "8.0", "8.9"]', '["3.5", "5.2"]', LINUX[1], "old"),
    ],
)
def test_architectures_of_a_section_that_the_compiler_has_none_of(
    make_project: ProjectMaker, old: str, new: str, name: str, told: str
) -> None:
    root = make_project("odd-ways", FILES, toml=TOML.replace(old, new))
    with pytest.raises(KernelBuilderError) as caught:
        make_plan(root, (name,), GXX, toolkits=[CUDA, amd()], libraries=LIBRARIES)
    first, *_ = new.strip('["]').split('"')
    assert f"kernel.{told}" in caught.value.message
    assert first in caught.value.message
