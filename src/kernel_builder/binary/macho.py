"""Reads what the loader of macOS would see of a Mach-O library: architectures, needed libraries, run paths, names.

References: Apple's ``mach-o/loader.h`` and ``mach-o/fat.h``. Files may be truncated or lie: every loop is bounded, and
the only thing raised is :class:`MachOError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_builder.binary.elf import Buffer

MAGICS = frozenset(
    {b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf", b"\xfe\xed\xfa\xcf"}
)
_FAT, _FAT_64 = 0xCAFEBABE, 0xCAFEBABF
_HEADER = struct.Struct("<4sIIIIIII")
_COMMAND = struct.Struct("<II")
_NLIST = struct.Struct("<IBBHQ")
_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_LC_SYMTAB, _LC_VERSION_MIN_MACOSX, _LC_RPATH, _LC_BUILD_VERSION = 0x2, 0x24, 0x8000001C, 0x32
_LC_DYLIBS = frozenset({0xC, 0x80000018, 0x8000001F, 0x23})  # load, weak, reexport, upward
_N_STAB, _N_TYPE, _N_EXT, _N_PEXT, _N_UNDF = 0xE0, 0x0E, 0x01, 0x10, 0x0
_MAX_COMMANDS, _MAX_SYMBOLS, _MAX_NAME, _MAX_SLICES = 1 << 16, 1 << 22, 1 << 20, 64


class MachOError(ValueError):
    """The bytes are not a 64-bit little-endian Mach-O file, or end before what was asked for."""


@dataclass(frozen=True, kw_only=True)
class MachOSlice:
    """The part of a Mach-O file for one machine. Names are without the leading underscore of C."""

    machine: str
    minimum_macos: tuple[int, int, int] | None
    needed: tuple[str, ...]
    run_paths: tuple[str, ...]
    exports: tuple[str, ...]
    undefined: tuple[str, ...]


class _Slice:
    def __init__(self, data: Buffer, start: int, size: int) -> None:
        if start < 0 or size < 0 or start + size > len(data):
            raise MachOError("a part of the file is past its end")
        self.data, self.start, self.end = data, start, start + size

    def unpack(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        at = self.start + offset
        if offset < 0 or at + layout.size > self.end:
            raise MachOError(f"the file ends before offset {offset:#x}")
        return layout.unpack_from(self.data, at)

    def text(self, offset: int, limit: int = _MAX_NAME) -> str:
        at = self.start + offset
        if offset < 0 or at >= self.end:
            raise MachOError("a name is past the end of the file")
        end = self.data.find(b"\0", at, min(self.end, at + limit))
        if end < 0:
            end = min(self.end, at + limit)
        return self.data[at:end].decode("utf-8", "surrogateescape")


def read_macho(data: Buffer) -> tuple[MachOSlice, ...]:
    """Read a Mach-O library, thin or fat. Raises :class:`MachOError`."""
    return tuple(_read_slice(_Slice(data, start, size)) for start, size in _slices(data))


def _slices(data: Buffer) -> Iterator[tuple[int, int]]:
    if len(data) < 8:
        raise MachOError("the file is too short")
    magic, count = struct.unpack_from(">II", data)
    if magic not in {_FAT, _FAT_64}:
        yield 0, len(data)
        return
    layout = struct.Struct(">iiIII" if magic == _FAT else ">iiQQII")
    if not 0 < count <= _MAX_SLICES or 8 + count * layout.size > len(data):
        raise MachOError("its table of architectures is damaged")
    for index in range(count):
        fields = layout.unpack_from(data, 8 + index * layout.size)
        yield fields[2], fields[3]


def _version(number: int) -> tuple[int, int, int]:
    return number >> 16, number >> 8 & 0xFF, number & 0xFF


def _read_slice(part: _Slice) -> MachOSlice:
    if part.data[part.start : part.start + 4] != b"\xcf\xfa\xed\xfe":
        raise MachOError("not a 64-bit little-endian Mach-O file")
    header = part.unpack(_HEADER, 0)
    needed: list[str] = []
    run_paths: list[str] = []
    exports: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    minimum: tuple[int, int, int] | None = None
    offset = _HEADER.size
    for _ in range(min(header[4], _MAX_COMMANDS)):
        command, size = part.unpack(_COMMAND, offset)
        if size < _COMMAND.size:
            raise MachOError("a load command is too small")
        if command in _LC_DYLIBS or command == _LC_RPATH:
            (name,) = part.unpack(struct.Struct("<I"), offset + 8)
            text = part.text(offset + name, max(0, size - name)) if name < size else ""
            (run_paths if command == _LC_RPATH else needed).append(text)
        elif command == _LC_BUILD_VERSION:
            minimum = _version(part.unpack(struct.Struct("<I"), offset + 12)[0])
        elif command == _LC_VERSION_MIN_MACOSX and minimum is None:
            minimum = _version(part.unpack(struct.Struct("<I"), offset + 8)[0])
        elif command == _LC_SYMTAB:
            exports, undefined = _symbols(part, offset)
        offset += size
    return MachOSlice(
        machine=_MACHINES.get(header[1], f"processor type {header[1]:#x}"),
        minimum_macos=minimum,
        needed=tuple(needed),
        run_paths=tuple(run_paths),
        exports=exports,
        undefined=undefined,
    )


def _symbols(part: _Slice, command: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(exported, undefined) names of the symbol table."""
    at, count, strings, _ = part.unpack(struct.Struct("<IIII"), command + 8)
    if count > _MAX_SYMBOLS:
        raise MachOError(f"it has an implausible number of symbols: {count}")
    exports: list[str] = []
    undefined: list[str] = []
    read = 0
    for index in range(count):
        name, kind, _, _, value = part.unpack(_NLIST, at + index * _NLIST.size)
        if kind & _N_STAB or not kind & _N_EXT or kind & _N_PEXT or not name:
            continue
        text = part.text(strings + name).removeprefix("_")
        read += len(text)
        if read > 1 << 29:
            raise MachOError("its symbol names are implausibly long")
        if kind & _N_TYPE == _N_UNDF and not value:
            undefined.append(text)
        else:
            exports.append(text)
    return tuple(exports), tuple(undefined)
