# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""What is registered with torch. The dispatcher tells every op and every kernel of an op, with the place in the source
that registered it.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Any

# Namespaces that are the process's, not an op's.
FALLBACK, CLASS = "fallback", "class"
OP, KERNEL = "op", "kernel"
_PLACE = re.compile(r"registered at (.+?)(?: :: .*| \[.*\])?$", re.MULTILINE)
# What the dispatcher says of an op besides its kernels.
_OF_THE_OP = ("name:", "schema:", "debug:", "alias analysis kind:")
_UNDEFINED = "schema: (none)"
PROBE = "kernel_builder_probe"
"""The namespace of an op without any kernel."""
Said = dict[tuple[str, str], str]
"""``(kind, name)`` of what is registered -> what the dispatcher says about it."""


def torch_is_here() -> bool:
    """Whether torch is installed. Kernels for tvm-ffi do without; then nothing can be registered with it."""
    return importlib.util.find_spec("torch") is not None


def ops_of(namespace: str) -> list[dict[str, Any]]:
    """The ops of a namespace: their names, the dispatch keys with a kernel, and whether they take tensors."""
    if not torch_is_here():
        return []
    import torch

    keys = dispatch_keys()
    return [
        {"name": name, "keys": keys_of(name, keys), **facts_of(torch._C._get_schema(*apart(name)))}
        for name in names_in(namespace)
        if is_defined(name)
    ]


def undefined_in(namespace: str) -> list[str]:
    """What has a kernel in a namespace and is no op, for nothing defines it."""
    return [name for name in names_in(namespace) if not is_defined(name)]


def names_in(namespace: str) -> list[str]:
    """All names in a namespace, with their overloads; sorted."""
    if not torch_is_here():
        return []
    import torch

    return sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith(namespace + "::"))


def is_defined(name: str) -> bool:
    """Whether a name has a schema. One without is of a kernel alone."""
    import torch

    return _UNDEFINED not in torch._C._dispatch_dump(name).splitlines()


def apart(name: str) -> tuple[str, str]:
    """A name and its overload."""
    base, _, overload = name.partition(".")
    return base, overload


def facts_of(schema: Any) -> dict[str, Any]:
    """What a schema says of an op: whether it takes tensors, and whether it neither gives nor writes anything."""
    tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    writes = any(info is not None and info.is_write for info in (one.alias_info for one in schema.arguments))
    return {"tensors": tensors, "idle": tensors and not writes and not schema.returns}


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


def snapshot() -> Said:
    """Everything that is registered."""
    if not torch_is_here():
        return {}
    import torch

    core: Any = torch._C
    found: Said = {(OP, name): dumped(name) for name in core._dispatch_get_all_op_names()}
    for schema in core._jit_get_all_schemas():
        found.setdefault((OP, f"{schema.name}.{schema.overload_name}".rstrip(".")), "")
    for schema in core._jit_get_custom_class_schemas():
        name = str(schema.arguments[0].type).rpartition("torch.classes.")[2] if schema.arguments else ""
        if name:
            found[CLASS, name] = ""
    found.update(fallbacks())
    return found


def dumped(name: str) -> str:
    """What the dispatcher says about an op; nothing where it knows none of the name."""
    import torch

    return str(torch._C._dispatch_dump(name))


def fallbacks() -> Said:
    """What ops without a kernel of their own do, for each dispatch key."""
    import torch

    table: str = torch._C._dispatch_dump_table(f"{PROBE}::nothing")
    return {(FALLBACK, line.partition(":")[0]): line for line in table.splitlines()}


def changes(before: Said, after: Said) -> list[dict[str, str]]:
    """What was registered between two snapshots, or parts of them. What went away is not told."""
    found = []
    for (kind, name), text in after.items():
        old = before.get((kind, name), "")
        if old == text and (kind, name) in before:
            continue
        lines = set(old.splitlines())
        new = [line for line in text.splitlines() if line not in lines and "(inactive)" not in line]
        places = _PLACE.findall("\n".join(new))
        place = places[-1] if places else ""
        if kind == OP and old and not (_UNDEFINED in lines and _UNDEFINED not in text):
            kernels = [line for line in new if not line.startswith(_OF_THE_OP)]
            found += [entry(KERNEL, f"{name} ({line.partition('[')[0].partition(':')[0]})", place) for line in kernels]
        elif kind != FALLBACK or new:
            found.append(entry(kind, name, place))
    return found


def entry(kind: str, name: str, place: str) -> dict[str, str]:
    """A registration: of an ``op``, a ``kernel`` of an op that was there, a ``class`` or a ``fallback`` of a key."""
    namespace = name.partition("::")[0] if kind in {OP, KERNEL} else name.rpartition(".")[0] if kind == CLASS else "_"
    return {"kind": kind, "namespace": namespace, "name": name, "place": place}
