"""Names of files that not every system can store. Pure.

Reference: "Naming Files, Paths, and Namespaces" of Microsoft's documentation; file systems of macOS and Windows take
names that differ only in case for one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

LONGEST_PATH = 180
"""Characters of a path below a project or a variant. Windows takes 260 in all, and the directory above needs some."""

_RESERVED = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{port}{digit}" for port in ("com", "lpt") for digit in "123456789¹²³"}
)
_FORBIDDEN = frozenset('<>:"|?*\\')


class Unportable(NamedTuple):
    """A path relative to its root, and why some system cannot store it."""

    path: str
    why: str


def is_reserved(name: str) -> bool:
    """Whether Windows takes a file of that name for a device, whatever its suffix: ``aux.py``, ``NUL``."""
    return name.partition(".")[0].rstrip(" ").casefold() in _RESERVED


def unportable(paths: Iterable[str]) -> tuple[Unportable, ...]:
    """What is wrong with ``paths`` (POSIX, of files or directories), in their order; a directory is told once."""
    entries = dict.fromkeys(entry for path in paths for entry in _with_parents(path))
    others = _spellings(entries)
    found = (Unportable(entry, why) for entry in entries for why in _reasons(entry, others[_folded(entry)]))
    return tuple(found)


def _with_parents(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _spellings(entries: Iterable[str]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        found.setdefault(_folded(entry), []).append(entry)
    return found


def _reasons(entry: str, spellings: list[str]) -> Iterator[str]:
    parent, _, name = entry.rpartition("/")
    if is_reserved(name):
        yield "Windows reserves that name for a device"
    if name.endswith((".", " ")):
        yield "Windows drops dots and spaces at the end of a name"
    if not _FORBIDDEN.isdisjoint(name):
        yield f"Windows does not allow {' '.join(sorted(_FORBIDDEN & set(name)))} in names"
    if len(entry) > LONGEST_PATH >= len(parent):
        yield f"it is {len(entry)} characters long, and Windows takes 260 with the directory that it is in"
    # Of directories that differ in case, what is in them differs, too: the first difference is enough.
    if entry != spellings[0] and any(other.rpartition("/")[0] == parent for other in spellings if other != entry):
        first = next(other for other in spellings if other != entry and other.rpartition("/")[0] == parent)
        yield f"macOS and Windows take it and '{first}' for one file"
