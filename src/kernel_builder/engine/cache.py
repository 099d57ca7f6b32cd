"""The action cache: what an action made, by all that decides it, for every project of this user.

    entries/ab/<key>.json     what is known under a key: candidates, each with the files that it read
    blobs/ab/<digest>         contents of outputs and logs, by digest

A key covers the commands as words (so it holds wherever projects and store are), the digests of tools, the identities
of trees, and the time that programs are told. Which files were read is known only afterwards, so an entry lists
candidates with the digests of those files. Entries and blobs are written beside and renamed: any number of builds may
use the cache at once. What was not used for longest goes first when it has grown too large.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from kernel_builder.engine.contents import DIGEST_BYTES, blob_digest, file_digest
from kernel_builder.files import Sink, parse_json, replacing
from kernel_builder.seen import unused_for

DEFAULT_LIMIT = 10 << 30
"""Bytes of everything in it."""
_CANDIDATES = 16
_TOUCH_SECONDS = 3600.0
_STALE_SECONDS = 3600.0
"""What is half written for so long, nobody writes any more."""
_LOW_WATER = 0.8
"""How much of the limit stays when something has to go."""
_SIZE = "size"
_DIGEST = re.compile(f"[0-9a-f]{{{2 * DIGEST_BYTES}}}")
_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Made:
    """What an action made. ``reads`` are digests of the files that it read, ``blobs`` those of what it made, both by
    word. ``seconds`` and ``memory`` are what it cost when it really ran; ``fell_back``: why its fallback had to run.
    """

    reads: Mapping[str, str]
    blobs: Mapping[str, str]
    seconds: float
    memory: int
    fell_back: str | None = None

    @classmethod
    def from_json(cls, value: Any) -> Made:
        """What JSON says. Raises ``ValueError`` for what another version, or nobody, could have written."""
        reads, blobs, cost = texts_of(value, "reads"), texts_of(value, "blobs"), cost_of(value)
        if not all(map(_DIGEST.fullmatch, blobs.values())):
            raise ValueError("a digest is none")
        return cls(reads=reads, blobs=blobs, **cost)


def texts_of(value: Any, key: str) -> dict[str, str]:
    """A mapping of texts to texts in a JSON object. Raises ``ValueError`` for anything else."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise ValueError(f"{key} does not map texts to texts")
    return found


def cost_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """The other members of :class:`Made` in a JSON object. Raises ``ValueError`` for anything else."""
    seconds, memory, fell_back = value.get("seconds"), value.get("memory"), value.get("fell_back")
    if type(seconds) not in (int, float) or type(memory) is not int or not isinstance(fell_back, str | None):
        raise ValueError("what it cost is no number")
    return {"seconds": seconds, "memory": memory, "fell_back": fell_back}


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What is in the cache: how many results, how many contents, and bytes of both."""

    entries: int
    blobs: int
    size: int


class SharedStore(Protocol):
    """A store that others share, such as a server. Names are those of files below the root, as above.

    What it cannot give or take, it does not: nothing is raised.
    """

    def get(self, name: str, into: Sink) -> bool:
        """Write what is stored under ``name``; ``False`` where there is nothing, or not all of it came."""
        ...

    def put(self, name: str, file: Path) -> None:
        """Store what is in ``file``, unless it may only be read."""
        ...


class ActionCache:
    """The cache below ``root``, of at most ``limit`` bytes, before a ``remote`` one. Safe for concurrent threads and
    processes.

    Where it cannot be written, on a full disk for example, what it has is used and nothing more is kept: ``problem``
    then says why not. A build needs the room that is left for itself.
    """

    def __init__(self, root: Path, *, limit: int = DEFAULT_LIMIT, remote: SharedStore | None = None) -> None:
        self.root = root
        self.limit = limit
        self._remote = remote
        self._grew = False
        self.problem: str | None = None

    def find(self, key: str, digest: Callable[[str], str | None]) -> Made | None:
        """What is known under ``key`` for files as they are now; ``digest`` gives that of a file by its word."""
        name = _entry(key)
        for source in (self._read, self._fetched):
            for candidate in _candidates(key, source(name)):
                if all(digest(word) == wanted for word, wanted in candidate.reads.items()):
                    return candidate
        return None

    def restore(self, digest: str, target: Path) -> bool:
        """Give the file ``target`` the contents with that digest; ``False``, and it is as it was, where they are not
        there as they were stored. Raises ``OSError`` where ``target`` cannot be written.
        """
        return self._copy(digest, target) or (self._fetch(digest) and self._copy(digest, target))

    def blob(self, digest: str) -> bytes | None:
        """The contents with that digest, which are few, or ``None`` where they are not there as they were stored."""
        for _ in range(2):
            data = self._read(_blob(digest))
            if data is not None and blob_digest(data) == digest:
                return data
            if not self._fetch(digest):
                break
        return None

    def keep(self, key: str, made: Mapping[str, Path | bytes], recalled: Made) -> None:
        """Keep ``made``, contents by word, or files that have them, under ``key``; ``recalled`` says the rest. Nothing
        is kept once there was a ``problem``.
        """
        if self.problem is not None:
            return
        try:
            digests = {word: _digest_of(source) for word, source in made.items()}
        except OSError:  # something else took it away
            return
        entry, name = replace(recalled, blobs=digests), _entry(key)
        try:
            for word, source in made.items():
                self._store(digests[word], source)
            others = [one for one in _candidates(key, self._read(name)) if one.reads != entry.reads]
            listed = [{"key": key, **vars(one)} for one in [entry, *others][:_CANDIDATES]]
            self._write(name, json.dumps(listed, separators=(",", ":")).encode())
        except OSError as error:
            self.problem = error.strerror or str(error)
            return
        if self._remote is not None:
            for one in (*dict.fromkeys(map(_blob, digests.values())), name):
                self._remote.put(one, self.root / one)

    def put(self, source: Path | bytes) -> str:
        """Store contents alone; their digest. Raises ``OSError``."""
        digest = _digest_of(source)
        self._store(digest, source)
        return digest

    def has(self, digest: str) -> bool:
        """Whether contents with that digest are here, as far as names tell."""
        return (self.root / _blob(digest)).is_file()

    def usage(self) -> Usage:
        """What is in it."""
        entries, blobs = (list(_files(self.root / part)) for part in ("entries", "blobs"))
        return Usage(entries=len(entries), blobs=len(blobs), size=sum(size for _, size, _ in (*entries, *blobs)))

    def remove_damaged(self) -> tuple[Path, ...]:
        """Remove what is not as it was stored; which files."""
        found = []
        for part, is_good in (("blobs", _is_blob), ("entries", _is_entry)):
            for path, _, _ in _files(self.root / part):
                with contextlib.suppress(OSError):
                    if not is_good(path):
                        path.unlink()
                        found.append(path)
        return tuple(found)

    def shrink(self, limit: int) -> int:
        """Remove what was not used for longest until it has less than ``limit`` bytes; how many bytes were freed."""
        files = [*_files(self.root / "blobs"), *_files(self.root / "entries")]
        size = sum(one for _, one, _ in files)
        freed = 0
        for path, one, _ in sorted(files, key=lambda file: unused_for(file[2]), reverse=True) if size > limit else ():
            if size - freed <= limit * _LOW_WATER:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                freed += one
        with contextlib.suppress(OSError), replacing(self.root / _SIZE, durable=False) as file:
            file.write(b"%d\n" % (size - freed))
        return freed

    def close(self) -> None:
        """Keep to the limit, if anything was added."""
        if self._grew:
            self._grew = False
            size = self._size()
            if size is None or size > self.limit:
                self.shrink(self.limit)

    def _size(self) -> int | None:
        """Bytes of everything in it, by what was noted when it grew: looking at all files takes seconds."""
        try:
            return sum(map(int, (self.root / _SIZE).read_bytes().split()))
        except (OSError, ValueError):
            return None

    def _note_growth(self, size: int) -> None:
        """Keep count, for builds that are killed, too."""
        if (self.root / _SIZE).exists():
            with (self.root / _SIZE).open("ab") as file:
                file.write(b"%d\n" % size)
        self._grew = True

    def _read(self, name: str) -> bytes | None:
        path = self.root / name
        try:
            data = path.read_bytes()
        except OSError:
            return None
        _touch(path)
        return data

    def _copy(self, digest: str, target: Path) -> bool:
        path = self.root / _blob(digest)
        try:
            source = path.open("rb")
        except OSError:
            return False
        with source, contextlib.suppress(_DamagedError), replacing(target, follow_links=False, durable=False) as file:
            sink = _Hashing(file)
            while piece := source.read(_PIECE):
                sink.write(piece)
            sink.compare(digest)
            _touch(path)
            return True
        with contextlib.suppress(OSError):
            path.unlink()
        return False

    def _fetch(self, digest: str) -> bool:
        """Get the contents with that digest from the remote cache into this one."""
        if self._remote is None:
            return False
        path = self.root / _blob(digest)
        with contextlib.suppress(OSError, _DamagedError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, follow_links=False, durable=False) as file:
                sink = _Hashing(file)
                self._remote.get(_blob(digest), sink)
                sink.compare(digest)
                size = file.tell()
            self._note_growth(size)
            return True
        return False

    def _fetched(self, name: str) -> bytes | None:
        if self._remote is None:
            return None
        with tempfile.SpooledTemporaryFile(_PIECE) as file:
            if not self._remote.get(name, file):
                return None
            file.seek(0)
            return file.read()

    def _store(self, digest: str, source: Path | bytes) -> None:
        """Store contents that have that digest. Raises ``OSError``."""
        path = self.root / _blob(digest)
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        if path.is_file() and path.stat().st_size == size:
            _touch(path)
        else:
            self._write(_blob(digest), source)

    def _write(self, name: str, source: Path | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, follow_links=False, durable=False) as file:
            if isinstance(source, bytes):
                file.write(source)
            else:
                with source.open("rb") as opened:
                    shutil.copyfileobj(opened, file, _PIECE)
            size = file.tell()
        self._note_growth(size)


class _Hashing:
    """Writes contents into a file, and tells whether they are those that a digest says. That the file cannot be written
    is no fault of whoever gives them, so that is told at the end.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest = file, hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._error: OSError | None = None

    def write(self, data: bytes, /) -> None:
        """See :class:`~kernel_builder.files.Sink`."""
        self._digest.update(data)
        try:
            self._file.write(data)
        except OSError as error:
            self._error = error

    def compare(self, digest: str) -> None:
        """Raises ``OSError`` where the file was not written, :class:`_DamagedError` where it has other contents."""
        if self._error is not None:
            raise self._error
        if self._digest.hexdigest() != digest:
            raise _DamagedError


class _DamagedError(Exception):
    """Contents are not those that their digest says."""


def _digest_of(source: Path | bytes) -> str:
    """The digest of contents. Raises ``OSError``."""
    return blob_digest(source) if isinstance(source, bytes) else file_digest(source)


def _touch(path: Path) -> None:
    """Note that it was used. Who may only read the cache cannot, and needs not."""
    with contextlib.suppress(OSError):
        if abs(time.time() - path.stat().st_mtime) > _TOUCH_SECONDS:
            os.utime(path)


def _entry(key: str) -> str:
    return f"entries/{key[:2]}/{key}.json"


def _blob(digest: str) -> str:
    return f"blobs/{digest[:2]}/{digest}"


def _is_blob(path: Path) -> bool:
    return file_digest(path) == path.name


def _is_entry(path: Path) -> bool:
    """Whether it is an entry, be it of an older version, and no other one's."""
    try:
        listed = parse_json(path.read_bytes())
        return isinstance(listed, list) and all(one.get("key", path.stem) == path.stem for one in listed)
    except (ValueError, AttributeError):
        return False


def _candidates(key: str, data: bytes | None) -> list[Made]:
    """What the entry of ``key`` lists, without what is damaged, of another version, or of another key."""
    found = []
    with contextlib.suppress(ValueError):
        listed = parse_json(data) if data is not None else []
        for one in listed if isinstance(listed, list) else []:
            with contextlib.suppress(ValueError):
                candidate = Made.from_json(one)
                if one.get("key") == key:
                    found.append(candidate)
    return found


def _files(folder: Path) -> Iterator[tuple[Path, int, float]]:
    """Each file below ``folder`` with its size and when it was used. What writers that were killed left goes."""
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                status = path.stat()
                if not path.name.startswith("."):
                    yield path, status.st_size, status.st_mtime
                elif unused_for(status.st_mtime) > _STALE_SECONDS:
                    path.unlink()
