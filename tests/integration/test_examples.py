"""The examples that no other test builds: built, checked, loaded and tested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, Tool, copy_project

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.torch]


@pytest.mark.parametrize("name", ["rmsnorm", "double"])
def test_examples_for_the_cpu_build_and_pass_their_tests(name: str, tool: Tool, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed in this environment")
    project = copy_project(ROOT / "examples" / name, tmp_path / name)
    built = tool("build", project, "--local", "--backend", "cpu")
    assert built.code == 0, built.stderr
    assert "loaded" in built.stdout
    checked = tool("check", project, "--strict")
    assert checked.code == 0, checked.stdout
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=project,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout


def test_the_example_in_triton_builds_for_every_backend(tool: Tool, tmp_path: Path) -> None:
    project = copy_project(ROOT / "examples" / "swish", tmp_path / "swish")
    built = tool("build", project, "--no-load")
    assert built.code == 0, built.stderr
    assert sorted(path.name for path in (project / "build").iterdir()) == ["torch-cuda", "torch-rocm", "torch-xpu"]
    assert tool("check", project, "--strict").code == 0
