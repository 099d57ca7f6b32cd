"""What users expect of ``build``'s options: where it writes, how much runs at once, what it skips."""

from __future__ import annotations

import importlib.util
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
from kernel_builder.cli.options import how_many_at_once

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


def torch_is_here() -> bool:
    return importlib.util.find_spec("torch") is not None


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


SOURCES = {f"{name}.c": f"int {name}(int x) {{ return x; }}\n" for name in "abcdef"}


def most_at_once(root: Path) -> int:
    """How many actions ran at once, by the journal."""
    running = most = 0
    for line in (root / ".kernel-builder" / "journal").read_text().splitlines():
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    return most


@pytest.mark.parametrize(
    ("arguments", "env", "most"),
    [
        ((), {"CORES": "1"}, 1),
        ((), {"CORES": "3", "MAX_JOBS": "1"}, 3),
        (("--cores", "1"), {"CORES": "3"}, 1),  # an option wins over its variable
        (("--max-jobs", "auto", "--cores", "2"), {"MAX_JOBS": "no number"}, 2),
        (("--jobs", "1"), {"CORES": "3"}, 1),
        (("-j", "4"), {"CORES": "no number"}, 4),
    ],
)
def test_the_variables_and_options_of_the_reference_say_how_much_runs_at_once(
    tool: Tool, make_project: ProjectMaker, arguments: tuple[str, ...], env: dict[str, str], most: int
) -> None:
    root = make_project("counted", SOURCES)
    built = tool("build", root, "--variant", CPU, *arguments, env=env)
    assert built.code == 0, built.stderr
    assert (1 if most == 1 else 2) <= most_at_once(root) <= most


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (("--max-jobs", "0"), {}, "--max-jobs is '0', which is not a positive number"),
        (("--cores", "two"), {}, "--cores is 'two', which is not a positive number"),
        ((), {"MAX_JOBS": "-4"}, "MAX_JOBS is '-4', which is not a positive number"),
        ((), {"CORES": "1.5"}, "CORES is '1.5', which is not a positive number"),
        (("--jobs", "2", "--cores", "2"), {}, "--jobs cannot be combined with --cores"),
        (("--no-load", "--python", sys.executable), {}, "--no-load loads none"),
    ],
)
def test_what_is_no_number_is_refused_at_once(
    tool: Tool, make_project: ProjectMaker, arguments: tuple[str, ...], env: dict[str, str], words: str
) -> None:
    refused = tool("build", make_project("counted", SOURCES), *arguments, env=env)
    assert (refused.code, words in refused.stderr) == (2, True), refused


def test_what_is_empty_or_left_to_the_machine_is_the_default() -> None:
    assert how_many_at_once(None, None, None, {"MAX_JOBS": "", "CORES": "0"}) == (None, None)
    assert how_many_at_once(None, "3", None, {"MAX_JOBS": "9", "CORES": "4"}) == (3, 4)
    assert how_many_at_once(2, None, None, {"MAX_JOBS": "9", "CORES": "x"}) == (None, None)


def test_without_loading_nothing_is_proved_and_that_is_said(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("unproved", {"a.c": ""})
    # Loading it fails, so that only skipping the proof lets it through.
    (root / "torch-ext" / "unproved" / "__init__.py").write_text("from . import _ops\n\nassert False\n")
    build = ("build", root, "--variant", CPU)
    skipped = tool(*build, "--no-load", "--print-build-logs")
    assert skipped.code == 0, skipped.stderr
    assert "warning: --no-load: variants are installed without the proof" in skipped.stderr
    assert f"{CPU}  built: 1 compiled; not loaded here: --no-load skips it" in skipped.stdout
    assert "a.c" in skipped.stderr  # -L
    load = tool(*build, "--no-load", "--json").variant()["load"]
    assert isinstance(load, dict)
    assert (load["status"], load["reason"]) == ("not loaded here", "--no-load skips it")
    assert "load" not in (root / "build" / CPU / "metadata.json").read_text()
    if torch_is_here():  # what was skipped is no proof later on
        proved = tool("build", root, "--local", "--backend", "cpu")
        assert (proved.code, "AssertionError" in proved.stderr) == (1, True), proved


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
