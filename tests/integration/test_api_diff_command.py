"""Whether a kernel needs a new version, judged against what a Hub on loopback has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Result, Tool
from hub import Account, Hub, State, serve
from hub.kernels import seal, write_project, write_variant

ME = "hf_me"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serve(State(tmp_path / "hub", accounts=[Account(name="me", token=ME)], trusted=[]), keep=False) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = write_project(tmp_path / "scale")
    write_variant(root / "build", "torch-cpu")
    return root


def change(project: Path, text: str, *, version: int = 1) -> None:
    """Build the variant anew, with another top module."""
    directory = project / "build" / "torch-cpu"
    (directory / "__init__.py").write_text(text)
    seal(directory, version=version)
    build_file = project / "build.toml"
    build_file.write_text(build_file.read_text().replace("version = 1", f"version = {version}"))


def run(tool: Tool, hub: Hub, tmp_path: Path, *arguments: str) -> Result:
    return tool(*arguments, env=hub.environment(ME, tmp_path / "home"))


BROKEN = '__all__ = ["double"]\n\n\ndef double(x):\n    return x\n'


def test_a_change_that_users_notice_demands_a_version_and_upload_warns(
    tool: Tool, hub: Hub, project: Path, tmp_path: Path
) -> None:
    first = run(tool, hub, tmp_path, "api-diff", str(project))
    assert (first.code, first.stderr.strip()) == (0, "nothing is published yet, so any interface is fine")
    assert run(tool, hub, tmp_path, "upload", str(project), "--ignore", "KB").code == 0

    same = run(tool, hub, tmp_path, "api-diff", str(project))
    assert (same.code, same.stdout) == (0, "no differences\nversion 1 is fine: nothing breaks for users\n")

    change(project, BROKEN)
    broken = run(tool, hub, tmp_path, "api-diff", str(project), "--json")
    document = json.loads(broken.stdout)
    assert broken.code == 1
    assert document["demands-new-version"] is True
    assert {"effect": "breaking", "subject": "scale", "message": "removed from the top module"} in document["changes"]
    warned = run(tool, hub, tmp_path, "upload", str(project), "--ignore", "KB", "--dry-run")
    assert warned.code == 0
    assert "scale: removed from the top module" in warned.stderr
    assert "version = 2 in build.toml" in warned.stderr

    change(project, BROKEN, version=2)
    raised = run(tool, hub, tmp_path, "api-diff", str(project))
    assert raised.code == 0
    assert "the version was raised from 1 to 2" in raised.stdout
    quiet = run(tool, hub, tmp_path, "upload", str(project), "--ignore", "KB", "--dry-run")
    assert "removed" not in quiet.stderr


def test_a_directory_can_be_compared_with(tool: Tool, hub: Hub, project: Path, tmp_path: Path) -> None:
    other = write_project(tmp_path / "other" / "scale")
    result = run(tool, hub, tmp_path, "api-diff", str(project), "--against", str(other))
    assert (result.code, result.stdout.splitlines()[0]) == (0, "no differences")
    assert str(other) in result.stderr


def test_a_revision_that_is_not_there_is_named(tool: Tool, hub: Hub, project: Path, tmp_path: Path) -> None:
    assert run(tool, hub, tmp_path, "upload", str(project), "--ignore", "KB").code == 0
    result = run(tool, hub, tmp_path, "api-diff", str(project), "--against", "v7")
    assert result.code == 5
    assert "v7" in result.stderr
    assert "Traceback" not in result.stderr
