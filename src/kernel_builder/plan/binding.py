"""When a source learns the kernel's op namespace: when it is compiled, or only when the library is linked.

The namespace holds a digest of the sources while there are local changes, so it changes with every edit. If every file
that says TORCH_EXTENSION_NAME were compiled with the final name, each edit would recompile the bindings, which are the
slowest files. The generated ``registration.h`` can put the name in at load time, for uses inside its own macros; a file
that uses the name in any other way gets the final one, and is recompiled when it changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PLACEHOLDER = "kernel_builder_unique"
"""Stands for the unique part of the ops id in files that are bound late. A valid part of a C identifier."""

_NAME = "TORCH_EXTENSION_NAME"
_BOUND_LATE = re.compile(
    rb"\b(?:(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT|_IMPL)?_EXPAND|REGISTER_EXTENSION)\s*\(\s*"
    rb"(?:CONCAT\s*\(\s*TORCH_EXTENSION_NAME\s*,\s*\w+\s*\)|TORCH_EXTENSION_NAME)"
)
_OWN_MACROS = re.compile(
    rb"^\s*#\s*define\s+(?:(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT|_IMPL)?_EXPAND|REGISTER_EXTENSION)\b", re.MULTILINE
)


def _remaining_uses(text: bytes) -> bool:
    """Whether ``text`` says the name outside the generated macros.

    A comment counts too: only a compiler can say what is one (``"http://" STRINGIFY(...)``), and binding a file early
    for nothing costs only a recompile.
    """
    return _NAME.encode() in _BOUND_LATE.sub(b"", text)


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Sources (relative to the project root) that must be compiled with the final name."""

    early: frozenset[str]


def decide_binding(root: Path, sources: tuple[str, ...], included: tuple[str, ...]) -> Binding:
    """Read ``sources`` and the files that they may include (paths relative to ``root``): which are bound early?

    An included file that uses the name, or that brings macros of its own in place of the generated ones, makes every
    source early: which of them include it is not known before compiling.
    """
    own_macros = False
    for path in included:
        if path in sources:
            continue
        text = (root / path).read_bytes()
        if _remaining_uses(text):
            return Binding(early=frozenset(sources))
        own_macros = own_macros or _OWN_MACROS.search(text) is not None
    early = set()
    for source in sources:
        text = (root / source).read_bytes()
        if (own_macros and _NAME.encode() in text) or _OWN_MACROS.search(text) or _remaining_uses(text):
            early.add(source)
    return Binding(early=frozenset(early))
