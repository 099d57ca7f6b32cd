"""Which entries of the store running processes use, so that cleaning up leaves them alone.

A process keeps a file with the names of its entries, and a lock beside it; the system releases the lock when the
process ends, however it ends. The lock is a file of its own, since on Windows nobody else can read what is locked.
Names are added, and entries are taken away, while one common lock is held: so between the look at who uses an entry and
its removal, nobody begins to use it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

_FOLDER, _LOCK = "uses", ".lock"


class Uses:
    """What this process uses of the store at ``root``; nothing once this object is gone."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: set[str] = set()
        self._file: Path | None = None
        self._close: Callable[[], object] = lambda: None
        self._lock = threading.Lock()

    def add(self, name: str) -> None:
        """From now on ``name`` is in use. A store that cannot be written cannot be cleaned up either, and is used
        without a note.
        """
        with self._lock, contextlib.suppress(OSError):
            if name in self._names:
                return
            with guard(self._root):
                if self._file is None:
                    self._file = self._open()
                with self._file.open("a", encoding="utf-8", newline="\n") as file:
                    file.write(f"{name}\n")
            self._names.add(name)

    @property
    def names(self) -> frozenset[str]:
        """What is in use."""
        with self._lock:
            return frozenset(self._names)

    def _open(self) -> Path:
        folder = self._root / _FOLDER
        folder.mkdir(exist_ok=True)
        path = folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        lock = FileLock(path.with_suffix(_LOCK), thread_local=False)
        lock.acquire(timeout=0)
        path.touch()
        self._close = weakref.finalize(self, _close, lock, path)
        return path

    def release(self) -> None:
        """Nothing is in use from now on."""
        with self._lock:
            self._close()
            self._file = None
            self._names.clear()


def _close(lock: FileLock, path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    lock.release()
    _remove(path.with_suffix(_LOCK))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


@contextmanager
def guard(root: Path) -> Iterator[None]:
    """Nobody begins to use an entry within the block. Raises ``OSError`` where the store cannot be written."""
    folder = root / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "uses.lock"):
        yield


def in_use(root: Path) -> frozenset[str]:
    """The entries that running processes use. Files of processes that are gone are removed; call it under
    :func:`guard`.
    """
    names: set[str] = set()
    for held in sorted((root / _FOLDER).glob(f"*{_LOCK}")):
        path, lock = held.with_suffix(""), FileLock(held, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            with contextlib.suppress(OSError):
                names.update(path.read_text(encoding="utf-8").split())
            continue
        except OSError:
            continue
        lock.release()
        _remove(path)
        _remove(held)
    return frozenset(names)
