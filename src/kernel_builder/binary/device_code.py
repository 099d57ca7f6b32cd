"""What GPU code a library carries, read from the library itself; no GPU tools are needed.

fatbin (CUDA): ``.nv_fatbin`` holds fat binaries one after another. Each has a header (magic, version, header size, size
of the rest) and entries: kind (1 PTX, 2 machine code), header size, size, and the number of the architecture. How
``a`` and ``f`` architectures are marked was measured with nvcc 13.0: bits 20 and 21 of the entry's flags.
offload-bundle (ROCm): ``.hip_fatbin`` holds clang's offload bundles (:mod:`kernel_builder.binary.offload_bundle`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kernel_builder.binary.elf import Buffer, NamedSection
from kernel_builder.binary.offload_bundle import BundleError, DamageError, code_objects

_FATBIN_MAGIC = b"\x50\xed\x55\xba"
_FATBIN = struct.Struct("<4sHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
_PTX, _SASS = 1, 2
_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 1 << 20, 1 << 21
_MAX_ENTRIES = 1 << 18


@dataclass(frozen=True, kw_only=True)
class DeviceCode:
    """The architectures that a library has code for.

    ``machine_code`` are capabilities (``9.0a``) or ROCm architectures (``gfx90a``), ``ptx`` capabilities alone.
    ``versions`` are those of AMD's code objects. ``unread`` says what could not be told, ``damaged`` what a part is
    lost of, one sentence each.
    """

    machine_code: frozenset[str]
    ptx: frozenset[str] = frozenset()
    versions: frozenset[int] = frozenset()
    unread: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


def capability(number: int, suffix: str = "") -> str:
    """``90`` -> ``9.0``."""
    return f"{number // 10}.{number % 10}{suffix}"


def read_fatbin(data: Buffer, sections: tuple[NamedSection, ...]) -> DeviceCode | None:
    """What the fat binaries of a library hold; ``None`` when it has no section for such.

    Never raises for what the file holds.
    """
    areas = [(s.offset, s.offset + s.size) for s in sections if s.name == ".nv_fatbin" and s.occupies]
    if not areas:
        return None
    machine_code: set[str] = set()
    ptx: set[str] = set()
    unread: dict[str, None] = {}
    damaged: dict[str, None] = {}
    entries = 0
    for start, end in areas:
        for kind, arch, flags in _fatbin_entries(data, start, min(end, len(data)), unread, damaged):
            entries += 1
            suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
            if kind == _SASS:
                machine_code.add(capability(arch, suffix))
            elif kind == _PTX:
                ptx.add(capability(arch, suffix))
            if entries > _MAX_ENTRIES:
                unread["it has implausibly many fat binaries"] = None
                break
    return DeviceCode(
        machine_code=frozenset(machine_code), ptx=frozenset(ptx), unread=tuple(unread), damaged=tuple(damaged)
    )


def _fatbin_entries(
    data: Buffer, start: int, end: int, unread: dict[str, None], damaged: dict[str, None]
) -> Iterator[tuple[int, int, int]]:
    """(kind, arch, flags) of every entry between two offsets."""
    at = start
    while True:
        at = data.find(_FATBIN_MAGIC, at, end)
        if at < 0:
            return
        if at + _FATBIN.size > end:
            damaged["a fat binary is truncated"] = None
            return
        _, version, header, size = _FATBIN.unpack_from(data, at)
        stop = at + header + size
        if version == 1 and header >= _FATBIN.size and stop > end:
            damaged["a fat binary is truncated"] = None
            at += 4
            continue
        if version != 1 or header < _FATBIN.size:
            unread["a fat binary has an unknown header"] = None
            at += 4
            continue
        at += header
        while at + _ENTRY.size <= stop:
            fields = _ENTRY.unpack_from(data, at)
            kind, entry_header, entry_size, arch, flags = fields[0], fields[2], fields[3], fields[8], fields[11]
            if entry_header < _ENTRY.size or at + entry_header + entry_size > stop:
                damaged["an entry of a fat binary points outside it"] = None
                break
            yield kind, arch, flags
            at += entry_header + entry_size
        at = stop


def read_offload_bundle(data: Buffer, sections: tuple[NamedSection, ...]) -> DeviceCode | None:
    """What the offload bundles of a library hold; ``None`` when it has no section for such.

    Never raises for what the file holds.
    """
    areas = [(s.offset, min(s.offset + s.size, len(data))) for s in sections if s.name == ".hip_fatbin" and s.occupies]
    if not areas:
        return None
    errors: list[BundleError] = []
    found = [one for start, end in areas for one in code_objects(data, start, end, errors.append)]
    return DeviceCode(
        machine_code=frozenset(one.architecture for one in found),
        versions=frozenset(one.version for one in found),
        unread=tuple(dict.fromkeys(f"it {one}" for one in errors if not isinstance(one, DamageError))),
        damaged=tuple(dict.fromkeys(f"it {one}" for one in errors if isinstance(one, DamageError))),
    )


READERS: Mapping[str, Callable[[Buffer, tuple[NamedSection, ...]], DeviceCode | None]] = {
    "fatbin": read_fatbin,
    "offload-bundle": read_offload_bundle,
}
"""By the name of the format."""
