"""Searches parts of large files piece by piece, so that memory stays flat whatever their size."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernel_builder.files import LARGEST_FILE

PIECE = 4 * 2**20
OVERLAP = 1024
"""Bytes that neighbouring pieces share if nothing else is said: what is searched for is shorter."""


def pieces(path: Path, ranges: Iterable[tuple[int, int]], *, overlap: int = OVERLAP) -> Iterator[bytes]:
    """The bytes of ``path`` between the offsets of each ``(start, end)``, in pieces of which neighbours share
    ``overlap`` bytes.

    Stops at the end of the file. A file that the Hub does not take (KB457) is not searched: it would take minutes.
    Raises ``OSError`` when it cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size > LARGEST_FILE:
            return
        for start, stop in ranges:
            at, end = start, min(stop, size)
            while at < end:
                file.seek(at)
                piece = file.read(min(PIECE, end - at))
                if not piece:
                    break
                yield piece
                if at + len(piece) >= end:
                    break
                at += max(len(piece) - overlap, 1)


def data_ranges(path: Path) -> Iterator[tuple[int, int]]:
    """The parts of a file that hold data: where it is all zeros, the file system may have nothing.

    Raises ``OSError`` when it cannot be read.
    """
    with path.open("rb") as file:
        size, at = file.seek(0, os.SEEK_END), 0
        if not hasattr(os, "SEEK_DATA"):
            yield at, size
            return
        while at < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # the file system cannot tell
                    yield at, size
                return
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            yield start, at


def contains(path: Path, ranges: Iterable[tuple[int, int]], text: bytes) -> bool:
    """Whether one of the parts holds ``text`` (shorter than :data:`OVERLAP`)."""
    return any(text in piece for piece in pieces(path, ranges))
