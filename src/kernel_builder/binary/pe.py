"""Reads what the loader of Windows would see of a library: machine, needed libraries, imported and exported names.

Reference: Microsoft's "PE Format". Files may be truncated or lie: every loop is bounded, and the only thing raised is
:class:`PeError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_builder.binary.elf import Buffer

_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64"}
_MAX_ENTRIES, _MAX_NAME = 1 << 20, 1 << 16


class PeError(ValueError):
    """The bytes are not a 64-bit PE library, or end before what was asked for."""


@dataclass(frozen=True, kw_only=True)
class PeFile:
    """A Windows library. ``imports`` are (library, name) pairs; those by number alone are left out."""

    machine: str
    needed: tuple[str, ...]
    imports: tuple[tuple[str, str], ...]
    exports: tuple[str, ...]


class _Image:
    def __init__(self, data: Buffer) -> None:
        self.data = data
        if len(data) < 64 or data[:2] != b"MZ":
            raise PeError("not a Windows library")
        (header,) = self.unpack("<I", 60)
        if data[header : header + 4] != b"PE\0\0":
            raise PeError("not a Windows library")
        machine, sections, _, _, _, optional = self.unpack("<HHIIIH", header + 4)
        self.machine = _MACHINES.get(machine, f"machine {machine:#x}")
        start = header + 24
        if self.unpack("<H", start)[0] != 0x20B:
            raise PeError("not a 64-bit Windows library")
        (count,) = self.unpack("<I", start + 108)
        self.directories = [self.unpack("<II", start + 112 + index * 8) for index in range(min(count, 16))]
        self.sections = [self.unpack("<IIII", start + optional + index * 40 + 8) for index in range(min(sections, 256))]

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        if offset < 0 or offset + struct.calcsize(layout) > len(self.data):
            raise PeError(f"the file ends before offset {offset:#x}")
        return struct.unpack_from(layout, self.data, offset)

    def offset(self, address: int) -> int:
        for size, start, raw_size, raw in self.sections:
            if start <= address < start + max(size, raw_size):
                return address - start + raw
        raise PeError(f"address {address:#x} is outside every section")

    def text(self, address: int) -> str:
        at = self.offset(address)
        end = self.data.find(b"\0", at, at + _MAX_NAME)
        if end < 0:
            raise PeError("a name has no end")
        return self.data[at:end].decode("utf-8", "replace")


def read_pe(data: Buffer) -> PeFile:
    """Read a ``.dll`` or ``.pyd``. Raises :class:`PeError`."""
    image = _Image(data)
    imports = [*_imports(image)]
    return PeFile(
        machine=image.machine,
        needed=tuple(dict.fromkeys(library for library, _ in imports)),
        imports=tuple((library, name) for library, name in imports if name is not None),
        exports=tuple(_exports(image)),
    )


def _imports(image: _Image) -> Iterator[tuple[str, str | None]]:
    """(library, name); (library, None) once for each library, and for names imported by number."""
    if len(image.directories) < 2 or not image.directories[1][0]:
        return
    at = image.offset(image.directories[1][0])
    seen = 0
    for index in range(4096):
        lookup, _, _, name, address = image.unpack("<IIIII", at + index * 20)
        if not name:
            return
        library = image.text(name)
        yield library, None
        table = image.offset(lookup or address)
        while True:
            (entry,) = image.unpack("<Q", table)
            if not entry:
                break
            yield library, None if entry >> 63 else image.text((entry & 0x7FFFFFFF) + 2)
            table += 8
            seen += 1
            if seen > _MAX_ENTRIES:
                raise PeError("its imports have no end")


def _exports(image: _Image) -> Iterator[str]:
    if not image.directories or not image.directories[0][0]:
        return
    at = image.offset(image.directories[0][0])
    (count,) = image.unpack("<I", at + 24)
    (names,) = image.unpack("<I", at + 32)
    if count > _MAX_ENTRIES:
        raise PeError(f"it has an implausible number of exports: {count}")
    for index in range(count):
        (name,) = image.unpack("<I", image.offset(names + index * 4))
        yield image.text(name)
