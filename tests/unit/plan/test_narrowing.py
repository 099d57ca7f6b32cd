"""Builds for some of their architectures only, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conftest import ProjectMaker
from kernel_builder.actions.model import ActionKind
from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import parse_architecture
from kernel_builder.config.reader import load_project
from kernel_builder.errors import ConfigError, UsageError
from kernel_builder.plan.model import VariantPlan
from kernel_builder.plan.narrowing import Narrowing
from kernel_builder.variants.matrix import Matrix, all_variants, choose
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import VariantSet, load_support
from kernel_builder.workflow.narrow import narrowing_of
from planned import FILES, GXX, NAMES, TOML, make_plan

CUDA = Backend("cuda")
OLD = """
[kernel.old]
backend = "cuda"
depends = ["torch"]
src = ["src/old.cu"]
cuda-capabilities = ["8.0"]
"""


@pytest.fixture
def root(make_project: ProjectMaker) -> Path:
    return make_project("two-halves", {**FILES, "src/old.cu": ""}, toml=TOML + OLD)


def planned(root: Path, *asked: str, fast: bool = False, devices: tuple[str, ...] = ()) -> VariantPlan:
    def read(texts: tuple[str, ...]) -> dict[Backend, Any]:
        return {CUDA: tuple(parse_architecture(CUDA, text) for text in texts)} if texts else {}

    narrowing = Narrowing(named=read(asked), fast=fast, devices=read(devices))
    return make_plan(root, NAMES[1:2], GXX, narrowing).variants[0]


def capabilities(plan: VariantPlan) -> dict[str, str]:
    return {section.id: " ".join(map(str, section.effective)) for section in plan.sections}


def partial(plan: VariantPlan) -> Mapping[str, object] | None:
    provenance = plan.metadata["provenance"]
    assert isinstance(provenance, dict)
    return provenance.get("partial")


def test_a_whole_build_says_nothing(root: Path) -> None:
    plan = planned(root)
    assert capabilities(plan) == {"device": "8.0 9.0 9.0a 12.0+PTX", "old": "8.0"}
    assert partial(plan) is None


def test_what_is_asked_for_is_built_and_what_is_left_out_is_said(root: Path) -> None:
    plan = planned(root, "9.0")
    # Others link with what the second section makes, so it is there for something.
    assert capabilities(plan) == {"device": "9.0 9.0a", "old": "8.0"}
    assert plan.metadata["backend"] == {"type": "cuda", "archs": ["8.0", "9.0", "9.0a"]}
    assert partial(plan) == {"left-out": ["12.0+PTX", "8.0"]}
    commands = {
        step.source: [word for word in step.command if word.startswith("-gencode")]
        for step in plan.actions
        if step.kind is ActionKind.COMPILE
    }
    assert commands["src/device.cu"] == [
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90a,code=sm_90a",
    ]
    assert planned(root, "8.0", "9.0a", "9.0", "12.0").metadata == planned(root).metadata


def test_what_no_section_is_compiled_for_is_one_error(root: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(root, "9.0", "8.9", "10.0f")
    assert "--arch 8.9, 10.0f: no section is compiled for it; choose from 8.0, 9.0, 9.0a, 12.0+PTX" in str(caught.value)


@pytest.mark.parametrize(
    ("devices", "built"),
    [
        (("9.0",), {"device": "9.0 9.0a", "old": "8.0"}),
        (("8.9",), {"device": "8.0", "old": "8.0"}),
        ((), {"device": "12.0+PTX", "old": "8.0"}),
        (("7.5",), {"device": "12.0+PTX", "old": "8.0"}),
    ],
)
def test_fast_is_for_the_devices_here_else_the_newest(
    root: Path, devices: tuple[str, ...], built: dict[str, str]
) -> None:
    assert capabilities(planned(root, fast=True, devices=devices)) == built


def matrix(root: Path, *names: str) -> Matrix:
    project, _ = load_project(root)
    everything = all_variants(project, load_support(), Platform.parse("x86_64-linux"))
    return choose(everything, patterns=names, within=VariantSet.REQUIRED)


@pytest.mark.parametrize(
    ("names", "asked", "said"),
    [
        (NAMES, ("90", "x"), ("--arch 90: '90' is not a CUDA capability; write '9.0'", "--arch x: 'x' is not a CUDA")),
        (NAMES, ("gfx90a",), ("--arch gfx90a: that is a ROCm architecture, but no variant of this build is for ROCm",)),
        (NAMES[:1], ("9.0",), ("--arch 9.0: that is a CUDA capability, but no variant of this build is for CUDA",)),
        (NAMES[:1], ("x",), ("--arch x: no variant of this build has architectures to choose from",)),
    ],
)
def test_what_is_no_architecture_of_the_variants_is_refused_by_name(
    root: Path, names: tuple[str, ...], asked: tuple[str, ...], said: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as caught:
        narrowing_of(matrix(root, *names), asked, {})
    assert all(text in caught.value.message for text in said), caught.value.message


def test_devices_are_those_of_the_driver(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho GPU, 8.9, 1; echo GPU, 8.9, 1; echo GPU, 12.0, 1\n", encoding="ascii")
    program.chmod(0o755)
    found = narrowing_of(matrix(root, *NAMES), (), {"PATH": f"{program.parent}:/usr/bin:/bin"}, fast=True)
    assert {backend: list(map(str, several)) for backend, several in found.devices.items()} == {CUDA: ["8.9", "12.0"]}
    assert narrowing_of(matrix(root, *NAMES), (), {}, fast=True).devices == {}
