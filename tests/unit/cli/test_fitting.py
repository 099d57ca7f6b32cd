"""Text that fits a terminal: whole words, figures that are never cut, wide characters."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kernel_builder.cli.console import ConsoleReporter
from kernel_builder.cli.fitting import duration, shortened, table, wrapped
from kernel_builder.events import (
    FetchProgress,
    FetchStarted,
    Preparing,
    StepFinished,
    StepsPlanned,
    StepStarted,
    StillRunning,
    Waiting,
)

DEEP = "deep/" * 9
WORDS = st.lists(
    st.text(st.sampled_from("abcdé中文字/._-(),"), min_size=1, max_size=12).filter(lambda word: word.strip("/")),
    min_size=1,
    max_size=20,
)


@given(WORDS, st.integers(20, 120))
def test_lines_are_broken_between_words_and_none_is_lost(words: list[str], width: int) -> None:
    text = " ".join(words)
    lines = wrapped(text, width).split("\n")
    assert " ".join(lines).split() == words
    for line in lines:
        assert cell_len(line) <= width or len(line.split()) == 1


def test_what_is_indented_stays_so_and_what_follows_is_below_it() -> None:
    text = "head of it\n    a reason that does not fit into this line"
    assert wrapped(text, 30) == "head of it\n    a reason that does not fit\n        into this line"
    path = f"see /{'long/' * 20}file now"
    assert wrapped(path, 40).split("\n")[1].strip() == f"/{'long/' * 20}file"  # to be copied in one piece
    assert wrapped(text, None) == wrapped(text, 5) == text


@given(WORDS, st.integers(0, 80), st.sampled_from(["", " and 3 more"]))
def test_what_is_shortened_fits_and_has_whole_words(words: list[str], room: int, tail: str) -> None:
    text = " ".join(words)
    short = shortened(text, room, tail)
    assert cell_len(short) <= room
    kept = short.removesuffix(tail) if tail and short.endswith(tail) else short
    assert text.endswith(kept.removeprefix("... ").removeprefix(".../"))
    pieces = re.split(r"[ /]", text)
    assert all(piece in pieces for piece in re.split(r"[ /]", kept) if piece and piece != "...")


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (80, "compile torch213-cxx11-cpu-x86_64-linux kernels/attention/forward.cu and 2 more"),
        (60, "... kernels/attention/forward.cu and 2 more"),
        (26, ".../forward.cu and 2 more"),
        (20, ".../forward.cu"),
        (8, ""),
    ],
)
def test_the_end_of_it_says_most(room: int, shown: str) -> None:
    words = "compile torch213-cxx11-cpu-x86_64-linux kernels/attention/forward.cu"
    assert shortened(words, room, " and 2 more") == shown


def test_times_are_short() -> None:
    assert [duration(seconds) for seconds in (0, 7.9, 60, 3599, 3661)] == ["0:00", "0:07", "1:00", "59:59", "1:01:01"]


def test_a_table_that_does_not_fit_is_paragraphs() -> None:
    head, rows = ("variant", "toolchain", "up to\ndate"), [("torch-cpu", "torch 2.13\ng++ 12", "3"), ("字", "", "12")]
    assert table(head, rows, None) == [
        "variant    toolchain   up to",
        "                        date",
        "torch-cpu  torch 2.13      3",
        "           g++ 12",
        "字                        12",
    ]
    assert table(head, rows[:1], 26) == ["torch-cpu", "  toolchain   torch 2.13,", "      g++ 12", "  up to date  3"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """stderr, as a terminal of 40 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.mark.parametrize("width", [79, 39, 26])
@pytest.mark.parametrize("running", [0, 1, 12])
def test_count_and_time_of_what_is_live_are_never_cut(terminal: io.StringIO, width: int, running: int) -> None:
    reporter = ConsoleReporter()
    reporter.emit(StepsPlanned(total=1234))
    for number in range(running):
        reporter.emit(StepStarted(description=f"compile torch213-cxx11-cpu-x86_64-linux 核心/{number}/{DEEP}k.cu"))
    reporter.emit(StepFinished(description="compile x y", done=1233, total=1234))
    for number in range(7):
        reporter.emit(FetchStarted(what=f"CUDA 13.{number} (a-source-with-a-long-name)", total=1 << 31))
        reporter.emit(FetchProgress(what=f"CUDA 13.{number} (a-source-with-a-long-name)", received=1 << 30))
    *fetches, more, steps = reporter.live_lines(width, time.monotonic() + 4000)
    assert len(fetches) == 5
    assert more == "and 2 more"
    for line in (*fetches, steps):
        assert cell_len(line) <= width
        assert re.match(r"(\[1233/1234\]|1024\.0/2048\.0 MiB) \d+:\d\d:\d\d( |$)", line), line


def test_a_terminal_shows_what_runs_and_a_log_is_told(monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO) -> None:
    running = StillRunning(description="compile torch-cpu slow.cpp")
    ConsoleReporter().emit(running)
    assert terminal.getvalue() == ""
    ConsoleReporter().emit(Waiting(reason="another build of this project holds /somewhere/else/lock"))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert all(len(line) <= 40 for line in plain.splitlines())
    monkeypatch.delenv("FORCE_COLOR")
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    ConsoleReporter().emit(running)
    ConsoleReporter(quiet=True).emit(running)
    assert log.getvalue() == "compile torch-cpu slow.cpp is still running\n"


def test_a_terminal_shows_that_many_files_are_read_and_a_log_does_not(
    monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO
) -> None:
    reporter = ConsoleReporter()
    reporter.emit(Preparing(what="reading", files=3))
    assert reporter.live_lines(40, time.monotonic()) == []
    reporter.emit(Preparing(what="planning with", files=3000))
    assert reporter.live_lines(40, time.monotonic() + 61) == ["1:01 planning with 3000 files"]
    assert reporter.live_lines(22, time.monotonic()) == ["0:00 ... 3000 files"]
    reporter.emit(Preparing())
    assert reporter.live_lines(40, time.monotonic()) == []
    monkeypatch.delenv("FORCE_COLOR")
    with ConsoleReporter() as log:
        log.emit(Preparing(what="reading", files=3000))
    assert terminal.getvalue() == ""
