"""The journal of a run: each action appends a line when it starts and one, with its exit code, when it ends.

So the engine learns what happens from the actions themselves, by id, and not from another program's words. A line is
short enough to be appended in one piece, however many actions run at once.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.actions.model import Action
from kernel_builder.events import Output, Reporter, StepFinished, StepsPlanned, StepStarted, StillRunning

_START, _END = "start", "end"
_POLL_SECONDS = 0.05
_LONG_SECONDS = 60.0


def start_line(journal: Path, action: Action) -> str:
    """The shell command that notes that ``action`` starts."""
    return f"printf '%s\\n' {shlex.quote(f'{_START} {action.id}')} >>{shlex.quote(str(journal))}"


def end_line(journal: Path, action: Action, digest: str) -> str:
    """The shell command that notes that ``action``, with that digest, ended with the exit code in ``$code``."""
    return f"printf '{_END} %s %s %s\\n' \"$code\" {digest} {shlex.quote(action.id)} >>{shlex.quote(str(journal))}"


def _parse_end(line: str) -> tuple[str, int, str] | None:
    """``(id, exit code, digest)`` of what :func:`end_line` wrote; ``None`` for any other line."""
    what, _, rest = line.partition(" ")
    code, _, ended = rest.partition(" ")
    digest, _, name = ended.partition(" ")
    return (name, int(code), digest) if what == _END else None


def done_in(journal: Path) -> dict[str, str]:
    """The digests of the actions that ended well, by id; none where there is no journal."""
    return {name: digest for name, (code, digest) in _ends(journal).items() if code == 0}


def ended_in(journal: Path) -> dict[str, int]:
    """The exit codes of the actions that ended, by id; none where there is no journal."""
    return {name: code for name, (code, _) in _ends(journal).items()}


def _ends(journal: Path) -> dict[str, tuple[int, str]]:
    try:
        lines = journal.read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]
    except FileNotFoundError:
        return {}
    found = filter(None, map(_parse_end, lines))
    return {name: (code, digest) for name, code, digest in found}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """An action that ended: its exit code, and how many seconds it ran."""

    code: int
    seconds: float


class Watcher(threading.Thread):
    """Follows a journal while actions run, and reports what starts, what ends and what has been running for long.

    ``expected`` are the ids of the actions that are out of date, for the total that people see; ``logs`` say where each
    action's output goes.
    """

    def __init__(
        self,
        journal: Path,
        actions: Mapping[str, Action],
        reporter: Reporter,
        *,
        expected: frozenset[str],
        logs: Mapping[str, Path],
        verbose: bool,
    ) -> None:
        super().__init__(daemon=True, name="journal")
        self._journal = journal
        self._actions = actions
        self._reporter = reporter
        self._expected = expected
        self._logs = logs
        self._verbose = verbose
        self._read = 0
        self._rest = b""
        self._begun: dict[str, float] = {}
        self._noticed: dict[str, float] = {}
        self._over = threading.Event()
        self.ended: dict[str, Ended] = {}
        """What ended so far, in that order."""

    def run(self) -> None:
        if self._expected:
            self._reporter.emit(StepsPlanned(total=len(self._expected)))
        while not self._over.wait(_POLL_SECONDS):
            self._look()

    def close(self) -> None:
        """Stop following; what was written until now is read."""
        self._over.set()
        if self.is_alive():
            self.join()
        self._look()

    def _look(self) -> None:
        with self._journal.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(os.fsdecode(line))
        now = time.monotonic()
        for name, since in self._noticed.items():
            if now - since > _LONG_SECONDS:
                self._noticed[name] = now
                self._reporter.emit(StillRunning(description=self._actions[name].description))

    def _take(self, line: str) -> None:
        what, _, rest = line.partition(" ")
        if what == _START and rest in self._actions:
            self._begun[rest] = self._noticed[rest] = time.monotonic()
            self._reporter.emit(StepStarted(description=self._actions[rest].description))
            return
        end = _parse_end(line)
        if end is None or end[0] not in self._actions:
            return
        name, code, _ = end
        self._noticed.pop(name, None)
        seconds = time.monotonic() - self._begun.get(name, time.monotonic())
        self.ended[name] = Ended(code=code, seconds=seconds)
        total = max(len(self._expected | self.ended.keys()), len(self.ended))
        description = self._actions[name].description
        self._reporter.emit(StepFinished(description=description, done=len(self.ended), total=total))
        if self._verbose:
            self._reporter.emit(Output(text=self._logs[name].read_text(encoding="utf-8", errors="replace")))
