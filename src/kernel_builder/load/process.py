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
from typing import IO

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


def run_child(command: Sequence[str], *, environ: Mapping[str, str], cwd: Path, seconds: float) -> ChildResult:
    """Run ``command`` for at most ``seconds``. All that it started ends with it, however it was started.

    Raises ``OSError`` when no process can be started.
    """
    # Files instead of pipes: what the child leaves behind may hold a pipe open forever.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        with subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", _REAPER, *command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=dict(environ),
            start_new_session=True,
        ) as process:
            try:
                stopped = _wait(process, (stdout, stderr), seconds)
            finally:
                _end(process)
        code, words = process.returncode, _text(stderr)
        if code == NOT_STARTED and words.startswith(CANNOT_RUN):
            raise OSError(code, words.removeprefix(CANNOT_RUN).strip())
        return ChildResult(code=128 - code if code > 128 else code, stdout=_text(stdout), stderr=words, stopped=stopped)


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
