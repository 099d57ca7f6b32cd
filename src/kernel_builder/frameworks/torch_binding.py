"""When a source learns the kernel's op namespace: when it is compiled, or only when the library is linked.

The namespace holds a digest of the sources while there are local changes, so it changes with every edit. If every file
that says TORCH_EXTENSION_NAME were compiled with the final name, each edit would recompile the bindings, which are the
slowest files. The generated ``registration.h`` can put the name in at load time, for uses inside its own macros; a file
that uses the name in any other way gets the final one, and is recompiled when it changes.
"""

from __future__ import annotations

import re

from kernel_builder.project.survey import Marks

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


NAMES, REMAINING, MACROS = "names", "remaining", "macros"
"""Marks of a file: it says the name; it says it outside the generated macros; it brings macros of its own."""


def marks_of(text: bytes) -> frozenset[str]:
    """What ``text`` says about the name.

    A comment counts too: only a compiler can say what is one (``"http://" STRINGIFY(...)``), and binding a file early
    for nothing costs only a recompile.
    """
    marks = {
        NAMES: _NAME.encode() in text,
        REMAINING: _NAME.encode() in _BOUND_LATE.sub(b"", text),
        MACROS: _OWN_MACROS.search(text) is not None,
    }
    return frozenset(mark for mark, present in marks.items() if present)


def early_sources(sources: tuple[str, ...], included: tuple[str, ...], marks: Marks) -> frozenset[str]:
    """Of ``sources``, those that must be compiled with the final name. ``included`` are files that they may include.

    An included file that uses the name, or that brings macros of its own in place of the generated ones, makes every
    source early: which of them include it is not known before compiling.
    """
    nothing: frozenset[str] = frozenset()
    others = [marks.get(path, nothing) for path in included if path not in sources]
    if any(REMAINING in found for found in others):
        return frozenset(sources)
    own_macros = any(MACROS in found for found in others)
    return frozenset(
        source
        for source in sources
        if {REMAINING, MACROS} & marks.get(source, nothing) or (own_macros and NAMES in marks.get(source, nothing))
    )
