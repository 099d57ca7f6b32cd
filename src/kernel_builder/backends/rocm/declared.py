"""The names of ROCm's libraries of mathematics, out of the headers that declare them.

These libraries hold gigabytes of device code, and a kernel needs a few names of theirs to be linked: hipBLAS's
``hipblasSgemm``, say. AMD's headers declare each of their functions, in C, with the library's name before its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kernel_builder.binary.elf import Symbol
from kernel_builder.toolchain.link_tables import write_table
from kernel_builder.toolchain.recipe import Component

_SUFFIXES = (".h", ".hpp")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CALLED = re.compile(r"\b[a-z]\w*(?=\s*\()")


def write_declared(components: Iterable[Component], roots: Sequence[Path], entry: Path) -> None:
    """Write the table of every library that the headers of ``components`` declare, which lie below ``roots``."""
    libraries = {component.name: component.declares for component in components if component.declares is not None}
    stems = sorted(map(_stem, libraries.values()), key=len, reverse=True)
    for component, soname in libraries.items():
        names = {name for root in roots for name in _declared(root / "include" / component)}
        # hipblasLtCreate is hipBLASLt's, and not hipBLAS's.
        owned = (name for name in names if next(filter(name.lower().startswith, stems), None) == _stem(soname))
        write_table(entry, soname, [Symbol(name=name) for name in owned])


def _stem(soname: str) -> str:
    return soname.removeprefix("lib").partition(".so")[0]


def _declared(headers: Path) -> Iterator[str]:
    """What looks like the declaration of a function; macros, which are in capitals, are left out."""
    for path in headers.rglob("*"):
        if path.suffix in _SUFFIXES and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            yield from _CALLED.findall(_COMMENT.sub(" ", text))
