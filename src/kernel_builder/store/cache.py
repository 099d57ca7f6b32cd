"""The content-addressed store: finished directories that never change, and how they come to be.

An entry is a directory named by a readable stem and a digest over everything that determines its contents, so
its path is known before it exists. It is built beside its place and renamed into it: whoever sees it sees all
of it. Processes exclude each other with a lock per entry, which the kernel releases when a process dies.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from kernel_builder.errors import IntegrityError, MachineError
from kernel_builder.events import Reporter, Silent, Waiting
from kernel_builder.store.artefact import Artefact, parse_artefact

MANIFEST = ".manifest.json"
_FORMAT = 1
_WORK = ".work-"
_SPARE = 32 * 2**20  # bytes that must stay free on the disk besides what is written


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
class Problem:
    """Something in an entry that is not as it was stored. ``path`` is relative to the entry."""

    path: str
    what: str


Build = Callable[[Path], Sequence[Artefact]]
"""Fills an empty directory and says from what."""


def default_root() -> Path:
    """``KERNEL_BUILDER_CACHE``, or ``kernel-builder`` in the user's cache directory (``XDG_CACHE_HOME``)."""
    named = os.environ.get("KERNEL_BUILDER_CACHE")
    return Path(named).expanduser().absolute() if named else Path(platformdirs.user_cache_dir("kernel-builder"))


def require_space(folder: Path, needed: int) -> None:
    """Raise :class:`MachineError` unless ``needed`` bytes fit on the disk of ``folder``, with a little to
    spare.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + _SPARE:
        raise MachineError(
            f"the disk of {folder} is too full: {_mib(needed + _SPARE)} are needed, {_mib(free)} are free",
            hint="free some space, or set KERNEL_BUILDER_CACHE to a directory on a larger disk",
        )


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"


class Store:
    """The store below ``root``. Safe for concurrent threads and processes."""

    def __init__(self, root: Path | None = None, reporter: Reporter | None = None) -> None:
        self.root = default_root() if root is None else root
        self._reporter = reporter or Silent()

    @property
    def _entries(self) -> Path:
        return self.root / "store"

    def path(self, key: StoreKey) -> Path:
        """Where the entry is, or will be."""
        return self._entries / key.name

    def has(self, key: StoreKey) -> bool:
        """Whether the entry is complete."""
        return (self.path(key) / MANIFEST).is_file()

    def ensure(self, key: StoreKey, build: Build, check: Callable[[], None] = lambda: None) -> Path:
        """The path of the entry, built now if it is not there.

        While another process builds it, waits (and says so); ``check`` is called now and then, and may raise.
        On any exception of ``build``, Ctrl-C included, nothing is left. Raises :class:`MachineError` for a
        full disk or a directory that cannot be written.
        """
        final = self.path(key)
        if self.has(key):
            self._touch(key)
            return final
        with self._machine_errors(), self._lock(key.name, check):
            if not self.has(key):
                self._sweep(key.name)
                if final.exists():  # no manifest: nothing of ours, or half deleted
                    _remove(final)
                work = Path(tempfile.mkdtemp(prefix=f"{_WORK}{key.name}-", dir=self._entries))
                try:
                    sources = build(work)
                    _seal(work, key, sources)
                    work.chmod(0o755)
                    work.rename(final)
                finally:
                    if work.exists():
                        _remove(work)
        return final

    def artefacts(self, key: StoreKey) -> tuple[Artefact, ...]:
        """What an entry was made from, as its manifest says. Raises :class:`IntegrityError` when it cannot be read."""
        entry = self.path(key)
        try:
            manifest = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
            return tuple(parse_artefact(source) for source in manifest["sources"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IntegrityError(
                f"the manifest of {entry} cannot be read: {error}",
                hint="delete that directory; it will be fetched again",
            ) from error

    def verify(self, key: StoreKey) -> list[Problem]:
        """Compare an entry with its manifest: every file's size and SHA-256, files missing and files too
        many.

        Raises :class:`IntegrityError` when the entry or its manifest cannot be read.
        """
        entry = self.path(key)
        expected = _read_manifest(entry)
        problems: list[Problem] = []
        present = set(_files(entry))
        for name, (size, digest) in expected.items():
            if name not in present:
                problems.append(Problem(path=name, what="missing"))
            elif (entry / name).stat().st_size != size:
                problems.append(Problem(path=name, what=f"{(entry / name).stat().st_size} bytes instead of {size}"))
            elif _digest(entry / name) != digest:
                problems.append(Problem(path=name, what="its contents changed"))
        problems += [Problem(path=name, what="does not belong here") for name in present - expected.keys()]
        return sorted(problems, key=lambda problem: problem.path)

    def discard(self, key: StoreKey) -> None:
        """Delete an entry; the next :meth:`ensure` builds it again. Nothing happens when there is none."""
        with self._machine_errors(), self._lock(key.name):
            final = self.path(key)
            if final.exists():
                gone = Path(tempfile.mkdtemp(prefix=f"{_WORK}{key.name}-", dir=self._entries))
                final.rename(gone / "entry")
                _remove(gone)

    def _touch(self, key: StoreKey) -> None:
        with contextlib.suppress(OSError):  # a read-only store serves as well
            os.utime(self.path(key) / MANIFEST)

    @contextmanager
    def _lock(self, name: str, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        self._entries.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / f"{name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self._reporter.emit(Waiting(reason=f"another process is providing {name}"))
            while not lock.is_locked:
                check()
                with contextlib.suppress(Timeout):
                    lock.acquire(timeout=0.5, poll_interval=0.05)
        try:
            yield
        finally:
            lock.release()

    def _sweep(self, own: str) -> None:
        """Remove what killed processes left; the lock of ``own`` is held. A work directory whose entry's lock
        is free has no owner any more.
        """
        for work in self._entries.glob(f"{_WORK}*"):
            name = work.name.removeprefix(_WORK).rpartition("-")[0]
            if name == own:  # its lock is ours
                _remove(work)
                continue
            lock = FileLock(self.root / "locks" / f"{name}.lock")
            with contextlib.suppress(Timeout), lock.acquire(timeout=0):
                _remove(work)

    @contextmanager
    def _machine_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = error.filename if isinstance(error.filename, str) else str(self.root)
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                free = shutil.disk_usage(self.root).free
                raise MachineError(
                    f"the disk is full: {where} could not be written ({_mib(free)} free)",
                    hint="free some space, or set KERNEL_BUILDER_CACHE to a directory on a larger disk",
                ) from error
            if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}:
                raise MachineError(
                    f"the store cannot be written: {where}: {error.strerror}",
                    hint="correct the permissions, or set KERNEL_BUILDER_CACHE to a directory of yours",
                ) from error
            raise


def _files(entry: Path) -> Iterator[str]:
    """Paths of all files of an entry but its manifest, relative, with forward slashes."""
    for folder, _, names in os.walk(entry):
        for name in names:
            relative = os.path.relpath(os.path.join(folder, name), entry)  # noqa: PTH118  (10,000 files: speed)
            if relative != MANIFEST:
                yield relative


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(work: Path, key: StoreKey, sources: Sequence[Artefact]) -> None:
    """Make all files read-only and write the manifest."""
    files: dict[str, dict[str, object]] = {}
    for name in sorted(_files(work)):
        path = work / name
        executable = path.stat().st_mode & stat.S_IXUSR
        path.chmod(0o555 if executable else 0o444)
        files[name] = {"size": path.stat().st_size, "sha256": _digest(path)}
    manifest = {
        "format": _FORMAT,
        "stem": key.stem,
        "digest": key.digest,
        "sources": [asdict(source) for source in sorted(sources, key=lambda source: source.name)],
        "files": files,
    }
    path = work / MANIFEST
    path.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    path.chmod(0o444)


def _read_manifest(entry: Path) -> dict[str, tuple[int, str]]:
    """File -> (size, SHA-256)."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
        return {name: (int(file["size"]), str(file["sha256"])) for name, file in manifest["files"].items()}
    except FileNotFoundError as error:
        raise IntegrityError(f"{entry} is not in the store, or incomplete") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(
            f"the manifest of {entry} cannot be read: {error}",
            hint="delete that directory; it will be fetched again",
        ) from error


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=False)
