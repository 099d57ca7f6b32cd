"""The entry point of the container image: who runs kernel-builder, and where."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT

OWNER = 12345


@pytest.fixture
def anybody() -> Iterator[Path]:
    """A directory that every user may enter; those of pytest are the user's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("owner", [OWNER, 0])
def test_what_is_built_belongs_to_the_owner_of_the_mounted_directory(anybody: Path, owner: int) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv (util-linux) is not installed")
    kernel, tools = anybody / "kernel code", anybody / "tools"
    kernel.mkdir()
    tools.mkdir()
    shutil.copy(ROOT / "container" / "entrypoint", tools / "entrypoint")
    (tools / "kernel-builder").write_text('#!/bin/sh\nmkdir build; echo "$@" > build/words; touch "$HOME/mine"\n')
    (tools / "kernel-builder").chmod(0o755)
    os.chown(kernel, owner, owner)
    completed = subprocess.run(
        [tools / "entrypoint", "build", "--variant", "torch213-*"],
        cwd=kernel,
        env={"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert (kernel / "build" / "words").read_text() == "build --variant torch213-*\n"
    found = (kernel / "build" / "words").stat()
    assert (found.st_uid, found.st_gid) == (owner, owner)
