"""Shows events to people, on stderr: a live line on a terminal, plain lines elsewhere.

rich is imported when something is shown, not before: start-up must stay fast.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.fitting import duration, shortened, wrapped
from kernel_builder.errors import KernelBuilderError
from kernel_builder.events import (
    Event,
    FetchFinished,
    FetchProgress,
    FetchStarted,
    Foreground,
    Notice,
    Output,
    Preparing,
    StepFinished,
    StepsPlanned,
    StepStarted,
    StillRunning,
    UploadFinished,
    UploadProgress,
    UploadStarted,
    Waiting,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

_QUIET_SECONDS = 30.0
"""Without a terminal, a sign of life at least this often while bytes arrive."""
_REFRESHES = 4
"""How often a second a terminal is written to anew."""
_MOST_TRANSFERS = 5
_MANY_FILES = 500
"""Fewer are read before people would look for a sign of life."""


def mebibytes(count: int) -> str:
    """``12.3 MiB``."""
    return f"{count / 2**20:.1f} MiB"


def ago(moment: float) -> str:
    """``3 days ago``."""
    days = int((time.time() - moment) // 86400)
    if days < 1:
        return "used today"
    return "used yesterday" if days == 1 else f"{days} days ago"


def size_text(count: int) -> str:
    """``12 B``, ``3.4 KiB``, ``5.6 MiB``, ``7.8 GiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


@dataclass
class _Transfer:
    """Something that is fetched or sent."""

    words: str
    total: int | None
    begun: float
    done: int = 0

    def line(self, width: int, now: float) -> str:
        """The figures first: they are never cut."""
        done = f"{self.done / 2**20:.1f}"
        total = f"/{self.total / 2**20:.1f}" if self.total is not None else ""
        return _with_words(f"{done}{total} MiB {duration(now - self.begun)}", self.words, "", width)


@dataclass(frozen=True)
class _Preparation:
    """What is done before there are steps."""

    words: str
    begun: float

    def line(self, width: int, now: float) -> str:
        """See :meth:`_Transfer.line`."""
        return _with_words(duration(now - self.begun), self.words, "", width)


@dataclass
class _Steps:
    """The steps of a build: how many, and which run now."""

    total: int
    begun: float
    done: int = 0
    running: dict[str, None] = field(default_factory=dict)

    def line(self, width: int, now: float) -> str:
        """See :meth:`_Transfer.line`."""
        running = list(self.running)
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        words = running[0] if running else "waiting for a free core"
        return _with_words(f"[{self.done}/{self.total}] {duration(now - self.begun)}", words, more, width)


def _with_words(figures: str, words: str, tail: str, width: int) -> str:
    return f"{figures} {shortened(words, width - len(figures) - 1, tail)}".rstrip()


class ConsoleReporter:
    """Renders events. Use as a context manager; thread-safe."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._lock = threading.RLock()
        self._transfers: dict[str, _Transfer] = {}
        self._preparation: _Preparation | None = None
        self._steps: _Steps | None = None
        self._last_sign = time.monotonic()
        self._live: Live | None = None
        self._is_open = False

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console  # noqa: PLC0415  (start-up time)

        return Console(stderr=True, highlight=False, soft_wrap=True)

    def __enter__(self) -> ConsoleReporter:
        self._is_open = True
        return self

    def _show_what_goes_on(self) -> None:
        """Begin with the live line, if there is a terminal to show it on."""
        if self._live is not None or not self._is_open or self._quiet or not self._console.is_terminal:
            return
        from rich.live import Live  # noqa: PLC0415  (start-up time)

        self._live = Live(
            console=self._console,
            transient=True,
            refresh_per_second=_REFRESHES,
            get_renderable=self._now,
            vertical_overflow="crop",
        )
        self._live.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if self._live is not None:
            self._live.stop()

    def _now(self) -> Text:
        from rich.text import Text  # noqa: PLC0415  (start-up time)

        # Without the lock: whoever prints holds it and waits for what shows this.
        lines = self.live_lines(self._console.width - 1, time.monotonic())
        return Text("\n".join(lines), no_wrap=True, overflow="crop")

    def live_lines(self, width: int, now: float) -> list[str]:
        """What is going on at the moment ``now``, in lines of at most ``width`` columns."""
        transfers = list(self._transfers.values())
        lines = [transfer.line(width, now) for transfer in transfers[:_MOST_TRANSFERS]]
        if len(transfers) > _MOST_TRANSFERS:
            lines.append(f"and {len(transfers) - _MOST_TRANSFERS} more")
        return lines + [one.line(width, now) for one in (self._preparation, self._steps) if one is not None]

    def line(self, text: str, style: str | None = None) -> None:
        """Print a line above whatever is live, broken between words where a terminal is too narrow for it."""
        width = self._console.width if self._console.is_terminal else None
        self._console.print(wrapped(text, width), style=style, markup=False)

    def emit(self, event: Event, /) -> None:
        """Show ``event``."""
        with self._lock:
            self._show(event)

    def _show(self, event: Event) -> None:
        if isinstance(event, Notice):
            if event.warning:
                text = event.message if ": warning: " in event.message else f"warning: {event.message}"
                self.line(text, "yellow")
            elif not self._quiet:
                self.line(f"note: {event.message}")
        elif isinstance(event, Foreground):
            if self._live is not None:
                self._live.stop()
                self._live = None
        elif isinstance(event, Output):
            self._console.print(event.text.rstrip("\n"), markup=False)
        elif isinstance(event, Preparing) and event.files < _MANY_FILES:
            self._preparation = None
        elif not self._quiet:
            self._show_what_goes_on()
            self._show_progress(event)

    def _show_progress(self, event: Event) -> None:
        if isinstance(event, FetchStarted | UploadStarted):
            self._begin(event)
        elif isinstance(event, FetchProgress):
            self._go_on(event.what, event.received)
        elif isinstance(event, UploadProgress):
            self._go_on(event.what, event.sent)
        elif isinstance(event, FetchFinished):
            self._transfers.pop(event.what, None)
            self.line(f"fetched {event.what}: {mebibytes(event.received)}")
        elif isinstance(event, UploadFinished):
            self._transfers.pop(event.what, None)
            self.line(f"sent {event.what}: {size_text(event.sent)}")
        elif isinstance(event, Preparing):
            self._preparation = _Preparation(f"{event.what} {event.files} files", time.monotonic())
        elif isinstance(event, StepsPlanned):
            self._steps = _Steps(total=event.total, begun=time.monotonic())
        elif isinstance(event, StepStarted) and self._steps is not None:
            self._steps.running[event.description] = None
        elif isinstance(event, StepFinished):
            self._finish_step(event)
        elif isinstance(event, StillRunning) and not self._console.is_terminal:  # which shows what runs
            self.line(f"{event.description} is still running")
        elif isinstance(event, Waiting):
            self.line(f"waiting: {event.reason}", "yellow")

    def _begin(self, event: FetchStarted | UploadStarted) -> None:
        verb = "fetching" if isinstance(event, FetchStarted) else "sending"
        transfer = _Transfer(words=f"{verb} {event.what}", total=event.total, begun=time.monotonic())
        self._transfers[event.what] = transfer
        self._last_sign = time.monotonic()
        if isinstance(event, FetchStarted) and not self._console.is_terminal:
            self.line(f"{transfer.words} ...")

    def _go_on(self, what: str, done: int) -> None:
        transfer = self._transfers.get(what)
        if transfer is None:
            return
        transfer.done = done
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_sign > _QUIET_SECONDS:
            self._last_sign = now
            self.line(f"{transfer.words}: {mebibytes(done)} so far")

    def _finish_step(self, event: StepFinished) -> None:
        if self._steps is not None:
            self._steps.running.pop(event.description, None)
            self._steps.done, self._steps.total = event.done, event.total
            if event.done == event.total:
                self._steps = None
        self.line(f"[{event.done}/{event.total}] {event.description}")


@contextmanager
def errors_as_json(enabled: bool) -> Iterator[None]:
    """Print an error that comes out of this context to stdout as JSON, if ``enabled``; it is raised on in any case."""
    try:
        yield
    except KernelBuilderError as error:
        if enabled:
            click.echo(json.dumps(error.to_json(), indent=2))
        raise


def width_of_stdout(environ: Mapping[str, str]) -> int | None:
    """How many columns there are: as many as ``COLUMNS`` of ``environ`` says, else those of the terminal that stdout
    is; ``None`` when it is not one.
    """
    said = environ.get("COLUMNS", "")
    if said.isascii() and said.isdecimal() and int(said):
        return int(said)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show_error(text: str) -> None:
    """Print ``text`` to stderr, in red where that is possible."""
    from rich.console import Console  # noqa: PLC0415  (start-up time)

    Console(file=sys.stderr, highlight=False, soft_wrap=True).print(text, style="red", markup=False)
