"""A Python that waits to be asked answers as one that is started for it does, and ends, asked or not."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from kernel_builder.load import child
from kernel_builder.load.child import ask, waiting

# One without torch starts faster, and these tasks need none.
PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
ENVIRON = {"PATH": os.defpath}
QUESTION: dict[str, object] = {"drivers": {}}

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="this Python was moved")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path / "kernel"


def children() -> set[int]:
    here = str(os.getpid())
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == here and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


def left(folder: Path) -> list[Path]:
    return list((folder.parent / "temporary").iterdir())


def test_it_answers_once_and_about_what_it_can_read(folder: Path) -> None:
    with waiting(PYTHON, ENVIRON, (folder,)) as ahead:
        assert ahead is not None
        assert ahead.ask("drivers", QUESTION, (folder, folder.parent / "other")) is None
        assert ahead.ask("drivers", {"drivers": {}, "more": "x" * 100_000}, (folder,)) is None
        reply = ahead.ask("drivers", QUESTION, (folder,))
        assert reply is not None
        assert reply.answer == {"devices": {}} == ask(PYTHON, ENVIRON, "drivers", QUESTION).answer
        assert ahead.ask("drivers", QUESTION, (folder,)) is None
    assert left(folder) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_one_that_nobody_asks_ends_with_the_context(folder: Path) -> None:
    before = children()
    with waiting(PYTHON, ENVIRON, (folder,)):
        assert len(children() - before) == 1
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert children() == before
    assert left(folder) == []


def test_it_hears_nothing_but_the_task(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that reads its standard input reads nothing, as in any other process."""
    probe = tmp_path / "probe"
    probe.mkdir()
    for path in child._PROBE.parent.glob("*.py"):
        (probe / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    facts = "import sys\nfrom .answers import answer\n\n\ndef drivers(request):\n    answer(read=sys.stdin.read())\n"
    (probe / "facts.py").write_text(facts, encoding="ascii")
    monkeypatch.setattr(child, "_PROBE", probe / "__main__.py")
    with waiting(PYTHON, ENVIRON, (folder,)) as ahead:
        assert ahead is not None
        reply = ahead.ask("drivers", QUESTION, (folder,))
    assert reply is not None
    assert reply.answer == {"read": ""}


@pytest.mark.parametrize("script", ["exit 3", "read line; exit 3", "kill -9 $$"])
def test_one_that_ended_by_itself_says_nothing_of_a_kernel(folder: Path, script: str) -> None:
    python = folder.parent / "python"
    python.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    python.chmod(0o755)
    with waiting(python, ENVIRON, (folder,)) as ahead:
        assert ahead is not None
        assert ahead.ask("drivers", QUESTION, (folder,)) is None


def test_what_cannot_be_started_is_not_waited_for(folder: Path) -> None:
    foreign = folder.parent / "python"
    machine = b"\x2a\x00" if os.uname().machine != "sh4" else b"\x00\x00"
    foreign.write_bytes(b"\x7fELF" + bytes(14) + machine + bytes(20))
    with waiting(foreign, ENVIRON, (folder,)) as ahead:
        assert ahead is None or ahead.ask("drivers", QUESTION, (folder,)) is None
