"""Digests of many files in few bytes, as metadata record them: whoever builds again can name the file that is another.

A digest of all of them together says whether anything differs, so of each file's SHA-256 the first digits will do.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

LINK = "->"
"""What stands before the target of a link, where a digest stands for a file."""

DIGITS = 12
"""Hexadecimal digits of a SHA-256 that are kept of a file."""
_DIGEST = rf"[0-9a-f]{{{DIGITS}}}"
_ENTRY = re.compile(rf"(.+?) ({LINK}.+?|{_DIGEST})(?:, (?=.+ (?:{LINK}|{_DIGEST}))|$)")
_SHOWN = 10
"""How many files people are told of."""


def by_folder(digests: Mapping[str, str]) -> dict[str, str]:
    """``digests`` (SHA-256 by path, or where a link leads) as one line for each directory: its files' names, each with
    its digest.
    """
    lines: dict[str, list[str]] = {}
    for path, digest in sorted(digests.items()):
        folder, name = posixpath.split(path)
        told = f"{LINK}{digest.removeprefix(LINK).strip()}" if digest.startswith(LINK) else digest[:DIGITS]
        lines.setdefault(folder or ".", []).append(f"{name} {told}")
    return {folder: ", ".join(entries) for folder, entries in lines.items()}


def by_path(record: object) -> dict[str, str]:
    """What :func:`by_folder` made, by path; whatever is none of its lines is left out."""
    found: dict[str, str] = {}
    for folder, line in record.items() if isinstance(record, dict) else ():
        for name, digest in _ENTRY.findall(line) if isinstance(line, str) else ():
            found[posixpath.join("" if folder == "." else str(folder), name)] = digest
    return found


def file_differences(made: str, one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[str]:
    """How the files of two builds differ, a line each for people, who build ``other``; ``made`` says what was done with
    them, as ``built from``.
    """
    names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    for name in names[:_SHOWN]:
        if name not in other:
            yield f"{made} {name}, here without"
        elif name not in one:
            yield f"{made.partition(' ')[0]} without {name}, here with it"
        else:
            yield f"{made} another {name}: {one[name]}, here {other[name]}"
    if len(names) > _SHOWN:
        yield f"and {len(names) - _SHOWN} more files"
