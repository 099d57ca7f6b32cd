"""One download of many parts, told as events."""

from __future__ import annotations

import threading
from typing import Protocol

from kernel_builder.events import FetchFinished, FetchProgress, FetchStarted, Reporter

_EVERY = 1 << 20  # bytes between two events


class Progress(Protocol):
    """Hears about bytes. Thread-safe."""

    def expect(self, total: int) -> None:
        """About ``total`` bytes are still to come. Called once, when that is known."""
        ...

    def add(self, count: int) -> None:
        """``count`` more bytes came over the wire."""
        ...


class Fetch:
    """A :class:`Progress` that reports: started when the total is known, progress now and then, finished."""

    def __init__(self, what: str, reporter: Reporter) -> None:
        self._what = what
        self._reporter = reporter
        self._lock = threading.Lock()
        self._received = 0
        self._reported = 0

    def expect(self, total: int) -> None:
        """See :class:`Progress`."""
        self._reporter.emit(FetchStarted(what=self._what, total=self._received + total))

    def add(self, count: int) -> None:
        """See :class:`Progress`."""
        with self._lock:
            self._received += count
            if self._received - self._reported < _EVERY:
                return
            self._reported = received = self._received
        self._reporter.emit(FetchProgress(what=self._what, received=received))

    def finish(self) -> None:
        """Everything has arrived and is in its place."""
        self._reporter.emit(FetchFinished(what=self._what, received=self._received))
