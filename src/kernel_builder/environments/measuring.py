"""Processes that measure builds, each with a kernel of its own, and one that draws what came of it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_builder.environments import inside
from kernel_builder.environments.answering import AnsweringProcess
from kernel_builder.errors import BuildError, MachineError, UsageError

_PROGRAM = Path(inside.__file__).with_name("bench_process.py")
_PLOT = Path(inside.__file__).with_name("bench_plot.py")
_STEP = 0.2
_SECONDS = 600.0
"""What a workload may take to be set up and to run once."""
_TAIL = 8


class BenchProblemError(Exception):
    """What a benchmark could not do; the text says why, for people."""


class BenchProcess(AnsweringProcess):
    """Measures what ``label`` names, with ``python`` in ``cwd`` and the variables ``environ``. ``log`` is a file for
    what the benchmarks write.

    Use as a context manager: at the end nothing of it is left.
    """

    def __init__(self, label: str, python: Path, *, environ: Mapping[str, str], cwd: Path, log: Path) -> None:
        super().__init__([str(python), "-B", str(_PROGRAM)], environ=environ, cwd=cwd, log=log)
        self.label = label

    def ask(self, task: str, **facts: object) -> Mapping[str, Any]:
        """Have it do ``task``; its answer.

        Raises :class:`BenchProblemError` for what it could not do, :class:`BuildError` when it ended.
        """
        self._send({"do": task, **facts})
        answer: Mapping[str, Any] = self._receive(_SECONDS, _STEP)
        if "problem" in answer:
            raise BenchProblemError(str(answer["problem"]))
        return answer

    def _too_slow(self, seconds: float) -> BuildError:
        return BuildError(f"{self.label} did not end within {seconds:g} s; nothing was measured")

    def _ended(self) -> BuildError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code = (self._process.returncode or 0) - 128
        how = f"was killed by {signal.Signals(code).name}" if code in set(signal.Signals) else "ended"
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_TAIL:]
        words = "".join(f"\n    {line}" for line in said)
        return BuildError(f"the process that measures {self.label} {how}:{words or ' it gave no reason'}")


def find_plotter(pythons: Iterable[Path], environ: Mapping[str, str]) -> Path:
    """The first of ``pythons`` that has matplotlib. Raises :class:`UsageError` when none has."""
    tried = tuple(dict.fromkeys(pythons))
    for python in tried:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [str(python), str(_PLOT)],
                env=dict(environ),
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=120,
            )
            return python
    raise UsageError(
        f"--plot needs matplotlib, which {' and '.join(map(str, tried))} do not have",
        hint="pip install 'kernel-builder[run]', or leave out --plot: --json has all figures",
    )


def plot(python: Path, request: Mapping[str, object], file: Path, environ: Mapping[str, str]) -> None:
    """Draw ``request`` into ``file``. Raises :class:`MachineError`."""
    command: Sequence[str] = [str(python), str(_PLOT), str(file)]
    done = subprocess.run(
        command, env=dict(environ), input=json.dumps(request), text=True, capture_output=True, check=False
    )
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise MachineError(
            f"cannot draw {file}: {words[-1] if words else 'matplotlib gave no reason'}",
            hint="end the name in .svg, .png or .pdf",
        )
