"""The programs that an engine runs: each in a group of its own, so that all of it can be stopped, and known to the next
build if this one is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.events import Reporter, Waiting

_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_FILE = "processes"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program ended: its exit code (negative for a signal), its peak of memory in bytes, and the seconds that
    processors spent on it.
    """

    code: int
    memory: int
    processor_seconds: float = 0.0


class Processes:
    """The running programs of one engine, listed in the work directory. Safe for concurrent threads."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._stopping = False

    def run(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Ended:
        """Run a program in the work directory, its output at the end of ``log``, until it ends."""
        with log.open("ab") as output, self._lock:
            if self._stopping:
                return Ended(code=-signal.SIGTERM, memory=0)
            try:
                process = subprocess.Popen(
                    command,
                    cwd=self._work,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches us alone, and we stop it
                )
            except OSError as error:
                output.write(f"cannot run {command[0]}: {error.strerror}\n".encode(errors="surrogateescape"))
                return Ended(code=127, memory=0)
            self._running.add(process.pid)
            self._list(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        with self._lock:
            self._running.discard(process.pid)
        spent = usage.ru_utime + usage.ru_stime
        return Ended(code=process.returncode, memory=usage.ru_maxrss * 1024, processor_seconds=spent)

    def stop(self) -> None:
        """End all programs, and start none any more. Another Ctrl-C shortens the wait."""
        with self._lock:
            self._stopping = True
        groups = tuple(self._running)
        for wanted in (signal.SIGTERM, signal.SIGKILL):
            for number in groups:  # whose first program may be gone, and others not
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(number, wanted)
            end = time.monotonic() + _STOP_SECONDS
            with contextlib.suppress(KeyboardInterrupt):
                while self._running and time.monotonic() < end:
                    time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Nothing runs any more."""
        with contextlib.suppress(OSError):
            (self._work / _FILE).unlink()

    def _list(self, number: int) -> None:
        born = _born(number)
        if born is not None:
            with (self._work / _FILE).open("a", encoding="ascii") as file:
                file.write(f"{number} {born}\n")


def _born(number: int) -> str | None:
    """When a process started, in ticks since the machine did: its number may be another's by now."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *facts = text.rpartition(")")[2].split()
    return None if state == "Z" else facts[18]


def end_what_is_left(work: Path, reporter: Reporter) -> None:
    """End programs of a build that was killed: they would write into what is built now."""
    try:
        lines = (work / _FILE).read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    pairs = [line.split(" ") for line in lines]
    left = [int(pair[0]) for pair in pairs if len(pair) == 2 and pair[0].isdigit() and _born(int(pair[0])) == pair[1]]
    if left:
        reporter.emit(Waiting(reason="an earlier build was killed; stopping its compilers"))
    for wanted in (signal.SIGTERM, signal.SIGKILL):
        for number in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(number, wanted)
        end = time.monotonic() + _STOP_SECONDS
        while any(_born(number) is not None for number in left) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
    with contextlib.suppress(OSError):
        (work / _FILE).unlink()
