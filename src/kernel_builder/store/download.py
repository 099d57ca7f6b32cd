"""Whole files, from a server or a folder: resumed where an earlier attempt stopped, and kept only if their digest fits.

For archives that are verified as a whole. Parts of wheels are read by ``wheel.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.parse import quote, unquote, urlsplit

from filelock import FileLock

from kernel_builder.errors import IntegrityError, NetworkError
from kernel_builder.store.settings import redact
from kernel_builder.store.transport import NotFoundError, RangesUnsupportedError, Transport

_COPY = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")

OnBytes = Callable[[int], None]
"""Hears how many more bytes arrived."""


class Site:
    """Files below one address: ``http(s)://``, ``file://`` or the path of a folder.

    ``transport`` is needed for the first kind only. Relative paths are checked: none leads out of the site.
    """

    def __init__(self, base: str | Path, transport: Transport | None = None) -> None:
        text = str(base)
        scheme = urlsplit(text).scheme if isinstance(base, str) else ""
        self._url: str | None = None
        self._folder: Path | None = None
        if scheme in {"http", "https"}:
            if transport is None:
                raise NetworkError(f"{redact(text)} needs the network", hint="run the same command without --offline")
            self._url = text.rstrip("/") + "/"
        elif scheme == "file":
            self._folder = Path(unquote(urlsplit(text).path))
        elif "://" in text:
            raise NetworkError(
                f"{redact(text)} is not a supported URL", hint="use an https://, http:// or file:// URL, or a directory"
            )
        else:
            self._folder = Path(text)
        self._transport = transport

    @property
    def folder(self) -> Path | None:
        """The folder, when it is one."""
        return self._folder

    def __str__(self) -> str:
        """For messages: never with credentials."""
        return str(self._folder) if self._url is None else redact(self._url)

    def where(self, relative: str) -> str:
        """What to call a file of the site in messages."""
        return f"{str(self).rstrip('/')}/{relative}"

    def read(self, relative: str, *, limit: int) -> bytes:
        """The contents of a small file, at most ``limit`` bytes. ``""`` is the site's own index page.

        Raises :class:`NetworkError` (:class:`~kernel_builder.store.transport.NotFoundError` for what a server or folder
        does not have), :class:`IntegrityError` when it is larger.
        """
        if self._url is None:
            path = self._local(relative)
            try:
                with path.open("rb") as file:
                    data = file.read(limit + 1)
            except FileNotFoundError as error:
                if not Path(str(self)).is_dir():
                    raise NetworkError(f"the directory {self} does not exist", hint="fix its path") from error
                raise NotFoundError(f"{path} does not exist") from error
            except OSError as error:
                raise NetworkError(f"cannot read {path}: {error.strerror}") from error
            self._bounded(relative, len(data), limit)
            return data
        with TemporaryDirectory(prefix="kernel-builder-") as scratch:
            target = Path(scratch) / "file"
            self._download_whole(relative, target, limit, lambda _: None)
            return target.read_bytes()

    def fetch(self, relative: str, target: Path, *, size: int, sha256: str, on_bytes: OnBytes) -> None:
        """Bring a file to ``target``; bytes that lie there already are taken as its beginning.

        On a break, what has come stays at ``target`` for the next attempt; when the digest is wrong it is deleted.
        Raises :class:`NetworkError`, and :class:`IntegrityError` when size or digest are not as promised.
        """
        if not _SHA256.fullmatch(sha256):
            raise IntegrityError(f"{self.where(relative)}: its index lists no SHA-256")
        while True:
            resumed = self._url is not None and target.exists()
            if self._url is None:
                self._copy(relative, target, size, on_bytes)
            else:
                self._download(relative, target, size, on_bytes)
            found = _digest(target)
            if found == sha256:
                return
            target.unlink()
            if not resumed:  # else the part from an earlier attempt may be what was damaged
                raise IntegrityError(
                    f"{self.where(relative)} does not match its index: its SHA-256 is {found}, expected {sha256}",
                    hint="run the command again; if this persists, the mirror is damaged or was tampered with",
                )

    def _download(self, relative: str, target: Path, size: int, on_bytes: OnBytes) -> None:
        present = target.stat().st_size if target.exists() else 0
        if present > size:
            target.unlink()
            present = 0
        try:
            with target.open("ab") as file:
                for chunk in self._server.stream(self._address(relative), present, size, size=size, on_bytes=on_bytes):
                    file.write(chunk)
        except RangesUnsupportedError:
            self._download_whole(relative, target, size, on_bytes)
            found = target.stat().st_size
            if found != size:
                target.unlink()
                raise IntegrityError(f"{self.where(relative)} has {found} bytes; its index lists {size}") from None

    def _download_whole(self, relative: str, target: Path, limit: int, on_bytes: OnBytes) -> None:
        def count(arrived: int) -> None:
            self._bounded(relative, target.stat().st_size + arrived, limit)
            on_bytes(arrived)

        self._server.download(self._address(relative), target, on_bytes=count)

    def _copy(self, relative: str, target: Path, size: int, on_bytes: OnBytes) -> None:
        path = self._local(relative)
        try:
            found = path.stat().st_size
            if found != size:
                raise IntegrityError(f"{path} has {found} bytes; its index lists {size}")
            with path.open("rb") as source, target.open("wb") as file:
                while chunk := source.read(_COPY):
                    file.write(chunk)
                    on_bytes(len(chunk))
        except FileNotFoundError as error:
            raise NetworkError(f"{path} does not exist", hint="complete the mirror") from error

    def _bounded(self, relative: str, size: int, limit: int) -> None:
        if size > limit:
            raise IntegrityError(f"{self.where(relative)} is larger than the limit of {limit} bytes")

    @property
    def _server(self) -> Transport:
        if self._transport is None:  # the constructor has seen to it
            raise NetworkError(f"{self} needs the network")
        return self._transport

    def _address(self, relative: str) -> str:
        return f"{self._url}{quote(safe_path(relative) if relative else '')}"

    def _local(self, relative: str) -> Path:
        if self._folder is None:
            raise NetworkError(f"{self} is not a directory")
        return self._folder / safe_path(relative)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def kept_download(
    site: Site, relative: str, downloads: Path, *, size: int, sha256: str, on_bytes: OnBytes
) -> Iterator[Path]:
    """A file of ``site`` for the time of the block, verified; afterwards it is deleted.

    ``downloads`` keeps what has arrived when the network, or the process, dies: the next call goes on from there. Safe
    for concurrent processes. Raises what :meth:`Site.fetch` raises.
    """
    downloads.mkdir(parents=True, exist_ok=True)
    target = downloads / f"{sha256}.part"
    with FileLock(downloads / f"{sha256}.lock"):
        site.fetch(relative, target, size=size, sha256=sha256, on_bytes=on_bytes)
        try:
            yield target
        finally:
            target.unlink(missing_ok=True)


def safe_path(path: str) -> str:
    """``path`` (relative, forward slashes) without ``./``.

    Raises :class:`IntegrityError` when it is absolute, empty, has ``..`` or a control character or backslash in it:
    published indexes and archives have no such paths.
    """
    parts = [part for part in PurePosixPath(path).parts if part != "."]
    odd = (
        path.startswith("/") or "\\" in path or any(ord(character) < 32 or ord(character) == 127 for character in path)
    )
    if odd or not parts or ".." in parts:
        raise IntegrityError(f"{path!r} is not a valid path for a published file")
    return "/".join(parts)
