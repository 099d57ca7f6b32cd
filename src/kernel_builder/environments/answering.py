"""A program in another Python that answers on its standard output, a line of JSON at a time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernel_builder.load import reaper


def _never() -> bool:
    return False


class AnsweringProcess(ABC):
    """Runs ``command`` in ``cwd`` with the variables ``environ``. ``log`` is a file for what it writes besides answers.

    Use as a context manager: at the end nothing of it is left. Subclasses say what people are told when it has ended,
    and when it takes too long.
    """

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str], cwd: Path, log: Path) -> None:
        self._log = log
        self._received = b""
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", reaper.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=cwd,
                env=dict(environ),
                start_new_session=True,  # Ctrl-C is for us to act on
            )

    def __enter__(self) -> Self:
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

    def _send(self, question: Mapping[str, object]) -> None:
        """Write a line. Raises what :meth:`_ended` gives."""
        stream = self._process.stdin
        if stream is None:
            raise self._ended()
        try:
            stream.write((json.dumps(question) + "\n").encode())
            stream.flush()
        except OSError as error:
            raise self._ended() from error

    def _receive(self, seconds: float, step: float, stop: Callable[[], bool] = _never) -> Any:
        """The next answer; ``None`` when ``stop``, which is asked every ``step`` seconds, came first.

        Raises what :meth:`_ended` gives, and after ``seconds`` what :meth:`_too_slow` gives.
        """
        stream = self._process.stdout
        if stream is None:
            raise self._ended()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            if stop():
                return None
            if select.select([stream], [], [], step)[0]:
                data = os.read(stream.fileno(), 1 << 16)
                if not data:
                    raise self._ended()
                self._received += data
            elif time.monotonic() > deadline:
                raise self._too_slow(seconds)
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    @abstractmethod
    def _ended(self) -> Exception:
        """The error for a process that is gone."""

    def _too_slow(self, seconds: float) -> Exception:  # noqa: ARG002
        """The error for one that did not answer within that many seconds."""
        return self._ended()
