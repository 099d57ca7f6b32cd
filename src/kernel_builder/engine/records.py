"""What is known of earlier runs of each action: what it read and made, how long it took, and how much memory it used.

A run appends a line for each action that ends, so that what ended before a run was cut off counts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.actions.model import Action
from kernel_builder.engine.contents import Contents, blob_digest
from kernel_builder.files import parse_json, write_text
from kernel_builder.plan.model import BuildPlan

_FILE = "actions.jsonl"


@dataclass(frozen=True, kw_only=True)
class Record:
    """An action that ran well.

    ``digest`` is that of :func:`digest_of`; ``reads`` and ``makes`` are digests of files by path. ``seconds`` and
    ``memory`` (bytes at its peak) are those of the time that it really ran. ``fell_back`` says why its fallback ran.
    """

    digest: str
    reads: Mapping[str, str]
    makes: Mapping[str, str]
    seconds: float
    memory: int
    fell_back: str | None = None


class Records:
    """The records of a work directory, by the ids of actions. Safe for concurrent threads."""

    def __init__(self, work: Path) -> None:
        self._file = work / _FILE
        self._lock = threading.Lock()
        self._known: dict[str, Record] = {}
        self._lines = 0
        try:
            lines = self._file.read_bytes().split(b"\n")
        except OSError:
            lines = []
        for line in filter(None, lines):
            self._lines += 1
            try:
                name, entry = parse_json(line)
                self._known[name] = Record(**entry)
            except (ValueError, TypeError):
                continue

    def __getitem__(self, name: str) -> Record | None:
        return self._known.get(name)

    def items(self) -> Iterable[tuple[str, Record]]:
        """All of them."""
        return self._known.items()

    def add(self, name: str, record: Record) -> None:
        """Keep what became of an action."""
        line = json.dumps([name, vars(record)], separators=(",", ":")) + "\n"
        with self._lock:
            self._known[name] = record
            self._lines += 1
            with self._file.open("a", encoding="utf-8") as file:
                file.write(line)

    def compact(self) -> None:
        """Write each action once, when there are many lines of old runs."""
        if self._lines > 2 * len(self._known) + 20:
            entries = (json.dumps([name, vars(one)], separators=(",", ":")) for name, one in self._known.items())
            write_text(self._file, "".join(f"{entry}\n" for entry in entries))


def headers(depfile: Path) -> tuple[str, ...]:
    """The files that a depfile names, in its order, as they stand there; nothing when it is not there.

    Make's syntax: words are separated by blanks and continued lines; a backslash keeps a blank or ``#``, and a dollar
    sign is written twice.
    """
    try:
        text = depfile.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ()
    _, _, listed = text.replace("\\\n", " ").replace("\\ ", "\0").partition(": ")
    return tuple(
        word.replace("\0", " ").replace("\\#", "#").replace("\\:", ":").replace("$$", "$") for word in listed.split()
    )


def digest_of(plan: BuildPlan, action: Action) -> str:
    """A digest over what ``action`` is: its commands, and the identity of what it runs and reads."""
    places = plan.places
    facts = [
        [list(step.command) for step in (*action.steps, *action.fallback)],
        action.identity,
        [str(tool.path) for tool in action.tools],
        [str(tree.root) for tree in action.trees],
        [str(places.root), str(places.work), str(places.store)],
        action.outputs,
    ]
    return blob_digest(json.dumps(facts).encode("utf-8", "surrogateescape"))


def is_current(plan: BuildPlan, action: Action, record: Record | None, contents: Contents) -> bool:
    """Whether nothing that decides ``action`` has changed since ``record``, and all that it made is there."""
    return (
        record is not None
        and record.digest == digest_of(plan, action)
        and all(contents.digest(path) == digest for path, digest in record.makes.items())
        and all(contents.digest(path) == digest for path, digest in record.reads.items())
    )


def needs_of(actions: Sequence[Action]) -> dict[str, set[str]]:
    """The actions that must have ended before each, all by their ids."""
    makers = {word: action.id for action in actions for word in action.makes}
    return {action.id: {makers[word] for word in action.takes if word in makers} for action in actions}


def find_outdated(plan: BuildPlan, records: Records, contents: Contents) -> frozenset[str]:
    """The ids of the actions of ``plan`` that may have to run; fewer will where some make what they made before."""
    needs = needs_of(plan.actions)
    found: set[str] = set()
    for action in plan.actions:
        if needs[action.id] & found or not is_current(plan, action, records[action.id], contents):
            found.add(action.id)
    return frozenset(found)


def outdated(plan: BuildPlan) -> frozenset[str]:
    """:func:`find_outdated` before a build, which will write the generated files."""
    contents = open_contents(plan)
    for file in plan.generated:
        contents.assume(str(plan.places.path(file.path)), file.content)
    return find_outdated(plan, Records(plan.places.work), contents)


def open_contents(plan: BuildPlan) -> Contents:
    """The digests of files that earlier builds in the work directory read."""
    return Contents.load(plan.places.work / "contents.json")
