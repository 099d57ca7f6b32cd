"""Where nothing changed there is nothing to do: what a build came to is kept, with all that it rests on.

What is asked for again, while files, programs, settings and variables are as they were, is answered from that: nothing
is planned, fetched or started, and little is imported.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_builder import __version__
from kernel_builder.events import Event, Notice, Reporter
from kernel_builder.project.tree import WORK_DIRECTORY
from kernel_builder.seen import Memory, environment_digest
from kernel_builder.toolchain.identity import tree_identity
from kernel_builder.workflow.outcome import BuildOutcome
from kernel_builder.workflow.run import Run

if TYPE_CHECKING:
    from kernel_builder.workflow.build import BuildRequest

_FOLDER = "records"
_MOST = 8
"""How many requests are remembered: all variants, the one for this machine, a few of a kind."""
_NO_FACTS = ("environ", "store", "reporter")
_PACKAGE = Path(__file__).parents[1]


KnownTree = tuple[tuple[str, ...], tuple[str, ...], str]
"""Files, folders, and the identity of both together."""


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What an outcome rests on: a sighting, as JSON; ``trees`` of many files; ``entries`` of the
    store, which must be there; and a time, in seconds, after which sources are asked again.
    """

    seen: Mapping[str, Any]
    trees: tuple[KnownTree, ...] = ()
    entries: tuple[str, ...] = ()
    until: float | None = None


class Noting:
    """A reporter that passes everything on, and keeps what people are told whenever they ask for the same."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self.notices: list[Notice] = []

    def emit(self, event: Event, /) -> None:
        """See :class:`~kernel_builder.events.Reporter`."""
        if isinstance(event, Notice) and not event.once:
            self.notices.append(event)
        self._reporter.emit(event)


def recall(request: BuildRequest, run: Run) -> BuildOutcome | None:
    """What ``request`` came to before, if nothing that it rests on changed since; what people were told is told again.

    The work directory must have been claimed: nobody else may have written what is kept in it.
    """
    recalled = _memory(request).recall(_question(request, run))
    if recalled is None:
        return None
    value = recalled.value
    try:
        if value["until"] is not None and not 0 <= value["until"] - time.time() <= value["within"]:
            return None
        if not all(map(os.path.isdir, value["entries"])):
            return None
        if any(tree_identity(files, folders) != identity for files, folders, identity in _trees(value)):
            return None
        outcome = BuildOutcome.unchanged(value["outcome"])
        notices = [
            Notice(message=str(message), warning=bool(warning), publishing=bool(publishing))
            for message, warning, publishing in value["notices"]
        ]
    except (KeyError, TypeError, ValueError):
        return None
    for notice in notices:
        run.reporter.emit(notice)
    return outcome


def _trees(value: Mapping[str, Any]) -> Iterator[tuple[list[Path], list[Path], str]]:
    for files, folders, identity in value["trees"]:
        yield [Path(file) for file in files], [Path(folder) for folder in folders], str(identity)


def keep(
    request: BuildRequest, run: Run, outcome: BuildOutcome, notices: Sequence[Notice], basis: Basis | None
) -> None:
    """Keep ``outcome`` for :func:`recall`, if it is complete and it is known what it rests on."""
    if basis is None or not outcome.ok:
        return
    value = {
        "outcome": outcome.to_json(),
        "notices": [[notice.message, notice.warning, notice.publishing] for notice in notices],
        "trees": basis.trees,
        "entries": basis.entries,
        "until": basis.until,
        "within": 0.0 if basis.until is None else basis.until - time.time(),
    }
    _memory(request).keep(_question(request, run), value, basis.seen)


def _memory(request: BuildRequest) -> Memory:
    return Memory(request.root.resolve() / WORK_DIRECTORY / _FOLDER, most=_MOST)


def _question(request: BuildRequest, run: Run) -> tuple[object, ...]:
    """All that tells this build from another one, but for what is on disk."""
    wanted = {one.name: repr(getattr(request, one.name)) for one in fields(request)}
    asked = {one.name: repr(getattr(run, one.name)) for one in fields(run) if one.name not in _NO_FACTS}
    system, user = platform.uname(), getattr(os, "geteuid", None)  # Windows has none
    machine = (system.system, system.release, system.machine, user() if user else None)
    python = (sys.executable, sys.version, sys.prefix)
    variables = environment_digest(run.environ)
    return (__version__, _own_code(), wanted, asked, str(run.store.root), variables, machine, python)


def _own_code() -> str:
    """This package as it is installed, for whoever works on it."""
    return tree_identity(_own_files(_PACKAGE), ())


def _own_files(folder: Path) -> Iterable[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == "__pycache__":
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _own_files(Path(entry.path))
            else:
                yield Path(entry.path)
