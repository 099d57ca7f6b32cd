"""Trees of files as compilers see them: links are followed while they stay inside, and named where they lead out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj", ".bzr", "CVS"})
"""Directories in which programs for version control keep what they know, passwords of servers among it."""

BYTECODE = "__pycache__"
"""The directory that Python writes beside modules when they are imported."""

_NEVER = VERSION_CONTROL | {BYTECODE}
_MARKERS = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")
"""What only a Python environment or a cache has directly in it."""
_ASIDE = frozenset({"build", "node_modules", "_cmake_build"})
_MOST_HOPS = 40
"""As Linux has it (path_resolution(7))."""


class Link(NamedTuple):
    """A link that leads out of the tree: where it is, relative to the root, and where it points to, as written."""

    path: str
    target: str


class Looked(NamedTuple):
    """What was seen of a directory: its status just before it was read, and the names in it."""

    status: os.stat_result
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Walked:
    """What is in a tree, by POSIX paths relative to its root, all sorted.

    ``files`` are regular files and links to such; ``aside`` those in hidden directories and in what other programs
    build, where nobody keeps sources. ``links`` maps links to directories of the tree to these; ``leaving`` are the
    links that lead out. Links to nowhere are not there at all. ``folders`` are the directories that were looked into.
    """

    files: tuple[str, ...]
    aside: tuple[str, ...]
    links: Mapping[str, str]
    leaving: tuple[Link, ...]
    folders: Mapping[str, Looked] = field(default_factory=dict, repr=False)


def is_inside(real: str, real_root: str) -> bool:
    """Whether one resolved path is another one or below it. Files of a snapshot in the Hub's cache are all links into
    its store, which counts as inside.
    """
    if real == real_root or real.startswith(real_root.rstrip(os.sep) + os.sep):
        return True
    root, file = Path(real_root), Path(real)
    return any(parent.name == "snapshots" and file.parent == parent.parent / "blobs" for parent in root.parents)


def leads_out(link: str, real_root: str) -> bool:
    """Whether ``link``, whose directory is resolved and inside ``real_root``, leads out of it, be it on its way back.

    A link to nowhere leads to the place where the file would be.
    """
    place = link
    for _ in range(_MOST_HOPS):
        try:
            target = os.readlink(place)  # noqa: PTH115  (names may hold anything, and there may be many)
        except OSError:
            return False
        head, tail = os.path.split(target.rstrip("/") or "/")
        if tail in {"", ".", ".."}:
            head, tail = target, ""
        parent = os.path.realpath(os.path.join(os.path.dirname(place), head))  # noqa: PTH118, PTH120
        place = os.path.join(parent, tail) if tail else parent  # noqa: PTH118
        if not is_inside(place, real_root):
            return True
    return False


def leaving_link(root: Path, path: str) -> Link | None:
    """The first link on the way to ``path`` (relative to ``root``) that leads out of ``root``; ``None`` for none."""
    real_root = os.path.realpath(root)
    place = real_root
    for part in path.split("/"):
        step = os.path.join(place, part)  # noqa: PTH118
        if os.path.islink(step) and leads_out(step, real_root):  # noqa: PTH114
            return Link(os.path.relpath(step, real_root), os.readlink(step))  # noqa: PTH115
        place = os.path.realpath(step)
    return None


def is_of_other_programs(directory: str) -> bool:
    """Whether a directory holds what programs keep for themselves: version control, bytecode, environments, caches."""
    return os.path.basename(directory) in _NEVER or any(  # noqa: PTH119
        os.path.lexists(os.path.join(directory, marker))  # noqa: PTH118
        for marker in _MARKERS
    )


class _Walk:
    def __init__(self, root: Path, skip: Iterable[Path]) -> None:
        self.root = os.path.realpath(root)
        self.skip = {os.path.realpath(path) for path in skip}
        self.files: list[str] = []
        self.aside: list[str] = []
        self.links: dict[str, str] = {}
        self.leaving: list[Link] = []
        self.folders: dict[str, Looked] = {}
        self._seen: set[str] = set()

    def run(self, starts: Iterable[str]) -> Walked:
        for start in starts:
            self._below(start, aside=False)
        # What a link leads to counts, also where nobody looks otherwise; but a link to the top does not mean all of it.
        for _ in range(_MOST_HOPS):
            others = sorted(target for target in self.links.values() if target and target not in self._seen)
            if not others:
                break
            for target in others:
                self._below(target, aside=False)
        return Walked(
            files=tuple(sorted(self.files)),
            aside=tuple(sorted(self.aside)),
            links=dict(sorted(self.links.items())),
            leaving=tuple(sorted(self.leaving)),
            folders=self.folders,
        )

    def _below(self, start: str, *, aside: bool) -> None:
        pending = [(start, aside)]
        while pending:
            directory, is_aside = pending.pop()
            if directory in self._seen:
                continue
            self._seen.add(directory)
            place = os.path.join(self.root, directory)  # noqa: PTH118
            try:
                status = os.stat(place)  # noqa: PTH116
                with os.scandir(place) as entries:
                    found = list(entries)
            except OSError:  # compilers cannot look into it either
                continue
            self.folders[directory] = Looked(status, tuple(entry.name for entry in found))
            for entry in found:
                path = f"{directory}/{entry.name}" if directory else entry.name
                if entry.is_symlink():
                    self._link(entry.path, path, aside=is_aside)
                elif entry.is_dir():
                    if entry.path not in self.skip and not is_of_other_programs(entry.path):
                        pending.append((path, is_aside or entry.name.startswith(".") or entry.name in _ASIDE))
                elif entry.is_file():
                    (self.aside if is_aside else self.files).append(path)

    def _link(self, place: str, path: str, *, aside: bool) -> None:
        if leads_out(place, self.root):
            self.leaving.append(Link(path, os.readlink(place)))  # noqa: PTH115
        elif os.path.isfile(place):  # noqa: PTH113
            (self.aside if aside else self.files).append(path)
        elif os.path.isdir(place):  # noqa: PTH112
            self.links[path] = relative_to(os.path.realpath(place), self.root)


def relative_to(real: str, real_root: str) -> str:
    """The path of one resolved path relative to another, with slashes on every system; empty when they are the same. On
    Windows, what is on another drive has none, and stays as it is.
    """
    if real == real_root:
        return ""
    try:
        found = os.path.relpath(real, real_root)
    except ValueError:
        found = real
    return found.replace(os.sep, "/")


def walk(root: Path, *, starts: Iterable[str] = ("",), skip: Iterable[Path] = ()) -> Walked:
    """Everything below the directories ``starts`` of ``root``, but nothing in ``skip`` or of other programs."""
    return _Walk(root, skip).run(starts)
