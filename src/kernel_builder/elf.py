"""Reads what a dynamic linker would see of an ELF shared object: names, versions, needed libraries.

Only the dynamic view is read (program headers, ``.dynsym``, version tables), never section headers, so stripped files
and the beginning of a half-downloaded library can be read too. A general ELF library took 50 s over the 434 MB of
libtorch_cpu (DESIGN.md F2); this reads 64-bit little-endian files, which is all that Hub kernels are made for.

References: System V ABI (gABI) chapters 4 and 5; the LSB's "Symbol Versioning" for ``verdef`` and ``verneed``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
_DYN = struct.Struct("<qQ")
_SYM = struct.Struct("<IBBHQQ")
_VERDEF = struct.Struct("<HHHHIII")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_SONAME = 1, 4, 5, 6, 14
_DT_RPATH, _DT_RUNPATH, _DT_GNU_HASH = 15, 29, 0x6FFFFEF5
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = (
    0x6FFFFFF0,
    0x6FFFFFFC,
    0x6FFFFFFD,
    0x6FFFFFFE,
    0x6FFFFFFF,
)
_VERSION_LOCAL, _VERSION_GLOBAL, _VERSION_HIDDEN = 0, 1, 0x8000

_KINDS = {0: "notype", 1: "object", 2: "func", 6: "tls", 10: "ifunc"}
_BINDINGS = {1: "global", 2: "weak", 10: "unique"}
_MACHINES = {62: "x86_64", 183: "aarch64"}


class ElfError(ValueError):
    """The bytes are not a 64-bit little-endian ELF file, or end before what was asked for."""


@dataclass(frozen=True, kw_only=True, order=True)
class Symbol:
    """A dynamic symbol.

    ``version`` is the version node it is bound to (``GLIBC_2.17``), for an undefined symbol together with ``library``,
    the soname that should supply it. ``default`` is false for an old version kept for compatibility (``name@V``).
    """

    name: str
    version: str | None = None
    kind: str = "func"
    binding: str = "global"
    size: int = 0
    default: bool = True
    library: str | None = None


@dataclass(frozen=True, kw_only=True)
class ElfFile:
    """The dynamic view of one shared object. Order is that of the file."""

    machine: str
    soname: str | None
    needed: tuple[str, ...]
    run_paths: tuple[str, ...]
    exports: tuple[Symbol, ...]
    undefined: tuple[Symbol, ...]

    def required_versions(self) -> tuple[tuple[str, str], ...]:
        """``(library, version)`` pairs that the file's undefined symbols need, sorted."""
        return tuple(sorted({(s.library or "", s.version) for s in self.undefined if s.version is not None}))


@dataclass(frozen=True)
class _Segment:
    offset: int
    address: int
    size: int


class _Image:
    """Bytes of a file, addressed as its load segments map them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if len(data) < _EHDR.size or data[:4] != b"\x7fELF":
            raise ElfError("not an ELF file")
        if data[4] != 2 or data[5] != 1:
            raise ElfError("not a 64-bit little-endian ELF file")
        header = _EHDR.unpack_from(data)
        self.machine = _MACHINES.get(header[2], f"machine {header[2]}")
        offset, size, count = header[5], header[9], header[10]
        if count and size < _PHDR.size:
            raise ElfError("program headers are too small")
        self.loads: list[_Segment] = []
        self.dynamic: _Segment | None = None
        self.notes: list[_Segment] = []
        for index in range(count):
            kind, _, start, address, _, in_file, _, _ = self.unpack(_PHDR, offset + index * size)
            segment = _Segment(start, address, in_file)
            if kind == _PT_LOAD:
                self.loads.append(segment)
            elif kind == _PT_DYNAMIC:
                self.dynamic = segment
            elif kind == _PT_NOTE:
                self.notes.append(segment)

    def unpack(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        try:
            return layout.unpack_from(self.data, offset)
        except struct.error as error:
            raise ElfError(f"the file ends before offset {offset:#x}: need more data") from error

    def u32s(self, offset: int, count: int) -> tuple[int, ...]:
        return self.unpack(struct.Struct(f"<{count}I"), offset)

    def offset_of(self, address: int) -> int:
        for segment in self.loads:
            if segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        raise ElfError(f"address {address:#x} lies in no load segment")

    def text(self, offset: int) -> str:
        end = self.data.find(b"\0", offset)
        if end < 0 or offset < 0:
            raise ElfError("a name runs past the end: need more data")
        return self.data[offset:end].decode("utf-8", "surrogateescape")


def _gnu_hash_count(image: _Image, offset: int) -> int:
    """Number of dynamic symbols, from ``DT_GNU_HASH``: the last chain of the highest bucket ends the table."""
    buckets, first, bloom, _ = image.u32s(offset, 4)
    table = offset + 16 + bloom * 8
    highest = max(image.u32s(table, buckets), default=0)
    if highest < first:
        return first
    chain = table + buckets * 4 + (highest - first) * 4
    while True:
        (value,) = image.u32s(chain, 1)
        highest += 1
        if value & 1:
            return highest
        chain += 4


def _versions(image: _Image, tags: dict[int, int], strings: int) -> dict[int, tuple[str, str | None]]:
    """Version index -> (version, soname of the supplier; ``None`` for the file's own)."""
    found: dict[int, tuple[str, str | None]] = {}
    if _DT_VERDEF in tags:
        offset = image.offset_of(tags[_DT_VERDEF])
        for _ in range(tags.get(_DT_VERDEFNUM, 0)):
            _, _, index, _, _, aux, following = image.unpack(_VERDEF, offset)
            (name,) = image.u32s(offset + aux, 1)
            found[index] = (image.text(strings + name), None)
            offset += following
    if _DT_VERNEED in tags:
        offset = image.offset_of(tags[_DT_VERNEED])
        for _ in range(tags.get(_DT_VERNEEDNUM, 0)):
            _, count, library, aux, following = image.unpack(_VERNEED, offset)
            entry = offset + aux
            for _ in range(count):
                _, _, index, name, after = image.unpack(_VERNAUX, entry)
                found[index] = (image.text(strings + name), image.text(strings + library))
                entry += after
            offset += following
    return found


def _symbols(
    image: _Image,
    table: int,
    count: int,
    strings: int,
    version_of: dict[int, tuple[str, str | None]],
    versions_at: int | None,
) -> Iterator[tuple[bool, Symbol]]:
    """(is it defined here, symbol) for each named global or weak symbol of the table."""
    for index in range(1, count):
        name, info, _, section, _, size = image.unpack(_SYM, table + index * _SYM.size)
        binding = _BINDINGS.get(info >> 4)
        kind = _KINDS.get(info & 0xF)
        if binding is None or kind is None or not name:
            continue
        version: tuple[str, str | None] | None = None
        hidden = False
        if versions_at is not None:
            (number,) = image.unpack(struct.Struct("<H"), versions_at + index * 2)
            hidden = bool(number & _VERSION_HIDDEN)
            number &= ~_VERSION_HIDDEN
            if section and number == _VERSION_LOCAL:
                continue
            version = version_of.get(number) if number > _VERSION_GLOBAL else None
        yield (
            bool(section),
            Symbol(
                name=image.text(strings + name),
                version=version[0] if version else None,
                kind=kind,
                binding=binding,
                size=size,
                default=not hidden or not section,
                library=version[1] if version else None,
            ),
        )


def read_elf(data: bytes) -> ElfFile:
    """Read a whole shared object. Raises :class:`ElfError` when ``data`` is not one or is cut short."""
    image = _Image(data)
    if image.dynamic is None:
        raise ElfError("the file has no dynamic section: it is not a shared object")
    entries: list[tuple[int, int]] = []
    for offset in range(image.dynamic.offset, image.dynamic.offset + image.dynamic.size, _DYN.size):
        tag, value = image.unpack(_DYN, offset)
        if tag == 0:
            break
        entries.append((tag, value))
    tags = dict(entries)
    if _DT_STRTAB not in tags or _DT_SYMTAB not in tags:
        raise ElfError("the dynamic section names no symbol table")
    strings = image.offset_of(tags[_DT_STRTAB])
    table = image.offset_of(tags[_DT_SYMTAB])
    if _DT_GNU_HASH in tags:
        count = _gnu_hash_count(image, image.offset_of(tags[_DT_GNU_HASH]))
    elif _DT_HASH in tags:
        (_, count) = image.u32s(image.offset_of(tags[_DT_HASH]), 2)
    else:
        raise ElfError("the dynamic section has no hash table, so the number of symbols is unknown")
    version_of = _versions(image, tags, strings)
    versions_at = image.offset_of(tags[_DT_VERSYM]) if _DT_VERSYM in tags else None
    exports: list[Symbol] = []
    undefined: list[Symbol] = []
    for defined, symbol in _symbols(image, table, count, strings, version_of, versions_at):
        if not defined:
            undefined.append(symbol)
        elif symbol.name != symbol.version:  # the node's own marker symbol, such as GLIBC_2.17
            exports.append(symbol)

    def names(wanted: int) -> tuple[str, ...]:
        return tuple(image.text(strings + value) for tag, value in entries if tag == wanted)

    return ElfFile(
        machine=image.machine,
        soname=next(iter(names(_DT_SONAME)), None),
        needed=names(_DT_NEEDED),
        run_paths=names(_DT_RPATH) + names(_DT_RUNPATH),
        exports=tuple(exports),
        undefined=tuple(undefined),
    )


def _end_of_notes(image: _Image) -> int:
    """Where the notes at the very beginning of the file end."""
    end = 0
    for note in sorted(image.notes, key=lambda note: note.offset):
        if note.offset < 0x1000 and (not end or note.offset <= end + 64):
            end = max(end, note.offset + note.size)
    return (end + 7) & ~7


def _symbol_count(image: _Image, table: int) -> int:
    """Number of entries of a symbol table that its string table follows at once.

    Read as a symbol, the first bytes of a string table (a zero, then printable text) have an impossible binding, so
    the first impossible entry is the end.
    """
    size, count = len(image.data), 1
    while True:
        offset = table + count * _SYM.size
        if offset + _SYM.size > size:
            raise ElfError("the symbol table runs past the end: need more data")
        info, other = image.data[offset + 4], image.data[offset + 5]
        local = info >> 4 == 0 and info & 0xF <= 6  # section and TLS symbols, which some linkers keep
        if other > 3 or not (local or (info >> 4 in _BINDINGS and info & 0xF in _KINDS)):
            return count
        count += 1


def _find_leading_table(image: _Image) -> tuple[int, int]:
    """Offset of ``.dynsym`` and its number of entries, found without the dynamic section.

    gold puts ``.dynsym`` and ``.dynstr`` right behind the notes, GNU ld and lld put ``.gnu.hash`` before them. A
    candidate is believed only if everything that the format promises about it holds.
    """
    start = _end_of_notes(image)
    empty = bytes(_SYM.size)
    if image.data[start : start + _SYM.size] == empty:
        return start, _symbol_count(image, start)
    for offset in range(start, min(len(image.data) - 16, start + 0x2000), 8):
        buckets, first, bloom, shift = image.u32s(offset, 4)
        if not (0 < buckets < 1 << 24 and 0 < first < 1 << 20 and 0 < bloom < 1 << 24 and shift < 64):
            continue
        if bloom & (bloom - 1):
            continue
        table = offset + 16 + bloom * 8
        if table + buckets * 4 > len(image.data):
            raise ElfError("the hash table runs past the end: need more data")
        values = [value for value in image.u32s(table, buckets) if value]
        if not values or min(values) != first or any(a >= b for a, b in pairwise(values)):
            continue
        count = _gnu_hash_count(image, offset)
        symbols = (table + buckets * 4 + (count - first) * 4 + 7) & ~7
        if image.data[symbols : symbols + _SYM.size] == empty:
            return symbols, count
    raise ElfError("no symbol table was found behind the notes; read the whole file instead")


def read_leading_exports(prefix: bytes) -> tuple[Symbol, ...]:
    """Exported symbols of a library of which only the beginning is there.

    Versions are not known (torch's libraries carry none of their own). Raises :class:`ElfError` with 'need more data'
    in its text when ``prefix`` ends too early, and with another text when the layout is not one of the usual ones.
    """
    image = _Image(prefix)
    table, count = _find_leading_table(image)
    strings = table + count * _SYM.size
    if strings >= len(prefix):
        raise ElfError("the symbol table runs past the end: need more data")
    if prefix[strings : strings + 1] != b"\0":
        raise ElfError("the string table does not follow the symbol table; read the whole file instead")
    symbols = list(_symbols(image, table, count, strings, {}, None))
    return tuple(symbol for defined, symbol in symbols if defined)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section header. ``kind`` is ``sh_type``; ``link`` the number of the section that belongs to it."""

    kind: int
    offset: int
    size: int
    link: int


SHT_DYNSYM = 11
_SHDR = struct.Struct("<IIQQQQIIQQ")


def section_table(header: bytes) -> tuple[int, int]:
    """Offset and size in bytes of the section header table, from the first 64 bytes of a file."""
    if len(header) < _EHDR.size or header[:4] != b"\x7fELF":
        raise ElfError("not an ELF file")
    fields = _EHDR.unpack_from(header)
    return fields[6], fields[11] * fields[12]


def read_sections(table: bytes) -> tuple[Section, ...]:
    """Read a section header table."""
    return tuple(
        Section(kind=fields[1], offset=fields[4], size=fields[5], link=fields[6])
        for fields in _SHDR.iter_unpack(table[: len(table) // _SHDR.size * _SHDR.size])
    )


def read_symbol_table(table: bytes, strings: bytes) -> tuple[Symbol, ...]:
    """Exported symbols out of the bytes of ``.dynsym`` and ``.dynstr``; versions are not known."""
    found: list[Symbol] = []
    for name, info, _, section, _, size in _SYM.iter_unpack(table):
        binding, kind = _BINDINGS.get(info >> 4), _KINDS.get(info & 0xF)
        if binding is None or kind is None or not name or not section:
            continue
        end = strings.find(b"\0", name)
        if end < 0:
            raise ElfError("a name runs past the end of the string table")
        text = strings[name:end].decode("utf-8", "surrogateescape")
        found.append(Symbol(name=text, kind=kind, binding=binding, size=size))
    return tuple(found)
