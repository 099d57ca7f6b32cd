"""What is known of earlier runs of each action: what it read and made, how long it took, and how much memory it used.

A run appends a line for each action that ends, so that what ended before a run was cut off counts.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.actions.model import DECIDING_VARIABLES, Action
from kernel_builder.engine.cache import cost_of, texts_of
from kernel_builder.engine.contents import Contents, blob_digest
from kernel_builder.engine.work import EPOCH, environment_for
from kernel_builder.files import parse_json, write_text
from kernel_builder.plan.model import BuildPlan
from kernel_builder.seen import stamp_of

_FILE = "actions.jsonl"
_FORMAT = 2  # raise where actions leave something else than they did
_WORD = re.compile(r"(?:\\+[ \t#]|\S)+")
_ESCAPED = re.compile(r"(\\*)\\([ \t#])")
_NOTED = "\n# system headers: "
_SANDBOX = "in a sandbox"
TIME_OF = "time of "
"""Before the name of a file that was read: not what is in it, but when that was written. ``__TIMESTAMP__`` says so."""


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
            data = self._file.read_bytes()
        except OSError:
            data = b""
        # What a killed build wrote last may be half a line.
        self._is_cut = bool(data) and not data.endswith(b"\n")
        for line in filter(None, data.split(b"\n")):
            self._lines += 1
            with suppress(ValueError):
                name, record = _read_line(line)
                self._known[name] = record

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
                file.write(f"\n{line}" if self._is_cut else line)
            self._is_cut = False

    def compact(self) -> None:
        """Write each action once, when there are many lines of old runs."""
        if self._lines > 2 * len(self._known) + 20:
            entries = (json.dumps([name, vars(one)], separators=(",", ":")) for name, one in self._known.items())
            write_text(self._file, "".join(f"{entry}\n" for entry in entries))


def _read_line(line: bytes) -> tuple[str, Record]:
    """A line of :class:`Records`. Raises ``ValueError`` for one that is damaged, or of another version."""
    entry = parse_json(line)
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
        raise ValueError("no record")
    name, value = entry
    reads, makes = texts_of(value, "reads"), texts_of(value, "makes")
    return name, Record(digest=str(value.get("digest")), reads=reads, makes=makes, **cost_of(value))


def headers(depfile: Path) -> tuple[str, ...]:
    """The files that a depfile names, in its order, as they stand there; nothing when it is not there.

    Make's syntax: words are separated by blanks and continued lines; a backslash keeps a blank or ``#``, and those
    before it are written twice, as a dollar sign is.
    """
    _, _, listed = _parts_of(depfile)[0].replace("\\\n", " ").partition(": ")
    return tuple(map(_unescaped, _WORD.findall(listed)))


def system_headers(depfile: Path) -> tuple[str, ...]:
    """The headers of the compiler and the C library that :func:`keep_in_depfile` noted; none without a depfile."""
    return tuple(map(_unescaped, _WORD.findall(_parts_of(depfile)[1])))


def _parts_of(depfile: Path) -> tuple[str, str]:
    """What a depfile says to make, and the comment behind it."""
    try:
        text = depfile.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return "", ""
    rule, _, noted = text.partition(_NOTED)
    return rule, noted


def _unescaped(word: str) -> str:
    plain = _ESCAPED.sub(lambda match: match[1][: len(match[1]) // 2] + match[2], word)
    return plain.replace("\\:", ":").replace("$$", "$")


def keep_in_depfile(depfile: Path, wanted: Callable[[str], bool], noted: Iterable[str] = ()) -> None:
    """Take the files that are not ``wanted`` out of a depfile, and note others behind it. Raises ``OSError``."""
    text = depfile.read_text(encoding="utf-8", errors="surrogateescape")
    target, colon, listed = text.replace("\\\n", " ").partition(": ")
    if not colon:
        return
    kept = [word for word in _WORD.findall(listed) if wanted(_unescaped(word))]
    lines = " \\\n ".join(kept)
    names = [escaped(os.fsencode(path)).decode("utf-8", "surrogateescape") for path in noted]
    behind = f"{_NOTED}{' '.join(names)}\n" if names else "\n"
    depfile.write_text(f"{target}: {lines}{behind}", encoding="utf-8", errors="surrogateescape")


def needs_of(actions: Sequence[Action]) -> dict[str, set[str]]:
    """The actions that must have ended before each, all by their ids."""
    makers = {word: action.id for action in actions for word in action.makes}
    return {action.id: {makers[word] for word in action.takes if word in makers} for action in actions}


def escaped(path: bytes) -> bytes:
    """A path as compilers write it into a depfile."""
    return re.sub(rb"(\\*)([ \t#])", rb"\1\1\\\2", path).replace(b"$", b"$$")


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What actions run under: their plan, the ``contents`` of files as they are, the user's variables, and whether they
    are ``sandboxed``: what was made outside does not count for what is.
    """

    plan: BuildPlan
    contents: Contents
    environ: Mapping[str, str]
    sandboxed: bool = False

    def deciding(self, action: Action) -> dict[str, str]:
        """The variables that ``action`` sees and that decide what it makes, and the sandbox, if it is in one."""
        return {
            name: value
            for name, value in sorted(environment_for(self.environ, action.environment).items())
            if name == EPOCH or name.startswith(DECIDING_VARIABLES)
        } | ({_SANDBOX: "bubblewrap"} if self.sandboxed else {})

    def digest_of(self, action: Action) -> str:
        """A digest over what ``action`` is: its commands, and the identity of what it runs and reads."""
        places = self.plan.places
        facts = [
            _FORMAT,
            [list(step.command) for step in (*action.steps, *action.fallback)],
            action.identity,
            [str(tool.path) for tool in action.tools],
            [str(tree.root) for tree in action.trees],
            [str(places.root), str(places.work), str(places.store)],
            action.outputs,
            self.deciding(action),
        ]
        return blob_digest(json.dumps(facts).encode("utf-8", "surrogateescape"))

    def now(self, name: str) -> str | None:
        """The digest of something that an action read, as it is: of a file, or of the time of one (:data:`TIME_OF`);
        ``None`` where it is gone.
        """
        if not name.startswith(TIME_OF):
            return self.contents.digest(name)
        shown = stamp_of(name.removeprefix(TIME_OF))
        return None if shown is None else str(shown[3] // 10**9)

    def is_current(self, action: Action, record: Record | None) -> bool:
        """Whether nothing that decides ``action`` has changed since ``record``, and all that it made is there."""
        return (
            record is not None
            and record.digest == self.digest_of(action)
            and all(self.now(path) == digest for path, digest in (*record.makes.items(), *record.reads.items()))
        )

    def outdated(self, records: Records) -> frozenset[str]:
        """The ids of the actions that may have to run; fewer will where some make what they made before."""
        needs = needs_of(self.plan.actions)
        found: set[str] = set()
        for action in self.plan.actions:
            if needs[action.id] & found or not self.is_current(action, records[action.id]):
                found.add(action.id)
        return frozenset(found)


def outdated(plan: BuildPlan, environ: Mapping[str, str]) -> frozenset[str]:
    """:meth:`Conditions.outdated` before a build, which will write the generated files."""
    contents = open_contents(plan)
    for file in plan.generated:
        contents.assume(str(plan.places.path(file.path)), file.content)
    return Conditions(plan=plan, contents=contents, environ=environ).outdated(Records(plan.places.work))


def open_contents(plan: BuildPlan) -> Contents:
    """The digests of files that earlier builds in the work directory read."""
    return Contents.load(plan.places.work / "contents.json")
