"""The programs that an engine runs, each in a group of its own. All of them can be stopped, with whatever they started,
also by the next build if this one is killed.

What they are is not written down: a build may be killed before it has written. They tell themselves apart by how they
are started, which what they start in turn inherits: in the work directory, without a terminal, and with nothing to
read. Only that a build runs is noted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.engine.interrupts import deferred
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
    """The running programs of one engine, in its work directory. Safe for concurrent threads.

    Whoever sets ``hurry`` does not wait until programs have ended in order: they are killed.
    """

    def __init__(self, work: Path) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._stopping = False
        self._noted = False
        self.hurry = threading.Event()

    def run(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Ended:
        """Run a program in the work directory, its output at the end of ``log``, until it ends."""
        with log.open("ab") as output, self._lock:
            if self._stopping:
                return Ended(code=-signal.SIGTERM, memory=0)
            if not self._noted:
                (self._work / _FILE).touch()
                self._noted = True
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
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        with self._lock:
            self._running.discard(process.pid)
        spent = usage.ru_utime + usage.ru_stime
        return Ended(code=process.returncode, memory=usage.ru_maxrss * 1024, processor_seconds=spent)

    def stop(self) -> None:
        """End all programs, and what they started, and start none any more."""
        with self._lock:
            self._stopping = True
        groups = tuple(self._running)  # whose first programs may be gone, and others not

        def ask(wanted: signal.Signals) -> None:
            for number in groups:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(number, wanted)

        with deferred(lambda _: self.hurry.set()):
            _end(self._work, ask, lambda: bool(self._running), self.hurry)

    def close(self) -> None:
        """Nothing runs any more."""
        with contextlib.suppress(OSError):
            (self._work / _FILE).unlink()


def end_what_is_left(work: Path, reporter: Reporter) -> None:
    """End programs of a build that was killed: they would write into what is built now."""
    if not (work / _FILE).exists():
        return
    if _left_in(work):
        reporter.emit(Waiting(reason="an earlier build was killed; stopping its compilers"))
        end_programs_in(work)
    with contextlib.suppress(OSError):
        (work / _FILE).unlink()


def end_programs_in(work: Path) -> None:
    """End programs that a process which is gone started in ``work``."""
    _end(work, lambda _: None, lambda: False, threading.Event())


def _end(
    work: Path, ask: Callable[[signal.Signals], None], is_more: Callable[[], bool], hurry: threading.Event
) -> None:
    """Ask, or make, all programs in ``work`` end, and others by ``ask``, as long as there is any, or ``is_more`` so."""
    for wanted in (signal.SIGTERM, signal.SIGKILL):
        ask(wanted)
        end = time.monotonic() + _STOP_SECONDS
        asked: set[int] = set()
        while time.monotonic() < end:
            left = _left_in(work)
            for number in left - asked if wanted is signal.SIGTERM else left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(number, wanted)
            asked |= left
            if not left and not is_more():
                return
            if wanted is signal.SIGTERM and hurry.is_set():
                break
            time.sleep(_POLL_SECONDS)


def _left_in(work: Path) -> set[int]:
    """The processes that programs of an engine are, or that these started."""
    here = os.path.realpath(work)
    found = set()
    with contextlib.suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  (pathlib takes its time)
            with contextlib.suppress(OSError):
                if _link(name, "cwd") == here and _link(name, "fd/0") == os.devnull and not _facts(name)[_TERMINAL]:
                    found.add(int(name))
    return found - _own() if found else found


def _own() -> set[int]:
    """This process, and those that it was started by: a script may have gone into the directory."""
    found, number = set(), os.getpid()
    with contextlib.suppress(OSError):
        while number > 0:
            found.add(number)
            number = _facts(str(number))[_PARENT]
    return found


def _link(process: str, name: str) -> str:
    return os.readlink(f"/proc/{process}/{name}")  # noqa: PTH115


_PARENT, _TERMINAL = 0, 3


def _facts(process: str) -> tuple[int, ...]:
    """Numbers of proc_pid_stat(5) from the parent on: the parent, the group, the session, the terminal (0 for none)."""
    text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    return tuple(map(int, text.rpartition(")")[2].split()[1:5]))
