"""The content-addressed store: finished directories that never change, and how they come to be.

An entry is a directory named by a readable stem and a digest over everything that determines its contents, so
its path is known before it exists. It is built beside its place and renamed into it: whoever sees it sees all
of it. Processes exclude each other with a lock per entry, which the kernel releases when a process dies.

Every file is sealed: read-only, with its size and SHA-256 in the entry's manifest and a fixed time of change. So a
look at sizes and times tells whether somebody wrote to an entry, and only then its contents are read again; the
whole of it is read by :meth:`Store.verify`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from kernel_builder.errors import IntegrityError, MachineError
from kernel_builder.events import Notice, Reporter, Silent, Waiting
from kernel_builder.files import parse_json
from kernel_builder.store.artefact import Artefact, parse_artefact
from kernel_builder.store.settings import expanded
from kernel_builder.store.uses import Uses

MANIFEST = ".manifest.json"
_FORMAT = 1
_WORK = ".work-"
_SPARE = 32 * 2**20  # bytes that must stay free on the disk besides what is written
_SEALED = 946_684_800  # the time of change of every sealed file: 2000-01-01 UTC


@dataclass(frozen=True, kw_only=True)
class StoreKey:
    """Names an entry. ``stem`` is for people; ``digest`` covers what determines the contents."""

    stem: str
    digest: str

    @classmethod
    def of(cls, stem: str, **facts: object) -> StoreKey:
        """The key of an entry that is determined by ``facts`` (anything JSON can hold)."""
        text = json.dumps([_FORMAT, stem, facts], sort_keys=True, separators=(",", ":"))
        return cls(stem=stem, digest=hashlib.sha256(text.encode()).hexdigest())

    @property
    def name(self) -> str:
        """Name of the entry's directory."""
        return f"{self.stem}-{self.digest[:16]}"


@dataclass(frozen=True, kw_only=True)
class StoreProblem:
    """Something in an entry that is not as it was stored. ``path`` is relative to the entry."""

    path: str
    what: str


Build = Callable[[Path], Sequence[Artefact]]
"""Fills an empty directory and says from what."""


def default_root(environ: Mapping[str, str]) -> Path:
    """``KERNEL_BUILDER_CACHE``, or ``kernel-builder`` in the user's cache directory (``XDG_CACHE_HOME``)."""
    named = environ.get("KERNEL_BUILDER_CACHE")
    if not named:
        return Path(platformdirs.user_cache_dir("kernel-builder"))
    return expanded(named, "KERNEL_BUILDER_CACHE").absolute()


def require_space(folder: Path, needed: int) -> None:
    """Raise :class:`MachineError` unless ``needed`` bytes fit on the disk of ``folder``, with a little to
    spare.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + _SPARE:
        raise MachineError(
            f"not enough disk space for {folder}: {_mib(needed + _SPARE)} needed, {_mib(free)} free",
            hint="free some space, or set KERNEL_BUILDER_CACHE to a directory on a larger disk",
        )


def _room(folder: Path) -> str:
    """What is left of the disk that ``folder`` is on, for people."""
    free = f"{_mib(shutil.disk_usage(folder).free)} free"
    if hasattr(os, "statvfs"):  # Windows counts no files
        counts = os.statvfs(folder)
        if counts.f_files and not counts.f_favail:
            free += ", but no inodes are left"
    return free


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"


class Store:
    """The store below ``root``. Safe for concurrent threads and processes."""

    def __init__(self, root: Path, reporter: Reporter | None = None) -> None:
        self.root = root
        self._reporter = reporter or Silent()
        self._uses = Uses(self.root)
        self._glanced: dict[str, bool] = {}
        self._glancing = threading.Lock()

    def close(self) -> None:
        """Use no entry any more: from now on :mod:`~kernel_builder.store.inventory` may remove what was used here.
        A process that ends has closed its store.
        """
        self._uses.release()

    def hold(self, name: str) -> None:
        """Until the store is closed, this process uses ``name``: an entry, or what else is kept beside them."""
        self._uses.add(name)

    @property
    def used(self) -> frozenset[str]:
        """The names of the entries that were used so far."""
        return self._uses.names

    @property
    def entries(self) -> Path:
        """The directory that holds the entries."""
        return self.root / "store"

    def path(self, key: StoreKey) -> Path:
        """Where the entry is, or will be."""
        return self.entries / key.name

    def has(self, key: StoreKey) -> bool:
        """Whether the entry is complete and, as far as a glance tells, as it was stored.

        A damaged entry is told of once, as a warning, and counts as absent.
        """
        if not (self.path(key) / MANIFEST).is_file():
            return False
        with self._glancing:
            if key.name not in self._glanced:
                damage = self.glance(key.name)
                self._glanced[key.name] = not damage
                if damage:
                    self._reporter.emit(Notice(message=damage_text(key.name, damage), warning=True))
            return self._glanced[key.name]

    def glance(self, name: str) -> list[StoreProblem]:
        """What :meth:`verify` would find in the entry, reading only files whose size or time of change is not that
        of a sealed file. A bit that the disk lost by itself is not seen; anything that was written or added is.
        """
        entry = self.entries / name
        try:
            expected, sealed = _read_manifest(entry)
        except IntegrityError as error:
            return [StoreProblem(path=MANIFEST, what=error.message)]
        problems = _extra(entry, expected)
        for path, (size, digest) in expected.items():
            file = f"{entry}/{path}"
            try:
                status = os.lstat(file)
            except OSError:
                problems.append(StoreProblem(path=path, what="missing"))
                continue
            if stat.S_ISREG(status.st_mode) and status.st_size == size and (status.st_mtime == _SEALED or not sealed):
                continue
            problem = _compare(Path(file), path, size, digest)
            if problem is not None:
                problems.append(problem)
            else:
                with contextlib.suppress(OSError):  # copied without times; the next glance is quick again
                    os.utime(file, (_SEALED, _SEALED))
        return problems

    def ensure(self, key: StoreKey, build: Build, check: Callable[[], None] = lambda: None) -> Path:
        """The path of the entry, built now if it is not there.

        While another process builds it, waits (and says so); ``check`` is called now and then, and may raise.
        On any exception of ``build``, Ctrl-C included, nothing is left. Raises :class:`MachineError` for a
        full disk or a directory that cannot be written.
        """
        final = self.path(key)
        self._uses.add(key.name)
        if self.has(key):
            self._touch(key)
            return final
        with self.machine_errors(), self.lock(key.name, check):
            with self._glancing:
                self._glanced.pop(key.name, None)  # another process may have repaired it meanwhile
            if not self.has(key):
                self.sweep(key.name)
                if final.exists():  # damaged, half deleted, or nothing of ours
                    self.drop(key.name)
                work = Path(tempfile.mkdtemp(prefix=f"{_WORK}{key.name}-", dir=self.entries))
                try:
                    sources = build(work)
                    _seal(work, key, sources)
                    work.chmod(0o755)
                    work.rename(final)
                finally:
                    if work.exists():
                        _remove(work)
                with self._glancing:
                    self._glanced[key.name] = True
        return final

    def artefacts(self, key: StoreKey) -> tuple[Artefact, ...]:
        """What an entry was made from, as its manifest says. Raises :class:`IntegrityError` when it cannot be read."""
        entry = self.path(key)
        return manifest_sources(entry, load_manifest(entry))

    def made_from(self, pattern: str) -> Iterator[tuple[str, tuple[Artefact, ...]]]:
        """The entries whose names match ``pattern`` (a glob), by name, with what each was made from. What cannot be
        read is left out: whoever uses it is told.
        """
        for entry in sorted(self.entries.glob(pattern)):
            try:
                yield entry.name, manifest_sources(entry, load_manifest(entry))
            except IntegrityError:
                continue

    def verify(self, key: StoreKey) -> list[StoreProblem]:
        """Compare an entry with its manifest: every file's size and SHA-256, files missing and files too
        many.

        Raises :class:`IntegrityError` when the entry or its manifest cannot be read.
        """
        return verify_folder(self.path(key))

    def discard(self, key: StoreKey) -> None:
        """Delete an entry; the next :meth:`ensure` builds it again. Nothing happens when there is none."""
        with self.machine_errors(), self.lock(key.name):
            if self.path(key).exists():
                self.drop(key.name)

    def drop(self, name: str) -> None:
        """Delete the directory ``name`` of an entry so that nobody sees half of it; its lock must be held."""
        gone = Path(tempfile.mkdtemp(prefix=f"{_WORK}{name}-", dir=self.entries))
        (self.entries / name).rename(gone / "entry")
        with self._glancing:
            self._glanced.pop(name, None)
        _remove(gone)

    def _touch(self, key: StoreKey) -> None:
        with contextlib.suppress(OSError):  # a read-only store serves as well
            os.utime(self.path(key) / MANIFEST)

    @contextmanager
    def lock(self, name: str, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock of the entry ``name``; while another process has it, say so, wait and call ``check``."""
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        self.entries.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / f"{name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self._reporter.emit(Waiting(reason=f"another process is fetching {name}"))
            while not lock.is_locked:
                check()
                with contextlib.suppress(Timeout):
                    lock.acquire(timeout=0.5, poll_interval=0.05)
        try:
            yield
        finally:
            lock.release()

    def debris(self) -> Iterator[Path]:
        """Work directories, of processes that live and of killed ones."""
        yield from sorted(self.entries.glob(f"{_WORK}*"))

    @staticmethod
    def owner(work: Path) -> str:
        """The name of the entry that a work directory was to become."""
        return work.name.removeprefix(_WORK).rpartition("-")[0]

    def sweep(self, own: str | None = None) -> None:
        """Remove what killed processes left; the lock of ``own`` is held. A work directory whose entry's lock
        is free has no owner any more.
        """
        for work in self.debris():
            name = self.owner(work)
            if name == own:  # its lock is ours
                _remove(work)
                continue
            lock = FileLock(self.root / "locks" / f"{name}.lock")
            with contextlib.suppress(Timeout), lock.acquire(timeout=0):
                if work.exists():  # else its owner has just removed it
                    _remove(work)

    @contextmanager
    def machine_errors(self) -> Iterator[None]:
        """Turn what a full or forbidden disk raises within the block into :class:`MachineError`."""
        try:
            yield
        except OSError as error:
            where = error.filename if isinstance(error.filename, str) else str(self.root)
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise MachineError(
                    f"the disk is full: cannot write {where} ({_room(self.root)})",
                    hint="free some space, or set KERNEL_BUILDER_CACHE to a directory on a larger disk",
                ) from error
            if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}:
                raise MachineError(
                    f"cannot write to the store: {where}: {error.strerror}",
                    hint="fix the permissions, or set KERNEL_BUILDER_CACHE to a directory you can write to",
                ) from error
            raise


def _files(entry: Path) -> Iterator[str]:
    """Paths of everything in an entry but folders and its manifest, relative, with forward slashes."""
    folders = [""]
    while folders:
        prefix = folders.pop()
        with os.scandir(f"{entry}/{prefix}") as found:
            for item in found:
                name = f"{prefix}{item.name}"
                if item.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                elif name != MANIFEST:
                    yield name


def _extra(entry: Path, expected: Mapping[str, object]) -> list[StoreProblem]:
    """What lies in an entry and is not in its manifest."""
    try:
        names = sorted(set(_files(entry)) - expected.keys())
    except OSError as error:
        return [StoreProblem(path=os.path.relpath(error.filename, entry), what=f"cannot be read: {error.strerror}")]
    return [StoreProblem(path=name, what="does not belong here") for name in names]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compare(file: Path, name: str, size: int, digest: str) -> StoreProblem | None:
    """How ``file`` differs from what its entry's manifest says; ``None`` when it does not."""
    try:
        status = file.lstat()
        if not stat.S_ISREG(status.st_mode):
            return StoreProblem(path=name, what="not a regular file")
        if status.st_size != size:
            return StoreProblem(path=name, what=f"{status.st_size} bytes, expected {size}")
        return StoreProblem(path=name, what="its contents have changed") if _digest(file) != digest else None
    except FileNotFoundError:
        return StoreProblem(path=name, what="missing")
    except OSError as error:
        return StoreProblem(path=name, what=f"cannot be read: {error.strerror}")


def verify_folder(entry: Path) -> list[StoreProblem]:
    """:meth:`Store.verify` for a directory that need not be in the store yet."""
    expected, _ = _read_manifest(entry)
    compared = (_compare(entry / name, name, size, digest) for name, (size, digest) in expected.items())
    problems = [problem for problem in compared if problem is not None]
    problems += _extra(entry, expected)
    return sorted(problems, key=lambda problem: problem.path)


def seal_files(entry: Path) -> None:
    """Make every file of an entry, and its manifest, read-only, and give the files the time of sealed ones."""
    for name in _files(entry):
        path = entry / name
        path.chmod(0o555 if path.stat().st_mode & stat.S_IXUSR else 0o444)
        os.utime(path, (_SEALED, _SEALED))
    (entry / MANIFEST).chmod(0o444)


def damage_text(name: str, problems: Sequence[StoreProblem]) -> str:
    """One sentence about a damaged entry."""
    first = problems[0]
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{name} in the store is damaged ({first.path}: {first.what}{more}) and must be fetched again"


def _seal(work: Path, key: StoreKey, sources: Sequence[Artefact]) -> None:
    """Make all files read-only and write the manifest."""
    files: dict[str, dict[str, object]] = {}
    for name in sorted(_files(work)):
        status = (work / name).lstat()
        if not stat.S_ISREG(status.st_mode):
            raise IntegrityError(f"{key.stem}: {name} is not a regular file, so the store cannot keep it")
        files[name] = {"size": status.st_size, "sha256": _digest(work / name)}
    manifest: dict[str, object] = {
        "format": _FORMAT,
        "stem": key.stem,
        "digest": key.digest,
        "sealed": _SEALED,
        "sources": [asdict(source) for source in sorted(sources, key=lambda source: source.name)],
        "files": files,
    }
    manifest["own-sha256"] = _own_digest(manifest)
    (work / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    seal_files(work)


def _own_digest(manifest: Mapping[str, object]) -> str:
    """SHA-256 over a manifest without this digest itself, so that damage to a manifest is found as well."""
    text = json.dumps({name: value for name, value in manifest.items() if name != "own-sha256"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load_manifest(entry: Path) -> Mapping[str, object]:
    """The manifest of the entry at ``entry``, as JSON has it. Raises :class:`IntegrityError` when it cannot be read or
    is not as it was written.
    """
    try:
        manifest = parse_json((entry / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise IntegrityError(f"{entry} is missing from the store, or incomplete") from error
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(entry, error) from error
    if not isinstance(manifest, dict):
        raise _unreadable(entry, "it is not a table")
    if "own-sha256" in manifest and manifest["own-sha256"] != _own_digest(manifest):
        raise _unreadable(entry, "its contents have changed")
    return manifest


def _unreadable(entry: Path, why: object) -> IntegrityError:
    return IntegrityError(
        f"cannot read the manifest of {entry}: {why}",
        hint=f"run: kernel-builder toolchain verify --repair, or delete {entry}; it will be fetched again",
    )


def manifest_files(entry: Path, manifest: Mapping[str, object]) -> dict[str, tuple[int, str]]:
    """File -> (size, SHA-256) of a manifest. Raises :class:`IntegrityError` for another structure."""
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise _unreadable(entry, "it lists no files")
    try:
        return {str(name): (int(file["size"]), str(file["sha256"])) for name, file in files.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(entry, error) from error


def manifest_sources(entry: Path, manifest: Mapping[str, object]) -> tuple[Artefact, ...]:
    """The sources of a manifest. Raises :class:`IntegrityError` for another structure."""
    sources = manifest.get("sources")
    if not isinstance(sources, list):
        raise _unreadable(entry, "it lists no sources")
    try:
        return tuple(parse_artefact(source) for source in sources)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(entry, error) from error


def _read_manifest(entry: Path) -> tuple[dict[str, tuple[int, str]], bool]:
    """File -> (size, SHA-256), and whether the files have the time of change of sealed ones."""
    manifest = load_manifest(entry)
    return manifest_files(entry, manifest), manifest.get("sealed") == _SEALED


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=False)
