"""The log of the test Hub: one entry per request, with every byte that moved."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path

_PATIENCE = 10
"""Seconds: a client that was stopped may leave a request that never ends."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One request. ``received`` and ``sent`` are bytes of the bodies as they crossed the wire.

    ``server`` is ``hub`` or ``storage``. ``paths`` are the repository's files whose content was in the request, with
    their sizes: those of a commit, or the ones that a storage object was asked for. ``fault`` names what went wrong
    on demand.
    """

    number: int
    server: str
    method: str
    path: str
    status: int
    received: int
    sent: int
    user: str | None = None
    paths: dict[str, int] = field(default_factory=dict)
    fault: str | None = None


class Traffic:
    """Keeps entries in memory and, one JSON object a line, in a file.

    A client has its answer before the request is logged, so whoever reads the log waits for requests in progress.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._changed = threading.Condition()
        self._open = 0
        self._entries: list[Entry] = []

    @property
    def entries(self) -> list[Entry]:
        """All of them."""
        return self.since()

    def begin(self) -> int:
        """A request has come in; :meth:`add` is called at its end. The number of requests that are logged."""
        with self._changed:
            self._open += 1
            return len(self._entries)

    def add(self, **values: object) -> None:
        """Append an entry; see :class:`Entry` for the values."""
        with self._changed:
            entry = Entry(number=len(self._entries), **values)  # type: ignore[arg-type]
            self._entries.append(entry)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(entry)) + "\n")
            self._open -= 1
            self._changed.notify_all()

    def mark(self) -> int:
        """A place in the log, for :meth:`since`."""
        return len(self.since())

    def since(self, mark: int = 0, *, within: bool = False) -> list[Entry]:
        """Entries from ``mark`` on. ``within`` tells that a request asks, which would wait for itself."""
        with self._changed:
            if not within:
                self._changed.wait_for(lambda: self._open == 0, timeout=_PATIENCE)
            return self._entries[mark:]

    def content_sent(self, mark: int = 0) -> dict[str, int]:
        """Path in the repository -> bytes of its content that clients sent since ``mark``."""
        found: dict[str, int] = {}
        for entry in self.since(mark):
            if entry.method in {"PUT", "POST"}:
                for path, size in entry.paths.items():
                    found[path] = found.get(path, 0) + size
        return found
