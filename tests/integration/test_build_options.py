"""What users expect of ``build``'s options: where it writes, how much runs at once, what it skips."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import CPU, ProjectMaker, Result, Tool, commit, room_to_build

pytestmark = [pytest.mark.network, pytest.mark.slow]

_BIND = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@contextmanager
def read_only(root: Path) -> Iterator[list[str]]:
    """``root``, which nobody can write to; yields the beginning of a command line that sees it so.

    Modes do not keep root out: it gets a mount of its own instead.
    """
    if os.geteuid() != 0:
        directories = [root, *(path for path in root.rglob("*") if path.is_dir())]
        for path in directories:
            path.chmod(0o555)
        try:
            yield []
        finally:
            for path in directories:
                path.chmod(0o755)
        return
    apart = ["unshare", "--mount", "sh", "-c", _BIND, str(root)]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("root cannot make a read-only mount here")
    yield apart


def everything_in(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def run(tool: Tool, before: list[str], *arguments: str | Path, **env: str) -> Result:
    command = [*before, sys.executable, "-m", "kernel_builder", *map(str, arguments)]
    with room_to_build():
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**tool.environment, **env}, timeout=600
        )
    assert "Traceback" not in done.stderr, done.stderr
    return Result(done.returncode, done.stdout, done.stderr)


def test_a_checkout_that_cannot_be_written_is_built_elsewhere(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    root = make_project("fixed", {"a.c": "int twice(int x) { return 2 * x; }\n"})
    commit(root)
    before, output = everything_in(root), tmp_path / "elsewhere"
    store = Path(tool.environment["KERNEL_BUILDER_CACHE"])
    with read_only(root) as prefix:
        build = ("build", root, "--variant", CPU)
        refused = run(tool, prefix, *build)
        assert refused.code == 6
        assert f"cannot write to {root / 'build'}" in refused.stderr
        assert "--output" in refused.stderr
        built = run(tool, prefix, *build, "--output", output, "--json")
        assert built.code == 0, built.stderr
        assert built.compiled() == ["a.c"]
        again = run(tool, prefix, *build, "--output", output, "--json")
        assert (again.code, again.compiled()) == (0, [])  # the objects are kept
    assert everything_in(root) == before
    assert list((output / CPU).glob("*.abi3.so"))
    (told,) = re.findall(r"the project cannot be written, so objects and logs go to (.*)", built.stderr)
    assert Path(told).parent == store / "builds"
    assert (Path(told) / "journal").is_file()
