"""Names of ops in a library's bytes. What is not found there for certain is registered nowhere else.

Compilers put short texts into instructions, piece by piece, and linkers let one text be the end of another: a name is
called missing only where one of its pieces is nowhere.
"""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

from kernel_builder.binary.elf import mapped
from kernel_builder.check.subject import LibraryFile

_SCHEMA = re.compile(
    rb"(?:[A-Za-z_]\w*::)?([A-Za-z_]\w*)(?:\.\w+)?\((?:\)|(?:Tensor|Scalar|SymInt|Device|Layout|MemoryFormat|Generator"
    rb"|Any|int|float|bool|str|complex|ScalarType|__torch__)\b[^\0]*\)) *-> *[A-Za-z(]"
)
_LONGEST = 8192
_PIECE = 8
"""Bytes that an instruction holds."""
_NO_NAMES = (".nv_fatbin", "__nv_relfatbin", ".hip_fatbin", ".debug_", ".eh_frame", ".rela", ".plt", ".gnu.hash")

_NAMES: WeakKeyDictionary[LibraryFile, frozenset[str]] = WeakKeyDictionary()
_FOUND: WeakKeyDictionary[LibraryFile, dict[str, bool]] = WeakKeyDictionary()


def _ranges(library: LibraryFile) -> list[tuple[int, int]]:
    """Parts of the file where names may be: code too, GPU code not."""
    if not library.sections:
        return [(0, library.size)]
    return [
        (section.offset, section.offset + section.size)
        for section in library.sections
        if section.occupies and section.size and not section.name.startswith(_NO_NAMES)
    ]


def op_names(library: LibraryFile) -> frozenset[str]:
    """Names of the ops whose schemas are texts of the library; nothing of a file that cannot be read."""
    known = _NAMES.get(library)
    if known is None:
        found: set[str] = set()
        if library.size:
            with mapped(library.path) as data:
                for start, end in _ranges(library):
                    at = data.find(b"->", start, end)
                    while at >= 0:
                        begin = data.rfind(b"\0", max(0, at - _LONGEST), at) + 1
                        match = _SCHEMA.match(data[begin : at + _LONGEST].split(b"\0", 1)[0])
                        if match is not None:
                            found.add(match[1].decode("ascii"))
                        at = data.find(b"->", at + 2, end)
        known = _NAMES[library] = frozenset(found)
    return known


def may_name(library: LibraryFile, op: str) -> bool:
    """Whether the library may register an op of that name."""
    if op in op_names(library):
        return True
    known = _FOUND.setdefault(library, {})
    if op not in known:
        known[op] = _search(library, op.encode("utf-8"))
    return known[op]


def _search(library: LibraryFile, name: bytes) -> bool:
    if not library.size:
        return False
    with mapped(library.path) as data:
        ranges = _ranges(library)
        for end in (b"(", b"\0", b"."):
            text = name + end
            pieces = {text[start : start + _PIECE] for start in range(0, len(text), _PIECE)}
            if all(any(data.find(piece, start, stop) >= 0 for start, stop in ranges) for piece in pieces):
                return True
    return False
