# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""What was registered with torch, where and by whom."""

from __future__ import annotations

import os
import sys
from typing import Any

# Dispatch keys that make an op run, besides those of backends.
COMPOSITE = ["CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"]


def ops_of(namespace: str, keys: list[str]) -> tuple[list[str], list[str]]:
    """(all ops of the namespace, those that nothing implements for any of ``keys``)."""
    import torch

    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith(namespace + "::"))
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return names, [name for name in names if not any(has(name, key) for key in keys + COMPOSITE)]


class Registrations:
    """Notes which op namespaces Python code registers in, and whose code it is: the kernel's, when it lies in ``root``.

    torch and other packages register ops of their own when parts of them are imported for the first time.
    """

    def __init__(self, root: str) -> None:
        self.inside = os.path.realpath(root) + os.sep
        self.kernel: set[str] = set()
        self.others: set[str] = set()

    def watch(self) -> None:
        import torch

        registrar: Any = torch.library.Library
        original = registrar.__init__
        watcher = self

        def noting(library: Any, ns: str, *rest: Any, **words: Any) -> None:
            watcher.note(ns)
            original(library, ns, *rest, **words)

        registrar.__init__ = noting

    def note(self, namespace: str) -> None:
        frame: Any = sys._getframe(2)
        own = os.sep + "torch" + os.sep
        while frame is not None and own in frame.f_code.co_filename:
            frame = frame.f_back
        path = os.path.realpath(frame.f_code.co_filename) if frame is not None else ""
        (self.kernel if path.startswith(self.inside) else self.others).add(namespace)


def all_ops() -> set[str]:
    import torch

    return set(torch._C._dispatch_get_all_op_names())


def foreign(before: set[str], namespace: str, seen: Registrations) -> list[str]:
    """Namespaces other than its own that the kernel registered in."""
    new = {name.split("::", 1)[0] for name in all_ops() - before}
    # What no Python code registered, some library did: the kernel's, for torch's own are loaded already.
    native = new - seen.others - seen.kernel
    return sorted((native | seen.kernel) - {namespace})
