"""A process that has torch loaded, from which each run of the tests is forked: it takes milliseconds, not seconds."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_builder.environments import inside
from kernel_builder.environments.answering import AnsweringProcess
from kernel_builder.errors import MachineError

MODULES = ("torch", "pytest", "kernels")
"""What is imported before the first run. Nothing of them may start a device: a fork could not use it."""
_PROGRAM = Path(inside.__file__).with_name("warm_process.py")
_STEP = 0.02
_SECONDS = 120.0


class WarmProcess(AnsweringProcess):
    """Runs pytest with ``python`` in ``cwd``, with the variables ``environ``. ``log`` is a file for what goes wrong.

    Use as a context manager: at the end nothing of it is left.
    """

    def __init__(self, python: Path, *, environ: Mapping[str, str], cwd: Path, log: Path) -> None:
        super().__init__([str(python), str(_PROGRAM), *MODULES], environ=environ, cwd=cwd, log=log)
        self._ready = False

    def run(self, arguments: Sequence[str], output: Path, *, stop: Callable[[], bool]) -> int | None:
        """Run pytest with ``arguments``; what it writes goes to the file ``output``. Its exit code, negative for a
        signal; ``None`` when ``stop`` said that nobody waits for it any more: then all that it started is killed.

        Raises :class:`MachineError` when the process is gone.
        """
        if not self._ready:
            self._answer("ready")
            self._ready = True
        self._send({"arguments": list(arguments), "output": str(output)})
        child = int(self._answer("pid") or 0)
        answer = self._receive(float("inf"), _STEP, stop)
        if answer is None:
            # The group may not be there yet, when it has only just been forked.
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(child, signal.SIGKILL)
            self._receive(float("inf"), _STEP)
            return None
        return int(answer["code"])

    def _answer(self, name: str) -> Any:
        return self._receive(_SECONDS, _STEP)[name]

    def _ended(self) -> MachineError:
        said = self._log.read_text(encoding="utf-8", errors="replace").strip()
        words = said.splitlines()[-1] if said else "it gave no reason"
        return MachineError(f"the Python process that runs the tests ended: {words}", hint="run the command again")
