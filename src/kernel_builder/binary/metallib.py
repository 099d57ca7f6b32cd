"""Finds the libraries of Metal shaders that a file has in it, and reads what they are for.

Apple documents no format. Reference: what public readers of such libraries found (MetalLibraryArchive, and the reader
of Julia's Metal package). Data may lie: only what agrees with itself is taken for a library.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_builder.binary.elf import Buffer

_MAGIC = b"MTLB"
_HEADER = struct.Struct("<4sHHHBBHBBQ")
_FOR_MACOS = 0x8000
"""The highest bit of the format's major version."""
_SYSTEMS = {
    1: "macOS",
    2: "iOS",
    3: "tvOS",
    4: "watchOS",
    5: "bridgeOS",
    6: "Mac Catalyst",
    7: "the iOS simulator",
    8: "the tvOS simulator",
    9: "the watchOS simulator",
}
_WITH_SYSTEM = (1, 2, 6)
"""The first version of the format that says which system a library is for."""
_SMALLEST = 88
"""Bytes of the whole header, with the offsets of all sections."""


@dataclass(frozen=True, kw_only=True)
class MetalLibrary:
    """A library of shaders: ``version`` of the format, the ``system`` that it is for, and the oldest release of that
    which takes it; both ``None`` in formats that do not say. ``size`` in bytes; ``whole``: all of it is there.
    """

    version: tuple[int, int, int]
    system: str | None
    minimum: tuple[int, int, int] | None
    size: int
    whole: bool


def metal_libraries(data: Buffer) -> tuple[MetalLibrary, ...]:
    """The libraries in ``data``, in their order."""
    return tuple(_found(data))


def _found(data: Buffer) -> Iterator[MetalLibrary]:
    place = data.find(_MAGIC)
    while place >= 0:
        library = _read(data, place) if place + _HEADER.size <= len(data) else None
        if library is not None:
            yield library
        place = data.find(_MAGIC, place + (library.size if library is not None else len(_MAGIC)))


def _read(data: Buffer, place: int) -> MetalLibrary | None:
    _, major, minor, patch, _, system, *minimum, size = _HEADER.unpack_from(data, place)
    version = (major & ~_FOR_MACOS, minor, patch)
    # What holds the four letters by chance has no such numbers behind them.
    if version[0] != 1 or minor > 0xFF or patch > 0xFF or size < _SMALLEST:
        return None
    says = version >= _WITH_SYSTEM
    name = _SYSTEMS.get(system & 0x7F, f"system {system & 0x7F}") if says else "macOS" if major & _FOR_MACOS else None
    return MetalLibrary(
        version=version,
        system=name,
        minimum=(minimum[0], minimum[1], minimum[2]) if says else None,
        size=size,
        whole=size <= len(data) - place,
    )
