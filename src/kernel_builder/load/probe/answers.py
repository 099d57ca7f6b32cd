# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""What is written to stdout, and how an error is told."""

from __future__ import annotations

import json
import os
import traceback

PREFIX = "kernel-builder-probe: "
CALLING = "kernel-builder-calls: "


def answer(**values: object) -> None:
    print(PREFIX + json.dumps(values), flush=True)


def announce_call(op: str) -> None:
    """Say which op is called next, so that one that ends the process is known by name."""
    print(CALLING + op, flush=True)


def reason_of(error: BaseException) -> str:
    """The error's type and words, without notes of the client's own."""
    words = str(error).strip() or "(no message)"
    return f"{type(error).__name__}: {words}"


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
