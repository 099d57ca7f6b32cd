"""Reads what a dynamic linker would see of an ELF shared object: names, versions, needed libraries.

Files may be truncated or lie: every loop and every allocation is bounded, and the only thing raised is
:class:`ElfError`.

The dynamic view is read from program headers (``.dynsym``, version tables), never from section headers, so stripped
files and the beginning of a half-downloaded library can be read too. A general ELF library took 50 s over the 434 MB of
libtorch_cpu (DESIGN.md F2); this reads 64-bit little-endian files, which is all that Hub kernels are made for.

References: System V ABI (gABI) chapters 4 and 5; the LSB's "Symbol Versioning" for ``verdef`` and ``verneed``.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from pathlib import Path

from kernel_builder.files import LARGEST_FILE, too_large

_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
_DYN = struct.Struct("<qQ")
_SYM = struct.Struct("<IBBHQQ")
_VERDEF = struct.Struct("<HHHHIII")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")

_RELA = struct.Struct("<QQq")

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_GNU_STACK = 1, 2, 4, 0x6474E551
_PF_X = 1
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_SONAME = 1, 4, 5, 6, 14
_DT_PLTRELSZ, _DT_RELA, _DT_RELASZ, _DT_JMPREL, _DT_TEXTREL, _DT_FLAGS = 2, 7, 8, 23, 22, 30
_DF_TEXTREL = 4
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


# Far above what any real library has (libtorch_cpu: 73,000 symbols), and what a hostile one may cost.
_MAX_SYMBOLS, _MAX_DYNAMIC, _MAX_VERSIONS, _MAX_RELOCATIONS = 1 << 22, 1 << 16, 1 << 17, 1 << 24
_MAX_NAME, _MAX_NAMES = 1 << 20, 1 << 29
_EARLY = 0x1000  # bytes: what stands before that is at the beginning of a file

Buffer = bytes | bytearray | mmap.mmap


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


@dataclass(frozen=True, kw_only=True, order=True)
class VersionNeed:
    """An entry of the version needs: ``version`` of ``library`` (a soname) must be there, or, if ``weak``, may miss.

    There are entries that no symbol is bound to, such as ``GLIBC_ABI_DT_RELR``.
    """

    library: str
    version: str
    weak: bool = False


@dataclass(frozen=True, kw_only=True)
class ElfFile:
    """The dynamic view of one shared object. Order is that of the file.

    ``executable_stack`` is true as well where the file says nothing about the stack, which means the same to the
    dynamic linker.
    """

    machine: str
    soname: str | None
    needed: tuple[str, ...]
    run_paths: tuple[str, ...]
    exports: tuple[Symbol, ...]
    undefined: tuple[Symbol, ...]
    version_needs: tuple[VersionNeed, ...] = ()
    executable_stack: bool = False
    text_relocations: bool = False
    is_shared_object: bool = True

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

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.size = len(data)
        self.text_read = 0
        if len(data) < _EHDR.size or data[:4] != b"\x7fELF":
            raise ElfError("not an ELF file")
        if data[4] != 2 or data[5] != 1:
            raise ElfError("not a 64-bit little-endian ELF file")
        header = _EHDR.unpack_from(data)
        self.kind = header[1]
        self.machine = _MACHINES.get(header[2], f"machine {header[2]}")
        offset, size, count = header[5], header[9], header[10]
        if count and size < _PHDR.size:
            raise ElfError("program headers are too small")
        self.loads: list[_Segment] = []
        self.dynamic: _Segment | None = None
        self.notes: list[_Segment] = []
        self.stack_flags: int | None = None
        for index in range(count):
            kind, flags, start, address, _, in_file, _, _ = self.unpack(_PHDR, offset + index * size)
            segment = _Segment(start, address, in_file)
            if kind == _PT_LOAD:
                self.loads.append(segment)
            elif kind == _PT_DYNAMIC:
                self.dynamic = segment
            elif kind == _PT_NOTE:
                self.notes.append(segment)
            elif kind == _PT_GNU_STACK:
                self.stack_flags = flags

    def require(self, offset: int, size: int) -> None:
        if offset < 0 or offset + size > self.size:
            raise ElfError(f"the file ends before offset {offset + size:#x}: need more data")

    def unpack(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        self.require(offset, layout.size)
        return layout.unpack_from(self.data, offset)

    def u32s(self, offset: int, count: int) -> tuple[int, ...]:
        self.require(offset, count * 4)
        if count > _MAX_SYMBOLS:
            raise ElfError(f"a table has an implausible number of entries: {count}")
        return struct.unpack_from(f"<{count}I", self.data, offset)

    def offset_of(self, address: int) -> int:
        for segment in self.loads:
            if segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        raise ElfError(f"address {address:#x} is outside every load segment")

    def text(self, offset: int) -> str:
        self.require(offset, 1)
        end = self.data.find(b"\0", offset, offset + _MAX_NAME)
        if end < 0:
            raise ElfError("a name runs past the end: need more data")
        self.text_read += end - offset
        if self.text_read > _MAX_NAMES:
            raise ElfError("its symbol names are implausibly long")
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
        if highest > _MAX_SYMBOLS:
            raise ElfError("its hash table has no end")
        if value & 1:
            return highest
        chain += 4


def _own_versions(image: _Image, tags: dict[int, int], strings: int) -> Iterator[tuple[int, str]]:
    """(index, name) of each version that the file defines."""
    if _DT_VERDEF not in tags:
        return
    offset = image.offset_of(tags[_DT_VERDEF])
    for _ in range(min(tags.get(_DT_VERDEFNUM, 0), _MAX_VERSIONS)):
        _, _, index, _, _, aux, following = image.unpack(_VERDEF, offset)
        (name,) = image.u32s(offset + aux, 1)
        yield index, image.text(strings + name)
        offset += following
        if not following:
            return


_VER_FLG_WEAK = 2


def _needed_versions(image: _Image, tags: dict[int, int], strings: int) -> Iterator[tuple[int, VersionNeed]]:
    """(index, need) of each version that the file wants of others."""
    if _DT_VERNEED not in tags:
        return
    offset = image.offset_of(tags[_DT_VERNEED])
    seen = 0
    for _ in range(min(tags.get(_DT_VERNEEDNUM, 0), _MAX_VERSIONS)):
        _, count, library, aux, following = image.unpack(_VERNEED, offset)
        entry = offset + aux
        supplier = image.text(strings + library)
        for _ in range(count):
            _, flags, index, name, after = image.unpack(_VERNAUX, entry)
            version = image.text(strings + name)
            yield index, VersionNeed(library=supplier, version=version, weak=bool(flags & _VER_FLG_WEAK))
            entry += after
            seen += 1
            if seen > _MAX_VERSIONS:
                raise ElfError("its version requirements have no end")
            if not after:
                break
        offset += following
        if not following:
            return


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


@contextmanager
def mapped(path: Path) -> Iterator[Buffer]:
    """The bytes of a file without reading it. Raises ``OSError`` when it cannot be opened, and for one that the Hub
    does not take: searching it would take minutes, for nothing.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILE:
            raise OSError(errno.EFBIG, too_large(size), str(path))
        try:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file cannot be mapped
            yield b""
            return
    with mapping:
        yield mapping


def read_elf_file(path: Path) -> ElfFile:
    """Read a shared object without reading the whole file: see :func:`read_elf`. Raises ``OSError``, too."""
    with mapped(path) as data:
        return read_elf(data)


def _dynamic_entries(image: _Image) -> list[tuple[int, int]]:
    """(tag, value) of the dynamic section."""
    if image.dynamic is None:
        raise ElfError("the file has no dynamic section: it is not a shared object")
    entries: list[tuple[int, int]] = []
    for offset in range(image.dynamic.offset, image.dynamic.offset + image.dynamic.size, _DYN.size):
        tag, value = image.unpack(_DYN, offset)
        if tag == 0:
            break
        entries.append((tag, value))
        if len(entries) > _MAX_DYNAMIC:
            raise ElfError("its dynamic section has no end")
    return entries


def _highest_relocated(image: _Image, tags: dict[int, int]) -> int:
    """The highest number of a symbol that a relocation names.

    GNU ld writes a hash table that counts nothing where a library exports nothing, whatever it needs of others.
    """
    highest = 0
    for table, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
        if table not in tags:
            continue
        offset, count = image.offset_of(tags[table]), tags.get(size, 0) // _RELA.size
        image.require(offset, count * _RELA.size)
        if count > _MAX_RELOCATIONS:
            raise ElfError(f"it has an implausible number of relocations: {count}")
        for start in range(offset, offset + count * _RELA.size, _RELA.size * 4096):
            chunk = image.data[start : min(start + _RELA.size * 4096, offset + count * _RELA.size)]
            highest = max(highest, *(info >> 32 for _, info, _ in _RELA.iter_unpack(chunk)))
    return highest


def _dynamic_symbol_count(image: _Image, tags: dict[int, int]) -> int:
    """Number of entries of ``.dynsym``, which no tag says."""
    if _DT_GNU_HASH in tags:
        at = image.offset_of(tags[_DT_GNU_HASH])
        count = _gnu_hash_count(image, at)
        if count <= image.u32s(at, 4)[1]:  # nothing is exported
            count = max(count, _highest_relocated(image, tags) + 1)
    elif _DT_HASH in tags:
        (_, count) = image.u32s(image.offset_of(tags[_DT_HASH]), 2)
    else:
        raise ElfError("the dynamic section has no hash table, so the number of symbols is unknown")
    if count > _MAX_SYMBOLS:
        raise ElfError(f"it has an implausible number of dynamic symbols: {count}")
    return count


class Tag(IntEnum):
    """Entries of the dynamic section."""

    HASH = _DT_HASH
    GNU_HASH = _DT_GNU_HASH
    STRTAB = _DT_STRTAB
    SYMTAB = _DT_SYMTAB
    VERSYM = _DT_VERSYM


DYNAMIC_SYMBOL, RELOCATION = _SYM, _RELA
"""The entries of their tables: a symbol's first field is the offset of its name, a relocation's second one has the
number of a symbol in its upper half.
"""


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """Where the tables of a shared object are in its file: ``tags`` of the dynamic section, and how many ``symbols``
    there are.
    """

    tags: Mapping[int, int]
    symbols: int
    _image: _Image

    @classmethod
    def of(cls, data: Buffer) -> Dynamic:
        """That of ``data``. Raises :class:`ElfError` for anything but a shared object."""
        image = _Image(data)
        tags = dict(_dynamic_entries(image))
        return cls(tags=tags, symbols=_dynamic_symbol_count(image, tags), _image=image)

    def offset(self, tag: int) -> int:
        """The offset in the file of the table that ``tag`` names. Raises :class:`ElfError` where there is none."""
        if tag not in self.tags:
            raise ElfError(f"its dynamic section has no entry {tag:#x}")
        return self._image.offset_of(self.tags[tag])

    def relocations(self) -> Iterator[tuple[int, int]]:
        """Begin and end of each table of relocations."""
        for table, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
            if table in self.tags:
                start, length = self.offset(table), self.tags.get(size, 0)
                self._image.require(start, length)
                yield start, start + length // _RELA.size * _RELA.size

    def notes(self) -> Iterator[tuple[int, int]]:
        """Begin and end of each segment of notes."""
        for note in self._image.notes:
            self._image.require(note.offset, note.size)
            yield note.offset, note.offset + note.size


def read_elf(data: Buffer) -> ElfFile:
    """Read a whole shared object. Raises :class:`ElfError` when ``data`` is not one or is cut short."""
    image = _Image(data)
    entries = _dynamic_entries(image)
    tags = dict(entries)
    if _DT_STRTAB not in tags or _DT_SYMTAB not in tags:
        raise ElfError("the dynamic section has no symbol table")
    strings = image.offset_of(tags[_DT_STRTAB])
    table = image.offset_of(tags[_DT_SYMTAB])
    count = _dynamic_symbol_count(image, tags)
    own = dict(_own_versions(image, tags, strings))
    needed = tuple(_needed_versions(image, tags, strings))
    version_of: dict[int, tuple[str, str | None]] = {index: (name, None) for index, name in own.items()}
    version_of |= {index: (need.version, need.library) for index, need in needed}
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
        version_needs=tuple(sorted({need for _, need in needed})),
        executable_stack=image.stack_flags is None or bool(image.stack_flags & _PF_X),
        text_relocations=_DT_TEXTREL in tags or bool(tags.get(_DT_FLAGS, 0) & _DF_TEXTREL),
        is_shared_object=image.kind == 3,
    )


def _end_of_notes(image: _Image) -> int:
    """Where the notes at the very beginning of the file end."""
    end = 0
    for note in sorted(image.notes, key=lambda note: note.offset):
        if note.offset < _EARLY and (not end or note.offset <= end + 64):
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
    raise ElfError("no symbol table after the notes; read the whole file instead")


def read_leading_exports(prefix: bytes) -> tuple[Symbol, ...]:
    """Exported symbols of a library of which only the beginning is there.

    Versions are not known (torch's libraries carry none of their own). Raises :class:`ElfError` with 'need more data'
    in its text when ``prefix`` ends too early, and with another text when the layout is not one of the usual ones.
    """
    if prefix[:4] == b"\x7fELF" and len(prefix) >= _EHDR.size and _EHDR.unpack_from(prefix)[5] > _EARLY:
        # Seen in libcublasLt of CUDA 13.2 for aarch64: at 585 MB.
        raise ElfError("the program headers are not at the beginning; read the whole file instead")
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
class ElfSection:
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


def read_sections(table: bytes) -> tuple[ElfSection, ...]:
    """Read a section header table."""
    return tuple(
        ElfSection(kind=fields[1], offset=fields[4], size=fields[5], link=fields[6])
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


@dataclass(frozen=True, kw_only=True)
class NamedSection:
    """A section of a whole file. ``occupies`` is false where it has no bytes in the file (``.bss``)."""

    name: str
    kind: int
    offset: int
    size: int
    occupies: bool = True


_SHT_NOBITS = 8


def named_sections(data: Buffer) -> tuple[NamedSection, ...]:
    """The sections of a file, in its order; none where it has no section headers, which nothing needs to run.

    Raises :class:`ElfError` when the headers lead out of the file.
    """
    image = _Image(data)
    header = image.unpack(_EHDR, 0)
    at, entry_size, count, names = header[6], header[11], header[12], header[13]
    if not at or not count or entry_size < _SHDR.size:
        return ()
    if names >= count:
        raise ElfError("its section headers have no names")
    rows = [image.unpack(_SHDR, at + index * entry_size) for index in range(count)]
    strings = rows[names][4]
    found: list[NamedSection] = []
    for row in rows:
        occupies = row[1] != _SHT_NOBITS
        if occupies and row[1]:
            image.require(row[4], row[5])
        found.append(
            NamedSection(name=image.text(strings + row[0]), kind=row[1], offset=row[4], size=row[5], occupies=occupies)
        )
    return tuple(found)


def load_ranges(data: Buffer) -> tuple[tuple[int, int], ...]:
    """(offset, size) of each part of a file that is mapped when it is loaded, cut at the end of the file."""
    image = _Image(data)
    return tuple(
        (segment.offset, min(segment.size, image.size - segment.offset))
        for segment in image.loads
        if segment.offset < image.size
    )


@dataclass(frozen=True, kw_only=True)
class ObjectNames:
    """The names of a relocatable object that others see or that it needs: ``defined`` once in a program, ``weak`` ones
    that others may define, too, and ``undefined``.
    """

    defined: frozenset[str]
    weak: frozenset[str]
    undefined: frozenset[str]


_SHT_SYMTAB = 2
_GLOBAL = 1


def _all_symbols(data: Buffer) -> tuple[NamedSection | None, NamedSection | None]:
    """The sections with all symbols, local ones included, and with their names, as far as there are such."""
    sections = named_sections(data)
    table = next((one for one in sections if one.kind == _SHT_SYMTAB), None)
    return table, next((one for one in sections if one.name == ".strtab"), None)


def object_names(data: Buffer) -> ObjectNames:
    """The names of an object file that a compiler made. Raises :class:`ElfError` for anything else."""
    table, strings = _all_symbols(data)
    if table is None or strings is None:
        raise ElfError("it has no table of symbols")
    text = bytes(data[strings.offset : strings.offset + strings.size])
    defined: set[str] = set()
    weak: set[str] = set()
    undefined: set[str] = set()
    whole = table.size // _SYM.size * _SYM.size
    for name, info, _, section, _, _ in _SYM.iter_unpack(bytes(data[table.offset : table.offset + whole])):
        if not info >> 4 or not name:  # local
            continue
        shown = text[name : text.find(b"\0", name)].decode("utf-8", "surrogateescape")
        wanted = undefined if not section else defined if info >> 4 == _GLOBAL else weak
        wanted.add(shown)
    return ObjectNames(defined=frozenset(defined), weak=frozenset(weak), undefined=frozenset(undefined))


_STT_FUNC, _STT_FILE = 2, 4


@dataclass(frozen=True, kw_only=True)
class LinkedParts:
    """What the symbols of a shared object tell, local ones included: the ``files`` that it was compiled from, the
    ``names`` of all symbols, and the code of ``functions`` by their names, in the order in which they lie there.
    """

    files: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    functions: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def linked_parts(data: Buffer) -> LinkedParts:
    """What symbols tell of a shared object; nothing where it was stripped. Raises :class:`ElfError` for tables that
    lead out of the file.
    """
    image = _Image(data)
    table, strings = _all_symbols(data)
    if table is None or strings is None:
        return LinkedParts()
    files: list[str] = []
    names: dict[str, None] = {}
    functions: dict[str, tuple[int, bytes]] = {}
    for index in range(table.size // _SYM.size):
        name, info, _, section, value, size = image.unpack(_SYM, table.offset + index * _SYM.size)
        if not name:
            continue
        shown, kind = image.text(strings.offset + name), info & 0xF
        if kind == _STT_FILE:
            files.append(shown)
            continue
        names[shown] = None
        if kind == _STT_FUNC and section and size:
            start = image.offset_of(value)
            image.require(start, size)
            functions[shown] = value, bytes(data[start : start + size])
    placed = sorted(functions.items(), key=lambda item: item[1][0])
    return LinkedParts(files=tuple(files), names=tuple(names), functions={shown: code for shown, (_, code) in placed})
