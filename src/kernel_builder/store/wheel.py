"""Reading parts of a wheel without having it: DESIGN.md F1 (whole members) and F2 (the beginning of one).

A wheel is a zip file: the directory at its end says where each member lies. Everything that is kept is
checked against the wheel's RECORD. References: PyPA "Binary distribution format" (RECORD); PKWARE APPNOTE
4.3.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import os
import re
import stat
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Protocol, TypeVar

from kernel_builder.errors import IntegrityError
from kernel_builder.store.deflate import inflate_end

COALESCE_GAP = 64 * 1024
"""Members closer than this are read in one request: the bytes between cost less than a round trip (F1)."""

_TAIL = 64 * 1024
_WHOLE_BELOW = 256 * 1024
_PREFIX_STEP = 256 * 1024
_HEADER_ROOM = 2048  # what a local header takes, with room to spare
_END_STEP = 1024 * 1024
_END_LIMIT = 16 * 1024 * 1024
_DRAIN = 1 << 20
_PREFIX_LIMIT = 96 * 1024 * 1024
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_SLACK = 65_535 + 24  # the longest local extra field, and a data descriptor
_UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")

_Result = TypeVar("_Result")


class RangeReader(Protocol):
    """A file that can be read in parts."""

    @property
    def size(self) -> int:
        """Bytes in the whole file."""
        ...

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Exactly the bytes from ``start`` up to ``stop``, in pieces. Raises what its medium raises."""
        ...


class FileOnDisk:
    """A :class:`RangeReader` over a file on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """See :class:`RangeReader`."""
        with self.path.open("rb") as file:
            file.seek(start)
            while start < stop:
                chunk = file.read(min(1 << 20, stop - start))
                if not chunk:
                    raise IntegrityError(f"{self.path} is truncated")
                start += len(chunk)
                yield chunk


class NeedMoreError(Exception):
    """Raised by the consumer of :meth:`Wheel.read_prefix` when the beginning it got is too short."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One file in a wheel. Sizes are in bytes; ``end`` bounds what belongs to it; ``mode`` holds Unix
    permissions.
    """

    name: str
    offset: int
    end: int
    compressed: int
    size: int
    crc: int
    method: int
    mode: int


class _Tail(io.RawIOBase):
    """The end of the file as a seekable file for :mod:`zipfile`; grows towards the beginning as that is read."""

    def __init__(self, reader: RangeReader) -> None:
        super().__init__()
        self._reader = reader
        self._position = 0
        self.start = max(0, reader.size - (reader.size if reader.size <= _WHOLE_BELOW else _TAIL))
        self._data = b"".join(reader.read(self.start, reader.size))

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._reader.size}[whence]
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._reader.size if size < 0 else min(self._reader.size, self._position + size)
        data = b"".join(self.slice(self._position, stop))
        self._position += len(data)
        return data

    def slice(self, start: int, stop: int) -> Iterator[bytes]:
        if start < self.start:
            self._data = b"".join(self._reader.read(start, self.start)) + self._data
            self.start = start
        yield self._data[start - self.start : stop - self.start]


class _Pieces:
    """Exact reads from an iterator of byte strings."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def take(self, count: int) -> Iterator[memoryview]:
        while count:
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    raise IntegrityError("a part of the wheel is truncated")
                self._rest = memoryview(piece)
            part = self._rest[:count]
            self._rest = self._rest[len(part) :]
            count -= len(part)
            yield part

    def exactly(self, count: int) -> bytes:
        return b"".join(self.take(count))

    def skip(self, count: int) -> None:
        for _ in self.take(count):
            pass


def _compile(pattern: str) -> re.Pattern[str]:
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(wild.get(part, re.escape(part)) for part in parts))


def matching(names: Iterable[str], include: Iterable[str], exclude: Iterable[str] = ()) -> tuple[str, ...]:
    """The names that some pattern of ``include`` matches and none of ``exclude``. ``**`` crosses ``/``, ``*``
    does not.
    """
    wanted = [_compile(pattern) for pattern in include]
    unwanted = [_compile(pattern) for pattern in exclude]
    return tuple(
        name
        for name in names
        if any(p.fullmatch(name) for p in wanted) and not any(p.fullmatch(name) for p in unwanted)
    )


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return "\\" not in name and "\0" not in name and ":" not in parts[0] and not {"", ".", ".."} & set(parts)


class Wheel:
    """A wheel behind a :class:`RangeReader`. ``filename`` is used in messages.

    Opening it reads the directory. Raises :class:`IntegrityError` when it is not a wheel or contains names that
    point outside of it, and whatever the reader raises.
    """

    def __init__(self, reader: RangeReader, *, filename: str) -> None:
        self.filename = filename
        self._reader = reader
        self._tail = _Tail(reader)
        try:
            with zipfile.ZipFile(self._tail) as archive:
                infos = archive.infolist()
                directory = archive.start_dir
        except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
            raise IntegrityError(f"{filename} is not a valid wheel: {error}") from error
        self.members: Mapping[str, Member] = self._read_directory(infos, directory)

    def _read_directory(self, infos: Sequence[zipfile.ZipInfo], directory: int) -> dict[str, Member]:
        ordered = sorted(infos, key=lambda info: info.header_offset)
        members: dict[str, Member] = {}
        for index, info in enumerate(ordered):
            following = ordered[index + 1].header_offset if index + 1 < len(ordered) else directory
            if info.is_dir():
                continue
            mode = info.external_attr >> 16
            if info.filename in members or not _is_safe(info.filename) or stat.S_ISLNK(mode):
                raise IntegrityError(f"{self.filename} contains a member that is not allowed: {info.filename!r}")
            if info.flag_bits & 0x1 or info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise IntegrityError(
                    f"{self.filename}: {info.filename} uses a compression method that wheels do not support"
                )
            longest = _LOCAL_HEADER.size + len(info.filename.encode()) + info.compress_size + _SLACK
            members[info.filename] = Member(
                name=info.filename,
                offset=info.header_offset,
                end=min(following, info.header_offset + longest),
                compressed=info.compress_size,
                size=info.file_size,
                crc=info.CRC,
                method=info.compress_type,
                mode=mode,
            )
        return members

    @cached_property
    def _record_bytes(self) -> bytes:
        names = [name for name in self.members if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
        if len(names) != 1:
            raise IntegrityError(f"{self.filename} has no RECORD, so it cannot be verified")
        sink = _MemorySink()
        self._copy([self.members[names[0]]], lambda _: sink, verify=False)
        return bytes(sink.data)

    @property
    def record_sha256(self) -> str:
        """SHA-256 of the RECORD file, in hex: what identifies the wheel's contents."""
        return hashlib.sha256(self._record_bytes).hexdigest()

    @cached_property
    def _record(self) -> dict[str, str]:
        """Member name -> hex SHA-256."""
        try:
            rows = list(csv.reader(io.StringIO(self._record_bytes.decode("utf-8"))))
            return {
                row[0]: base64.urlsafe_b64decode(row[1].removeprefix("sha256=") + "==").hex()
                for row in rows
                if len(row) > 1 and row[1].startswith("sha256=")
            }
        except (UnicodeDecodeError, csv.Error, ValueError) as error:
            raise IntegrityError(f"{self.filename}: cannot read its RECORD: {error}") from error

    def select(self, include: Iterable[str], exclude: Iterable[str] = ()) -> tuple[Member, ...]:
        """Members by pattern (see :func:`matching`), in the order in which they lie in the file."""
        return tuple(self.members[name] for name in matching(self.members, include, exclude))

    def extract(self, members: Iterable[Member], into: Path, rename: Callable[[str], str] = lambda name: name) -> None:
        """Write members below ``into``, verified, read-only, with their executable bit.

        ``rename`` gives the path relative to ``into``. Raises :class:`IntegrityError` when a member differs
        from RECORD or from the directory, or would land outside ``into``; what was written so far stays.
        """
        folders: set[Path] = set()

        def sink(member: Member) -> _FileSink:
            relative = rename(member.name)
            if not _is_safe(relative):
                raise IntegrityError(f"{self.filename}: {member.name!r} would be written to {relative!r}")
            target = into / relative
            if target.parent not in folders:
                target.parent.mkdir(parents=True, exist_ok=True)
                folders.add(target.parent)
            return _FileSink(target, executable=bool(member.mode & 0o100))

        self._copy(sorted(members, key=lambda member: member.offset), sink, verify=True)

    def read(self, name: str) -> bytes:
        """The verified contents of one member. Raises :class:`IntegrityError`."""
        sink = _MemorySink()
        self._copy([self.members[name]], lambda _: sink, verify=True)
        return bytes(sink.data)

    @contextmanager
    def stream(self, name: str) -> Iterator[IO[bytes]]:
        """The contents of one member as a file that can only be read on, as it arrives. It is verified when the block
        ends: what was made of it is for the caller to drop when that raises :class:`IntegrityError`.
        """
        read_end, write_end = os.pipe()
        failure: list[BaseException] = []

        def copy() -> None:
            try:
                with open(write_end, "wb") as target:  # noqa: PTH123  (a descriptor)
                    self._copy([self.members[name]], lambda _: contextlib.nullcontext(target.write), verify=True)
            except BrokenPipeError:
                pass  # the reader gave up, and says why
            except BaseException as error:  # noqa: BLE001  (it is raised in the reader's thread)
                failure.append(error)

        writer = threading.Thread(target=copy, daemon=True)
        writer.start()
        try:
            with open(read_end, "rb") as source:  # noqa: PTH123
                yield source
                while source.read(_DRAIN):
                    pass
        finally:
            writer.join()
            if failure:
                raise failure[0]

    def read_prefix(self, name: str, accept: Callable[[bytes], _Result]) -> _Result:
        """What ``accept`` makes of the beginning of a member.

        ``accept`` gets ever longer beginnings and raises :class:`NeedMoreError` to see more. Nothing after
        that is fetched, so neither RECORD's digest nor the checksum can be verified: use it for facts that a
        wrong byte cannot turn into a wrong build, such as a table of names.
        """
        member = self.members[name]
        inflate = zlib.decompressobj(-15) if member.method == zipfile.ZIP_DEFLATED else None
        pieces = _Pieces(self._growing(member))
        self._skip_local_header(member, pieces)
        inflated = bytearray()
        left, step = member.compressed, _PREFIX_STEP
        while True:
            for piece in pieces.take(min(step, left)):
                inflated += inflate.decompress(piece) if inflate else piece
            left -= min(step, left)
            try:
                return accept(bytes(inflated))
            except NeedMoreError as error:
                if not left or len(inflated) > _PREFIX_LIMIT:
                    raise IntegrityError(f"{self.filename}: {name} is not as expected: {error}") from error
            step = member.compressed - left  # twice as much as before, in all

    def read_end(self, name: str, wanted: int) -> bytes:
        """The last ``wanted`` bytes of a member, unverified as with :meth:`read_prefix`.

        Fetches about what these take when compressed (see :mod:`kernel_builder.store.deflate`), and the whole
        member only where its end cannot be understood alone.
        """
        member = self.members[name]
        wanted = min(wanted, member.size)
        pieces = _Pieces(self._bytes(member.offset, min(member.end, member.offset + _HEADER_ROOM)))
        start = member.offset + self._skip_local_header(member, pieces)
        stop = start + member.compressed
        if member.method == zipfile.ZIP_STORED:
            return b"".join(self._bytes(stop - wanted, stop))
        size = _END_STEP
        tail = b""
        while size < member.compressed and size <= _END_LIMIT:
            tail = b"".join(self._bytes(stop - size, stop - len(tail))) + tail
            found = inflate_end(tail, wanted)
            if found is not None:
                return found
            size *= 2
        return self.read(name)[-wanted:]

    def _growing(self, member: Member) -> Iterator[bytes]:
        """The bytes of a member in ever longer requests, each sent only when the one before is used up."""
        position, stop = member.offset, member.offset + _PREFIX_STEP + _HEADER_ROOM
        while position < member.end:
            stop = min(stop, member.end)
            yield from self._bytes(position, stop)
            position, stop = stop, stop + (stop - member.offset)

    def _bytes(self, start: int, stop: int) -> Iterator[bytes]:
        """Part of the file; what the directory's reading brought along is not fetched again."""
        known = self._tail.start
        if start < known:
            yield from self._reader.read(start, min(stop, known))
        if stop > known:
            yield from self._tail.slice(max(start, known), stop)

    def _skip_local_header(self, member: Member, pieces: _Pieces) -> int:
        """Go past the member's own header; returns its length. The header's name must be the directory's."""
        fields = _LOCAL_HEADER.unpack(pieces.exactly(_LOCAL_HEADER.size))
        name_size, extra_size = fields[-2:]
        name = pieces.exactly(name_size)
        pieces.skip(extra_size)
        if fields[0] != b"PK\x03\x04" or name.decode("utf-8", "replace") != member.name:
            raise IntegrityError(f"{self.filename}: {member.name} is not where the wheel's central directory says")
        return _LOCAL_HEADER.size + int(name_size) + int(extra_size)

    def _runs(self, members: Sequence[Member]) -> Iterator[list[Member]]:
        run: list[Member] = []
        for member in members:
            if run and member.offset - run[-1].end > COALESCE_GAP:
                yield run
                run = []
            run.append(member)
        if run:
            yield run

    def _copy(self, members: Sequence[Member], sink: Callable[[Member], _Sink], *, verify: bool) -> None:
        record = self._record if verify else {}
        for run in self._runs(members):
            pieces = _Pieces(self._bytes(run[0].offset, run[-1].end))
            position = run[0].offset
            for member in run:
                pieces.skip(member.offset - position)
                header = self._skip_local_header(member, pieces)
                digest = self._copy_one(member, pieces, sink(member))
                position = member.offset + header + member.compressed
                if verify and not member.name.endswith(_UNRECORDED) and record.get(member.name) != digest:
                    known = (
                        "its contents do not match RECORD" if member.name in record else "it is not listed in RECORD"
                    )
                    raise IntegrityError(
                        f"{self.filename}: {member.name} cannot be trusted: {known}",
                        hint="the download was altered in transit, or the wheel on the index is broken",
                    )

    def _copy_one(self, member: Member, pieces: _Pieces, sink: _Sink) -> str:
        inflate = zlib.decompressobj(-15) if member.method == zipfile.ZIP_DEFLATED else None
        digest, crc, size = hashlib.sha256(), 0, 0
        with sink as write:
            try:
                for piece in pieces.take(member.compressed):
                    data = inflate.decompress(piece) if inflate else bytes(piece)
                    digest.update(data)
                    crc = zlib.crc32(data, crc)
                    size += len(data)
                    if size > member.size:
                        break
                    write(data)
            except zlib.error as error:
                raise IntegrityError(f"{self.filename}: {member.name} cannot be unpacked: {error}") from error
        if size != member.size or crc != member.crc or (inflate is not None and not inflate.eof):
            raise IntegrityError(
                f"{self.filename}: {member.name} was damaged in transit (wrong checksum or size)",
                hint="run the command again; if this persists, the wheel on the index is broken",
            )
        return digest.hexdigest()


class _Sink(Protocol):
    """Where a member goes; entering gives the function that takes its bytes."""

    def __enter__(self) -> Callable[[bytes], object]: ...

    def __exit__(self, *exception: object) -> None: ...


class _MemorySink:
    def __init__(self) -> None:
        self.data = bytearray()

    def __enter__(self) -> Callable[[bytes], object]:
        return self.data.extend

    def __exit__(self, *exception: object) -> None:
        pass


class _FileSink:
    def __init__(self, path: Path, *, executable: bool) -> None:
        self._path = path
        self._mode = 0o555 if executable else 0o444

    def __enter__(self) -> Callable[[bytes], object]:
        self._file = self._path.open("xb")
        return self._file.write

    def __exit__(self, *exception: object) -> None:
        self._file.close()
        self._path.chmod(self._mode)
