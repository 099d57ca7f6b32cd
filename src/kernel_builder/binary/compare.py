"""What differs between two files that should be the same: sections and symbols of libraries, keys of JSON, lines of
text. It tells people where to look, so it names what it can and counts the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import ne

from kernel_builder.binary.elf import (
    Buffer,
    ElfError,
    LinkedParts,
    NamedSection,
    Symbol,
    linked_parts,
    named_sections,
    read_elf,
)
from kernel_builder.binary.mangled import readable
from kernel_builder.files import parse_json

_SHOWN = 5
"""How many names or strings are given of each kind."""
_LONGEST = 100
_STRING = re.compile(rb"[\x20-\x7e]{4,}")
_DATE = re.compile(r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d{4}|\d\d:\d\d:\d\d")
"""What ``__DATE__``, ``__TIME__`` and ``__TIMESTAMP__`` become."""
_PATH = re.compile(r"(?:^|\W)/(?:[^/\s]+/)+[^/\s]+")
"""An absolute path, with directories."""
_DIGEST = re.compile(r"[0-9a-f]{64}|[A-Za-z0-9+/]{43}=")
"""A SHA-256, in hexadecimal digits or in base64."""
_DIGITS = 12
"""How much of a digest is shown."""
_COMPILERS = ".comment"
"""Every compiler and linker that had a part in a file writes its name here."""
_DATA = (".rodata", ".data")
"""Beginnings of the names of sections whose contents code names by address."""
_LIBRARY = ("std::", "__", "_GLOBAL__", "_Unwind")
_FOLLOWING = re.compile(
    r"\.(?:got|plt|rela?|gnu|dyn|eh_frame|sym|str|shstr|note|init|fini|dynamic|tm_clone|relro|hash|gcc_except)"
)
"""Beginnings of the names of sections that differ because others do: tables, and the code at the edges."""


def differences(one: Buffer, other: Buffer) -> tuple[str, ...]:
    """How ``other`` differs from ``one``, a line each; empty where they are the same.

    Never raises for what the files hold.
    """
    ours, theirs = bytes(one), bytes(other)
    if ours == theirs:
        return ()
    for compare in (_libraries, _documents, _texts):
        found = compare(ours, theirs)
        if found is not None:
            return tuple(found)
    return (_sizes(len(ours), len(theirs)),)


def _sizes(one: int, other: int) -> str:
    return f"{one} bytes, here {other}" if one != other else f"{one} bytes, with different content"


def _libraries(one: bytes, other: bytes) -> list[str] | None:
    try:
        sections, dynamic = zip(*((named_sections(data), read_elf(data)) for data in (one, other)), strict=True)
    except ElfError:
        return None
    before, after = ({section.name: section for section in of} for of in sections)
    contents = {name: (_content(one, before[name]), _content(other, after[name])) for name in before if name in after}
    differing = {name: pair for name, pair in contents.items() if pair[0] != pair[1]}
    lines = _compilers(*differing[_COMPILERS]) if _COMPILERS in differing else []
    lines += _named("needed library", dynamic[0].needed, dynamic[1].needed)
    lines += _named("exported name", *(_symbols(file.exports) for file in dynamic))
    lines += _named("imported name", *(_symbols(file.undefined) for file in dynamic))
    parts = tuple(map(_parts, (one, other)))
    lines += _named("compiled file", *(_sources(part.files) for part in parts))
    moved = any(name.startswith(_DATA) and len(pair[0]) != len(pair[1]) for name, pair in differing.items())
    lines += _functions(*parts, moved=moved)
    for name, pair in differing.items():
        lines += [] if name == _COMPILERS or _FOLLOWING.match(name) else _sections(name, *pair)
    rest = [name for name in differing if _FOLLOWING.match(name)]
    rest += sorted({*before} ^ {*after})
    if rest:
        lines.append(f"{'and what follows from it' if lines else 'only tables and notes'}: {', '.join(rest)}")
    return lines or ["the same sections in another order or place"]


def _compilers(one: bytes, other: bytes) -> list[str]:
    return [f"the compiler: {_quoted(list(_strings(one)))}, here {_quoted(list(_strings(other)))}"]


def _parts(data: bytes) -> LinkedParts:
    try:
        return linked_parts(data)
    except ElfError:  # a table of symbols is nothing that a library needs
        return LinkedParts()


def _sources(files: Sequence[str]) -> list[str]:
    """The files that compilers were given; the parts of their own libraries are objects."""
    return [name for name in files if not name.endswith((".o", "crtstuff.c"))]


def _functions(one: LinkedParts, other: LinkedParts, *, moved: bool) -> list[str]:
    """The functions of other lengths; where there are none, those of other contents, which may be addresses alone, as
    they are where data was ``moved``. Names of other things where all functions have theirs.
    """
    ours, theirs = one.functions, other.functions
    both = [name for name in ours if name in theirs]
    changed = [name for name in (*ours, *theirs) if (name in ours) != (name in theirs)]
    lines = [] if changed else _named("symbol", _readable(one.names), _readable(other.names))
    changed += [name for name in both if len(ours[name]) != len(theirs[name])]
    if changed:
        return [f"functions that differ: {_listed(_readable(changed))}"]
    changed = [name for name in both if ours[name] != theirs[name]]
    there = [name for name in theirs if name in ours]
    if both != there:
        before, after = zip(*(pair for pair in zip(both, there, strict=True) if pair[0] != pair[1]), strict=True)
        orders = (_listed([readable(name) for name in names]) for names in (before, after))
        return [*lines, f"functions in another order (sources are linked in another order): {', here '.join(orders)}"]
    perhaps = ", perhaps only in addresses" if moved else ""
    return lines + ([f"functions that differ{perhaps}: {_listed(_readable(changed))}"] if changed else [])


def _readable(symbols: Sequence[str]) -> list[str]:
    """Names for people, each once, a project's own before those of the C++ library."""
    return sorted(dict.fromkeys(map(readable, symbols)), key=lambda name: name.startswith(_LIBRARY))


def _symbols(symbols: Sequence[Symbol]) -> list[str]:
    return [readable(symbol.name) for symbol in symbols]


def _content(data: bytes, section: NamedSection) -> bytes:
    return data[section.offset : section.offset + section.size] if section.occupies else b"\0" * min(section.size, 1)


def _sections(name: str, one: bytes, other: bytes) -> Iterator[str]:
    if len(one) != len(other):
        yield f"section {name}: {_sizes(len(one), len(other))}"
    else:
        yield f"section {name}: {sum(map(ne, one, other))} of {len(one)} bytes"
    if not name.startswith(_DATA):
        return
    ours, theirs = _strings(one), _strings(other)
    gone, new = [text for text in ours if text not in theirs], [text for text in theirs if text not in ours]
    if gone or new:
        yield f"strings in {name}: {_quoted(gone)}, here {_quoted(new)}{_why(gone, new)}"


def _why(one: Sequence[str], other: Sequence[str]) -> str:
    """What makes strings differ, where they tell."""
    if any(map(_DATE.search, (*one, *other))):
        return " (a date or time: __DATE__, __TIME__ or __TIMESTAMP__ in a source)"
    if any(map(_PATH.search, one)) and any(map(_PATH.search, other)):
        return " (the path of a file: __FILE__ in a source, or a flag that has a path)"
    return ""


def _strings(data: bytes) -> dict[str, None]:
    return dict.fromkeys(match[0].decode("ascii") for match in _STRING.finditer(data))


def _quoted(texts: Sequence[str]) -> str:
    return _listed([repr(text[:_LONGEST]) for text in texts]) or "none"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _named(what: str, one: Sequence[str], other: Sequence[str]) -> list[str]:
    """What is in one list alone."""
    lines = []
    for names, place in (
        ([name for name in one if name not in other], "is not here"),
        ([name for name in other if name not in one], "is only here"),
    ):
        lines += [f"{what} {name} {place}" for name in names[:_SHOWN]]
        if len(names) > _SHOWN:
            lines.append(f"{what}: {len(names) - _SHOWN} more {place.replace('is', 'are', 1)}")
    return lines


def _documents(one: bytes, other: bytes) -> list[str] | None:
    try:
        before, after = parse_json(one), parse_json(other)
    except (ValueError, RecursionError):
        return None
    return list(_values("", before, after)) or ["the same values, written differently"]


def _values(path: str, one: object, other: object) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys((*one, *other)):
            inside = f"{path}.{key}" if path else str(key)
            if key not in other:
                yield f"{inside}: {_short(one[key])}, not here"
            elif key not in one:
                yield f"{inside}: {_short(other[key])} is only here"
            else:
                yield from _values(inside, one[key], other[key])
    elif one != other:
        yield f"{path}: {_short(one)}, here {_short(other)}"


def _short(value: object) -> str:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return f"{value[:_DIGITS]}..."
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _texts(one: bytes, other: bytes) -> list[str] | None:
    if b"\0" in one or b"\0" in other:
        return None
    try:
        before, after = one.decode("utf-8").splitlines(), other.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return None
    for number, (ours, theirs) in enumerate(zip(before, after, strict=False), start=1):
        if ours != theirs:
            return [f"line {number}: {_short(ours)}, here {_short(theirs)}"]
    return [f"{len(before)} lines, here {len(after)}"]
