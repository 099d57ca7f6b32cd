# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""What a kernel registers with torch, from the moment before its import on.

A ledger is kept of what is registered and accounted for. Whatever changes besides is the kernel's, in whatever form it
is written and whenever it happens: while a library is loaded, in a function that Python calls later, in an op. What
others register, torch's own parts among them, is entered when they do: Python code that registers is known by its file,
a library by its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import mmap
import os
import sys
from collections.abc import Iterator
from typing import Any

from .registry import KERNEL, OP, PROBE, Said, changes, dumped, fallbacks, snapshot, torch_is_here

_PYTHON = os.path.dirname(os.__file__) + os.sep
# What libraries that can register with torch need.
_TORCH = (b"torch", b"libc10")


class Registrations:
    """Notes what is registered by whom: the kernel's is what lies in ``root``, and what nobody else registers."""

    def __init__(self, root: str) -> None:
        self.inside = os.path.realpath(root) + os.sep
        self.kernel: list[dict[str, str]] = []
        self.known: Said = {}

    def watch(self) -> None:
        """Begin. Nothing of the kernel is loaded yet."""
        if not torch_is_here():
            return
        import torch

        registrar: Any = torch.library.Library
        own = registrar(PROBE, "DEF")
        own.define("nothing() -> ()")
        self._own = own  # the op is gone when its library is
        self.known = snapshot()
        self._watch_python(registrar)
        loader: Any = importlib.machinery.ExtensionFileLoader
        self._watch_native(loader, "create_module", lambda loader, *_: loader.path)
        self._watch_native(loader, "exec_module", lambda loader, *_: loader.path)
        self._watch_native(ctypes.CDLL, "__init__", lambda _library, name=None, *_: name)

    def look(self) -> None:
        """Enter what changed since the last look: it is the kernel's."""
        now = snapshot()
        self.kernel += changes(self.known, now)
        self.known = now

    def foreign(self, namespace: str) -> list[dict[str, str]]:
        """What the kernel registered outside its own namespace until now, and where; sorted."""
        self.look()
        own = {one["name"] for one in self.kernel if one["kind"] == OP}
        found = {
            (one["kind"], one["namespace"], one["name"]): one
            for one in self.kernel
            if one["kind"] != KERNEL or one["name"].partition(" (")[0] not in own
        }
        named = {one["namespace"] for one in found.values() if one["name"]}
        return [
            one
            for _, one in sorted(found.items())
            if one["namespace"] not in {namespace, PROBE} and (one["name"] or one["namespace"] not in named)
        ]

    def place_of(self, name: str) -> str:
        """Where the kernel registered something by the name of an op, as far as torch knows."""
        return next((one["place"] for one in self.kernel if one["kind"] == OP and one["name"] == name), "")

    def _watch_python(self, registrar: Any) -> None:
        """Note what registers with torch.library. Every way of it makes such a ``Library``."""
        made, define, impl = registrar.__init__, registrar.define, registrar.impl
        watcher = self

        def noting_made(library: Any, ns: str, *rest: Any, **words: Any) -> None:
            place = watcher.place_of_caller()
            if place:
                watcher.kernel.append({"kind": OP, "namespace": ns, "name": "", "place": place})
            made(library, ns, *rest, **words)

        def noting_define(library: Any, schema: str, *rest: Any, **words: Any) -> Any:
            with watcher.entering(library.ns, schema.partition("(")[0]):
                return define(library, schema, *rest, **words)

        def noting_impl(library: Any, op_name: Any, *rest: Any, **words: Any) -> Any:
            with watcher.entering(library.ns, op_name if isinstance(op_name, str) else op_name.name()):
                return impl(library, op_name, *rest, **words)

        registrar.__init__, registrar.define, registrar.impl = noting_made, noting_define, noting_impl
        fallback: Any = getattr(registrar, "fallback", None)

        def noting_fallback(library: Any, *rest: Any, **words: Any) -> Any:
            with watcher.entering("_", ""):
                return fallback(library, *rest, **words)

        if fallback is not None:
            registrar.fallback = noting_fallback

    @contextlib.contextmanager
    def entering(self, namespace: str, name: str) -> Iterator[None]:
        """Enter what Python code registers for the op ``name``, or as a fallback where there is none; it is whose file
        calls.
        """
        place = self.place_of_caller()
        full = f"{namespace}::{name.strip().rpartition('::')[2]}"

        def said() -> Said:
            return {(OP, full): dumped(full)} if name else fallbacks()

        before = said()
        self.kernel += changes({key: self.known.get(key, "") for key in before}, before)
        self.known.update(before)
        try:
            yield
        finally:
            after = said()
            if place:
                self.kernel += [{**one, "place": place} for one in changes(before, after)]
            self.known.update(after)

    def place_of_caller(self) -> str:
        """Where in the kernel's files the code is that registers something; ``""`` where it is not the kernel's."""
        frame: Any = sys._getframe(1)
        while frame is not None and self.only_passes_on(frame.f_code.co_filename):
            frame = frame.f_back
        path = os.path.realpath(frame.f_code.co_filename) if frame is not None else ""
        return f"{path[len(self.inside) :]}:{frame.f_lineno}" if path.startswith(self.inside) else ""

    def only_passes_on(self, file: str) -> bool:
        """Whether code in ``file`` registers for its caller: torch's own does, and Python's, but no import."""
        if os.path.realpath(file).startswith(self.inside):
            return False
        if file == __file__:
            return True
        return os.sep + "torch" + os.sep in file or (file.startswith(_PYTHON) and "site-packages" not in file)

    def _watch_native(self, owner: Any, method: str, path_of: Any) -> None:
        """Note what is registered while ``method`` of ``owner`` loads a library that is not the kernel's. What its own
        one registers is the kernel's, whoever looks next.
        """
        original = getattr(owner, method)
        watcher = self

        def noting(*arguments: Any, **words: Any) -> Any:
            path = path_of(*arguments, **words)
            if not isinstance(path, (str, os.PathLike)) or os.path.realpath(path).startswith(watcher.inside):
                return original(*arguments, **words)
            if not may_register(os.fspath(path)):
                return original(*arguments, **words)
            watcher.look()
            result = original(*arguments, **words)
            watcher.known = snapshot()
            return result

        setattr(owner, method, noting)


def may_register(path: str) -> bool:
    """Whether a library can register with torch: whether it, or a file that only its name tells, mentions it."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return any(content.find(word) >= 0 for word in _TORCH)
    except (OSError, ValueError):  # the loader finds it, or it is empty
        return True
