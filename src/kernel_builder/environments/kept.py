"""The environments that are kept, in ``environments/`` beside the store's entries: one for each thing that they are
made of, shared by all projects.

The scripts of an environment hold its path, so it cannot be made elsewhere and renamed. It counts as there once its
note is, which is written last; until then the lock of its name is held, and what a killed process left is made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kernel_builder.environments.install import Installer, NothingFitsError
from kernel_builder.environments.wanted import Needs
from kernel_builder.errors import ToolchainError, UsageError
from kernel_builder.events import Notice, Reporter, Waiting
from kernel_builder.files import parse_json, write_text
from kernel_builder.seen import unused_for
from kernel_builder.store.cache import Store
from kernel_builder.store.uses import guard, in_use

FOLDER = "environments"
NOTE = "environment.json"
KEEP_BYTES = 40 << 30
"""Together they take at most this much: then those that were not used for longest go."""
KEEP_SECONDS = 60 * 86400.0
"""What nobody used for so long goes too."""
_PREFIX = "environment:"


@dataclass(frozen=True, kw_only=True)
class KeptEnvironment:
    """An environment that is there. ``torch`` is the requirement that was met (``""``: none was asked for), ``size`` in
    bytes, ``last_used`` a time; ``complete`` is false for what a process left that was killed, or that works on it now.
    """

    name: str
    path: Path
    size: int
    last_used: float
    torch: str = ""
    requirements: tuple[str, ...] = ()
    made_with: str = ""
    complete: bool = True

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.path / "bin" / "python"


@dataclass(frozen=True, kw_only=True)
class Removed:
    """What was removed, and the names of those that running processes use."""

    gone: tuple[KeptEnvironment, ...]
    busy: tuple[str, ...]


class Environments:
    """Those beside the entries of ``store``. Safe for concurrent processes."""

    def __init__(self, store: Store, reporter: Reporter) -> None:
        self._store = store
        self._reporter = reporter
        self.root = store.root / FOLDER

    def listed(self) -> tuple[KeptEnvironment, ...]:
        """All of them, by name."""
        if not self.root.is_dir():
            return ()
        return tuple(_read(path) for path in sorted(self.root.iterdir()) if path.is_dir())

    def find(self, name: str) -> KeptEnvironment | None:
        """The complete environment of that name. This process uses it from now on."""
        self._store.hold(f"{_PREFIX}{name}")
        found = _read(self.root / name)
        if not found.complete or not os.access(found.python, os.X_OK):
            return None
        with contextlib.suppress(OSError):  # a read-only store serves as well
            os.utime(found.path / NOTE)
        return found

    def ensure(self, name: str, wanted: Needs, installer: Installer) -> KeptEnvironment:
        """The environment ``name``, made now if it is not there.

        Raises :class:`ToolchainError` when it cannot be made: nothing of it stays then, nor after Ctrl-C.
        """
        found = self.find(name)
        if found is not None:
            return found
        with self._store.machine_errors(), self._lock(name):
            found = self.find(name)
            if found is None:
                place = self.root / name
                shutil.rmtree(place, ignore_errors=True)
                try:
                    self._make(place, wanted, installer)
                except BaseException:
                    shutil.rmtree(place, ignore_errors=True)
                    raise
                found = _read(place)
        self.bound(keep=name)
        return found

    def _make(self, place: Path, wanted: Needs, installer: Installer) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        packages = ", ".join(wanted.installed)
        self._reporter.emit(
            Notice(message=(f"creating an environment with {wanted.label}, {packages} ({installer.name})"))
        )
        installer.create(place)
        torch = self._install(place, wanted, installer)
        note = {
            "torch": torch,
            "requirements": list(wanted.installed),
            "made-with": f"{installer.name}, {installer.python}",
            "size": _size(place),
        }
        write_text(place / NOTE, json.dumps(note, indent=2) + "\n")

    @staticmethod
    def _install(place: Path, wanted: Needs, installer: Installer) -> str:
        problems: list[str] = []
        for torch in wanted.torch or ("",):
            try:
                installer.install(place, (*filter(None, (torch,)), *wanted.installed))
            except NothingFitsError as error:
                problems.append(error.message)
            else:
                return torch
        raise ToolchainError(
            f"no configured index has {wanted.label}, or something else that the tests need:\n" + "\n".join(problems),
            hint="name an index that has it in kernel-builder.toml, as [[index]] with name and url, or test with a"
            " Python that has it: kernel-builder test --python FILE",
        )

    def discard(self, name: str) -> None:
        """Remove an environment that turned out to be of no use."""
        with self._store.machine_errors(), self._lock(name):
            shutil.rmtree(self.root / name, ignore_errors=True)

    def bound(self, *, keep: str | None = None, seconds: float = KEEP_SECONDS, size: int = KEEP_BYTES) -> Removed:
        """Remove what was not used for ``seconds``, then the least recently used until the rest has ``size`` bytes.

        What running processes use stays, and so does ``keep``.
        """
        chosen = []
        found = sorted(self.listed(), key=lambda entry: unused_for(entry.last_used), reverse=True)
        total = sum(entry.size for entry in found)
        for entry in found:
            if entry.name != keep and (unused_for(entry.last_used) > seconds or total > size):
                chosen.append(entry)
                total -= entry.size
        return self._remove(chosen)

    def remove(self, names: Sequence[str]) -> Removed:
        """Remove environments by name, or by its beginning. Raises :class:`UsageError` for one that is not there."""
        found = self.listed()
        chosen = {entry.name: entry for entry in found for name in names if entry.name.startswith(name)}
        wrong = [name for name in names if not any(entry.name.startswith(name) for entry in found)]
        if wrong:
            known = ", ".join(entry.name for entry in found) or "none"
            raise UsageError(f"environment {wrong[0]} does not exist", hint=f"the available ones: {known}")
        return self._remove(tuple(chosen.values()))

    def _remove(self, chosen: Sequence[KeptEnvironment]) -> Removed:
        gone, busy = [], []
        if not chosen:
            return Removed(gone=(), busy=())
        with self._store.machine_errors(), guard(self._store.root):
            used = in_use(self._store.root)
            for entry in chosen:
                if f"{_PREFIX}{entry.name}" in used or not self._delete(entry):
                    busy.append(entry.name)
                else:
                    gone.append(entry)
        return Removed(gone=tuple(gone), busy=tuple(busy))

    def _delete(self, entry: KeptEnvironment) -> bool:
        """Delete it if nobody makes it just now. The note goes first: nobody takes half of it for the whole."""
        try:
            with FileLock(self._lock_file(entry.name)).acquire(timeout=0):
                (entry.path / NOTE).unlink(missing_ok=True)
                shutil.rmtree(entry.path, ignore_errors=True)
        except Timeout:
            return False
        return True

    def _lock_file(self, name: str) -> Path:
        folder = self._store.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"environment-{name}.lock"

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        lock = FileLock(self._lock_file(name))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self._reporter.emit(Waiting(reason=f"another process is creating the environment {name}"))
            lock.acquire(poll_interval=0.2)
        try:
            yield
        finally:
            lock.release()


def _read(path: Path) -> KeptEnvironment:
    try:
        note: Any = parse_json((path / NOTE).read_text(encoding="utf-8"))
        return KeptEnvironment(
            name=path.name,
            path=path,
            size=int(note["size"]),
            last_used=(path / NOTE).stat().st_mtime,
            torch=str(note["torch"]),
            requirements=tuple(map(str, note["requirements"])),
            made_with=str(note["made-with"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        used = path.stat().st_mtime if path.exists() else 0.0
        return KeptEnvironment(name=path.name, path=path, size=_size(path), last_used=used, complete=False)


def _size(folder: Path) -> int:
    """Bytes that the files below ``folder`` take; what has several names is counted once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(f"{parent}/{name}")
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_size
    return total
