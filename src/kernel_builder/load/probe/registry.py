# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""What is registered with torch, and which of it a kernel registered.

The dispatcher tells every op and every kernel of an op, with the place in the source that registered it. What changes
there while a library of the kernel is loaded is the kernel's, whatever form it is written in; what Python code
registers is the kernel's where the code is.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
import re
import sys
from typing import Any

# Namespaces that are the process's, not an op's.
FALLBACK, CLASS = "fallback", "class"
OP, KERNEL = "op", "kernel"
_PLACE = re.compile(r"registered at (.+?)(?: :: .*| \[.*\])?$", re.MULTILINE)
_PYTHON = os.path.dirname(os.__file__) + os.sep
_PROBE = "kernel_builder_probe"


def ops_of(namespace: str) -> list[dict[str, Any]]:
    """The ops of a namespace: their names, the dispatch keys with a kernel, and whether they take tensors."""
    import torch

    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith(namespace + "::"))
    keys = dispatch_keys()
    return [{"name": name, "keys": keys_of(name, keys), "tensors": takes_tensors(name)} for name in names]


def dispatch_keys() -> list[str]:
    """Every key that a kernel may be registered for, aliases included."""
    import torch

    keys = []
    for key in torch._C.DispatchKey.__members__:
        try:
            torch._C._dispatch_key_parse(key)
        except RuntimeError:  # a mark between keys, not a key
            continue
        keys.append(key)
    return keys


def keys_of(name: str, keys: list[str]) -> list[str]:
    """The keys of ``keys`` that the op has a kernel for."""
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return [key for key in keys if has(name, key)]


def takes_tensors(name: str) -> bool:
    """Whether the dispatcher finds the device of a call among its arguments. It counts so where no schema tells."""
    import torch

    name, _, overload = name.partition(".")
    try:
        schema = torch._C._get_schema(name, overload)
    except RuntimeError:
        return True
    return any("Tensor" in str(argument.type) for argument in schema.arguments)


def snapshot() -> dict[tuple[str, str], str]:
    """What is registered: ``(kind, name)`` -> what the dispatcher says about it."""
    import torch

    core: Any = torch._C
    found = {(OP, name): core._dispatch_dump(name) for name in core._dispatch_get_all_op_names()}
    for schema in core._jit_get_all_schemas():
        found.setdefault((OP, f"{schema.name}.{schema.overload_name}".rstrip(".")), "")
    for schema in core._jit_get_custom_class_schemas():
        name = str(schema.arguments[0].type).rpartition("torch.classes.")[2] if schema.arguments else ""
        if name:
            found[CLASS, name] = ""
    for line in core._dispatch_dump_table(f"{_PROBE}::nothing").splitlines():
        found[FALLBACK, line.partition(":")[0]] = line
    return found


def changes(before: dict[tuple[str, str], str], after: dict[tuple[str, str], str]) -> list[dict[str, str]]:
    """What was registered between two snapshots."""
    found = []
    for (kind, name), text in after.items():
        old = before.get((kind, name))
        if old == text:
            continue
        lines = set((old or "").splitlines())
        new = [line for line in text.splitlines() if line not in lines and "(inactive)" not in line]
        places = _PLACE.findall("\n".join(new))
        place = places[-1] if places else ""
        if kind == OP and old is not None:
            found += [entry(KERNEL, f"{name} ({line.partition('[')[0].partition(':')[0]})", place) for line in new]
        elif kind == CLASS:
            found.append(entry(CLASS, name, place))
        else:
            found.append(entry(kind, name, place))
    return found


def entry(kind: str, name: str, place: str) -> dict[str, str]:
    """A registration: of an ``op``, a ``kernel`` of an op that was there, a ``class`` or a ``fallback`` of a key."""
    namespace = name.partition("::")[0] if kind in {OP, KERNEL} else name.rpartition(".")[0] if kind == CLASS else "_"
    return {"kind": kind, "namespace": namespace, "name": name, "place": place}


def op_names() -> set[str]:
    import torch

    return set(torch._C._dispatch_get_all_op_names())


class Registrations:
    """Notes what is registered by whom: the kernel's is what lies in ``root``.

    torch and other packages register ops of their own when parts of them are imported for the first time.
    """

    def __init__(self, root: str) -> None:
        self.inside = os.path.realpath(root) + os.sep
        self.kernel: list[dict[str, str]] = []
        self.others: set[str] = set()  # names of ops
        self.other_namespaces: set[str] = set()
        self.before: set[str] = set()

    def watch(self) -> None:
        """Begin. Nothing of the kernel is loaded yet."""
        import torch

        registrar: Any = torch.library.Library
        own = registrar(_PROBE, "DEF")
        own.define("nothing() -> ()")
        self._own = own  # the op is gone when its library is
        self.before = op_names()
        self._watch_python(registrar)
        loader: Any = importlib.machinery.ExtensionFileLoader
        self._watch_native(loader, "create_module", lambda loader, *_: loader.path)
        self._watch_native(loader, "exec_module", lambda loader, *_: loader.path)
        self._watch_native(ctypes.CDLL, "__init__", lambda _library, name=None, *_: name)

    def _watch_python(self, registrar: Any) -> None:
        """Note what registers with torch.library. Every way of it makes such a ``Library``."""
        made, define, impl = registrar.__init__, registrar.define, registrar.impl
        watcher = self

        def noting_made(library: Any, ns: str, *rest: Any, **words: Any) -> None:
            watcher.note(ns, "")
            made(library, ns, *rest, **words)

        def noting_define(library: Any, schema: str, *rest: Any, **words: Any) -> Any:
            watcher.note(library.ns, f"{library.ns}::{schema.partition('(')[0].strip().rpartition('::')[2]}")
            return define(library, schema, *rest, **words)

        def noting_impl(library: Any, op_name: Any, *rest: Any, **words: Any) -> Any:
            name = op_name if isinstance(op_name, str) else op_name.name()
            watcher.note(library.ns, f"{library.ns}::{name.rpartition('::')[2]}")
            return impl(library, op_name, *rest, **words)

        registrar.__init__, registrar.define, registrar.impl = noting_made, noting_define, noting_impl

    def note(self, namespace: str, name: str) -> None:
        """Python code registers in ``namespace``; ``name`` is the op, where it is known."""
        frame: Any = sys._getframe(2)
        while frame is not None and self.only_passes_on(frame.f_code.co_filename):
            frame = frame.f_back
        path = os.path.realpath(frame.f_code.co_filename) if frame is not None else ""
        if path.startswith(self.inside):
            place = f"{path[len(self.inside) :]}:{frame.f_lineno}"
            self.kernel.append({"kind": OP, "namespace": namespace, "name": name, "place": place})
        else:
            self.other_namespaces.add(namespace)
            self.others.add(name)

    def only_passes_on(self, file: str) -> bool:
        """Whether code in ``file`` registers for its caller: torch's own does, and Python's, but no import."""
        if os.path.realpath(file).startswith(self.inside):
            return False
        return os.sep + "torch" + os.sep in file or (file.startswith(_PYTHON) and "site-packages" not in file)

    def _watch_native(self, owner: Any, method: str, path_of: Any) -> None:
        """Note what is registered while ``method`` of ``owner`` loads a library."""
        original = getattr(owner, method)
        watcher = self

        def noting(*arguments: Any, **words: Any) -> Any:
            path = path_of(*arguments, **words)
            if not isinstance(path, (str, os.PathLike)):
                return original(*arguments, **words)
            if not os.path.realpath(path).startswith(watcher.inside):
                names = op_names()
                result = original(*arguments, **words)
                watcher.others |= op_names() - names
                return result
            before = snapshot()
            result = original(*arguments, **words)
            watcher.kernel += changes(before, snapshot())
            return result

        setattr(owner, method, noting)

    def foreign(self, namespace: str) -> list[dict[str, str]]:
        """What the kernel registered outside its own namespace, and where; sorted."""
        found = {(one["kind"], one["namespace"], one["name"]): one for one in self.kernel}
        for name in op_names() - self.before - self.others:
            # What no Python code registered, some library did that the kernel reached in a way of its own.
            if name.partition("::")[0] not in self.other_namespaces:
                found.setdefault((OP, name.partition("::")[0], name), entry(OP, name, ""))
        named = {one["namespace"] for one in found.values() if one["name"]}
        return [
            one
            for _, one in sorted(found.items())
            if one["namespace"] not in {namespace, _PROBE} and (one["name"] or one["namespace"] not in named)
        ]
