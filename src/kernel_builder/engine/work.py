"""The work directory: held by one build at a time, and the generated files in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from kernel_builder.errors import MachineError
from kernel_builder.events import Reporter, Waiting
from kernel_builder.files import write_text


@contextmanager
def exclusive(work: Path, reporter: Reporter) -> Iterator[None]:
    """Hold the work directory: two builds of one project take turns. Raises :class:`MachineError`."""
    _prepare(work)
    lock = FileLock(work / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        reporter.emit(Waiting(reason=f"another build of this project holds {work / 'lock'}"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _prepare(work: Path) -> None:
    try:
        work.mkdir(parents=True, exist_ok=True)
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
    """The variables of ``environ`` that ``allowed`` names (a ``*`` at the end stands for the rest of a name), and what
    every action gets: messages in plain English, and a fixed time for ``__DATE__`` and ``__TIME__``, which would make
    every build differ.
    """
    names = tuple(allowed)
    exact = frozenset(name for name in names if not name.endswith("*"))
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    kept = {name: value for name, value in environ.items() if name in exact or name.startswith(prefixes)}
    epoch = environ.get("SOURCE_DATE_EPOCH", "0")
    return {**kept, "LC_ALL": "C.UTF-8", "TERM": "dumb", "SOURCE_DATE_EPOCH": epoch}
