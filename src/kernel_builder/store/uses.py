"""Which entries of the store running processes use, so that cleaning up leaves them alone.

A process keeps a file with the names of its entries, and a lock on it; the kernel releases the lock when the process
ends, however it ends. Names are added, and entries are taken away, while one common lock is held: so between the look
at who uses an entry and its removal, nobody begins to use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

_FOLDER = "uses"


class Uses:
    """What this process uses of the store at ``root``; nothing once this object is gone."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: set[str] = set()
        self._file: int | None = None
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
                os.write(self._file, f"{name}\n".encode())
            self._names.add(name)

    @property
    def names(self) -> frozenset[str]:
        """What is in use."""
        with self._lock:
            return frozenset(self._names)

    def _open(self) -> int:
        folder = self._root / _FOLDER
        folder.mkdir(exist_ok=True)
        path = folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._close = weakref.finalize(self, _close, file, path)
        return file

    def release(self) -> None:
        """Nothing is in use from now on."""
        with self._lock:
            self._close()
            self._file = None
            self._names.clear()


def _close(file: int, path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
    with contextlib.suppress(OSError):
        os.close(file)


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
    for path in sorted((root / _FOLDER).glob("*")):
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            names.update(path.read_text(encoding="utf-8").split())
        else:
            path.unlink(missing_ok=True)
        finally:
            os.close(file)
    return frozenset(names)
