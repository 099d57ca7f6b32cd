"""Processes that run a kernel's code: nothing of them is left when they end, and their output cannot keep anybody
waiting.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from kernel_builder.load.reaper import CANNOT_RUN, NOT_STARTED, kill_tree

_REAPER = Path(__file__).with_name("reaper.py")
_MOST_OUTPUT = 64 * 1024 * 1024
_PATIENCE = 10


@dataclass(frozen=True, kw_only=True)
class ChildResult:
    """How a child ended: with ``code``, negative for a signal, or stopped because of ``stopped``; and what it wrote."""

    code: int
    stdout: str
    stderr: str
    stopped: str | None = None


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """An empty directory, removed at the end."""
    directory = tempfile.TemporaryDirectory(prefix="kernel-builder-load-", ignore_cleanup_errors=True)
    try:
        yield Path(directory.name).resolve()
    finally:
        try:
            directory.cleanup()
        except BaseException:  # Ctrl-C, while it was removed
            directory.cleanup()
            raise


class Child:
    """A command that runs while this context is open, in the directory ``cwd``. All that it started ends with it,
    however it was started. One that ``listens`` reads what :meth:`say` tells it, and nothing otherwise.

    Raises ``OSError`` when no process can be started.
    """

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str], cwd: Path, listens: bool = False) -> None:
        self._command = [sys.executable, "-I", "-S", "-B", str(_REAPER), *command]
        self._environ, self._cwd, self._listens = dict(environ), cwd, listens

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            # Files instead of pipes: what the child leaves behind may hold a pipe open forever.
            self._stdout = stack.enter_context(tempfile.TemporaryFile())
            self._stderr = stack.enter_context(tempfile.TemporaryFile())
            self._process = stack.enter_context(
                subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE if self._listens else subprocess.DEVNULL,
                    stdout=self._stdout,
                    stderr=self._stderr,
                    cwd=self._cwd,
                    env=self._environ,
                    start_new_session=True,
                )
            )
            stack.callback(_end, self._process)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def say(self, text: str) -> None:
        """Tell it ``text``, which is all that it hears. One that has ended hears nothing."""
        assert self._process.stdin is not None  # noqa: S101  (it listens)
        with contextlib.suppress(OSError), self._process.stdin as ear:
            ear.write(text.encode("utf-8", "surrogateescape"))

    def result(self, seconds: float) -> ChildResult:
        """Wait for its end, for at most ``seconds``, then end it. Raises ``OSError`` where it could not be started."""
        try:
            stopped = _wait(self._process, (self._stdout, self._stderr), seconds)
        finally:
            _end(self._process)
        code, words = self._process.returncode, _text(self._stderr)
        if code == NOT_STARTED and words.startswith(CANNOT_RUN):
            raise OSError(code, words.removeprefix(CANNOT_RUN).strip())
        return ChildResult(
            code=128 - code if code > 128 else code, stdout=_text(self._stdout), stderr=words, stopped=stopped
        )


def run_child(command: Sequence[str], *, environ: Mapping[str, str], cwd: Path, seconds: float) -> ChildResult:
    """Run ``command`` for at most ``seconds``, as a :class:`Child`. Raises ``OSError`` when it cannot be started."""
    with Child(command, environ=environ, cwd=cwd) as child:
        return child.result(seconds)


def _wait(process: subprocess.Popen[bytes], outputs: Sequence[IO[bytes]], seconds: float) -> str | None:
    """Wait for the end; else say why it is not waited for any longer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if _ends_within(process, min(0.5, seconds)):
            return None
        if any(os.fstat(output.fileno()).st_size > _MOST_OUTPUT for output in outputs):
            return f"wrote more than {_MOST_OUTPUT >> 20} MiB"
    return f"did not respond within {seconds:g} s"


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether ``process`` ends in that time. :mod:`subprocess` looks only every 50 ms, half of what most of these
    processes take.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, or one from before 5.3
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
        return process.returncode is not None
    try:
        ends = select.poll()
        ends.register(handle, select.POLLIN)
        if not ends.poll(seconds * 1000):
            return False
    finally:
        os.close(handle)
    process.wait()
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have the reaper end everything."""
    if process.poll() is None:
        if not hasattr(os, "killpg"):  # Windows, where the reaper is not told to end, but ended
            kill_tree(process)
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_PATIENCE)
            return
        process.kill()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_OUTPUT).decode(errors="replace")
