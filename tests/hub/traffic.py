"""The log of the test Hub: one entry per request, with every byte that moved."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path


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
    """Keeps entries in memory and, one JSON object a line, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self.entries: list[Entry] = []

    def add(self, **values: object) -> None:
        """Append an entry; see :class:`Entry` for the values."""
        with self._lock:
            entry = Entry(number=len(self.entries), **values)  # type: ignore[arg-type]
            self.entries.append(entry)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(entry)) + "\n")

    def mark(self) -> int:
        """A place in the log, for :meth:`since`."""
        with self._lock:
            return len(self.entries)

    def since(self, mark: int = 0) -> list[Entry]:
        """Entries from ``mark`` on."""
        with self._lock:
            return self.entries[mark:]

    def content_sent(self, mark: int = 0) -> dict[str, int]:
        """Path in the repository -> bytes of its content that clients sent since ``mark``."""
        found: dict[str, int] = {}
        for entry in self.since(mark):
            if entry.method in {"PUT", "POST"}:
                for path, size in entry.paths.items():
                    found[path] = found.get(path, 0) + size
        return found
