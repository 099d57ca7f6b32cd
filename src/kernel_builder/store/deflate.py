"""Reading the end of a deflate stream without its beginning.

Deflate has no index, but it is made of blocks, and a block with its own codes can be recognised: a wrong
guess soon meets an impossible code, and a right one ends exactly where the stream does. What such a start
lacks is the 32 KiB of text before it, to which copies refer; bytes that depend on it are found by inflating
with two different inventions of that text and comparing. Data that follows a few hundred KiB later rarely
depends on it. Reference: RFC 1951.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

_WINDOW = 32 * 1024
# Three low bits: not the final block (0), dynamic codes (10); five more: HLIT up to 29.
_FIRST_BYTES = bytes(value for value in range(256) if value & 7 == 0b100 and value >> 3 <= 29)
_FIRST = re.compile(b"[" + re.escape(_FIRST_BYTES) + b"]", re.DOTALL)
_STRIDE = 4096  # bytes looked at in one alignment before the next alignment is tried
_HEADER_BYTES = 12  # 17 bits and 19 lengths of 3 bits fit in these


def _plausible(header: bytes) -> bool:
    """Whether a dynamic block can begin with ``header``: the code for code lengths must be complete."""
    bits = int.from_bytes(header, "little")
    if (bits >> 8) & 31 > 29:
        return False
    total = 0
    for index in range(((bits >> 13) & 15) + 4):
        length = (bits >> (17 + 3 * index)) & 7
        if length:
            total += 128 >> length
    return total == 128


def _starts(tail: bytes) -> Iterator[tuple[int, int]]:
    """``(byte, bit)`` positions where a dynamic block may begin, early ones first."""
    whole = int.from_bytes(tail, "little")
    shifted = [(whole >> shift).to_bytes(len(tail), "little") for shift in range(8)]
    last = max(0, len(tail) - _HEADER_BYTES)
    for begin in range(0, last, _STRIDE):
        for bit, data in enumerate(shifted):
            for match in _FIRST.finditer(data, begin, min(begin + _STRIDE, last)):
                if _plausible(data[match.start() : match.start() + _HEADER_BYTES]):
                    yield match.start(), bit


def _lead_in(first: int, bit: int) -> tuple[bytes, int]:
    """Deflate data that ends in the middle of the byte ``first``, just before its bit ``bit``, and what it holds.

    A stream cannot be entered within a byte, and moving its bits would misplace stored blocks, which begin at a
    byte. So a block is put in front whose length is right: with the fixed codes, 3 bits of header, 9 for each byte
    of 0xff, and 7 zeros for its end.
    """
    count = (bit - 2) % 8
    bits = 0b010 | ((1 << 9 * count) - 1) << 3
    length = 3 + 9 * count + 7
    if bit:
        bits |= first >> bit << length
        return bits.to_bytes((length + 7) // 8, "little"), count
    return bits.to_bytes(length // 8, "little") + bytes([first]), count


def _inflate(tail: memoryview, start: tuple[int, int], filler: bytes) -> bytes | None:
    """All that a stream holds from ``start`` on, or ``None`` when it is not one that ends with ``tail``."""
    byte, bit = start
    lead, extra = _lead_in(tail[byte], bit)
    inflate = zlib.decompressobj(-15, zdict=filler * _WINDOW)
    try:
        out = inflate.decompress(lead) + inflate.decompress(tail[byte + 1 :])
    except zlib.error:
        return None
    return out[extra:] if inflate.eof and not inflate.unused_data else None


def inflate_end(tail: bytes, wanted: int) -> bytes | None:
    """The last ``wanted`` bytes of a raw deflate stream that ends with ``tail``.

    ``None`` when ``tail`` is too short for that: no block begins in it early enough, or bytes within what is wanted
    depend on what came before. The caller knows from elsewhere what the bytes should look like and should check it.
    """
    view = memoryview(tail)
    for start in _starts(tail):
        out = _inflate(view, start, b"\x00")
        if out is None:
            continue
        if len(out) < wanted:
            return None  # later starts give even less, but for a stride
        other = _inflate(view, start, b"\xff")
        if other is not None and other[-wanted:] == out[-wanted:]:
            return out[-wanted:]
    return None
