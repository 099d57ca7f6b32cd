# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Usage: ``python -I -B __main__.py TASK REQUEST-JSON``. The answer is one line of JSON, the last of stdout."""

from __future__ import annotations

import importlib
import json
import os
import sys
import types

NAME = "kernel_builder_probe"
TASKS = {
    "describe": "facts",
    "drivers": "facts",
    "packages": "facts",
    "load": "loading",
    "together": "loading",
    "call": "calls",
}
"""Task -> the module that has it, as a function of that name."""
WAIT = "wait"
"""In the place of a task: it comes later, with its request, in a line of stdin."""


def open_package() -> None:
    """Make the modules beside this file importable as :data:`NAME`, and nothing else: a folder on ``sys.path`` would
    offer its modules to kernels.
    """
    package = types.ModuleType(NAME)
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules[NAME] = package


if __name__ == "__main__":
    open_package()
    task, request = sys.argv[1], json.loads(sys.argv[2])
    if task == WAIT:
        task, request = importlib.import_module(f"{NAME}.waiting").heard()
    getattr(importlib.import_module(f"{NAME}.{TASKS[task]}"), task)(request)
    importlib.import_module(f"{NAME}.answers").leave()
