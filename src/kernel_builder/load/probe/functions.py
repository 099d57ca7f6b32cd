# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""What a kernel offers and registers through tvm-ffi: functions of its library, and global functions of the process."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

GLOBAL = "global"
"""The kind of a registration in tvm-ffi's registry, which the whole process shares."""


class Functions:
    """Notes which global functions of tvm-ffi are there before a kernel is. Without tvm-ffi there are none."""

    def __init__(self) -> None:
        self.before: set[str] = set()

    def watch(self) -> None:
        """Begin. Nothing of the kernel is loaded yet."""
        self.before = global_functions()

    def foreign(self, namespace: str) -> list[dict[str, str]]:
        """The global functions that came since then whose names do not begin with the kernel's own; sorted."""
        new = sorted(global_functions() - self.before)
        return [
            {"kind": GLOBAL, "namespace": name.rpartition(".")[0] or name, "name": name, "place": ""}
            for name in new
            if not name.startswith(namespace + ".")
        ]


def global_functions() -> set[str]:
    """The names in tvm-ffi's registry."""
    if importlib.util.find_spec("tvm_ffi") is None:
        return set()
    from tvm_ffi import registry

    return set(registry.list_global_func_names())


def functions_of(namespace: str, wanted: list[str]) -> list[str]:
    """Of the functions ``wanted``, those that the loaded kernel's ``_ops.ops`` has."""
    ops: Any = getattr(sys.modules.get(namespace + "._ops"), "ops", None)
    return [name for name in wanted if ops is not None and ops.implements_function(name)]
