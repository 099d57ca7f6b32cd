# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Which code of a kernel ran: an edit of anything else changes nothing of what was seen."""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from .answers import tell_ran

_TRACER = "torch._dynamo"
"""It follows functions without calling them."""


class Executed:
    """Notes the code that runs from files in ``root``, in threads that Python knows."""

    def __init__(self, root: str) -> None:
        self._inside = os.path.realpath(root) + os.sep
        self._found: set[CodeType] = set()
        self._hook = self._note  # a bound method is another object each time

    def watch(self) -> None:
        """Begin."""
        threading.setprofile(self._hook)
        sys.setprofile(self._hook)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            self._found.add(frame.f_code)

    def tell(self) -> None:
        """Say what ran: file, first line and name; nothing where that is not all."""
        is_all = sys.getprofile() is self._hook and _TRACER not in sys.modules
        sys.setprofile(None)
        threading.setprofile(None)
        if not is_all:
            return
        codes = [(os.path.realpath(code.co_filename), code) for code in self._found]
        tell_ran(
            sorted(
                {
                    (file[len(self._inside) :], code.co_firstlineno, code.co_name)
                    for file, code in codes
                    if file.startswith(self._inside)
                }
            )
        )
