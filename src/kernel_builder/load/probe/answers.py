# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""What is written to stdout, and how an error is told."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import traceback
from typing import Any

PREFIX = "kernel-builder-probe: "
CALLING = "kernel-builder-calls: "
BEHAVES = "kernel-builder-behaves: "
REGISTERED = "kernel-builder-registered: "
RAN = "kernel-builder-ran: "
HEARD = "kernel-builder-heard: "
_MOST_CAUSES = 5


def answer(**values: object) -> None:
    print(PREFIX + json.dumps(values), flush=True)


def announce_call(op: str) -> None:
    """Say which op is called next, so that one that ends the process is known by name."""
    print(CALLING + op, flush=True)


def tell_behaviour(**values: object) -> None:
    """Say how an op that was announced behaved."""
    print(BEHAVES + json.dumps(values), flush=True)


def tell_foreign(foreign: list[dict[str, str]]) -> None:
    """Say what the kernel registered outside its namespace, its ops included that were called until now."""
    print(REGISTERED + json.dumps(foreign), flush=True)


def tell_ran(codes: list[tuple[str, int, str]]) -> None:
    """Say which code of the kernel ran: its file, the first line and the name."""
    print(RAN + json.dumps(codes), flush=True)


def tell_heard() -> None:
    """Say that the task has come: what happens from now on is its doing."""
    print(HEARD, flush=True)


def answer_failure(error: BaseException, root: str, foreign: list[dict[str, str]]) -> None:
    """Answer that importing the kernel in ``root`` raised ``error``, and what it had registered elsewhere by then."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    frames = kernel_frames(error, root)
    answer(status="failed", reason=reason_of(error), trace=frames, traceback=trace, foreign=foreign)


def reason_of(error: BaseException) -> str:
    """The type and words of an error and of those that it came from, without notes of the client's own."""
    reasons: list[str] = []
    told: Any = error
    while told is not None and len(reasons) < _MOST_CAUSES:
        words = str(told).strip() or "(no message)"
        reasons.append(f"{type(told).__name__}: {words}")
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)
    return "\n  caused by ".join(dict.fromkeys(reasons))


def kernel_frames(error: BaseException, root: str) -> list[str]:
    """Where in the kernel's own files it happened, outermost first: ``ops/__init__.py, line 3: import nothing``."""
    inside = os.path.realpath(root) + os.sep
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(traceback.FrameSummary(error.filename, error.lineno, "", line=error.text))
    found = []
    for frame in frames:
        path = os.path.realpath(frame.filename)
        if path.startswith(inside):
            found.append(f"{path[len(inside) :]}, line {frame.lineno}: {(frame.line or '').strip()}")
    return found


def leave() -> None:
    """End at once, with all that was written: to take torch down takes a fifth of the time of loading a kernel, and
    waits for threads that a kernel started.
    """
    with contextlib.suppress(OSError, TypeError, AttributeError):  # Windows has no such handle
        ctypes.CDLL(None).fflush(None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
