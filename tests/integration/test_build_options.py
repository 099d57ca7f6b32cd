"""What users expect of ``build``'s options: where it writes, how much runs at once, what it skips."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len

from conftest import CPU, ProjectMaker, Result, Tool, commit, room_to_build
from kernel_builder.cli.options import how_many_at_once
from kernel_builder.engine.timeline import spans_in

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.usefixtures("unloaded")]

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
    """How many actions ran at once."""
    spans = spans_in(root / ".kernel-builder")
    return max(sum(other.begin <= span.begin < other.end for other in spans) for span in spans)


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


@pytest.mark.loaded
def test_without_loading_nothing_is_proved_and_that_is_said(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("unproved", {"a.c": ""})
    # Loading it fails, so that only skipping the proof lets it through.
    (root / "torch-ext" / "unproved" / "__init__.py").write_text("from . import _ops\n\nassert False\n")
    build = ("build", root, "--variant", CPU)
    skipped = tool(*build, "--no-load", "--print-build-logs")
    assert skipped.code == 0, skipped.stderr
    assert "warning: --no-load: variants are installed without checking" in skipped.stderr
    assert f"{CPU}  built: 1 compiled; not loaded here: --no-load skips it" in skipped.stdout
    assert "a.c" in skipped.stderr  # -L
    load = tool(*build, "--no-load", "--json").variant()["load"]
    assert isinstance(load, dict)
    assert (load["status"], load["reason"]) == ("not loaded here", "--no-load skips it")
    assert "load" not in (root / "build" / CPU / "metadata.json").read_text()
    if torch_is_here():  # what was skipped is no proof later on
        proved = tool("build", root, "--local", "--backend", "cpu")
        assert (proved.code, "AssertionError" in proved.stderr) == (1, True), proved


def in_a_terminal(tool: Tool, columns: int, *arguments: str | Path) -> str:
    """What the command writes to a terminal that has so many columns."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in tool.environment.items() if name not in {"COLUMNS", "LINES", "CI"}}
    written = b""
    with room_to_build():
        process = subprocess.Popen(
            [sys.executable, "-m", "kernel_builder", *map(str, arguments)],
            stdout=there,
            stderr=there,
            env={**environment, "TERM": "xterm-256color"},
        )
        os.close(there)
        with contextlib.suppress(OSError):  # how the end is told where the other side is closed
            while data := os.read(here, 1 << 16):
                written += data
        assert process.wait() == 0, written.decode()
    os.close(here)
    return written.decode()


@pytest.mark.parametrize("columns", [80, 40])
def test_progress_fits_a_terminal_by_whole_words(tool: Tool, make_project: ProjectMaker, columns: int) -> None:
    deep = {f"some/rather/deep/directory/of/kernels/{name}": text for name, text in SOURCES.items()}
    root = make_project("shown", {**deep, "表/宽.c": "int wide;\n"})
    screen = in_a_terminal(tool, columns, "build", root, "--variant", CPU, "--no-cache")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    lines = [line.rstrip() for line in re.split(r"[\r\n]+|\x1b\[[0-9;?]*[A-Zhl]", plain)]
    known = {word for span in spans_in(root / ".kernel-builder") for word in span.id.split(":")}
    known |= {span.source for span in spans_in(root / ".kernel-builder")}
    known |= {part for word in known for part in word.split("/")} | {path.name for path in root.glob("build/*/*")}
    known |= {"...", "and", "more", "waiting", "for", "a", "free", "core"}
    steps = [line for line in lines if line.startswith("[")]
    assert any(re.match(r"\[\d+/\d+\] \d+:\d\d ", line) for line in steps), screen  # the live one
    for line in steps:
        assert cell_len(line) <= columns
        assert re.match(r"\[\d+/\d+\] ", line), line
        for word in line.partition("] ")[2].split():
            end = word.rpartition("/")[2]
            assert end in known or re.fullmatch(r"\d+:\d\d|\d+", word), line
    assert all(cell_len(line) <= columns or len(line.split()) == 1 for line in lines), lines
    assert "still running" not in screen


def test_quiet_is_silent_where_all_is_well(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("hushed", {"a.c": ""}, directory="parent/hushed")
    (root / "torch-ext" / "hushed" / "__init__.py").write_text('from . import _ops\n\n__all__ = ["_ops"]\n')
    commit(root)
    for arguments in ((), ("--available",)):
        built = tool("build", "--variant", CPU, "-q", *arguments, cwd=root.parent)
        assert (built.code, built.stdout, built.stderr) == (0, "", ""), built
    (root / "a.c").write_text("#error no\n")
    failed = tool("build", "--variant", CPU, "-q", cwd=root.parent)
    assert (failed.code, failed.stdout) == (1, "")
    assert "a.c does not compile" in failed.stderr


def test_a_dry_run_is_a_table_of_what_would_be_done(tool: Tool, make_project: ProjectMaker, tmp_path: Path) -> None:
    root = make_project("foreseen", {"a.c": "int a;\n", "b.c": '#include "b.h"\n', "b.h": ""})
    dry = ("build", root, "--variant", CPU, "--dry-run")
    fresh = tool(*dry, env={"KERNEL_BUILDER_CACHE": str(tmp_path / "empty")})
    assert fresh.code == 0, fresh.stderr
    head, row = re.search(r"^(variant.*)\n.*date\n(.*)$", fresh.stdout, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert head.split() == ["variant", "toolchain", "compile", "up", "to", "to", "fetch"]
    assert re.fullmatch(rf"{CPU}  torch 2\.13\.\d +2 +0 +\d+\.\d MiB", row)
    assert "to compile for cpu: a.c, b.c" in fresh.stdout
    assert not re.search(r"-fPIC|\.kernel-builder", fresh.stdout)
    assert not (root / ".kernel-builder").exists()
    assert tool("build", root, "--variant", CPU).code == 0
    assert re.search(rf"{CPU}  torch 2\.13\.\d +0 +2 +-\n", tool(*dry).stdout)
    assert "nothing to compile\nto fetch: nothing\n" in tool(*dry).stdout
    (root / "b.h").write_text("int b;\n")
    text = tool(*dry, "-v").stdout
    assert "to compile for cpu: b.c\n" in text
    assert "-fPIC" in text  # -v: every command
    foreseen = tool(*dry, "--json").json["forecast"]
    assert isinstance(foreseen, dict)
    assert foreseen[CPU] == {
        "compiled": ["b.c"],
        "up-to-date": ["a.c"],
        "links": True,
        "bytes-to-fetch": 0,
        "libraries-to-fetch": [],
    }
    built = tool("build", root, "--variant", CPU, "--json")
    assert built.compiled() == ["b.c"]  # and so it is


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
    (told,) = re.findall(r"the project is read-only, so objects and logs go to (.*)", built.stderr)
    assert Path(told).parent == store / "builds"
    assert spans_in(Path(told))
