"""``watch`` on a kernel of Python alone: edits are built, tested and told, and nothing is left running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ProjectMaker, Tool
from kernel_builder.cli.watch import round_text
from kernel_builder.environments.report import PytestReport, PytestResult
from kernel_builder.workflow.watch import Round

pytest.importorskip("watchfiles")

TOML = """\
[general]
name = "double-it"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
"""
KERNEL = "def double(x):\n    return x + x\n"
TESTS = """\
import os

import double_it

open(os.environ["PIDS"], "a").write(f"{os.getpid()} ")


def test_double():
    assert double_it.double(2) == 4


def test_other():
    pass
"""


class Watcher:
    """A running ``watch``, round by round."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._seen = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def round(self, *, until: str = r"  (not )?built in ") -> str:
        """What the next round told."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            lines = self.lines[self._seen :]
            ends = [number for number, line in enumerate(lines) if re.match(until, line)]
            if ends:
                self._seen += ends[0] + 1
                return "\n".join(lines[: ends[0] + 1])
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            time.sleep(0.02)
        raise AssertionError(f"no round came: {self.lines}")


@pytest.fixture
def project(make_project: ProjectMaker) -> Path:
    files = {"torch-ext/double_it/__init__.py": KERNEL, "tests/test_double.py": TESTS}
    return make_project("double-it", files, toml=TOML)


@pytest.fixture
def watcher(tool: Tool, project: Path, tmp_path: Path) -> Iterator[Watcher]:
    own = Tool({**tool.environment, "PIDS": str(tmp_path / "pids"), "PYTHONUNBUFFERED": "1"})
    process = own.start("watch", project)
    try:
        yield Watcher(process)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.torch
def test_edits_are_tested_and_only_what_changed_is_told(watcher: Watcher, project: Path, tmp_path: Path) -> None:
    source, tests = project / "torch-ext/double_it/__init__.py", project / "tests/test_double.py"
    assert "2 passed" in watcher.round()

    source.write_text(KERNEL.replace("x + x", "x"), encoding="utf-8")
    told = watcher.round()
    assert "] torch-ext/double_it/__init__.py" in told
    assert "FAILS  tests/test_double.py::test_double" in told
    assert "assert 2 == 4" in told
    assert "test_other" not in told
    assert "1 passed, 1 failed" in told

    tests.write_text(TESTS + "\n# the same\n", encoding="utf-8")
    told = watcher.round()
    assert "still failing: tests/test_double.py::test_double" in told
    assert "assert 2 == 4" not in told

    (project / "build.toml").write_text(TOML.replace("version = 1", "version = -1"), encoding="utf-8")
    told = watcher.round()
    assert "build.toml:3:11: error: general.version" in told
    assert "not built" in told

    (project / "build.toml").write_text(TOML, encoding="utf-8")
    # It is what it was, but that was not tested: all is set up again.
    assert "1 passed, 1 failed" in watcher.round()

    # Files that say the same, and those that builds and tests write, begin no round: the next one is this edit's.
    source.touch()
    (project / "report.xml").write_text("<a/>", encoding="utf-8")
    source.write_text(KERNEL, encoding="utf-8")
    told = watcher.round()
    assert "passes tests/test_double.py::test_double" in told
    assert "report.xml" not in told

    # Tests that take long are given up for the next edit, and Ctrl-C ends whatever runs.
    tests.write_text(TESTS + "\n\ndef test_long():\n    import time\n    time.sleep(600)\n", encoding="utf-8")
    pids = tmp_path / "pids"
    before = pids.read_text(encoding="utf-8")
    deadline = time.monotonic() + 60
    while pids.read_text(encoding="utf-8") == before and time.monotonic() < deadline:
        time.sleep(0.02)
    source.write_text(KERNEL + "\n", encoding="utf-8")
    assert "tests stopped: another file changed" in watcher.round()
    while len(pids.read_text(encoding="utf-8").split()) < len(before.split()) + 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    watcher.process.send_signal(signal.SIGINT)
    watcher.process.wait(timeout=30)
    assert watcher.process.returncode == 130
    running = pids.read_text(encoding="utf-8").split()
    assert len(running) == len(before.split()) + 2
    for pid in map(int, running):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.torch
def test_what_it_writes_into_the_project_is_no_change(tool: Tool, project: Path, tmp_path: Path) -> None:
    """``watch > rounds.txt``: a round that is told changes that file."""
    told = project / "rounds.txt"
    with told.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "kernel_builder", "watch", project],
            stdout=out,
            stderr=subprocess.DEVNULL,
            env={**tool.environment, "PIDS": str(tmp_path / "pids"), "PYTHONUNBUFFERED": "1"},
        )
    try:
        deadline = time.monotonic() + 120
        while "2 passed" not in told.read_text(encoding="utf-8") and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.5)
        (project / "notes.txt").write_text("a change\n", encoding="utf-8")
        while "notes.txt" not in told.read_text(encoding="utf-8") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert re.findall(r"^\[.*\] (.*)$", told.read_text(encoding="utf-8"), re.MULTILINE) == [
            "first round",
            "notes.txt",
        ]
    finally:
        process.kill()
        process.wait()


def test_a_round_says_what_changed() -> None:
    tests = {
        "a": PytestResult(outcome="failed", text="E assert 1\nE more"),
        "b": PytestResult(outcome="passed"),
        "c": PytestResult(outcome="failed", text="E old"),
    }
    one = Round(
        variant="torch-cpu",
        label="torch 2.13",
        changed=tuple(f"{number}.py" for number in range(7)),
        compiled=("a.cpp",),
        report=PytestReport(tests=tests, exit=1),
        failing=("a",),
        passing=("b",),
        still=("c",),
        building=0.123,
        testing=0.5,
    )
    assert not one.ok
    assert list(round_text(one, "12:00:00")) == [
        "[12:00:00] 0.py, 1.py, 2.py, 3.py, 4.py, and 2 more",
        "  FAILS  a",
        "    E assert 1\n    E more",
        "  passes b",
        "  still failing: c",
        "  built in 0.12 s, 1 compiled; 1 passed, 2 failed in 0.50 s",
    ]
