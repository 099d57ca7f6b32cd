"""Unpacking archives that others made: ``.tar.xz``, ``.tar.gz``, ``.tar.zst``, ``.zip`` and Debian packages.

The whole table of contents is read and judged before anything is written. An archive is refused when a member's name
leads out of its root, when it holds a device or a pipe, when two members claim one name, or when it unpacks to more
than its publisher said. Links are never created: what a wanted link leads to is copied, and a link that leads out of
the archive is refused when it is wanted. Files that exist already are never written over.
References: deb(5), ar(5); POSIX.1-2001 pax; PKWARE APPNOTE 4.4.2 and 4.5.7 (Unix modes).
"""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import IO, cast

from kernel_builder.errors import IntegrityError, ToolchainError
from kernel_builder.store.download import safe_path

Select = Callable[[str], str | None]
"""Maps the name of a member to where it goes, or ``None`` to leave it out."""

_COPY = 1 << 20
_LINK_STEPS = 16
_LINK_BYTES = 4096
_ROOM = 16 << 20  # headers and padding of a tar file, beyond the contents that a publisher counts
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    gzip.BadGzipFile,
    NotImplementedError,
    RuntimeError,  # what zipfile raises for encrypted members
    UnicodeError,
    struct.error,
)


class _Kind(Enum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A member. ``name`` is safe; a link's ``target`` counts from the archive's root, ``None`` when it leads out."""

    name: str
    kind: _Kind
    size: int = 0
    executable: bool = False
    target: str | None = None


def unpack(
    archive: Path, into: Path, select: Select, *, limit: int, name: str = "", strip: str = ""
) -> tuple[str, ...]:
    """Write the members of ``archive`` that ``select`` maps to a path below ``into``; return those paths, sorted.

    ``limit`` is how many bytes all members together may have. ``name`` is the file's name where ``archive`` is called
    something else. ``strip`` is a folder that holds everything: ``select`` sees names below it. Executable files come
    out as 0755, others as 0644. ``into`` must exist. Raises :class:`IntegrityError` when the archive is damaged or
    refused, and :class:`ToolchainError` when its compression needs a package that is not installed; what was written
    by then is for the caller to drop.
    """
    name = name or archive.name
    reader = _reader(name)
    try:
        entries = _judge(reader(archive, limit), name, limit)
        plan = _plan(entries, _below(strip, select), name)
        written: list[str] = []
        for entry, content in reader(archive, limit):
            if entry.kind is not _Kind.FILE or entry.name not in plan:
                continue
            targets = plan.pop(entry.name)
            _write(content(), [into / target for target in targets], entry, name)
            written += targets
            if not plan:
                break
    except _DAMAGE as error:
        raise IntegrityError(f"{name} is damaged: {str(error) or type(error).__name__}") from error
    return tuple(sorted(written))


def _below(folder: str, select: Select) -> Select:
    if not folder:
        return select
    prefix = folder.rstrip("/") + "/"
    return lambda name: select(name.removeprefix(prefix)) if name.startswith(prefix) else None


_Content = Callable[[], IO[bytes]]
_Read = Callable[[Path, int], Iterator[tuple[_Entry, _Content]]]


def _judge(members: Iterable[tuple[_Entry, _Content]], name: str, limit: int) -> dict[str, _Entry]:
    """Every member but folders, by name, once the archive as a whole is acceptable."""
    entries: dict[str, _Entry] = {}
    total = 0
    for entry, _ in members:
        if entry.kind is _Kind.FOLDER:
            continue
        if entry.kind is _Kind.OTHER:
            raise IntegrityError(f"{name} contains {entry.name}, which is not a file, directory or link")
        if entry.name in entries:
            raise IntegrityError(f"{name} contains {entry.name} twice")
        total += entry.size
        if total > limit:
            raise IntegrityError(f"{name} is larger than {limit} bytes when unpacked, which is the limit")
        entries[entry.name] = entry
    return entries


def _plan(entries: Mapping[str, _Entry], select: Select, name: str) -> dict[str, list[str]]:
    """File in the archive -> paths it is written to, links followed."""
    plan: dict[str, list[str]] = {}
    sources: dict[str, str] = {}
    for member, source in _with_links(entries):
        target = select(member)
        if target is None:
            continue
        if source is None:
            raise IntegrityError(f"{name} contains the link {member}, whose target is not in the archive")
        target = safe_path(target)
        known = sources.setdefault(target, source)
        if known != source:
            raise IntegrityError(f"{name}: {known} and {source} would both become {target}")
        if target not in plan.setdefault(source, []):
            plan[source].append(target)
    return plan


def _with_links(entries: Mapping[str, _Entry]) -> Iterator[tuple[str, str | None]]:
    """``(name, the file it stands for)`` of every file, link to a file, and file below a link to a folder."""
    for entry in entries.values():
        if entry.kind is _Kind.FILE:
            yield entry.name, entry.name
            continue
        end = _follow(entries, entry)
        if end is None or end in entries:
            yield entry.name, end
            continue
        below = [
            other.name for other in entries.values() if other.name.startswith(f"{end}/") and other.kind is _Kind.FILE
        ]
        if not below:
            yield entry.name, None
        for file in below:
            yield f"{entry.name}/{file.removeprefix(f'{end}/')}", file


def _follow(entries: Mapping[str, _Entry], entry: _Entry) -> str | None:
    """Where a link ends: a file, a folder, or ``None`` when it leads out or in circles."""
    for _ in range(_LINK_STEPS):
        if entry.target is None:
            return None
        following = entries.get(entry.target)
        if following is None or following.kind is _Kind.FILE:
            return entry.target
        entry = following
    return None


def _inside(folder: str, link: str) -> str | None:
    """``link``, as it stands in ``folder``, from the archive's root; ``None`` when it leads out of it."""
    if link.startswith("/") or not link:
        return None
    parts = list(PurePosixPath(folder).parts)
    for part in PurePosixPath(link).parts:
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or None


def _write(content: IO[bytes], targets: Sequence[Path], entry: _Entry, name: str) -> None:
    with ExitStack() as stack:
        files: list[IO[bytes]] = []
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                files.append(stack.enter_context(target.open("xb")))
            except FileExistsError as error:
                raise IntegrityError(f"{name}: {entry.name} would overwrite {target}") from error
        left = entry.size
        while left:
            chunk = content.read(min(_COPY, left))
            if not chunk:
                raise EOFError(f"{entry.name} is truncated")
            left -= len(chunk)
            for file in files:
                file.write(chunk)
        if content.read(1):  # past its size: also makes zipfile compare the CRC
            raise EOFError(f"{entry.name} is longer than its header says")
    for target in targets:
        target.chmod(0o755 if entry.executable else 0o644)


def _reader(name: str) -> _Read:
    for suffix, reader in _READERS.items():
        if name.endswith(suffix):
            return reader
    raise IntegrityError(f"{name} is not a supported archive", hint=f"supported: {', '.join(_READERS)}")


def _read_zip(archive: Path, _limit: int) -> Iterator[tuple[_Entry, _Content]]:
    size = archive.stat().st_size
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            if not info.filename or not 0 <= info.header_offset < size:
                raise EOFError("its central directory is damaged")
            if info.is_dir():
                safe_path(info.filename)
                continue
            yield _zip_entry(opened, info), lambda info=info: opened.open(info)  # type: ignore[misc]


def _zip_entry(opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Entry:
    name = safe_path(info.filename)
    mode = info.external_attr >> 16
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        with opened.open(info) as file:
            text = file.read(_LINK_BYTES + 1).decode()
        target = _inside(str(PurePosixPath(name).parent), text) if len(text) <= _LINK_BYTES else None
        return _Entry(name=name, kind=_Kind.LINK, target=target)
    known = kind in {0, stat.S_IFREG}
    return _Entry(
        name=name,
        kind=_Kind.FILE if known else _Kind.OTHER,
        size=info.file_size,
        executable=bool(mode & stat.S_IXUSR),
    )


class Counted(io.RawIOBase):
    """Reads ``source`` and stops being patient after ``limit`` bytes: what a small file can inflate to is unbounded.

    Reading more raises :class:`IntegrityError`, which calls the whole ``what``.
    """

    def __init__(self, source: IO[bytes], limit: int, what: str = "the archive") -> None:
        super().__init__()
        self._source = source
        self._left = limit
        self._what = what

    def readable(self) -> bool:
        """See :class:`io.RawIOBase`."""
        return True

    def allow(self, more: int) -> None:
        """Be patient for ``more`` bytes."""
        self._left += more

    def read(self, size: int = -1) -> bytes:
        """See :class:`io.RawIOBase`."""
        data = self._source.read(_COPY if size < 0 else size)
        self._left -= len(data)
        if self._left < 0:
            raise IntegrityError(f"{self._what} is larger than its limit when unpacked")
        return data


def _tar(stream: IO[bytes], limit: int) -> Iterator[tuple[_Entry, _Content]]:
    counted = cast("IO[bytes]", Counted(stream, limit + limit // 8 + _ROOM))
    with tarfile.open(fileobj=counted, mode="r|") as opened:
        for info in opened:
            if PurePosixPath(info.name).parts in {(), (".",)} and info.isdir():
                continue
            yield _tar_entry(info), lambda info=info: _extract(opened, info)  # type: ignore[misc]
        while counted.read(_COPY):  # to its end, where the checksum of the compressed stream is
            pass


def _extract(opened: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    content = opened.extractfile(info)
    if content is None:
        raise EOFError(f"{info.name} has no contents")
    return content


def _tar_entry(info: tarfile.TarInfo) -> _Entry:
    name = safe_path(info.name)
    if info.isdir():
        return _Entry(name=name, kind=_Kind.FOLDER)
    if info.issym():
        return _Entry(name=name, kind=_Kind.LINK, target=_inside(str(PurePosixPath(name).parent), info.linkname))
    if info.islnk():
        return _Entry(name=name, kind=_Kind.LINK, target=safe_path(info.linkname))
    if not info.isreg() or info.issparse():
        return _Entry(name=name, kind=_Kind.OTHER)
    return _Entry(name=name, kind=_Kind.FILE, size=info.size, executable=bool(info.mode & stat.S_IXUSR))


@contextmanager
def _opened(source: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """``source`` decompressed, as ``name`` says."""
    if name.endswith(".xz"):
        with lzma.open(source) as stream:
            yield cast("IO[bytes]", stream)
    elif name.endswith(".gz"):
        with gzip.open(source) as stream:
            yield cast("IO[bytes]", stream)
    elif name.endswith(".zst"):
        with _zstd(source) as stream:
            yield stream
    else:
        yield source


def _zstd(source: IO[bytes]) -> IO[bytes]:
    """Python has it from 3.14 on, where it was built with it; before that a package supplies the same interface."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd  # noqa: PLC0415  (start-up time)
        else:
            from backports import zstd  # noqa: PLC0415
    except ImportError as error:
        raise ToolchainError(
            "the archive is compressed with zstd, which this Python cannot read",
            hint="pip install backports.zstd (from Python 3.14 on: a Python that was built with libzstd)",
        ) from error
    return cast("IO[bytes]", zstd.open(source))


def _read_tar(compression: str) -> _Read:
    def read(archive: Path, limit: int) -> Iterator[tuple[_Entry, _Content]]:
        with archive.open("rb") as file, _opened(file, compression) as stream:
            yield from _tar(stream, limit)

    return read


class _Window(io.RawIOBase):
    """``size`` bytes of ``source`` from its current position."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        super().__init__()
        self._source = source
        self._left = size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _read_deb(archive: Path, limit: int) -> Iterator[tuple[_Entry, _Content]]:
    """The files of a Debian package: the member ``data.tar*`` of an ``ar`` archive (deb(5))."""
    with archive.open("rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise EOFError("it is not an ar archive")
        for index, (name, size) in enumerate(_ar_members(file)):
            if index == 0:
                if name != "debian-binary" or not file.read(min(size, 16)).startswith(b"2."):
                    raise EOFError("it is not a Debian package of format 2.0")
            elif name.startswith("data.tar"):
                with _opened(cast("IO[bytes]", io.BufferedReader(_Window(file, size))), name) as stream:
                    yield from _tar(stream, limit)
                return
    raise EOFError("it contains no data.tar")


def _ar_members(file: IO[bytes]) -> Iterator[tuple[str, int]]:
    """``(name, size)`` of each member; ``file`` is then positioned at its contents."""
    while header := file.read(60):
        size = header[48:58].decode("ascii", "replace").strip()
        if len(header) < 60 or header[58:] != b"`\n" or not size.isdecimal():
            raise EOFError("an ar header is damaged")
        start = file.tell()
        yield header[:16].decode("ascii", "replace").rstrip().removesuffix("/"), int(size)
        file.seek(start + int(size) + int(size) % 2)


_READERS: Mapping[str, _Read] = {
    ".tar.xz": _read_tar(".xz"),
    ".tar.gz": _read_tar(".gz"),
    ".tgz": _read_tar(".gz"),
    ".tar.zst": _read_tar(".zst"),
    ".zip": _read_zip,
    ".deb": _read_deb,
}
