# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Waiting for a task with all imported that any of them needs, which takes most of the time of loading a kernel."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from .answers import leave, tell_heard


def heard() -> tuple[str, dict[str, Any]]:
    """The task, and what it is asked, once somebody says so. Where nobody ever does, this process ends."""
    with contextlib.suppress(Exception):  # the task says what is wrong with them
        from . import loading  # noqa: F401
        from .kernel import import_frameworks

        import_frameworks()
    line = sys.stdin.readline()
    if not line:
        leave()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # as in a process that is not told anything
    os.close(nothing)
    tell_heard()
    task, request = json.loads(line)
    return task, request
