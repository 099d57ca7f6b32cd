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
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from kernel_builder.engine.contents import blob_digest
from kernel_builder.files import parse_json

DEFAULT_LIMIT = 10 << 30
"""Bytes of everything in it."""
_CANDIDATES = 16
_TOUCH_SECONDS = 3600.0
_LOW_WATER = 0.8
"""How much of the limit stays when something has to go."""


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

    def get(self, name: str) -> bytes | None:
        """What is stored under ``name``."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Store ``data``, unless it may only be read."""
        ...


class ActionCache:
    """The cache below ``root``, of at most ``limit`` bytes, before a ``remote`` one. Safe for concurrent threads and
    processes. A disk that is full or cannot be written makes it useless and nothing else.
    """

    def __init__(self, root: Path, *, limit: int = DEFAULT_LIMIT, remote: SharedStore | None = None) -> None:
        self.root = root
        self.limit = limit
        self._remote = remote
        self._grew = False

    def find(self, key: str, digest: Callable[[str], str | None]) -> Made | None:
        """What is known under ``key`` for files as they are now; ``digest`` gives that of a file by its word."""
        name = _entry(key)
        for source in (self._read, self._fetch):
            for candidate in _candidates(source(name)):
                if all(digest(word) == wanted for word, wanted in candidate.reads.items()):
                    return candidate
        return None

    def blob(self, digest: str) -> bytes | None:
        """The contents with that digest, or ``None`` where they are not there as they were stored."""
        name = _blob(digest)
        data = self._read(name)
        if data is not None and blob_digest(data) != digest:
            with contextlib.suppress(OSError):
                (self.root / name).unlink()
            data = None
        if data is None:
            data = self._fetch(name)
            if data is None or blob_digest(data) != digest:
                return None
            self._write(name, data)
        return data

    def keep(self, key: str, made: Mapping[str, bytes], recalled: Made) -> None:
        """Keep ``made``, contents by word, under ``key``; ``recalled`` says the rest."""
        blobs = {word: blob_digest(data) for word, data in made.items()}
        entry = replace(recalled, blobs=blobs)
        name = _entry(key)
        others = [one for one in _candidates(self._read(name)) if one.reads != entry.reads]
        listed = json.dumps([vars(one) for one in [entry, *others][:_CANDIDATES]], separators=(",", ":")).encode()
        for path, data in (*((_blob(blobs[word]), data) for word, data in made.items()), (name, listed)):
            if not self._write(path, data):
                return
            if self._remote is not None:
                self._remote.put(path, data)

    def usage(self) -> Usage:
        """What is in it."""
        entries, blobs = (list(_files(self.root / part)) for part in ("entries", "blobs"))
        return Usage(entries=len(entries), blobs=len(blobs), size=sum(size for _, size, _ in (*entries, *blobs)))

    def remove_damaged(self) -> tuple[Path, ...]:
        """Remove contents that are not as they were stored; which."""
        found = []
        for path, _, _ in _files(self.root / "blobs"):
            with contextlib.suppress(OSError):
                if blob_digest(path.read_bytes()) != path.name:
                    path.unlink()
                    found.append(path)
        return tuple(found)

    def shrink(self, limit: int) -> int:
        """Remove what was not used for longest until it has less than ``limit`` bytes; how many bytes were freed."""
        files = [*_files(self.root / "blobs"), *_files(self.root / "entries")]
        size = sum(one for _, one, _ in files)
        if size <= limit:
            return 0
        freed = 0
        for path, one, _ in sorted(files, key=lambda file: file[2]):
            if size - freed <= limit * _LOW_WATER:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                freed += one
        return freed

    def close(self) -> None:
        """Keep to the limit, if anything was added."""
        if self._grew:
            self.shrink(self.limit)
            self._grew = False

    def _read(self, name: str) -> bytes | None:
        path = self.root / name
        try:
            data = path.read_bytes()
            if time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(path)
        except OSError:
            return None
        return data

    def _fetch(self, name: str) -> bytes | None:
        return self._remote.get(name) if self._remote is not None else None

    def _write(self, name: str, data: bytes) -> bool:
        path = self.root / name
        try:
            if name.startswith("blobs/") and path.is_file() and path.stat().st_size == len(data):
                return True
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                Path(beside).replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(beside).unlink()
                raise
        except OSError:
            return False
        self._grew = True
        return True


def _entry(key: str) -> str:
    return f"entries/{key[:2]}/{key}.json"


def _blob(digest: str) -> str:
    return f"blobs/{digest[:2]}/{digest}"


def _candidates(data: bytes | None) -> list[Made]:
    """What an entry lists; nothing of one that is damaged."""
    if data is None:
        return []
    try:
        return [Made(**one) for one in parse_json(data)]
    except (ValueError, TypeError):
        return []


def _files(folder: Path) -> Iterator[tuple[Path, int, float]]:
    """Each file below ``folder`` with its size and when it was used."""
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                status = path.stat()
                yield path, status.st_size, status.st_mtime
