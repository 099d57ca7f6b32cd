"""What the test Hub gets wrong on demand."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field


@dataclass
class Fault:
    """What happens to the next ``times`` requests whose ``METHOD /path`` matches ``match`` (a regular expression).

    With ``status`` the answer is an error with that status, ``code`` and ``message``, and ``headers``. ``cut_after``
    closes the connection without an answer when that many bytes of the request's body have been read; ``cut_answer``
    does what was asked for and then closes the connection instead of answering. ``delay`` waits that many seconds
    first; if all is well again before, the connection is closed. ``skip`` lets that many matching requests pass before.
    """

    match: str
    status: int | None = None
    code: str | None = None
    message: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    cut_answer: bool = False
    delay: float = 0
    times: int = 1
    skip: int = 0

    @property
    def name(self) -> str:
        """For the log."""
        if self.status is not None:
            return f"status {self.status}"
        if self.cut_after is not None:
            return f"cut after {self.cut_after}"
        return "cut answer" if self.cut_answer else f"delay {self.delay}"


class Faults:
    """Those that are waiting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []
        self._well = threading.Event()

    def add(self, fault: Fault) -> None:
        """From now on."""
        with self._lock:
            self._well.clear()
            self._waiting.append(fault)

    def clear(self) -> None:
        """All is well again."""
        with self._lock:
            self._waiting.clear()
            self._well.set()

    def wait(self, fault: Fault) -> bool:
        """Wait as long as ``fault`` wants it; whether all was well again before."""
        return bool(fault.delay) and self._well.wait(fault.delay)

    def take(self, request: str) -> Fault | None:
        """The fault that ``METHOD /path`` meets, if any; it counts as used."""
        with self._lock:
            for fault in self._waiting:
                if not re.search(fault.match, request):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                if fault.times <= 0:
                    self._waiting.remove(fault)
                return fault
        return None
