"""A process that has torch loaded, from which each run of the tests is forked: it takes milliseconds, not seconds."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kernel_builder.environments import inside
from kernel_builder.errors import MachineError
from kernel_builder.load import reaper

MODULES = ("torch", "pytest", "kernels")
"""What is imported before the first run. Nothing of them may start a device: a fork could not use it."""
_PROGRAM = Path(inside.__file__).with_name("warm_process.py")
_STEP = 0.02
_SECONDS = 120.0


class WarmProcess:
    """Runs pytest with ``python`` in ``cwd``, with the variables ``environ``. ``log`` is a file for what goes wrong.

    Use as a context manager: at the end nothing of it is left.
    """

    def __init__(self, python: Path, *, environ: Mapping[str, str], cwd: Path, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-I", "-S", "-B", reaper.__file__, str(python), str(_PROGRAM), *MODULES]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=cwd,
                env=dict(environ),
                start_new_session=True,  # Ctrl-C is for us to act on
            )
        self._received = b""
        self._ready = False

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def run(self, arguments: Sequence[str], output: Path, *, stop: Callable[[], bool]) -> int | None:
        """Run pytest with ``arguments``; what it writes goes to the file ``output``. Its exit code, negative for a
        signal; ``None`` when ``stop`` said that nobody waits for it any more: then all that it started is killed.

        Raises :class:`MachineError` when the process is gone.
        """
        if not self._ready:
            self._answer("ready", lambda: False)
            self._ready = True
        line = json.dumps({"arguments": list(arguments), "output": str(output)}) + "\n"
        try:
            os.write(self._input, line.encode())
        except OSError as error:
            raise self._gone() from error
        child = int(self._answer("pid", lambda: False) or 0)
        code = self._answer("code", stop)
        if code is None:
            # The group may not be there yet, when it has only just been forked.
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(child, signal.SIGKILL)
            self._answer("code", lambda: False)
        return None if code is None else int(code)

    @property
    def _input(self) -> int:
        stream = self._process.stdin
        if stream is None:
            raise self._gone()
        return stream.fileno()

    def _answer(self, name: str, stop: Callable[[], bool]) -> Any:
        """The answer of that name; ``None`` when ``stop`` came first."""
        stream = self._process.stdout
        if stream is None:
            raise self._gone()
        deadline = time.monotonic() + _SECONDS if name != "code" else float("inf")
        while b"\n" not in self._received:
            if stop():
                return None
            if select.select([stream], [], [], _STEP)[0]:
                data = os.read(stream.fileno(), 1 << 16)
                if not data:
                    raise self._gone()
                self._received += data
            elif time.monotonic() > deadline:
                raise self._gone()
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)[name]

    def _gone(self) -> MachineError:
        said = self._log.read_text(encoding="utf-8", errors="replace").strip()
        words = said.splitlines()[-1] if said else "it gave no reason"
        return MachineError(f"the Python that tests are run with ended: {words}", hint="run the command again")
