"""The store, or some of it, in one file: for machines without a network.

The file is a tar archive (gzip where its name says so). First comes ``kernel-builder.json``, which says what follows:
the format, each entry's name and size, and the names of resolutions. Then, entry by entry, its manifest and its files;
last the resolutions, which say what was chosen for which torch and CUDA.

Reading believes none of it. Every name is judged before it is used, nothing but ordinary files is taken, sizes are
bounded by what the manifests say and nothing beyond them is unpacked, and an entry enters the store only when all of
its files have the digests of its manifest, and the whole archive was read to its end.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import re
import shutil
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from kernel_builder.errors import IntegrityError, MachineError
from kernel_builder.files import parse_json, replacing
from kernel_builder.store.archive import Counted
from kernel_builder.store.cache import (
    MANIFEST,
    Store,
    StoreKey,
    load_manifest,
    manifest_files,
    require_space,
    seal_files,
    verify_folder,
)
from kernel_builder.store.download import safe_path
from kernel_builder.store.inventory import IMPORT_LOCK, IMPORT_PREFIX, StoreEntry

FORMAT = 1
_HEAD = "kernel-builder.json"
_ENTRIES = "entries"
_RESOLUTIONS = "resolutions"
_LIMIT = 64 << 20  # bytes of a manifest; those of the largest toolchains have 2
_RESOLUTION_LIMIT = 1 << 20
_COPY = 1 << 20
_ROOM = 16 << 20  # bytes that may be unpacked besides what members hold: names, padding, the end
_PER_MEMBER = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*-[0-9a-f]{16}")
_RESOLUTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.json")
_ORDINARY = (tarfile.REGTYPE, tarfile.AREGTYPE)
_BAD_NAMES = frozenset({errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL})
_DAMAGE = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, UnicodeError)


@dataclass(frozen=True, kw_only=True)
class Transferred:
    """What was written or brought in. ``present`` are entries that the store had already. ``size`` is in bytes."""

    entries: tuple[str, ...]
    present: tuple[str, ...] = ()
    resolutions: int = 0
    size: int = 0


def export_store(store: Store, entries: Sequence[StoreEntry], resolutions: Iterable[Path], target: Path) -> Transferred:
    """Write ``entries`` and resolutions into ``target``, which appears when it is complete.

    Every file is compared with its manifest on the way. Raises :class:`IntegrityError` for a damaged entry,
    :class:`MachineError` when the file cannot be written.
    """
    folder = target.absolute().parent
    if not folder.is_dir():
        raise MachineError(f"{folder} is not a directory", hint="create it, or choose another file")
    try:
        count = _write_whole(store, entries, sorted(resolutions), target)
        size = target.stat().st_size
    except OSError as error:
        raise MachineError(
            f"cannot write {target}: {error.strerror or error}", hint="free some disk space, or choose another file"
        ) from error
    return Transferred(entries=tuple(entry.name for entry in entries), resolutions=count, size=size)


def _write_whole(store: Store, entries: Sequence[StoreEntry], resolutions: Sequence[Path], target: Path) -> int:
    with replacing(target) as raw, ExitStack() as stack:
        stream: IO[bytes] = raw
        if target.name.endswith((".gz", ".tgz")):
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=3, mtime=0)
            stack.callback(packed.close)
            stream = cast("IO[bytes]", packed)
        return _write(stream, store, entries, resolutions)


def _write(stream: IO[bytes], store: Store, entries: Sequence[StoreEntry], resolutions: Sequence[Path]) -> int:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        head = {
            "format": FORMAT,
            "entries": [{"name": entry.name, "size": entry.size, "files": entry.files} for entry in entries],
            "resolutions": [path.name for path in resolutions],
        }
        _add(tar, _HEAD, json.dumps(head, indent=1).encode())
        for entry in entries:
            if entry.key is None:
                raise IntegrityError(entry.problem or f"{entry.name} is damaged")
            problems = store.verify(entry.key)
            if problems:
                raise IntegrityError(
                    f"{store.entries / entry.name / problems[0].path}: {problems[0].what}",
                    hint="run: kernel-builder toolchain verify --repair",
                )
            folder = store.entries / entry.name
            _add(tar, f"{_ENTRIES}/{entry.name}/{MANIFEST}", (folder / MANIFEST).read_bytes())
            for name, (size, _) in sorted(manifest_files(folder, load_manifest(folder)).items()):
                path = folder / name
                info = _info(f"{_ENTRIES}/{entry.name}/{name}", size)
                info.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
                with path.open("rb") as file:
                    tar.addfile(info, file)
        for path in resolutions:
            _add(tar, f"{_RESOLUTIONS}/{path.name}", path.read_bytes())
    return len(resolutions)


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, 0
    return info


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    tar.addfile(_info(name, len(data)), io.BytesIO(data))


def import_store(store: Store, source: Path) -> Transferred:
    """Bring what :func:`export_store` wrote into the store; entries that it has already are left as they are.

    All or nothing: an archive that is damaged, truncated, or holds something that it must not hold changes nothing.
    Raises :class:`IntegrityError` for such, :class:`MachineError` when the store cannot be written.
    """
    with store.machine_errors():
        store.entries.mkdir(parents=True, exist_ok=True)
        with (
            store.lock(IMPORT_LOCK),
            _open(source) as (tar, stream),
            tempfile.TemporaryDirectory(prefix=IMPORT_PREFIX, dir=store.root) as scratch,
        ):
            reading = _Reading(tar, stream, source, Path(scratch), store)
            try:
                reading.run()
                while stream.read(_COPY):  # what is packed has a checksum at its very end
                    pass
            except _DAMAGE as error:
                raise IntegrityError(
                    f"{source} is damaged or truncated: {error}", hint="copy it again, or export it again"
                ) from error
            brought = [name for name in reading.entries if _enter(store, name, Path(scratch))]
            for path in sorted((Path(scratch) / _RESOLUTIONS).glob("*")):
                (store.root / _RESOLUTIONS).mkdir(exist_ok=True)
                path.replace(store.root / _RESOLUTIONS / path.name)
    return Transferred(
        entries=tuple(brought),
        present=tuple(name for name in reading.entries if name not in brought),
        resolutions=len(reading.resolutions),
        size=source.stat().st_size,
    )


@contextmanager
def _open(source: Path) -> Iterator[tuple[tarfile.TarFile, Counted]]:
    """The archive, and the bytes that it is read from, of which few may come before more are allowed."""
    try:
        with ExitStack() as stack:
            stream: IO[bytes] = stack.enter_context(source.open("rb"))
            if stream.read(2) == b"\x1f\x8b":
                stream.seek(0)
                stream = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=stream, mode="rb")))
            else:
                stream.seek(0)
            counted = Counted(stream, _ROOM, str(source))
            try:
                tar = stack.enter_context(tarfile.open(fileobj=cast("IO[bytes]", counted), mode="r|"))
            except _DAMAGE as error:
                raise IntegrityError(
                    f"{source} was not written by 'toolchain export': {error}",
                    hint="copy it again, or export it again",
                ) from error
            yield tar, counted
    except FileNotFoundError as error:
        if error.filename != str(source):
            raise
        raise MachineError(f"{source} does not exist") from error


def _enter(store: Store, name: str, scratch: Path) -> bool:
    """Rename a complete, verified entry into the store. ``False`` when it is there by now."""
    staged = scratch / _ENTRIES / name
    if not staged.is_dir():
        return False
    with store.lock(name):
        final = store.entries / name
        if (final / MANIFEST).is_file() and not store.glance(name):
            return False
        if final.exists():
            store.drop(name)
        staged.rename(final)
    return True


class _Reading:
    """One pass over an archive. What it takes lies in ``scratch`` afterwards, laid out as in the archive."""

    def __init__(self, tar: tarfile.TarFile, stream: Counted, source: Path, scratch: Path, store: Store) -> None:
        self._tar = tar
        self._stream = stream
        self._source = source
        self._scratch = scratch
        self._store = store
        self._promised: dict[str, int] = {}
        self._wanted: dict[str, dict[str, tuple[int, str]]] = {}
        self._skipped: set[str] = set()
        self._promised_resolutions: set[str] = set()
        self.resolutions: set[str] = set()

    @property
    def entries(self) -> tuple[str, ...]:
        """The entries of the archive, in its order."""
        return tuple(self._promised)

    def run(self) -> None:
        """Read the archive to its end, and judge what came."""
        members = iter(self._tar)
        head = next(members, None)
        if head is None or head.name != _HEAD or head.type not in _ORDINARY:
            raise self._refuse(f"it does not begin with {_HEAD}, so it was not written by 'toolchain export'")
        self._stream.allow(min(head.size, _LIMIT))
        self._read_head(self._data(head, _LIMIT))
        for member in members:
            self._stream.allow(member.size + _PER_MEMBER)
            self._take(member)
        self._judge()

    def _refuse(self, why: str) -> IntegrityError:
        return IntegrityError(f"cannot import {self._source}: {why}", hint="nothing was imported")

    def _read_head(self, data: bytes) -> None:
        try:
            head = parse_json(data)
            form = head["format"]
            if form == FORMAT:
                self._promised = {str(entry["name"]): int(entry["size"]) for entry in head["entries"]}
                self._promised_resolutions = {str(name) for name in head["resolutions"]}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._refuse(f"cannot read {_HEAD}") from error
        if form != FORMAT:
            raise IntegrityError(
                f"{self._source} has format {form!r}; this version of kernel-builder reads format {FORMAT}",
                hint="import it with the kernel-builder version that exported it, or a newer one",
            )
        for name in self._promised:
            if not _NAME.fullmatch(name):
                raise self._refuse(f"{name!r} is not a valid entry name")
        self._skipped = {name for name in self._promised if self._is_sound(name)}
        size = sum(size for name, size in self._promised.items() if name not in self._skipped)
        require_space(self._scratch, size)

    def _is_sound(self, name: str) -> bool:
        return (self._store.entries / name / MANIFEST).is_file() and not self._store.glance(name)

    def _take(self, member: tarfile.TarInfo) -> None:
        if member.type not in _ORDINARY:
            raise self._refuse(f"{member.name!r} is not a regular file")
        parts = PurePosixPath(member.name).parts
        if "/".join(parts) != member.name or {"..", "."} & set(parts) or "\\" in member.name or "\0" in member.name:
            raise self._refuse(f"{member.name!r} would be outside the store")
        if len(parts) == 2 and parts[0] == _RESOLUTIONS and _RESOLUTION.fullmatch(parts[1]):
            self._write(member, self._data(member, _RESOLUTION_LIMIT))
            self.resolutions.add(parts[1])
        elif len(parts) >= 3 and parts[0] == _ENTRIES and parts[1] in self._promised:
            self._take_file(member, parts[1], "/".join(parts[2:]))
        else:
            raise self._refuse(f"{member.name!r} does not belong there")

    def _take_file(self, member: tarfile.TarInfo, entry: str, name: str) -> None:
        if name == MANIFEST:
            if entry in self._wanted:
                raise self._refuse(f"{member.name!r} appears twice")
            data = self._data(member, _LIMIT)
            if entry not in self._skipped:
                self._write(member, data)
            self._wanted[entry] = self._read_manifest(entry, data)
            return
        wanted = self._wanted.get(entry, {}).get(name)
        if wanted is None or wanted[0] != member.size:
            raise self._refuse(f"{member.name!r} does not match the manifest of its entry")
        if entry in self._skipped:
            return
        path = self._scratch / member.name
        source = self._tar.extractfile(member)
        if source is None:
            raise self._refuse(f"{member.name!r} has no contents")
        with self._new_file(member) as file:
            shutil.copyfileobj(source, file, _COPY)
        if path.stat().st_size != member.size:
            raise EOFError("it is truncated")
        path.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)

    def _read_manifest(self, entry: str, data: bytes) -> dict[str, tuple[int, str]]:
        """What an entry consists of, after its manifest; the manifest is that of this entry and within its size."""
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            (Path(folder) / MANIFEST).write_bytes(data)
            manifest = load_manifest(Path(folder))
            files = manifest_files(Path(folder), manifest)
        if StoreKey(stem=str(manifest.get("stem")), digest=str(manifest.get("digest"))).name != entry:
            raise self._refuse(f"the manifest of {entry} belongs to another entry")
        for name in files:
            if safe_path(name) != name:
                raise self._refuse(f"the manifest of {entry} lists {name!r}, which is outside the entry")
        if sum(size for size, _ in files.values()) != self._promised[entry] or any(s < 0 for s, _ in files.values()):
            raise self._refuse(f"the size of the manifest of {entry} is wrong")
        return files

    def _judge(self) -> None:
        """Everything that was promised came, and is what the manifests say."""
        if self.resolutions != self._promised_resolutions:
            raise self._refuse("its end is missing")
        for name in self._promised:
            if name not in self._wanted:
                raise self._refuse(f"the entry {name} is missing")
            if name in self._skipped:
                continue
            folder = self._scratch / _ENTRIES / name
            problems = verify_folder(folder)
            if problems:
                raise self._refuse(f"{_ENTRIES}/{name}/{problems[0].path}: {problems[0].what}")
            seal_files(folder)

    def _data(self, member: tarfile.TarInfo, limit: int) -> bytes:
        source = self._tar.extractfile(member)
        if source is None or member.size > limit:
            raise self._refuse(f"{member.name!r} is larger than the limit")
        data = source.read()
        if len(data) != member.size:
            raise EOFError("it is truncated")
        return data

    def _write(self, member: tarfile.TarInfo, data: bytes) -> None:
        with self._new_file(member) as file:
            file.write(data)

    def _new_file(self, member: tarfile.TarInfo) -> IO[bytes]:
        path = self._scratch / member.name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
        except OSError as error:
            if error.errno in _BAD_NAMES:
                raise self._refuse(f"{member.name!r} appears twice, or has an invalid name") from error
            raise
