"""Compares object files function by function: equal code, whatever else the files hold.

Two compilations of one source that saw different headers give objects that differ in what nobody uses. This reads the
code of every function and the contents of every variable, with the names that they refer to in place of positions, so
that equal ones compare equal. It needs one section for each function and variable (``-ffunction-sections
-fdata-sections``).

As a program, ``relocatable.py WHOLE PART``, it imports nothing of this package, and ends with code 1 and a line that
says what differs.

References: System V ABI (gABI) chapter 4; the x86-64 and AArch64 psABIs for relocations.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_SHDR = struct.Struct("<IIQQQQIIQQ")
_SYM = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")

_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_GROUP = 2, 4, 8, 17
_SHF_WRITE, _SHF_MERGE, _SHF_STRINGS = 1, 0x10, 0x20
_STT_OBJECT, _STT_FUNC, _STT_SECTION, _STT_TLS = 1, 2, 3, 6
_STB_LOCAL = 0
_BINDINGS = {0: "local", 1: "global", 2: "weak"}
_EXTENDED = 0xFFFF
_SPECIAL = 0xFF00  # section numbers from here on stand for no section
_ABSOLUTE = frozenset({1, 10, 11})
"""R_X86_64_64, _32 and _32S: the addend is the position itself."""
_X86_64, _LEA = 62, 4
"""There, a PC-relative reference to a string stands in the last four bytes of its instruction. Others count from the
place itself.
"""

_UNUSED = ("local", "weak")


class ObjectError(Exception):
    """Not an object file that can be read; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A function or a variable. ``digest`` is equal for equal contents, ``binding`` local, global, weak or unique."""

    digest: str
    binding: str
    function: bool


@dataclass(frozen=True, kw_only=True)
class _Section:
    name: str
    kind: int
    flags: int
    data: bytes
    link: int
    info: int
    size: int
    entry: int


class _Object:
    def __init__(self, data: bytes) -> None:
        try:
            self._read(data)
        except (struct.error, IndexError, ValueError) as error:
            raise ObjectError(f"damaged: {error}") from error

    def _read(self, data: bytes) -> None:
        header = _EHDR.unpack_from(data)
        if header[0][:6] != b"\x7fELF\x02\x01":
            raise ObjectError("not a 64-bit little-endian ELF file")
        self.machine: int = header[2]
        offset, count, names = header[6], header[12], header[13]
        raw = [_SHDR.unpack_from(data, offset + index * _SHDR.size) for index in range(max(count, 1))]
        if count == 0:  # more than fits: the first header says how many
            raw = [_SHDR.unpack_from(data, offset + index * _SHDR.size) for index in range(raw[0][5])]
        if names == 0xFFFF:
            names = raw[0][6]
        table = raw[names]
        strings = data[table[4] : table[4] + table[5]]
        self.sections = [
            _Section(
                name=_text(strings, entry[0]),
                kind=entry[1],
                flags=entry[2],
                data=b"" if entry[1] == _SHT_NOBITS else data[entry[4] : entry[4] + entry[5]],
                link=entry[6],
                info=entry[7],
                size=entry[5],
                entry=entry[9],
            )
            for entry in raw
        ]
        self.symbols: list[tuple[str, int, int, int, int, int]] = []
        self.relocations: dict[int, list[tuple[int, int, int, int]]] = {}
        extended: bytes = next((one.data for one in self.sections if one.kind == 18), b"")
        for section in self.sections:
            if section.kind == _SHT_SYMTAB:
                labels = self.sections[section.link].data
                for index, (name, info, _other, number, value, size) in enumerate(_SYM.iter_unpack(section.data)):
                    where = 0 if number >= _SPECIAL else number
                    if number == _EXTENDED:
                        where = struct.unpack_from("<I", extended, 4 * index)[0]
                    self.symbols.append((_text(labels, name), info & 15, info >> 4, where, value, size))
            elif section.kind == _SHT_RELA:
                self.relocations[section.info] = [
                    (place, info >> 32, info & 0xFFFFFFFF, addend)
                    for place, info, addend in _RELA.iter_unpack(section.data)
                ]


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode("utf-8", "surrogateescape")


class _Reader:
    """Digests of one file's functions and variables."""

    def __init__(self, data: bytes) -> None:
        self._object = _Object(data)

    def entities(self) -> dict[str, Entity]:
        found: dict[str, Entity] = {}
        for name, kind, binding, where, value, size in self._object.symbols:
            if kind not in {_STT_OBJECT, _STT_FUNC, _STT_TLS} or where == 0:
                continue
            key = name
            while key in found:  # local names can come twice
                key += "'"
            found[key] = Entity(
                digest=self._digest(where, value, size),
                binding=_BINDINGS.get(binding, "unique"),
                function=kind == _STT_FUNC,
            )
        return found

    def undefined(self) -> frozenset[str]:
        return frozenset(
            name
            for name, _kind, binding, where, _value, _size in self._object.symbols
            if where == 0 and name and binding != _STB_LOCAL
        )

    def _digest(self, where: int, value: int, size: int, seen: frozenset[tuple[int, int]] = frozenset()) -> str:
        section = self._object.sections[where]
        digest = hashlib.sha256(f"{size} ".encode())
        digest.update(section.data[value : value + size])
        seen |= {(where, value)}
        for place, symbol, kind, addend in self._object.relocations.get(where, ()):
            if value <= place < value + size:
                digest.update(f"\n{place - value} {kind} {self._target(symbol, kind, addend, seen)}".encode())
        return digest.hexdigest()

    def _target(self, symbol: int, relocation: int, addend: int, seen: frozenset[tuple[int, int]]) -> str:
        name, kind, _binding, where, value, _size = self._object.symbols[symbol]
        if kind != _STT_SECTION and not name.startswith(".L"):
            return f"{name} {addend}"
        section = self._object.sections[where]
        addend += value
        if section.flags & _SHF_MERGE:
            relative = self._object.machine == _X86_64 and relocation not in _ABSOLUTE
            start = addend + _LEA if relative else addend
            end = section.data.index(b"\0", start) if section.flags & _SHF_STRINGS else start + section.entry
            return repr(section.data[start:end])
        # Positions in a section hold for it alone: one section holds one function or variable.
        if section.flags & _SHF_WRITE or (where, 0) in seen:
            return f"{section.name} {addend}"
        return f"{section.name} {addend} {self._digest(where, 0, section.size, seen)}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What two object files of one source have in common: ``common`` functions and variables. ``verdict`` says what
    differs in a way that counts, if anything does.
    """

    common: int
    verdict: str | None


def compare_objects(whole: Path, part: Path) -> Comparison:
    """Whether ``part`` is ``whole`` without what nobody uses.

    Whatever both define must be equal, and refer to equal things. What one of them has alone must be local or weak:
    then nothing that both have uses it, or it is left to others in the other file. ``part`` must want nothing more of
    others. Raises :class:`ObjectError`.
    """
    one, other = _Reader(whole.read_bytes()), _Reader(part.read_bytes())
    left, right = one.entities(), other.entities()
    both = left.keys() & right.keys()
    differing = sorted(name for name in both if left[name] != right[name])
    lost = sorted(name for name in left.keys() - both if left[name].binding not in _UNUSED)
    new = sorted(name for name in right.keys() - both if right[name].binding not in _UNUSED)
    wanted = sorted(other.undefined() - one.undefined() - left.keys())
    problems = [
        *(f"{name} differs" for name in differing),
        *(f"{name} is missing" for name in lost),
        *(f"{name} is new" for name in new),
        *(f"{name} is needed" for name in wanted),
    ]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Comparison(common=len(both), verdict=f"{problems[0]}{more}" if problems else None)


def _main(whole: str, part: str) -> str | None:
    try:
        verdict = compare_objects(Path(whole), Path(part)).verdict
    except (OSError, ObjectError) as error:
        return f"error: objects cannot be compared: {error}"
    return f"error: slim headers produce different host code: {verdict}" if verdict is not None else None


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
