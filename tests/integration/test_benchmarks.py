"""benchmarks/builds.py: what it compares kernel-builder with is what the plan compiles."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT, ProjectMaker, Tool

VARIANT = "torch213-cxx11-cu130-x86_64-linux"
TOML = """\
[general]
name = "kk"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]
src = []

[kernel.k]
backend = "cuda"
depends = []
cuda-flags = ["-DOWN_FLAG=1"]
src = ["host.cpp", "kernels/one.cu", "two.cu"]
"""
FILES = {
    "host.cpp": "int host() { return 1; }\n",
    "kernels/one.cu": "__global__ void one(int *x) { *x = 1; }\n",
    "two.cu": "__global__ void two(int *x) { *x = 2; }\n",
}


@pytest.fixture(scope="module")
def builds() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_of_builds", ROOT / "benchmarks" / "builds.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


@pytest.mark.network
@pytest.mark.slow
def test_nvcc_is_given_what_the_plan_compiles(builds: ModuleType, tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("kk", FILES, toml=TOML)
    # The compiler of a build is asked for its steps, so it has to be there.
    fetched = tool("toolchain", "fetch", VARIANT)
    assert fetched.code == 0, fetched.stderr
    environ = {**tool.environment, "KERNEL_BUILDER_OFFLINE": "1"}
    (plan,) = builds.planned(root, environ, "--variant", VARIANT, "--arch", "8.0", "--arch", "9.0")["variants"]
    found = dict(builds.driver_commands(list(builds.units_of(plan, root))))
    assert [str(unit.source.relative_to(root)) for unit in found] == ["kernels/one.cu", "two.cu"]
    for unit, words in found.items():
        assert Path(words[0]).name == "nvcc"
        assert words[words.index("-c") + 1] == str(unit.source)
        codes = [word for word in words if word.startswith("-gencode")]
        assert codes == [f"-gencode=arch=compute_{number},code=sm_{number}" for number in (80, 90)]
        assert "-DOWN_FLAG=1" in words

    # What a build does instead is not taken for nvcc.
    done = tool("build", root, "--variant", VARIANT, "--arch", "9.0", "--dry-run", "--json", env=environ)
    variants = done.json["variants"]
    assert isinstance(variants, list)
    with pytest.raises(RuntimeError, match=r"one\.cu is not compiled by nvcc itself"):
        list(builds.driver_commands(list(builds.units_of(variants[0], root))))


def test_the_first_source_with_device_code_is_edited(builds: ModuleType, make_project: ProjectMaker) -> None:
    root = make_project("kk", FILES, toml=TOML)
    assert builds.edited(root, "source", ["host.cpp", "two.cu", "kernels/one.cu"]) == root / "kernels/one.cu"
    assert builds.edited(root, "source", ["host.cpp"]) == root / "host.cpp"
    with pytest.raises(LookupError, match="it has no header"):
        builds.edited(root, "header", ["host.cpp"])
    builds.edit(root / "two.cu", 7)
    text = (root / "two.cu").read_text(encoding="utf-8")
    assert text.startswith(FILES["two.cu"])
    assert "__global__ void bench_device_7(" in text


def test_no_two_processors_of_one_core_are_taken(builds: ModuleType, tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    for number in mine:
        (tmp_path / f"cpu{number}" / "topology").mkdir(parents=True)
        pair = f"{number - number % 2}-{number - number % 2 + 1}\n"
        (tmp_path / f"cpu{number}" / "topology" / "thread_siblings_list").write_text(pair, encoding="ascii")
    assert builds.cores(1, tmp_path) == mine[:1]
    separate = len({number // 2 for number in mine})
    assert len(builds.cores(separate, tmp_path)) == separate
    with pytest.raises(SystemExit, match=f"this process has {separate} cores"):
        builds.cores(separate + 1, tmp_path)
