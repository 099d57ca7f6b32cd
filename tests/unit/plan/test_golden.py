"""A plan is plain data: whole plans are compared with golden files, for compilers that need not be here.

``KERNEL_BUILDER_UPDATE_GOLDEN=1`` writes the files anew; read the difference before committing it.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from conftest import ProjectMaker
from kernel_builder.actions.model import ActionKind
from kernel_builder.plan.model import BuildPlan
from kernel_builder.toolchain.model import (
    Family,
    HostCompiler,
)
from planned import APPLE_CLANG, CUDA, FILES, FOR_ROCM, GXX, NAMES, ROCM_NAMES, TOML, amd, make_plan, oneapi

GOLDEN = Path(__file__).parent.parent.parent / "golden" / "plan"


class Planner(Protocol):
    def __call__(self, toml: str, names: tuple[str, ...], host: HostCompiler = GXX) -> BuildPlan: ...


@pytest.fixture
def plan_for(make_project: ProjectMaker) -> Planner:
    """Plans the project of a ``build.toml`` for the variants that are named."""

    def make(toml: str, names: tuple[str, ...], host: HostCompiler = GXX) -> BuildPlan:
        return make_plan(make_project("two-halves", FILES, toml=toml), names, host, toolkits=[CUDA, amd()])

    return make


@pytest.fixture
def plan(plan_for: Planner) -> BuildPlan:
    return plan_for(TOML, NAMES)


def compare_with_golden(text: str, name: str) -> None:
    golden = GOLDEN / name
    if os.environ.get("KERNEL_BUILDER_UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


STABLE = TOML.replace('minver = "2.13"', 'minver = "2.13"\nstable-abi = "2.11"')
STABLE_NAMES = ("torch-stable-abi211-cpu-x86_64-linux", "torch-stable-abi211-cu130-x86_64-linux")


DEVICES = """\
[general]
name = "two-halves"
version = 2
edition = 5
license = "MIT"
backends = ["xpu", "metal"]

[torch]
src = ["torch-ext/bind.cpp"]
minver = "2.13"
maxver = "2.13"

[kernel.sycl]
backend = "xpu"
depends = ["torch"]
src = ["src/host.cpp", "src/plain.c"]
sycl-flags = ["-DFAST"]

[kernel.shaders]
backend = "metal"
depends = ["torch"]
src = ["src/device.mm", "src/device.metal", "src/plain.c"]
"""


@pytest.mark.parametrize(
    ("name", "host", "platform", "golden"),
    [
        ("torch213-cxx11-xpu20260-x86_64-linux", GXX, "x86_64-linux", "xpu.json"),
        ("torch213-metal-aarch64-darwin", APPLE_CLANG, "aarch64-darwin", "metal.json"),
    ],
)
def test_plans_for_devices_that_are_not_here(
    make_project: ProjectMaker, name: str, host: HostCompiler, platform: str, golden: str, tmp_path: Path
) -> None:
    root = make_project("two-halves", {**FILES, "src/device.mm": "", "src/device.metal": ""}, toml=DEVICES)
    plan = make_plan(root, (name,), host, toolkits=[oneapi()], platform=platform)
    text = as_text(plan)
    assert str(tmp_path) not in text
    compare_with_golden(text, golden)


@pytest.mark.parametrize(
    ("toml", "names", "golden"),
    [
        (TOML, NAMES, "two-halves.json"),
        (STABLE, STABLE_NAMES, "two-halves-stable-abi.json"),
        (FOR_ROCM, ROCM_NAMES, "two-halves-rocm.json"),
    ],
)
def test_plans_are_the_same_on_every_machine(
    plan_for: Planner, toml: str, names: tuple[str, ...], golden: str, tmp_path: Path
) -> None:
    text = as_text(plan_for(toml, names))
    assert str(tmp_path) not in text
    compare_with_golden(text, golden)


def as_text(plan: BuildPlan) -> str:
    """A plan as the golden files have it."""
    document = plan.to_json(portable=True)
    for variant in document["variants"]:  # type: ignore[attr-defined]
        for generated in variant["generated"]:
            del generated["content"]  # templates have tests of their own
        for step in variant["steps"]:
            step["tools"].pop("python", None)  # the digest of the tool that checks the library is of this Python
    del document["id"]
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def test_the_graph_has_an_id_that_does_not_depend_on_the_place(make_project: ProjectMaker, tmp_path: Path) -> None:
    first = make_project("two-halves", FILES, toml=TOML)
    second = tmp_path / "another place" / "{with} braces"
    shutil.copytree(first, second)
    plans = [make_plan(root, NAMES, GXX) for root in (first, second)]
    assert plans[0].id == plans[1].id
    assert plans[0].actions == plans[1].actions
    newer = make_plan(first, NAMES, replace(GXX, fingerprint="another"))
    assert newer.id != plans[0].id


@pytest.mark.parametrize(
    ("family", "version", "flags"),
    [
        (Family.GCC, "12.2.0", ["-fno-gnu-unique"]),
        (Family.CLANG, "17.0.6", ["-stdlib=libstdc++"]),
        # torch was compiled by a g++, whose names of templates clang gives no more by itself.
        (Family.CLANG, "18.1.8", ["-stdlib=libstdc++", "-fclang-abi-compat=17"]),
    ],
)
def test_what_clang_makes_is_what_gcc_makes(plan_for: Planner, family: Family, version: str, flags: list[str]) -> None:
    host = replace(GXX, cxx=Path("/usr/bin/cxx"), family=family, version=version)
    plan = plan_for(TOML, NAMES[:2], host)
    known = {"-fno-gnu-unique", "-stdlib=libstdc++", "-fclang-abi-compat=17"}
    for step in (action for action in plan.actions if action.kind is ActionKind.COMPILE):
        given = [word.removeprefix("-Xcompiler=") for word in step.command]
        of_c = step.source == "(module)" or step.source.endswith(".c")
        wanted = [flag for flag in flags if not (of_c and family is Family.CLANG)]
        assert [word for word in given if word in known] == wanted, step.source
    assert all(variant.toolchain["c++"] == str(host) for variant in plan.variants if variant.toolchain)


CLANG = replace(GXX, cxx=Path("/usr/bin/clang++"), family=Family.CLANG, version="19.1.7")


@pytest.mark.parametrize(("flag", "host"), [("-fopenmp", CLANG), ("-fopenmp", GXX)])
def test_openmp_is_compiled_by_every_compiler(plan_for: Planner, flag: str, host: HostCompiler) -> None:
    plan = plan_for(TOML.replace('"-mavx2"', f'"-mavx2", "{flag}"'), NAMES[:1], host)
    assert any(flag in step.command for step in plan.variants[0].actions)


def test_the_stable_abi_is_told_to_the_backends_that_use_it_alone(plan_for: Planner) -> None:
    cpu, cuda = "torch213-cxx11-cpu-x86_64-linux", "torch-stable-abi211-cu130-x86_64-linux"
    toml = TOML.replace('minver = "2.13"', 'minver = "2.13"\nstable-abi = { cuda = "2.11" }')
    plan = plan_for(toml, (cpu, cuda))
    variants = {variant.name: variant for variant in plan.variants}
    assert list(variants) == [cpu, cuda]

    def told(name: str) -> dict[str, list[str]]:
        return {
            step.source: [word for word in step.command if "TORCH_TARGET_VERSION" in word]
            for step in variants[name].actions
            if step.kind is ActionKind.COMPILE and step.source != "(module)"
        }

    assert told(cpu) == {"torch-ext/bind.cpp": [], "src/host.cpp": [], "src/plain.c": []}
    definition = ["-DTORCH_TARGET_VERSION=0x20b000000000000"]
    assert told(cuda) == dict.fromkeys(["torch-ext/bind.cpp", "src/device.cu", "src/launch.cc"], definition)
    asked = {
        name: json.loads(file.content)["stable"]
        for name, variant in variants.items()
        for file in variant.generated
        if file.path.endswith("/inspect.json")
    }
    assert asked == {cpu: None, cuda: "2.11"}
    assert variants[cuda].metadata["backend"] == {"type": "cuda", "archs": ["12.0+PTX", "8.0", "9.0", "9.0a"]}
