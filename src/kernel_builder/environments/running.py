"""Programs in the foreground: they have the terminal, and Ctrl-C reaches them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernel_builder.errors import MachineError
from kernel_builder.load import reaper

_TELLING = 3.0
"""Seconds in which an interrupted program may tell what it knows and end by itself."""
_PATIENCE = 10.0
"""Seconds in which it may end in order, once it is told to."""


def run_tests(command: Sequence[str], *, environ: Mapping[str, str], cwd: Path) -> int:
    """Run ``command`` to its end, and return its exit code, negative for a signal. Whatever it started ends with it.

    After Ctrl-C it may tell what it knows; then KeyboardInterrupt is raised. Raises :class:`MachineError` when it
    cannot be started.
    """
    whole = [sys.executable, "-I", "-S", "-B", reaper.__file__, reaper.FOREGROUND, *command]
    with subprocess.Popen(whole, cwd=cwd, env=dict(environ)) as process:
        try:
            code = process.wait()
        except BaseException:
            _end(process)
            raise
    if code == reaper.NOT_STARTED:
        raise MachineError(f"cannot run {command[0]}")
    return 128 - code if code > 128 else code


def _end(process: subprocess.Popen[bytes]) -> None:
    # A terminal sends SIGINT to all of the foreground; who sent it to this process alone, or SIGTERM, needs this.
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.wait(timeout=_TELLING)
        return
    process.terminate()
    try:
        process.wait(timeout=_PATIENCE)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()


def run_shell(command: Sequence[str], *, environ: Mapping[str, str], cwd: Path) -> int:
    """Run a shell, which has the terminal, until it ends; what it left running goes on. The exit code, as shells have
    it. Raises :class:`MachineError` when it cannot be started.
    """
    try:
        with _deaf(), subprocess.Popen(command, cwd=cwd, env=dict(environ)) as process:
            code = process.wait()
    except OSError as error:
        raise MachineError(f"cannot run {command[0]}: {error.strerror}", hint="set SHELL to a shell") from error
    return 128 - code if code < 0 else code


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C is the shell's. A handler that does nothing is not inherited, as ignoring the signal would be."""
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
