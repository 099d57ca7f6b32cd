"""The work directory: made by builds of this machine, held by one of them at a time, and the generated files in it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from kernel_builder.actions.model import Action, seen
from kernel_builder.errors import MachineError
from kernel_builder.events import Notice, Reporter, Waiting
from kernel_builder.files import write_text

_KEY = "builds.key"
"""A secret in the store: whoever sends a project cannot know it."""
_MARK = "made-by"
_LOCK = "lock"
EPOCH = "SOURCE_DATE_EPOCH"
"""The variable with the time that compilers take for now: https://reproducible-builds.org/specs/source-date-epoch/"""


def claim(work: Path, store: Path, reporter: Reporter) -> None:
    """See that builds on this machine put there whatever is in ``work``: objects, and records of what was checked and
    loaded, are used again. What came with a project is removed. ``store`` keeps what tells the two apart.

    Raises :class:`MachineError` when it cannot be removed, or when ``work`` is a link to files of others.
    """
    mark = _mark_of(work, store)
    if mark is None or not os.access(work, os.W_OK | os.X_OK) or _read(work / _MARK) == mark:
        return
    try:
        found = [path for path in work.iterdir() if path.name != _LOCK]
        if found and work.is_symlink():
            raise MachineError(
                f"{work} is a link to {work.resolve()}, which has files that no build on this machine made",
                hint="remove the link",
            )
        if found:
            message = f"{work} was not created by builds on this machine, so its contents are not used"
            reporter.emit(Notice(message=message, warning=True))
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        write_text(work / _MARK, mark)
    except OSError as error:
        raise MachineError(f"cannot clear {work}: {error.strerror}", hint="delete it") from error


def _mark_of(work: Path, store: Path) -> str | None:
    """What is in a work directory of this machine at that place; ``None`` where the store cannot keep a secret."""
    file = store / _KEY
    try:
        if not file.exists():
            store.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600, exist_ok=False)
            file.write_text(secrets.token_hex(32), encoding="ascii")
    except FileExistsError:
        pass  # another build was faster
    except OSError:
        return None
    key = _read(file)
    place = os.fsencode(os.path.realpath(work))
    return hmac.new(key.encode(), place, hashlib.sha256).hexdigest() if key else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


@contextmanager
def exclusive(work: Path, store: Path, reporter: Reporter) -> Iterator[None]:
    """Hold the work directory: two builds of one project take turns. ``store`` is that of :func:`claim`.

    Raises :class:`MachineError`.
    """
    _prepare(work, store)
    lock = FileLock(work / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        reporter.emit(Waiting(reason=f"another build of this project holds {work / _LOCK}"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _prepare(work: Path, store: Path) -> None:
    try:
        work.mkdir(parents=True, exist_ok=True)
        mark = _mark_of(work, store)
        if mark is not None and _read(work / _MARK) != mark:
            write_text(work / _MARK, mark)
        ignore = work / ".gitignore"
        if not ignore.exists():
            ignore.write_text("# Made by kernel-builder; safe to delete.\n*\n", encoding="utf-8")
    except OSError as error:
        raise MachineError(f"cannot write {work}: {error.strerror}") from error


def write_generated(files: Iterable[tuple[Path, str]]) -> None:
    """Write ``(path, content)`` pairs, each only if its content differs, so that nothing is compiled for nothing."""
    for path, content in files:
        try:
            if path.read_text(encoding="utf-8") == content:
                continue
        except (FileNotFoundError, UnicodeDecodeError):
            pass
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, content)


def environment_for(environ: Mapping[str, str], allowed: Iterable[str]) -> dict[str, str]:
    """The variables of ``environ`` that ``allowed`` names, and what every action gets: messages in plain English, and a
    fixed time for ``__DATE__`` and ``__TIME__``, which would make every build differ.
    """
    return {**seen(environ, allowed), "LC_ALL": "C.UTF-8", "TERM": "dumb", EPOCH: environ.get(EPOCH, "0")}


def environment_of(action: Action, environ: Mapping[str, str], threads: int) -> dict[str, str]:
    """What ``action`` sees of ``environ`` where it runs with so many ``threads``."""
    environment = environment_for(environ, action.environment)
    if action.sees("PYTHONPATH"):
        # Checks run this very package, wherever it is, and not from here.
        given = [str(Path(part).absolute()) for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), *given])
    if action.threads is not None and threads > 1:
        environment[action.threads.variable] = action.threads.value.format(count=threads)
    return environment
