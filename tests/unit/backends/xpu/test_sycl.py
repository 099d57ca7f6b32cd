"""How SYCL kernels are compiled and linked: which compiler gets which file, and for which targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.actions.model import Action
from kernel_builder.backends.xpu.compile import Targets, targets_of
from kernel_builder.plan.model import VariantPlan
from kernel_builder.toolchain.model import LibraryHeaders
from kernel_builder.versions import Version
from planned import GXX, STORE, make_plan, oneapi

NAMES = {"2025.3": "torch212-cxx11-xpu20253-x86_64-linux", "2026.0": "torch213-cxx11-xpu20260-x86_64-linux"}
TOML = """\
[general]
name = "sycl-thing"
version = 1
edition = 5
license = "MIT"
backends = ["xpu"]

[torch]
src = ["torch-ext/bind.cpp"]
cxx-flags = ["-DBINDING"]

[kernel.device]
backend = "xpu"
depends = [{depends}]
src = ["src/device.cpp", "src/more.cc", "src/plain.c"]
include = ["src"]
cxx-flags = ["-DEXTRA", "-std=c++17"]
sycl-flags = {flags}
"""
FILES = {
    "torch-ext/bind.cpp": "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}",
    "src/device.cpp": "",
    "src/more.cc": "",
    "src/plain.c": "",
    "torch-ext/sycl_thing/__init__.py": "",
}
TLA = LibraryHeaders(
    name="sycl_tla",
    library="sycl-tla",
    version="0.9.2",
    include=(STORE / "sycl-tla-0.9.2-0123456789abcdef" / "include",),
)


def variant(
    make_project: ProjectMaker, version: str = "2026.0", *, flags: tuple[str, ...] = ("-ffast",), tla: bool = False
) -> VariantPlan:
    listed = "[" + ", ".join(f'"{flag}"' for flag in flags) + "]"
    root = make_project(
        "sycl-thing", FILES, toml=TOML.format(flags=listed, depends='"torch", "sycl_tla"' if tla else "")
    )
    plan = make_plan(root, (NAMES[version],), GXX, toolkits=[oneapi(version)], libraries=[TLA] if tla else [])
    (found,) = plan.variants
    return found


def actions(plan: VariantPlan) -> dict[str, Action]:
    return {action.source: action for action in plan.actions if action.kind.value in {"compile", "bundle", "link"}}


def test_kernels_go_to_icpx_and_bindings_to_the_host_compiler(make_project: ProjectMaker) -> None:
    made = actions(variant(make_project))
    tools = {source: action.tools[0].name for source, action in made.items()}
    assert tools["src/device.cpp"] == tools["src/more.cc"] == tools["device code"] == "icpx"
    assert tools["torch-ext/bind.cpp"] == tools["src/plain.c"] == tools["(module)"] == "c++"
    library = next(source for source in made if source.endswith(".so"))
    assert tools[library] == "c++"


def test_flags_of_the_user_reach_their_own_files(make_project: ProjectMaker) -> None:
    made = actions(variant(make_project, flags=("-ffast", "-std=c++17")))
    device, binding = made["src/device.cpp"].command, made["torch-ext/bind.cpp"].command
    assert device[-4:] == ("-DEXTRA", "-std=c++20", "-ffast", "-std=c++20")
    assert "-DBINDING" in binding
    assert not {"-DBINDING", "-fno-gnu-unique"} & set(device)
    assert not {"-DEXTRA", "-ffast", "-fsycl"} & set(binding)
    assert {"-DXPU_KERNEL", "-DUSE_XPU"} <= set(device) & set(binding)


def test_device_code_is_linked_once_for_the_targets_that_its_objects_have(make_project: ProjectMaker) -> None:
    made = actions(variant(make_project))
    link = made["device code"]
    assert [Path(word).name for word in link.inputs] == ["device.cpp.o", "more.cc.o"]
    targets = [word for word in link.command if word.startswith("-fsycl-targets=")]
    assert targets == ["-fsycl-targets=spir64_gen,spir64"]
    assert targets[0] in made["src/device.cpp"].command
    ahead = link.command[link.command.index("-Xsycl-target-backend=spir64_gen") + 1]
    assert ahead.startswith("-device pvc,xe-lpg,ats-m150 -options -cl-poison")
    library = next(action for source, action in made.items() if source.endswith(".so"))
    assert set(link.outputs) <= set(library.inputs)
    assert "-l:libsycl.so" in library.command


@pytest.mark.parametrize(
    ("version", "flags", "names", "devices"),
    [
        ("2025.3", (), ("spir64",), ""),
        ("2026.0", (), ("spir64_gen", "spir64"), "pvc,bmg-g21,cri"),
        (
            "2026.0",
            ("-D__SYCL_TARGET_INTEL_GPU_CRI__",),
            ("intel_gpu_pvc", "intel_gpu_bmg_g21", "spir64_gen", "spir64"),
            "cri",
        ),
    ],
)
def test_sycl_tla_has_targets_of_its_own(
    make_project: ProjectMaker, version: str, flags: tuple[str, ...], names: tuple[str, ...], devices: str
) -> None:
    made = actions(variant(make_project, version, flags=flags, tla=True))
    option = Targets(names=names, devices=devices).option
    assert option in made["src/device.cpp"].command
    assert option in made["device code"].command
    assert "-DCUTLASS_ENABLE_SYCL=1" in made["src/device.cpp"].command
    assert "-DCUTLASS_ENABLE_SYCL=1" not in made["torch-ext/bind.cpp"].command
    told = " ".join(made["device code"].command)
    assert (f"-device {devices} " in told) == bool(devices)
    assert "-Xspirv-translator" in told


def test_without_it_targets_do_not_depend_on_the_compiler() -> None:
    for version in ("2025.3", "2026.0"):
        assert targets_of((), Version.parse(version)).devices == "pvc,xe-lpg,ats-m150"


@pytest.mark.parametrize(("version", "flags"), [("2025.3", ()), ("2026.0", ("-D__SYCL_TARGET_INTEL_GPU_CRI__",))])
def test_sections_without_sycl_tla_are_made_for_the_targets_that_the_link_has(
    make_project: ProjectMaker, version: str, flags: tuple[str, ...]
) -> None:
    listed = "[" + ", ".join(f'"{flag}"' for flag in flags) + "]"
    other = '\n[kernel.other]\nbackend = "xpu"\ndepends = []\nsrc = ["src/other.cpp"]\n'
    toml = TOML.format(flags=listed, depends='"torch", "sycl_tla"') + other
    root = make_project("sycl-thing", {**FILES, "src/other.cpp": ""}, toml=toml)
    plan = make_plan(root, (NAMES[version],), GXX, toolkits=[oneapi(version)], libraries=[TLA])
    made = actions(plan.variants[0])
    targets = {
        source: [word for word in made[source].command if word.startswith("-fsycl-targets=")]
        for source in ("src/device.cpp", "src/other.cpp", "device code")
    }
    assert targets["src/other.cpp"] == targets["src/device.cpp"] == targets["device code"]
    assert targets["device code"] != ["-fsycl-targets=spir64_gen,spir64"]
