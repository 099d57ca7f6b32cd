"""How kernels for macOS are compiled: shaders in one library, which the kernel's own carries; and C++ alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.actions.model import Action
from kernel_builder.plan.model import VariantPlan
from planned import APPLE_CLANG, make_plan

METAL, CPU = "torch213-metal-aarch64-darwin", "torch213-cpu-aarch64-darwin"
TOML = """\
[general]
name = "shaded-thing"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "metal"]

[torch]
src = ["torch-ext/bind.cpp"]

[kernel.host]
backend = "cpu"
depends = ["torch"]
src = ["src/host.cpp"]

[kernel.device]
backend = "metal"
depends = ["torch"]
src = ["src/device.mm", "src/device.metal", "src/more.metal", "src/shared.h", "src/plain.m"]
include = ["src"]
cxx-flags = ["-DEXTRA"]
"""
FILES = {
    "torch-ext/bind.cpp": "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}",
    "src/host.cpp": "",
    "src/device.mm": "",
    "src/device.metal": "",
    "src/more.metal": "",
    "src/shared.h": "",
    "src/plain.m": "",
    "torch-ext/shaded_thing/__init__.py": "",
}


@pytest.fixture
def plans(make_project: ProjectMaker) -> dict[str, VariantPlan]:
    root = make_project("shaded-thing", FILES, toml=TOML)
    plan = make_plan(root, (METAL, CPU), APPLE_CLANG, platform="aarch64-darwin")
    return {variant.name: variant for variant in plan.variants}


def actions(plan: VariantPlan) -> dict[str, Action]:
    return {action.source: action for action in plan.actions}


def test_every_shader_goes_into_one_library_that_the_kernel_carries(plans: dict[str, VariantPlan]) -> None:
    made = actions(plans[METAL])
    shader, library = made["src/device.metal"], plans[METAL].actions[2]
    assert shader.command[:4] == ("{tool:metal}", "-std=metal4.0", "-O2", "-mmacosx-version-min=26.0")
    assert [Path(word).name for word in library.inputs] == ["device.metal.o", "more.metal.o"]
    assert library.command[0] == "{tool:metallib}"
    embedded = plans[METAL].actions[3]
    assert set(library.outputs) == set(embedded.implicit)
    linked = next(action for action in plans[METAL].actions if "-bundle" in action.command)
    assert set(embedded.outputs) <= set(linked.inputs)
    assert not set(shader.outputs) & set(linked.inputs)
    assert linked.command[linked.command.index("-framework") + 1] == "Foundation"


def test_sources_reach_it_by_the_names_that_the_reference_gives_it(plans: dict[str, VariantPlan]) -> None:
    plan = plans[METAL]
    command = actions(plan)["src/device.mm"].command
    (header,) = (file for file in plan.generated if file.path.endswith("_metallib.h"))
    name = header.path.rpartition("/")[2]
    assert name == "_shaded_thing_metal_metallib.h"
    assert f'-DEMBEDDED_METALLIB_HEADER="{name}"' in command
    assert "-DEMBEDDED_METALLIB_NAMESPACE=_shaded_thing_metal_metal" in command
    assert "namespace _shaded_thing_metal_metal {" in header.content
    assert "createLibrary(id<MTLDevice> device, NSError **error)" in header.content
    assert f"-I{header.path.rpartition('/')[0]}" in command


def test_languages_and_flags(plans: dict[str, VariantPlan]) -> None:
    made = actions(plans[METAL])
    objective, plain, binding = (made[name].command for name in ("src/device.mm", "src/plain.m", "torch-ext/bind.cpp"))
    assert objective[:4] == ("{tool:c++}", "-x", "objective-c++", "-std=c++20")
    assert plain[:3] == ("{tool:c++}", "-x", "objective-c")
    assert "-DEXTRA" in objective
    assert "-DEXTRA" not in {*plain, *binding}
    for command in (objective, plain, binding):
        assert "-DMETAL_KERNEL" in command
        assert "--target=arm64-apple-macos26.0" in command
        assert command[command.index("-isysroot") + 1] == "{tree:sdk}"
        assert not {"-stdlib=libstdc++", "-fno-gnu-unique", "-fclang-abi-compat=17"} & set(command)


def test_kernels_for_the_processor_run_on_an_older_macos(plans: dict[str, VariantPlan]) -> None:
    made = plans[CPU].actions
    assert [action.source for action in made][:2] == ["torch-ext/bind.cpp", "src/host.cpp"]
    assert all("--target=arm64-apple-macos15.0" in action.command for action in made[:4])
    assert "-framework" not in made[-2].command
    assert plans[CPU].toolchain["macOS"] == "15.0"
