"""What ``build --dry-run`` prints, as options and the width of the terminal say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_builder.cli import run
from kernel_trees import TOML, source


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    variables = {**os.environ, "KERNEL_BUILDER_CACHE": str(tmp_path / "store"), "KERNEL_BUILDER_OFFLINE": "1"}
    variables.pop("COLUMNS", None)
    return variables


def printed(
    root: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], *options: str
) -> tuple[list[str], str]:
    """Lines on stdout, and stderr."""
    assert run(["build", str(root), "--dry-run", *options], environ) == 0
    out, err = capfd.readouterr()
    return out.splitlines(), err


def test_the_table_is_as_wide_as_columns_says(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    root = source(tmp_path / "k", {}, toml=TOML.format(backends='"cuda", "rocm", "xpu"', general=""))
    wide, _ = printed(root, environ, capfd)
    assert any(line.split() == ["torch-cuda", "Python", "only", "-", "-", "-"] for line in wide)
    narrow, _ = printed(root, {**environ, "COLUMNS": "40"}, capfd)
    assert all(len(line) <= 40 for line in narrow), narrow
    assert "torch-cuda" in narrow
    for nonsense in ("", "0", "many", "-3"):
        assert printed(root, {**environ, "COLUMNS": nonsense}, capfd)[0] == wide


def test_quiet_prints_no_notes(tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    root = source(tmp_path / "k", {"data.bin": ""}, toml=TOML.format(backends='"cuda"', general=""))
    told, _ = printed(root, environ, capfd)
    assert sum(line.startswith("note: ") for line in told) == 2  # how it is named, and what is left out
    quiet, errors = printed(root, environ, capfd, "-q")
    assert not errors
    assert not any("note: " in line for line in quiet)
    assert any("torch-cuda" in line for line in quiet)
