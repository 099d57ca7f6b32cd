"""What is in the store, whether it is sound, and what of it may go.

Everything here works on directories as they lie there, not on what some toolchain asks for: the store is looked
after without a network and without a project.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from kernel_builder.errors import IntegrityError
from kernel_builder.seen import unused_for
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import (
    MANIFEST,
    Store,
    StoreKey,
    StoreProblem,
    load_manifest,
    manifest_files,
    manifest_sources,
)
from kernel_builder.store.uses import guard, in_use

IMPORT_LOCK = "import"
IMPORT_PREFIX = ".import-"
"""An import holds this lock and works in a directory of this name, in the root of the store."""
_PARTIAL_SECONDS = 7 * 24 * 3600.0
"""How long the beginning of a download is kept for somebody to go on with it, and what a build left in the store."""
BUILDS = "builds"
"""The folder of the store with the work directories of projects that cannot be written."""


@dataclass(frozen=True, kw_only=True)
class StoreEntry:
    """An entry of the store. ``size`` is in bytes, ``last_used`` in seconds since the epoch.

    ``key`` is ``None`` when its manifest cannot be read; then ``problem`` says why, and ``sources`` is empty. An entry
    without sources was made on this machine, from other entries or from the machine's own files.
    """

    name: str
    key: StoreKey | None
    size: int
    files: int
    last_used: float
    sources: tuple[Artefact, ...] = ()
    problem: str | None = None

    @property
    def origins(self) -> tuple[str, ...]:
        """Labels of the sources that it came from, sorted; ``this machine`` when there are none."""
        return tuple(sorted({source.source for source in self.sources})) or ("this machine",)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What verifying an entry found: nothing, when it is sound."""

    name: str
    files: int
    size: int
    problems: tuple[StoreProblem, ...]


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What cleaning up took away, or would take away. ``freed`` is in bytes; ``kept`` are entries that a running build
    uses. ``debris`` counts what processes left that were killed.
    """

    entries: tuple[StoreEntry, ...]
    kept: tuple[str, ...]
    debris: int
    freed: int


def list_entries(store: Store) -> tuple[StoreEntry, ...]:
    """All entries, by name. Nothing but manifests is read."""
    folder = store.entries
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    found = [_entry(folder / name) for name in names if not name.startswith(".")]
    return tuple(
        entry for entry in found if entry.key is not None or (folder / entry.name).exists()
    )  # not just removed


def keep_within(store: Store, prefix: str, size: int) -> tuple[str, ...]:
    """Remove entries whose names begin with ``prefix``, the least recently used first, until they have ``size`` bytes
    at most; which. What a running process uses stays. Raises :class:`MachineError` when the store cannot be written.
    """
    found = [_entry(path) for path in sorted(store.entries.glob(f"{prefix}*"))]
    chosen = _choose(found, older_than=None, keep_size=size, everything=False)
    stayed = set(discard_unused(store, [entry.name for entry in chosen]))
    return tuple(entry.name for entry in chosen if entry.name not in stayed)


def _entry(path: Path) -> StoreEntry:
    try:
        manifest = load_manifest(path)
        files = manifest_files(path, manifest)
        key = StoreKey(stem=str(manifest.get("stem")), digest=str(manifest.get("digest")))
        if key.name != path.name:
            raise IntegrityError(f"this is the manifest of {key.name}")  # noqa: TRY301  (one way out for all of them)
        return StoreEntry(
            name=path.name,
            key=key,
            size=sum(size for size, _ in files.values()),
            files=len(files),
            last_used=_time(path / MANIFEST),
            sources=manifest_sources(path, manifest),
        )
    except IntegrityError as error:
        return StoreEntry(
            name=path.name, key=None, size=_size(path), files=0, last_used=_time(path), problem=error.message
        )


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(folder: Path) -> int:
    """Bytes of the files below ``folder``, or of the file that it is."""
    if folder.is_file():
        return folder.stat().st_size
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{parent}/{name}").st_size
    return total


def verify_entries(
    store: Store, entries: Iterable[StoreEntry], done: Callable[[Verified], None] = lambda _: None
) -> tuple[Verified, ...]:
    """Read every file of ``entries`` again, several entries at once, and compare it with its manifest.

    ``done`` hears of each entry as soon as it is through, from any thread. Results are in the order of ``entries``.
    """

    def one(entry: StoreEntry) -> Verified:
        verdict = Verified(name=entry.name, files=entry.files, size=entry.size, problems=tuple(_problems(store, entry)))
        done(verdict)
        return verdict

    # The largest first, so that none is begun last.
    wanted = list(entries)
    order = sorted(range(len(wanted)), key=lambda index: -wanted[index].size)
    with ThreadPoolExecutor(max_workers=max(2, min(8, os.cpu_count() or 1))) as pool:
        verdicts = dict(zip(order, pool.map(lambda index: one(wanted[index]), order), strict=True))
    return tuple(verdicts[index] for index in range(len(wanted)))


def _problems(store: Store, entry: StoreEntry) -> Sequence[StoreProblem]:
    """What is wrong with an entry, unless another process removed it, or recreated it, while it was read."""
    folder = store.entries / entry.name
    while True:
        before = _identity(folder)
        problems = _problems_now(store, entry if entry.key is not None else _entry(folder))
        now = _identity(folder)
        if not problems or now is None:
            return []
        if now == before:
            return problems


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _problems_now(store: Store, entry: StoreEntry) -> Sequence[StoreProblem]:
    if entry.key is None:
        return [StoreProblem(path=MANIFEST, what=entry.problem or "cannot be read")]
    try:
        return store.verify(entry.key)
    except IntegrityError as error:
        return [StoreProblem(path=MANIFEST, what=error.message)]


def discard_unused(store: Store, names: Iterable[str]) -> tuple[str, ...]:
    """Delete entries by name; return those that stayed because another process uses or provides them."""
    stayed: list[str] = []
    with store.machine_errors(), guard(store.root):
        busy = in_use(store.root)
        for name in names:
            if name in busy or not _drop(store, name):
                stayed.append(name)
    return tuple(stayed)


def _drop(store: Store, name: str) -> bool:
    """Delete an entry if its lock is free."""
    try:
        with FileLock(_lock_of(store, name)).acquire(timeout=0):
            if (store.entries / name).exists():
                store.drop(name)
    except Timeout:
        return False
    return True


def collect(
    store: Store,
    *,
    older_than: float | None = None,
    keep_size: int | None = None,
    everything: bool = False,
    dry_run: bool = False,
) -> Removal:
    """Clean up: debris always; entries that were not used for ``older_than`` seconds; the least recently used ones
    until the rest has at most ``keep_size`` bytes; or ``everything``. What a running process uses stays.

    With ``dry_run`` nothing is removed. Raises :class:`MachineError` when the store cannot be written.
    """
    if not store.entries.is_dir():
        return Removal(entries=(), kept=(), debris=0, freed=0)
    with store.machine_errors():
        debris, freed = _collect_debris(store, dry_run=dry_run, everything=everything)
        with guard(store.root):
            busy = in_use(store.root)
        found = list_entries(store)
        chosen = _choose(found, older_than=older_than, keep_size=keep_size, everything=everything)
        gone = [entry for entry in chosen if entry.name not in busy]
        kept = [entry.name for entry in chosen if entry.name in busy]
        if not dry_run:
            stayed = set(discard_unused(store, [entry.name for entry in gone]))
            kept += sorted(stayed)
            gone = [entry for entry in gone if entry.name not in stayed]
            if everything and not kept:
                for name in ("resolutions", "logs", "proofs"):
                    shutil.rmtree(store.root / name, ignore_errors=True)
    freed += sum(entry.size for entry in gone)
    return Removal(entries=tuple(gone), kept=tuple(kept), debris=debris, freed=freed)


def _choose(
    entries: Sequence[StoreEntry], *, older_than: float | None, keep_size: int | None, everything: bool
) -> list[StoreEntry]:
    """The entries to remove, the least recently used first. What cannot be read is of no use to anybody."""
    by_age = sorted(entries, key=lambda entry: (-unused_for(entry.last_used), entry.name))
    total = sum(entry.size for entry in entries)
    chosen: list[StoreEntry] = []
    for entry in by_age:
        old = older_than is not None and unused_for(entry.last_used) > older_than
        large = keep_size is not None and total > keep_size
        if everything or old or large or entry.key is None:
            chosen.append(entry)
            total -= entry.size
    return chosen


def _collect_debris(store: Store, *, dry_run: bool, everything: bool) -> tuple[int, int]:
    """Work directories without owner and beginnings of downloads that nobody went on with: how many, how large."""
    imports = sorted(store.root.glob(f"{IMPORT_PREFIX}*")) if _lock_is_free(store, IMPORT_LOCK) else []
    ownerless = [work for work in store.debris() if _lock_is_free(store, store.owner(work))]
    partial = [
        path
        for path in sorted((store.root / "downloads").glob("*.part"))
        if everything or unused_for(_time(path)) > _PARTIAL_SECONDS
    ]
    parts = [
        path
        for path in sorted((store.root / "parts").glob("*"))
        if everything or unused_for(max(map(_time, path.iterdir()), default=0.0)) > _PARTIAL_SECONDS
    ]
    parts = [path for path in parts if _lock_is_free(store, path.name)]
    partial += [path for path in (store.root / "resolutions").glob(".new-*") if unused_for(_time(path)) > 3600]
    builds = [
        path
        for path in sorted((store.root / BUILDS).glob("*"))
        if (everything or unused_for(_last_build(path)) > _PARTIAL_SECONDS) and _is_free(path / "lock")
    ]
    freed = sum(_size(path) for path in (*imports, *ownerless, *partial, *parts, *builds))
    if not dry_run:
        for path in builds:
            with contextlib.suppress(Timeout), FileLock(path / "lock").acquire(timeout=0):
                shutil.rmtree(path, ignore_errors=True)
        store.sweep()
        for path in imports:
            with contextlib.suppress(Timeout), FileLock(_lock_of(store, IMPORT_LOCK)).acquire(timeout=0):
                shutil.rmtree(path, ignore_errors=True)
        for path in partial:
            with contextlib.suppress(Timeout), FileLock(path.with_suffix(".lock")).acquire(timeout=0):
                path.unlink(missing_ok=True)
        for path in parts:
            with contextlib.suppress(Timeout), FileLock(_lock_of(store, path.name)).acquire(timeout=0):
                shutil.rmtree(path, ignore_errors=True)
    return len(imports) + len(ownerless) + len(partial) + len(parts) + len(builds), freed


def _last_build(work: Path) -> float:
    return max((_time(path) for path in work.iterdir() if path.name != "lock"), default=0.0)


def _lock_of(store: Store, name: str) -> Path:
    return store.root / "locks" / f"{name}.lock"


def _lock_is_free(store: Store, name: str) -> bool:
    return _is_free(_lock_of(store, name))


def _is_free(lock: Path) -> bool:
    try:
        with FileLock(lock).acquire(timeout=0):
            return True
    except Timeout:
        return False
