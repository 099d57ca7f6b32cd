"""The examples that no other test builds: built, checked, loaded and tested."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from conftest import ROOT, Tool, copy_project
from warm_python import WarmPython

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.torch]


@pytest.mark.xdist_group("warm torch")
@pytest.mark.parametrize("name", ["activation", "double", "rmsnorm", "rowsum", "softsign"])
def test_examples_for_the_cpu_build_and_pass_their_tests(
    name: str, tool: Tool, warm_torch: WarmPython, tmp_path: Path
) -> None:
    project = copy_project(ROOT / "examples" / name, tmp_path / name)
    built = tool("build", project, "--local", "--backend", "cpu")
    assert built.code == 0, built.stderr
    assert "loaded" in built.stdout
    checked = tool("check", project, "--strict")
    assert checked.code == 0, checked.stdout
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    tested = warm_torch.run(tests, cwd=project, environ=os.environ)
    assert tested.returncode == 0, tested.stdout


def test_the_example_with_cutlass_builds_for_one_architecture(tool: Tool, tmp_path: Path) -> None:
    project = copy_project(ROOT / "examples" / "gemm", tmp_path / "gemm")
    built = tool("build", project, "--variant", "torch213-cxx11-cu130-x86_64-linux", "--arch", "8.0")
    assert built.code == 0, built.stderr
    assert "loaded with stand-ins: 1 op, implemented for CUDA" in built.stdout
    assert set(re.findall(r"KB\d+", tool("check", project).stdout)) == {"KB434"}, "it is not built whole"


def test_each_section_is_compiled_for_its_own_architectures(tool: Tool, tmp_path: Path) -> None:
    project = copy_project(ROOT / "examples" / "rowsum", tmp_path / "rowsum")
    plan = tool("build", project, "--variant", "torch213-cxx11-cu130-x86_64-linux", "--dry-run", "--json")
    assert plan.code == 0, plan.stderr
    (variant,) = json.loads(plan.stdout)["variants"]
    compiled: dict[str, set[str]] = {"rowsum.cu": set(), "clusters.cu": set()}
    for step in variant["steps"]:
        if step["architecture"] is not None:
            compiled[Path(step["source"]).name].add(step["architecture"])
    assert compiled["clusters.cu"] == {"compute_90", "compute_100", "compute_120"}
    assert compiled["rowsum.cu"] > compiled["clusters.cu"]


def test_the_example_in_triton_builds_for_every_backend(tool: Tool, tmp_path: Path) -> None:
    project = copy_project(ROOT / "examples" / "swish", tmp_path / "swish")
    built = tool("build", project, "--no-load")
    assert built.code == 0, built.stderr
    assert sorted(path.name for path in (project / "build").iterdir()) == ["torch-cuda", "torch-rocm", "torch-xpu"]
    assert tool("check", project, "--strict").code == 0
