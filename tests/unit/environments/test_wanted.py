"""What is installed for a variant: builds of torch, and packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.config.model import Project
from kernel_builder.config.reader import read_project
from kernel_builder.environments.wanted import torch_requirements, wanted_for
from kernel_builder.variants.matrix import all_variants
from kernel_builder.variants.support import load_support

TOML = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda", "metal"]
python-depends = ["einops"]

[general.cuda]
python-depends = ["nvidia-cutlass-dsl"]

[torch]
src = []

[kernel.a]
backend = "cpu"
depends = ["torch"]
src = ["a.cpp"]
"""


def read(root: Path) -> Project:
    return read_project(TOML.encode(), file=root / "build.toml", root=root, tree=False)[0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Any build has the processor, so any will do; the small one is asked for first.
        ("torch213-cxx11-cpu-x86_64-linux", ["torch==2.13.0+cpu", "torch==2.13.0"]),
        ("torch213-cpu-aarch64-darwin", ["torch==2.13.0+cpu", "torch==2.13.0"]),
        # The wheel of the public index has no mark. `==` would admit 2.13.0+cpu for it.
        ("torch213-cxx11-cu130-x86_64-linux", ["torch==2.13.0+cu130", "torch==2.13.0+cu132", "torch===2.13.0"]),
        ("torch213-cxx11-cu132-x86_64-linux", ["torch==2.13.0+cu132"]),
        ("torch213-cxx11-cu126-x86_64-linux", ["torch==2.13.0+cu126"]),
        ("torch28-cxx11-cu126-x86_64-linux", [
            "torch==2.8.0+cu126", "torch==2.8.0+cu128", "torch==2.8.0+cu129", "torch===2.8.0",
        ]),
        ("torch213-cxx11-rocm71-x86_64-linux", ["torch==2.13.0+rocm7.1"]),
        ("torch213-cxx11-xpu20260-x86_64-linux", ["torch==2.13.0+xpu"]),
        ("torch213-metal-aarch64-darwin", ["torch==2.13.0"]),
    ],
)  # fmt: skip
def test_builds_of_torch_that_run_a_variant(name: str, expected: list[str]) -> None:
    table = load_support()
    (row,) = [row for row in table.rows if row.name == name]
    assert list(torch_requirements(row, table)) == expected


def test_packages_are_those_that_the_kernel_and_its_tests_declare(tmp_path: Path) -> None:
    project, table = read(tmp_path), load_support()
    kept = {entry.name: entry for entry in all_variants(project, table, None).kept}
    cpu = wanted_for(project, kept["torch213-cxx11-cpu-x86_64-linux"], table, ["numpy>=2", "pytest"])
    assert cpu is not None
    assert (cpu.label, cpu.python) == ("torch 2.13 for CPU", (3, 10))
    assert cpu.requirements == ("kernels", "pytest", "einops", "numpy>=2")
    # Python alone: the newest torch of the device that Hub kernels must have.
    python = wanted_for(project, kept["torch-cuda"], table, [])
    assert python is not None
    assert python.requirements == ("kernels", "pytest", "einops", "nvidia-cutlass-dsl")
    assert python.torch[-1] == "torch===2.13.0"


def test_environments_are_named_by_all_that_they_are_made_of(tmp_path: Path) -> None:
    project, table = read(tmp_path), load_support()
    kept = {entry.name: entry for entry in all_variants(project, table, None).kept}
    entry, other = kept["torch213-cxx11-cpu-x86_64-linux"], kept["torch212-cxx11-cpu-x86_64-linux"]
    wanted = [wanted_for(project, entry, table, requires) for requires in (["a", "b"], ["b", "a"], ["a"])]
    names = [one.key("python 3.11") for one in wanted if one is not None]
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("torch-2.13-for-cpu-")
    newer, first = wanted_for(project, other, table, ["a", "b"]), wanted[0]
    assert newer is not None
    assert first is not None
    assert len({names[0], newer.key("python 3.11"), first.key("python 3.12"), first.key("python 3.11", "index")}) == 4
