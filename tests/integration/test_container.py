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


TOOL = """#!/bin/sh
mkdir build; echo "$@" > build/words; touch "$HOME/mine"; touch "$KERNEL_BUILDER_CACHE/$MAX_JOBS-$CORES"
"""


def _run(anybody: Path, kernel: Path, *words: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """The entry point, as the engine starts it in ``kernel``."""
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv (util-linux) is not installed")
    tools = anybody / "tools"
    if not tools.exists():
        tools.mkdir()
        shutil.copy(ROOT / "container" / "entrypoint", tools / "entrypoint")
        (tools / "kernel-builder").write_text(TOOL)
        (tools / "kernel-builder").chmod(0o755)
    become = () if user is None else ("setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--")
    return subprocess.run(
        [*become, tools / "entrypoint", *words],
        cwd=kernel,
        env={
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "KERNEL_BUILDER_CACHE": str(anybody / "store"),
            "MAX_JOBS": "2",
            "CORES": "3",
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("mode", [0o1777, 0o755])
def test_what_is_built_belongs_to_the_owner_of_the_mounted_directory(anybody: Path, mode: int) -> None:
    """Several owners share a volume for the store, whoever may write to it."""
    store = anybody / "store"
    store.mkdir()
    store.chmod(mode)
    for owner in (OWNER, OWNER + 1, 0, OWNER):
        kernel = anybody / f"kernel code {owner}"
        shutil.rmtree(kernel, ignore_errors=True)
        kernel.mkdir()
        os.chown(kernel, owner, owner)
        completed = _run(anybody, kernel, "build", "--variant", "torch213-*")
        assert completed.returncode == 0, completed.stderr
        assert (kernel / "build" / "words").read_text() == "build --variant torch213-*\n"
        for made in (kernel / "build" / "words", store / str(owner) / "2-3"):
            found = made.stat()
            assert (found.st_uid, found.st_gid) == (owner, owner)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_store_that_the_user_may_not_write_to_is_named(anybody: Path) -> None:
    (anybody / "store").mkdir(mode=0o755)
    kernel = anybody / "kernel"
    kernel.mkdir()
    os.chown(kernel, OWNER, OWNER)
    completed = _run(anybody, kernel, "build", user=OWNER)
    assert completed.returncode == 6
    first, hint = completed.stderr.splitlines()
    assert first.startswith(f"error: user {OWNER} cannot write to {anybody}/store/{OWNER}")
    assert hint.startswith("  hint: ")
    assert not list(kernel.iterdir())
