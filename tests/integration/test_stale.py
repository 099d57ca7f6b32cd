"""A build that is not one of the sources beside it is told apart, by everything that looks at builds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Result, Tool, commit
from hub import Account, Hub, State, serve
from kernel_trees import source

pytestmark = pytest.mark.usefixtures("unloaded")

ME = "hf_me"
TOML = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]

[general.hub]
repo-id = "me/my-kernel"

[torch-noarch]
"""
CPU, CUDA = "torch-cpu", "torch-cuda"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serve(State(tmp_path / "hub", accounts=[Account(name="me", token=ME)], trusted=[]), keep=False) as running:
        yield running


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return source(tmp_path / "kernel", {"__init__.py": "from . import _ops\n\n__all__ = []\n"}, toml=TOML)


def build(tool: Tool, root: Path, *options: str) -> None:
    result = tool("build", root, "--no-load", *options)
    assert result.code == 0, result.stderr


def stale(tool: Tool, root: Path) -> list[str]:
    """The variants that ``check`` calls stale."""
    result = tool("check", root, "--select", "KB433", "--format", "json")
    assert result.code == 0, result.stderr
    return [finding["path"].split("/")[-2] for finding in json.loads(result.stdout)["findings"]]


def run(tool: Tool, hub: Hub, tmp_path: Path, *arguments: str | Path) -> Result:
    return tool(*arguments, env=hub.environment(ME, tmp_path / "home"))


def test_every_command_that_looks_at_builds_says_that_they_are_stale(
    tool: Tool, hub: Hub, kernel: Path, tmp_path: Path
) -> None:
    commit(kernel)
    build(tool, kernel)
    said = "built from other sources than those here"
    init = kernel / "torch-ext/my_kernel/__init__.py"
    os.utime(init)
    (kernel / "README.md").write_text("words\n", encoding="utf-8")
    (kernel / "build.toml").write_text(f"# words\n{TOML}", encoding="utf-8")
    commit(kernel, "only words")
    assert stale(tool, kernel) == []
    assert said not in run(tool, hub, tmp_path, "card", kernel).stderr
    assert run(tool, hub, tmp_path, "upload", kernel, "--dry-run").code == 0

    init.write_text("from . import _ops\n\n__all__ = []\nNEW = 1\n", encoding="utf-8")
    assert stale(tool, kernel) == [CPU, CUDA]
    alone = tool("check", kernel / "build" / CPU, "--select", "KB433")
    assert "KB433" in alone.stdout
    assert "kernel-builder build" in alone.stdout
    for command in ("card", "api-diff"):
        result = run(tool, hub, tmp_path, command, kernel)
        assert (result.code, f"{said}: {CPU}, {CUDA}" in result.stderr) == (0, True), result.stderr
    refused = run(tool, hub, tmp_path, "upload", kernel)
    assert refused.code == 1
    assert f"{said}: {CPU}, {CUDA}; nothing was uploaded" in refused.stderr
    assert "--allow-stale" in refused.stderr
    allowed = run(tool, hub, tmp_path, "upload", kernel, "--allow-stale", "--dry-run")
    assert (allowed.code, said in allowed.stderr) == (0, True), allowed.stderr

    build(tool, kernel, "--variant", CUDA)  # the other one stays as it was
    assert stale(tool, kernel) == [CPU]
    build(tool, kernel)
    assert stale(tool, kernel) == []
    (kernel / "build.toml").write_text(TOML.replace('"MIT"', '"Apache-2.0"'), encoding="utf-8")
    assert stale(tool, kernel) == [CPU, CUDA]


def test_builds_that_do_not_say_what_they_were_made_of_are_not_called_stale(tool: Tool, kernel: Path) -> None:
    build(tool, kernel)
    (kernel / "torch-ext/my_kernel/more.py").touch()
    assert stale(tool, kernel) == [CPU, CUDA]
    for name, change in ((CPU, {"scheme": "another"}), (CUDA, None)):
        file = kernel / "build" / name / "metadata.json"
        document = json.loads(file.read_text())
        if change is None:
            del document["provenance"]["sources"]
        else:
            document["provenance"]["sources"] |= change
        file.write_text(json.dumps(document), encoding="utf-8")
    assert stale(tool, kernel) == []
    (kernel / "build.toml").unlink()
    assert tool("check", kernel, "--select", "KB433").code == 0


def test_a_kernel_built_before_the_first_commit_says_so(tool: Tool, hub: Hub, kernel: Path, tmp_path: Path) -> None:
    build(tool, kernel, "--variant", CPU)
    commit(kernel)
    build(tool, kernel, "--variant", CUDA)
    card = run(tool, hub, tmp_path, "card", kernel).stdout
    assert f"Built from sources that were in no git commit, so these builds cannot be reproduced: `{CPU}`." in card
    assert "from commit" in card
    told = run(tool, hub, tmp_path, "upload", kernel, "--dry-run")
    assert (told.code, f"were in no git commit, so nobody can reproduce this build: {CPU}\n" in told.stderr) == (
        0,
        True,
    )
