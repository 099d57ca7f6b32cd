"""What was seen of files and directories, so that it can be told later that nothing changed, without reading them.

A file is as it was while its inode, size and times are: the time of change (``ctime``) of an inode is set by the kernel
and by nobody else. That holds only for times that are past: a file that is written twice within one tick of the clock
may show the same time for both. So what was young when it was looked at is known by its content as well, and compared
by that until it has been seen again at a safe distance. git calls such files racily clean (gitformat-index(5)).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_builder.files import open_to_hash, parse_json, write_text

YOUNG_NS = 2_000_000_000
"""Within this of the moment of looking, times prove nothing: FAT counts two seconds, old file systems one."""

_DAY = 86400.0
_FORMAT = 1
"""Changes whenever what is kept could be misread."""


def stamp(status: os.stat_result) -> list[int]:
    """What changes whenever an inode does."""
    return [status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def changed_at(shown: list[int]) -> int:
    """When an inode with that stamp changed last. The kernel says so by ``ctime``. The time of contents can be set to
    anything, so it counts only where it is past: some file systems have no other.
    """
    return max(shown[4], shown[3] if shown[3] <= time.time_ns() else 0)


def unused_for(used: float) -> float:
    """For how many seconds something was not used that shows ``used`` as the time when it was (seconds since the
    epoch). A time that is more than a day ahead was written before the clock was set back and says nothing: infinity,
    or else it would count as just used until that day.
    """
    age = time.time() - used
    return math.inf if age < -_DAY else max(age, 0.0)


def _digest(path: str) -> str:
    with open_to_hash(Path(path)) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_names(names: Iterable[str], passed_over: Collection[str]) -> str:
    counted = sorted(os.fsencode(name) for name in names if name not in passed_over)
    return hashlib.sha256(b"\0".join(counted)).hexdigest()


def _names(path: str, passed_over: Collection[str]) -> str:
    return _digest_of_names(os.listdir(path), passed_over)  # noqa: PTH208


def stamp_of(path: str) -> list[int] | None:
    """:func:`stamp` of what is there, links followed; ``None`` where there is nothing."""
    try:
        return stamp(os.stat(path))  # noqa: PTH116  (there may be thousands)
    except OSError:
        return None


@dataclass
class Sighting:
    """What is seen, while something is made of it that began at ``since`` (nanoseconds of the clock).

    ``files`` maps paths to their stamp and, for young ones, to the SHA-256 of their content; ``folders`` to the stamp
    and, where only names count, to a digest of these and to the names that do not count; ``links`` to where they point.
    What does not exist is ``None``. ``disturbed`` is something that changed since: what was made of it may rest on what
    was there before.
    """

    since: int = field(default_factory=time.time_ns)
    files: dict[str, list[Any] | None] = field(default_factory=dict)
    folders: dict[str, list[Any] | None] = field(default_factory=dict)
    links: dict[str, str | None] = field(default_factory=dict)
    disturbed: str | None = None

    def file(self, path: Path | str, *, own: bool = False) -> None:
        """Look at a file, or at its absence. ``own`` are those that the maker itself may have written."""
        self._file(str(path), stamp_of(str(path)), own=own)

    def read(self, path: str, shown: list[int], sha256: str) -> None:
        """Note a file whose content, with that digest, was read when it had the stamp ``shown``."""
        self.files[path] = [shown, sha256 if changed_at(shown) >= self.since - YOUNG_NS else None]

    def _file(self, path: str, shown: list[int] | None, *, own: bool) -> None:
        if path in self.files:
            return
        if shown is None or stat.S_ISDIR(shown[0]):
            # That something is a directory is all that matters here.
            self.files[path] = None if shown is None else [shown[:2], None]
            return
        young = changed_at(shown) >= self.since - YOUNG_NS
        if not own and changed_at(shown) >= self.since:
            self.disturbed = path
        self.files[path] = [shown, _digest(path) if young else None]

    def folder(self, path: Path | str, *, own: bool = False) -> None:
        """Look at a directory, or at its absence. Whatever was added, renamed or removed in it counts, under the same
        name also: a program may have taken the place of another.
        """
        text = str(path)
        shown = stamp_of(text)
        if shown is None or not stat.S_ISDIR(shown[0]):
            self.folders[text] = None
            return
        if not own and not self._is_old(shown):
            self.disturbed = text
        self.folders[text] = [shown, None, [], True]

    def names(self, path: Path | str, passed_over: Collection[str] = ()) -> tuple[str, ...]:
        """Look at the names in a directory, but for those ``passed_over``, or at its absence."""
        shown = stamp_of(str(path))
        if shown is None or not stat.S_ISDIR(shown[0]):
            self.folders[str(path)] = None
            return ()
        found = tuple(name for name in os.listdir(path) if name not in passed_over)  # noqa: PTH208
        self.listed(path, shown, found, passed_over)
        return found

    def below(self, path: Path | str, passed_over: Collection[str] = ()) -> None:
        """Look at everything in a directory that the maker itself wrote."""
        for name in self.names(path, passed_over):
            place = f"{path}/{name}"
            if os.path.isdir(place):  # noqa: PTH112
                self.below(place, passed_over)
            else:
                self.file(place, own=True)

    def listed(self, path: Path | str, shown: list[int], names: Iterable[str], passed_over: Collection[str]) -> None:
        """Note a directory whose ``names`` were read when it had the stamp ``shown``. Only names count, but for those
        ``passed_over``.
        """
        digest = _digest_of_names(names, passed_over)
        self.folders[str(path)] = [shown, digest, sorted(passed_over), self._is_old(shown)]

    def link(self, path: Path | str) -> None:
        """Look at where a link points."""
        self.links[str(path)] = _target(str(path))

    def _is_old(self, shown: list[int]) -> bool:
        return changed_at(shown) < self.since - YOUNG_NS

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, which :func:`look_again` takes."""
        return {"files": self.files, "folders": self.folders, "links": self.links}


def _target(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return None


@dataclass(frozen=True, kw_only=True)
class SecondLook:
    """``changed`` is the first path that is not as it was; ``None``: everything is. Then ``newer``, if set, is the
    sighting with what is known by now, to be kept in its place: the next look is cheaper.
    """

    changed: str | None
    newer: Mapping[str, Any] | None = None


def look_again(seen: Mapping[str, Any]) -> SecondLook:
    """Whether everything is as the sighting ``seen`` has it. Raises ``KeyError``, ``TypeError``, ``ValueError`` or
    ``IndexError`` for what is not one.
    """
    now = time.time_ns()
    files, folders = dict(seen["files"]), dict(seen["folders"])
    for path, target in seen["links"].items():
        if _target(path) != target:
            return SecondLook(changed=path)
    for looked_at, look in ((files, _file_now), (folders, _folder_now)):
        for path, entry in looked_at.items():
            found = look(path, entry, now)
            if found is _CHANGED:
                return SecondLook(changed=path)
            looked_at[path] = found
    is_news = files != seen["files"] or folders != seen["folders"]
    newer = {**seen, "files": files, "folders": folders} if is_news else None
    return SecondLook(changed=None, newer=newer)


_CHANGED: list[Any] = []


def _file_now(path: str, entry: list[Any] | None, now: int) -> list[Any] | None:
    shown = stamp_of(path)
    if shown is None or entry is None:
        return None if shown is entry else _CHANGED
    before, sha256 = entry
    if shown[: len(before)] != before:
        return _CHANGED
    if sha256 is None:
        return entry
    if _digest_or_nothing(path) != sha256:
        return _CHANGED
    return [before, None] if changed_at(shown) < now - YOUNG_NS else entry


def _folder_now(path: str, entry: list[Any] | None, now: int) -> list[Any] | None:
    shown = stamp_of(path)
    if shown is not None and not stat.S_ISDIR(shown[0]):
        shown = None
    if shown is None or entry is None:
        return None if shown is entry else _CHANGED
    before, names, passed_over, is_old = entry
    if shown == before and is_old:
        return entry
    if names is None:
        return _CHANGED
    try:
        if _names(path, passed_over) != names:
            return _CHANGED
    except OSError:
        return _CHANGED
    return [shown, names, passed_over, changed_at(shown) < now - YOUNG_NS]


def _digest_or_nothing(path: str) -> str | None:
    try:
        return _digest(path)
    except OSError:
        return None


_FLEETING = frozenset({"_", "SHLVL", "OLDPWD", "COLUMNS", "LINES", "PYTEST_CURRENT_TEST"})
"""Variables that differ from one command line to the next."""


def environment_digest(environ: Mapping[str, str]) -> str:
    """A digest over the variables ``environ``, as far as anything can rest on them. Their values, which may be secret,
    cannot be read from it.
    """
    lines = sorted(f"{name}={value}" for name, value in environ.items() if name not in _FLEETING)
    return hashlib.sha256("\0".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Recalled:
    """Something that was kept, and what it rests on."""

    value: Any
    seen: Mapping[str, Any]


class Memory:
    """Answers in ``folder``, each with what it rests on: it holds while that is as it was seen. The ``most`` that were
    used last are kept.
    """

    def __init__(self, folder: Path, *, most: int = 64) -> None:
        self._folder = folder
        self._most = most

    def recall(self, question: Sequence[object]) -> Recalled | None:
        """What was kept for ``question`` (anything that JSON can hold), if it still holds."""
        file = self._file(question)
        try:
            kept = parse_json(file.read_text(encoding="utf-8"))
            look = look_again(kept["seen"])
            if kept["question"] != self._digest(question) or look.changed is not None:
                return None
            if look.newer is not None:
                self._write(file, {**kept, "seen": look.newer})
            with suppress(OSError):
                file.touch()
            return Recalled(value=kept["value"], seen=look.newer or kept["seen"])
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            return None

    def keep(self, question: Sequence[object], value: object, seen: Mapping[str, Any]) -> None:
        """Keep ``value``, which JSON can hold. It saves time only: a folder that cannot be written is no failure."""
        self._write(self._file(question), {"question": self._digest(question), "seen": seen, "value": value})
        with suppress(OSError):
            files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
            for file in files[: -self._most]:
                file.unlink(missing_ok=True)

    def _write(self, file: Path, document: Mapping[str, Any]) -> None:
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(document), durable=False)

    def _file(self, question: Sequence[object]) -> Path:
        return self._folder / f"{self._digest(question)[:24]}.json"

    def _digest(self, question: Sequence[object]) -> str:
        return hashlib.sha256(json.dumps([_FORMAT, *question]).encode("utf-8", "surrogateescape")).hexdigest()
