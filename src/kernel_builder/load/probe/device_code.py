# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Whether the Python of a kernel failed for want of a device, or because it is wrong.

What is wrong everywhere: a name or a module that does not exist, and whatever fails before the code has turned to the
device at all. Where the code turned to it, what follows may be right on a machine that has one.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
import types
from typing import Any

# As torch, its compilers and drivers say it.
_WORDS = re.compile(
    r"not compiled with \w+ (enabled|support)|Found no \w+ driver|No \w+ GPUs? (are|is) available|0 active drivers"
    r"|no \w+[- ]capable device|device is not available|driver (is too old|not found)|not linked with support for \w+"
    r"|without \w+ support|No available \w+ device|cannot find \w+ driver",
    re.IGNORECASE,
)


class Devices:
    """Notes whether code of the kernel in ``root`` turns to torch's device."""

    def __init__(self, root: str, request: dict[str, Any]) -> None:
        self.inside = os.path.realpath(root) + os.sep
        self.device = request["device"]
        self.key = request["key"]
        self.modules = set(request["device-modules"])
        self.asked = ""

    def watch(self) -> None:
        """Begin. torch is imported already."""
        import torch

        for name in {self.device, "accelerator"}:
            module: Any = getattr(torch, name, None)
            if isinstance(module, types.ModuleType):
                module.__class__ = self._noting(type(module))

    def _noting(self, kind: type) -> type:
        watcher = self

        class Noting(kind):  # type: ignore[misc]
            """The module of a device, which notes who asks it."""

            def __getattribute__(self, name: str) -> Any:
                frame = sys._getframe(1)
                if not watcher.asked and os.path.realpath(frame.f_code.co_filename).startswith(watcher.inside):
                    watcher.asked = name
                return super().__getattribute__(name)

        return Noting

    def needs_one(self, error: BaseException) -> bool:
        """Whether ``error``, raised while the kernel was imported, is for want of a device."""
        told: Any = error
        while told is not None:
            if self._says_so(told):
                return True
            told = told.__cause__ or told.__context__
        wrong = isinstance(error, (NameError, SyntaxError)) or (isinstance(error, ImportError) and error.name)
        return bool(self.asked) and not wrong

    def _says_so(self, error: BaseException) -> bool:
        words = str(error)
        if isinstance(error, ImportError) and error.name and error.name.partition(".")[0] in self.modules:
            return True
        if isinstance(error, AttributeError) and re.search(rf"has no attribute '_?{self.device}", words, re.IGNORECASE):
            return words.startswith("module 'torch")
        if _WORDS.search(words) or f"from the '{self.key}' backend" in words:
            return True
        return any(self._is_of_device(frame.filename) for frame in traceback.extract_tb(error.__traceback__)[-1:])

    def _is_of_device(self, file: str) -> bool:
        """Whether the code that raised it is of torch's device, or of a module that only devices use."""
        parts = file.split(os.sep)
        own = any(pair in (("torch", self.device), ("torch", "accelerator")) for pair in zip(parts, parts[1:]))
        return (own or bool(self.modules & set(parts))) and not os.path.realpath(file).startswith(self.inside)
