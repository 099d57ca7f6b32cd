# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Writes a shared library that defines names and nothing else; no compiler is needed.

A function says its name on stderr and aborts the process; a *quiet* one returns the address of zero bytes. An object is
zero bytes. Reference: System V ABI (gABI) chapters 4 and 5, its supplements for x86-64 and AArch64, and the LSB's
"Symbol Versioning".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

FUNCTION, QUIET, OBJECT, THREAD_LOCAL = "function", "quiet", "object", "tls"
CALLED = "kernel-builder: the stand-in of {} was called"

_PAGE = 0x10000  # the largest that either machine has
_OBJECT = 4096  # bytes; more than any class's table of virtual functions
_HEADER, _SEGMENT = 64, 56
_GLOBAL, _NOTYPE_SECTION = 1, 1
_TYPES = {FUNCTION: 2, QUIET: 2, OBJECT: 1, THREAD_LOCAL: 6}
_R, _RX, _RW = 4, 5, 6


class Name(NamedTuple):
    """A name to define, with the version that it is needed in (``""``: none)."""

    name: str
    kind: str = FUNCTION
    version: str = ""


class Processor(NamedTuple):
    """What differs between processors: the number in the ELF header, and code as functions of addresses."""

    number: int
    abort: bytes  # with the text's address and length in the second and third argument's registers

    def function(self, at: int, message: int, length: int, abort: int) -> bytes:
        """Code at ``at`` that goes to ``abort`` with the text ``message``."""
        if self.number == X86_64.number:
            # lea rsi, [message]; mov edx, length; jmp abort
            return (
                b"\x48\x8d\x35" + struct.pack("<i", message - at - 7)
                + b"\xba" + struct.pack("<I", length)
                + b"\xe9" + struct.pack("<i", abort - at - 17)
            )  # fmt: skip
        # adr x1, message; mov w2, length; b abort
        words = (_adr(1, message - at), 0x52800002 | length << 5, 0x14000000 | ((abort - at - 8) >> 2) & 0x3FFFFFF)
        return struct.pack("<3I", *words)

    def quiet(self, at: int, data: int) -> bytes:
        """Code at ``at`` that returns the address ``data``."""
        if self.number == X86_64.number:
            return b"\x48\x8d\x05" + struct.pack("<i", data - at - 7) + b"\xc3"  # lea rax, [data]; ret
        return struct.pack("<2I", _adr(0, data - at), 0xD65F03C0)  # adr x0, data; ret


def _adr(register: int, distance: int) -> int:
    return 0x10000000 | (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5 | register


# write(2, text, length); kill(getpid(), SIGABRT)
X86_64 = Processor(
    62,
    b"\xbf\x02\0\0\0\xb8\x01\0\0\0\x0f\x05\xb8\x27\0\0\0\x0f\x05\x89\xc7\xbe\x06\0\0\0"
    b"\xb8\x3e\0\0\0\x0f\x05\x0f\x0b",
)  # fmt: skip
AARCH64 = Processor(
    183,
    struct.pack(
        "<10I", 0xD2800040, 0xD2800808, 0xD4000001, 0xD2801588, 0xD4000001, 0xD28000C1, 0xD2801028, 0xD4000001,
        0xD4200000, 0xD503201F,
    ),
)  # fmt: skip
PROCESSORS = {"x86_64": X86_64, "aarch64": AARCH64}


def library(soname: str, names: list[Name], machine: Processor) -> bytes:
    """The bytes of a shared library ``soname`` that defines ``names``."""
    names = sorted(set(names))
    strings = _Strings()
    soname_at = strings.add(soname)
    symbol_names = [strings.add(name.name) for name in names]
    versions = sorted({name.version for name in names if name.version})
    verdef = _version_definitions(soname, versions, strings)
    versym = struct.pack(
        f"<{len(names) + 1}H", 0, *(versions.index(name.version) + 2 if name.version else 1 for name in names)
    )
    table = _hash_table([name.name for name in names])

    # The read-only part: headers and tables, one after the other.
    segments = 6
    at = _HEADER + segments * _SEGMENT
    symbols_at = at = _up(at, 8)
    at = versym_at = symbols_at + 24 * (len(names) + 1)
    at = hash_at = _up(at + len(versym), 8)
    at = verdef_at = _up(at + len(table), 8)
    at = strings_at = at + len(verdef)
    text_at = _up(at + len(strings.data), _PAGE)
    code, entries = _code(names, machine, text_at, lambda size: _up(text_at + size, _PAGE))
    data_at = _up(text_at + len(code), _PAGE)
    zero_at = data_at  # what quiet functions return; the dynamic section follows
    dynamic_at = data_at + 64

    objects, thread_locals, values = dynamic_at + 16 * 16, 0, {}
    for index, name in enumerate(names):
        if name.kind == THREAD_LOCAL:
            values[index], thread_locals = thread_locals, thread_locals + 64
        elif name.kind == OBJECT:
            values[index], objects = objects, objects + _OBJECT
        else:
            values[index] = entries[index]
    symbols = bytearray(24)
    for index, name in enumerate(names):
        size = _OBJECT if name.kind == OBJECT else 64 if name.kind == THREAD_LOCAL else 16
        info = _GLOBAL << 4 | _TYPES[name.kind]
        symbols += struct.pack("<IBBHQQ", symbol_names[index], info, 0, _NOTYPE_SECTION, values[index], size)

    dynamic = [(14, soname_at), (4, hash_at), (5, strings_at), (6, symbols_at), (10, len(strings.data)), (11, 24)]
    if versions:
        dynamic += [(0x6FFFFFF0, versym_at), (0x6FFFFFFC, verdef_at), (0x6FFFFFFD, len(versions) + 1)]
    packed = b"".join(struct.pack("<qQ", *entry) for entry in [*dynamic, (0, 0)])

    end = dynamic_at + len(packed)
    image = bytearray(end)
    for where, part in (
        (0, _header(machine, segments)),
        (symbols_at, symbols), (versym_at, versym), (hash_at, table), (verdef_at, verdef),
        (strings_at, strings.data), (text_at, code), (dynamic_at, packed),
    ):  # fmt: skip
        image[where : where + len(part)] = part
    head = strings_at + len(strings.data)
    image[_HEADER : _HEADER + segments * _SEGMENT] = b"".join(
        (
            _segment(1, _R, 0, head, head, _PAGE),
            _segment(1, _RX, text_at, len(code), len(code), _PAGE),
            _segment(1, _RW, zero_at, end - zero_at, objects - zero_at, _PAGE),
            _segment(2, _RW, dynamic_at, len(packed), len(packed), 8),
            _segment(0x6474E551, _RW, 0, 0, 0, 16),  # the stack is not executable
            _segment(7 if thread_locals else 0, _R, zero_at, 0, thread_locals, 64),
        )
    )
    return bytes(image)


class _Strings:
    """A string table."""

    def __init__(self) -> None:
        self.data = bytearray(1)

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode("utf-8", "surrogateescape") + b"\0"
        return at


def _up(value: int, to: int) -> int:
    return (value + to - 1) // to * to


def _header(machine: Processor, segments: int) -> bytes:
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    return struct.pack(
        "<16sHHIQQQIHHHHHH", identity, 3, machine.number, 1, 0, _HEADER, 0, 0, _HEADER, _SEGMENT, segments, 64, 0, 0
    )


def _segment(kind: int, flags: int, at: int, size: int, memory: int, align: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, memory, align)


def sysv_hash(name: bytes) -> int:
    """The hash of DT_HASH."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value ^= high >> 24
        value &= ~high
    return value & 0xFFFFFFFF


def _hash_table(names: list[str]) -> bytes:
    count = max(1, len(names))
    buckets, chain = [0] * count, [0] * (len(names) + 1)
    for index, name in enumerate(names, 1):
        bucket = sysv_hash(name.encode("utf-8", "surrogateescape")) % count
        chain[index], buckets[bucket] = buckets[bucket], index
    return struct.pack(f"<{2 + len(buckets) + len(chain)}I", len(buckets), len(chain), *buckets, *chain)


def _version_definitions(soname: str, versions: list[str], strings: _Strings) -> bytes:
    """Of the library itself first, then of each version."""
    if not versions:
        return b""
    parts = []
    nodes = [soname, *versions]
    for index, node in enumerate(nodes, 1):
        base, following = (1 if index == 1 else 0), (28 if index < len(nodes) else 0)
        parts.append(struct.pack("<HHHHIII", 1, base, index, 1, sysv_hash(node.encode()), 20, following))
        parts.append(struct.pack("<II", strings.add(node), 0))
    return b"".join(parts)


def _code(names: list[Name], machine: Processor, text_at: int, data_at: object) -> tuple[bytes, dict[int, int]]:
    """The code of all functions, and where each begins. Every function is followed by its message."""
    code, entries = bytearray(machine.abort), {}
    for index, name in enumerate(names):
        if name.kind == FUNCTION:
            code += bytes(-len(code) % 16)
            at = text_at + len(code)
            entries[index] = at
            message = (CALLED.format(name.name) + "\n").encode("utf-8", "surrogateescape")[:0xFFFF]
            code += machine.function(at, at + 20, len(message), text_at).ljust(20, b"\0") + message
    # Quiet ones are last, so that the data is near whatever the size.
    quiet = [index for index, name in enumerate(names) if name.kind == QUIET]
    code += bytes(-len(code) % 16)
    size = len(code) + 16 * len(quiet)
    assert callable(data_at)  # noqa: S101
    for index in quiet:
        at = text_at + len(code)
        entries[index] = at
        code += machine.quiet(at, data_at(size)).ljust(16, b"\0")
    return bytes(code), entries
