"""Shows events to people, on stderr: a live line on a terminal, plain lines elsewhere.

rich is imported when something is shown, not before: start-up must stay fast.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from kernel_builder.errors import KernelBuilderError
from kernel_builder.events import (
    Event,
    FetchFinished,
    FetchProgress,
    FetchStarted,
    Notice,
    Output,
    StepFinished,
    StepsPlanned,
    StepStarted,
    UploadFinished,
    UploadProgress,
    UploadStarted,
    Waiting,
)

_QUIET_SECONDS = 30.0
"""Without a terminal, a sign of life at least this often while bytes arrive."""


def mebibytes(count: int) -> str:
    """``12.3 MiB``."""
    return f"{count / 2**20:.1f} MiB"


def size_text(count: int) -> str:
    """``12 B``, ``3.4 KiB``, ``5.6 MiB``, ``7.8 GiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


class ConsoleReporter:
    """Renders events. Use as a context manager; thread-safe."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._quiet = quiet
        self._lock = threading.RLock()
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figure]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._fetches: dict[str, TaskID] = {}
        self._steps: TaskID | None = None
        self._running: dict[str, None] = {}
        self._last_sign = time.monotonic()

    def __enter__(self) -> ConsoleReporter:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def line(self, text: str, style: str | None = None) -> None:
        """Print a line above whatever is live."""
        self._console.print(text, style=style, markup=False)

    def emit(self, event: Event, /) -> None:
        """Show ``event``."""
        with self._lock:
            self._show(event)

    def _show(self, event: Event) -> None:  # noqa: C901, PLR0912  (one flat branch per kind of event)
        if isinstance(event, Notice):
            if event.warning:
                text = event.message if ": warning: " in event.message else f"warning: {event.message}"
                self.line(text, "yellow")
            elif not self._quiet:
                self.line(f"note: {event.message}")
        elif isinstance(event, Output):
            self.line(event.text.rstrip("\n"))
        elif self._quiet:
            return
        elif isinstance(event, FetchStarted):
            self._fetches[event.what] = self._live.add_task(f"fetching {event.what}", total=event.total, figure="")
            if not self._console.is_terminal:
                self.line(f"fetching {event.what} ...")
        elif isinstance(event, FetchProgress):
            self._progress(event)
        elif isinstance(event, FetchFinished):
            task = self._fetches.pop(event.what, None)
            if task is not None:
                self._live.remove_task(task)
            self.line(f"fetched {event.what}: {mebibytes(event.received)}")
        elif isinstance(event, UploadStarted | UploadProgress | UploadFinished):
            self._upload(event)
        elif isinstance(event, StepsPlanned):
            self._show_running(done=0, total=event.total)
        elif isinstance(event, StepFinished):
            self._step(event)
        elif isinstance(event, StepStarted):
            self._running[event.description] = None
            self._show_running()
        elif isinstance(event, Waiting):
            self.line(f"waiting: {event.reason}", "yellow")

    def _progress(self, event: FetchProgress) -> None:
        task = self._fetches.get(event.what)
        if task is not None:
            self._live.update(task, completed=event.received, figure=mebibytes(event.received))
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_sign > _QUIET_SECONDS:
            self._last_sign = now
            self.line(f"fetching {event.what}: {mebibytes(event.received)} so far")

    def _upload(self, event: UploadStarted | UploadProgress | UploadFinished) -> None:
        if isinstance(event, UploadStarted):
            if event.what in self._fetches:  # planned anew
                self._live.remove_task(self._fetches.pop(event.what))
            self._fetches[event.what] = self._live.add_task(f"sending {event.what}", total=event.total, figure="")
            self._last_sign = time.monotonic()
            return
        if isinstance(event, UploadFinished):
            self._live.remove_task(self._fetches.pop(event.what))
            self.line(f"sent {event.what}: {size_text(event.sent)}")
            return
        self._live.update(self._fetches[event.what], completed=event.sent, figure=mebibytes(event.sent))
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_sign > _QUIET_SECONDS:
            self._last_sign = now
            self.line(f"sending {event.what}: {mebibytes(event.sent)} so far")

    def _show_running(self, done: int | None = None, total: int | None = None) -> None:
        """The live line of the build: what runs now, and how far it is."""
        if self._steps is None:
            self._steps = self._live.add_task("starting", total=None, figure="")
        first = next(iter(self._running), "")
        more = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
        self._live.update(self._steps, description=f"{first}{more}" if first else "waiting for a free processor")
        if total is not None:
            self._live.update(self._steps, completed=done, total=total, figure=f"{done}/{total}")

    def _step(self, event: StepFinished) -> None:
        self._running.pop(event.description, None)
        self._show_running(event.done, event.total)
        if event.done == event.total and self._steps is not None:
            self._live.remove_task(self._steps)
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


def show_error(text: str) -> None:
    """Print ``text`` to stderr, in red where that is possible."""
    Console(file=sys.stderr, highlight=False, soft_wrap=True).print(text, style="red", markup=False)
