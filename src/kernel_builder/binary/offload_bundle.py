"""Clang's offload bundles in ``.hip_fatbin``: which code objects they hold, and for what.

A bundle begins with a magic, a count, and an entry for each target: offset, size, and an id such as
``hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-``. A compressed one (``CCOB``) has a header with its method and sizes, and the
bundle behind that. A code object for an AMD GPU is an ELF file: its identification says which version of code objects
it is, its flags for which chip. The linker puts bundles of several files one behind the other, with zeros between.
References: LLVM, "Clang Offload Bundler", "User Guide for AMDGPU Backend" (ELF code object).
"""

from __future__ import annotations

import hashlib
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernel_builder.binary.elf import Buffer

MAGIC, COMPRESSED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
_TARGET = re.compile(r"(?P<kind>hip|hipv4)-amdgcn-amd-amdhsa-{1,2}(?P<arch>gfx[0-9a-f]+)(?P<features>(?::[a-z]+[+-])*)")
_HOST = "host-"
_MOST_TARGETS, _LONGEST_ID = 1024, 256
_LARGEST = 1 << 31
"""The most bytes that a compressed bundle may have inside."""
_HEADERS = {1: struct.Struct("<4sHHIQ"), 2: struct.Struct("<4sHHIIQ"), 3: struct.Struct("<4sHHQQQ")}
_ZLIB, _ZSTD = 0, 1
_ELF = struct.Struct("<16sHHIQQQI")
_TABLES = struct.Struct("<32xQQ4x2xHHHH2x")
"""Of an ELF header: where segments and sections are, how large one is, and how many there are."""
_SEGMENT = struct.Struct("<IIQQQQ")
_AMDGPU, _AMD_HSA = 224, 64
_VERSIONS = {0: 2, 1: 3, 2: 4, 3: 5, 4: 6}
"""``e_ident[EI_ABIVERSION]`` -> version of code objects."""
_CHIPS = {
    0x2C: "gfx900", 0x2D: "gfx902", 0x2E: "gfx904", 0x2F: "gfx906", 0x30: "gfx908", 0x31: "gfx909", 0x32: "gfx90c",
    0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012", 0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032",
    0x39: "gfx1033", 0x3D: "gfx1035", 0x3E: "gfx1034", 0x3F: "gfx90a", 0x40: "gfx940", 0x41: "gfx1100",
    0x42: "gfx1013", 0x43: "gfx1150", 0x44: "gfx1103", 0x45: "gfx1036", 0x46: "gfx1101", 0x47: "gfx1102",
    0x48: "gfx1200", 0x4A: "gfx1151", 0x4B: "gfx941", 0x4C: "gfx942", 0x4E: "gfx1201", 0x4F: "gfx950"
}  # fmt: skip
"""The low byte of ``e_flags`` -> the chip, for those that are told apart here."""


class BundleError(Exception):
    """What cannot be read, in a sentence without a subject."""


class DamageError(BundleError):
    """What no version of the format has: a part is lost, or was changed."""


@dataclass(frozen=True, kw_only=True)
class CodeObject:
    """Code for one architecture. ``version`` is that of code objects (4, 5, 6)."""

    architecture: str
    version: int


def code_objects(data: Buffer, start: int, end: int, unread: Callable[[BundleError], None]) -> Iterator[CodeObject]:
    """The code objects of all bundles between two offsets. ``unread`` is told what cannot be read.

    Never raises for what ``data`` holds.
    """
    at = start
    while (at := _behind_zeros(data, at, end)) < end:
        try:
            found, at = _bundle(data, at, end, unread)
            yield from found
        except BundleError as error:
            unread(error)
            at = _following(data, at, end)


def _following(data: Buffer, at: int, end: int) -> int:
    """Where reading goes on behind something damaged. Compressed data may have a magic in it by chance."""
    if data[at : at + len(COMPRESSED)] == COMPRESSED:
        return _end_of_compressed(data, at, end) or end
    found = data.find(MAGIC, at + 1, end)
    return end if found < 0 else found


def _end_of_compressed(data: Buffer, begin: int, end: int) -> int | None:
    """Where a compressed bundle ends by its header; ``None`` where that does not say it, or it is behind ``end``."""
    version = struct.unpack_from("<H", data, begin + 4)[0] if begin + 8 <= end else 0
    header = _HEADERS.get(version)
    if header is None or version == 1 or begin + header.size > end:
        return None
    total: int = header.unpack_from(data, begin)[3]
    return begin + total if header.size <= total <= end - begin else None


def _behind_zeros(data: Buffer, at: int, end: int) -> int:
    while at < end:
        piece = bytes(data[at : min(at + 4096, end)])
        rest = piece.lstrip(b"\0")
        if rest:
            return at + len(piece) - len(rest)
        at += len(piece)
    return end


def _bundle(
    data: Buffer, at: int, end: int, unread: Callable[[BundleError], None]
) -> tuple[tuple[CodeObject, ...], int]:
    """The code objects of the bundle at ``at``, compressed or not, and where it ends."""
    if data[at : at + len(MAGIC)] == MAGIC:
        return _plain(data, at, end, unread)
    if data[at : at + len(COMPRESSED)] == COMPRESSED:
        return _compressed(data, at, end, unread)
    raise BundleError("has contents that are not bundles of GPU code")


def _plain(
    data: Buffer, begin: int, end: int, unread: Callable[[BundleError], None]
) -> tuple[tuple[CodeObject, ...], int]:
    """The code objects of the bundle at ``begin``, and where it ends."""
    at = begin + len(MAGIC)
    if at + _COUNT.size > end:
        raise DamageError("has a bundle of GPU code that is truncated")
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    if count > _MOST_TARGETS:
        raise DamageError(f"has a bundle of GPU code with {count} entries, which is implausible")
    found: list[CodeObject] = []
    last = at
    for _ in range(count):
        if at + _ENTRY.size > end:
            raise DamageError("has a bundle of GPU code that is truncated")
        offset, size, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if length > _LONGEST_ID or at + length > end:
            raise DamageError("has a bundle of GPU code with a damaged entry")
        name = bytes(data[at : at + length]).decode("ascii", "replace")
        at += length
        if begin + offset + size > end:
            raise DamageError(f"has a bundle of GPU code that is truncated: {name} ends behind it")
        last = max(last, at, begin + offset + size)
        if name.startswith(_HOST):
            continue
        try:
            found.append(_code_object(data, begin + offset, size, name))
        except BundleError as error:
            unread(error)
    return tuple(found), last


def _code_object(data: Buffer, at: int, size: int, name: str) -> CodeObject:
    target = _TARGET.fullmatch(name)
    if target is None:
        raise BundleError(f"has code for {name}, which is not an AMD GPU")
    if size < _TABLES.size:
        raise DamageError(f"has no code for {target['arch']}, but an entry for it")
    ident, _, machine, *_, flags = _ELF.unpack_from(data, at)
    if ident[:4] != b"\x7fELF" or machine != _AMDGPU or ident[7] != _AMD_HSA:
        raise DamageError(f"has something for {target['arch']} that is not a code object")
    version = _VERSIONS.get(ident[8])
    if version is None:
        raise BundleError(f"has a code object for {target['arch']} of an unknown version")
    if not _is_whole(data, at, size):
        raise DamageError(f"has a code object for {target['arch']} that is truncated")
    chip = _CHIPS.get(flags & 0xFF)
    if chip is not None and chip != target["arch"]:
        raise DamageError(f"has an entry for {target['arch']} whose code is for {chip}")
    return CodeObject(architecture=target["arch"], version=version)


def _is_whole(data: Buffer, at: int, size: int) -> bool:
    """Whether the headers and segments of the code object of ``size`` bytes lie within it."""
    segments, sections, entry, count, section, number = _TABLES.unpack_from(data, at)
    if segments + entry * count > size or sections + section * number > size or (count and entry < _SEGMENT.size):
        return False
    headers = (_SEGMENT.unpack_from(data, at + segments + entry * one) for one in range(count))
    return all(offset + length <= size for _, _, offset, _, _, length in headers)


def _compressed(
    data: Buffer, begin: int, end: int, unread: Callable[[BundleError], None]
) -> tuple[tuple[CodeObject, ...], int]:
    """As :func:`_plain`, of a compressed bundle."""
    inner, last = _inflated(data, begin, end)
    if inner[: len(MAGIC)] != MAGIC:
        raise DamageError("has a compressed bundle that holds something else")
    return _plain(inner, 0, len(inner), unread)[0], last


def _inflated(data: Buffer, begin: int, end: int) -> tuple[bytes, int]:
    if begin + 8 > end:
        raise DamageError("has a compressed bundle of GPU code that is truncated")
    version, method = struct.unpack_from("<HH", data, begin + 4)
    header = _HEADERS.get(version)
    if header is None:
        raise BundleError(f"has a compressed bundle of GPU code of version {version}, which is not known")
    if begin + header.size > end:
        raise DamageError("has a compressed bundle of GPU code that is truncated")
    *_, size, digest = header.unpack_from(data, begin)
    last = end if version == 1 else _end_of_compressed(data, begin, end)
    if last is None or size > _LARGEST:
        raise DamageError("has a compressed bundle of GPU code that is truncated")
    packed = bytes(data[begin + header.size : last])
    inner, rest = _decompress(packed, method, size)
    if len(inner) != size or int.from_bytes(hashlib.md5(inner, usedforsecurity=False).digest()[:8], "little") != digest:
        raise DamageError("has a compressed bundle of GPU code that is damaged")
    return inner, last - (rest if version == 1 else 0)


def _decompress(packed: bytes, method: int, size: int) -> tuple[bytes, int]:
    """At most ``size`` bytes of what is inside, and how many bytes follow it."""
    try:
        if method == _ZLIB:
            plain = zlib.decompressobj()
            inner = plain.decompress(packed, size)
            return inner, len(plain.unused_data)
        if method == _ZSTD:
            return _zstd(packed, size)
    except BundleError:
        raise
    except Exception as error:  # what libraries raise for damaged data differs
        raise DamageError(f"has a compressed bundle of GPU code that is damaged: {error}") from error
    raise BundleError(f"has a bundle of GPU code that is compressed by method {method}, which is not known")


def _zstd(packed: bytes, size: int) -> tuple[bytes, int]:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd  # noqa: PLC0415  (start-up time)
        else:
            from backports import zstd  # noqa: PLC0415
    except ImportError as error:
        raise BundleError("has bundles compressed with zstd: pip install backports.zstd to read them") from error
    plain = zstd.ZstdDecompressor()
    inner = plain.decompress(packed, size)
    return inner, len(plain.unused_data)
