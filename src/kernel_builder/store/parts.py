"""Parts of a file that have arrived, kept so that the next attempt resumes where this one stopped.

What is kept belongs to one exact file (its digest is in the name), and every part has a checksum: a part that the disk
did not get before the machine went down is fetched again. Contents are verified later, as if they had just arrived.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from kernel_builder.store.wheel import RangeReader

_NOTE_EVERY = 1 << 20  # bytes after which a part is noted, so that no more than these are lost
_COPY = 1 << 20
_TO_WRITE = os.O_CREAT | os.O_WRONLY | getattr(os, "O_BINARY", 0)  # Windows changes what it writes as text


class KeptParts:
    """A :class:`RangeReader` over another one, which is asked only for what ``path`` does not hold yet.

    ``path`` is a sparse file; beside it lies a list of what it holds. For one thread at a time, and for one process:
    the caller sees to that. A disk that cannot be written stops nothing.
    """

    def __init__(self, reader: RangeReader, path: Path) -> None:
        self._reader = reader
        self._path = path
        self._list = path.with_suffix(".list")
        self.size = reader.size
        self._parts: list[tuple[int, int]] = sorted(self._sound())

    @property
    def kept(self) -> int:
        """Bytes that are here already."""
        return sum(stop - start for start, stop in self._parts)

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """See :class:`RangeReader`."""
        position = start
        while position < stop:
            index = bisect.bisect_right(self._parts, (position, self.size + 1))
            if index and self._parts[index - 1][1] > position:
                end = min(stop, self._parts[index - 1][1])
                yield from self._from_disk(position, end)
            else:
                end = min(stop, self._parts[index][0]) if index < len(self._parts) else stop
                yield from self._from_reader(position, end)
            position = end

    def _from_disk(self, start: int, stop: int) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            file.seek(start)
            while start < stop and (data := file.read(min(_COPY, stop - start))):
                start += len(data)
                yield data

    def _from_reader(self, start: int, stop: int) -> Iterator[bytes]:
        position, checksum, writable = start, 0, True
        try:
            for data in self._reader.read(start, stop):
                writable = writable and self._write(position, data)
                if writable:
                    checksum = zlib.crc32(data, checksum)
                    position += len(data)
                    if position - start >= _NOTE_EVERY:
                        self._note(start, position, checksum)
                        start, checksum = position, 0
                yield data
        finally:
            if position > start:
                self._note(start, position, checksum)

    def _write(self, position: int, data: bytes) -> bool:
        with contextlib.suppress(OSError):
            file = os.open(self._path, _TO_WRITE, 0o644)
            try:
                os.lseek(file, position, os.SEEK_SET)
                return os.write(file, data) == len(data)
            finally:
                os.close(file)
        return False

    def _note(self, start: int, stop: int, checksum: int) -> None:
        with contextlib.suppress(OSError), self._list.open("a", encoding="ascii") as file:
            file.write(f"{start} {stop} {checksum}\n")
        bisect.insort(self._parts, (start, stop))

    def _sound(self) -> Iterator[tuple[int, int]]:
        """The parts of the list whose checksum is right."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            lines = self._list.read_text(encoding="ascii").splitlines()
            with self._path.open("rb") as file:
                for line in lines:
                    numbers = [int(word) for word in line.split() if word.isdigit()]
                    if len(numbers) != 3 or not 0 <= numbers[0] < numbers[1] <= self.size:
                        continue  # the last line of a process that was killed
                    start, stop, expected = numbers
                    file.seek(start)
                    checksum = 0
                    while start < stop and (data := file.read(min(_COPY, stop - start))):
                        checksum = zlib.crc32(data, checksum)
                        start += len(data)
                    if start == stop and checksum == expected:
                        yield numbers[0], numbers[1]
