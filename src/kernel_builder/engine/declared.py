"""What a compile read is held against what it may read: the project, what it is compiled with, and the C library.

A header from anywhere else makes a build of this machine alone: the kernel's name does not change with it, another
machine does not have it, or has another one. So it fails the compile, and people are told where it is included.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, cached_property
from pathlib import Path

from kernel_builder.actions.model import Action
from kernel_builder.actions.places import Places
from kernel_builder.engine.records import headers, keep_in_depfile
from kernel_builder.toolchain.c_library import SITE, behind_links, is_of_c_library

_NAME = r'(?:(?P<kind>[<"])(?P<name>[^>"]+)[>"]|(?P<macro>[A-Za-z_]\w*))'
"""The name of a header, or the macro that stands for it."""
_INCLUDE = re.compile(rf"[ \t]*(?:#|%:)[ \t]*(?:include|include_next|import|embed)[ \t]*{_NAME}")
_ASKED = re.compile(rf"__has_(?:include|include_next|embed)\s*\(\s*{_NAME}")
_MACRO = re.compile(rf"[ \t]*(?:#|%:)[ \t]*define[ \t]+(?P<of>[A-Za-z_]\w*)[ \t]+{_NAME}")
_GIVEN_MACRO = re.compile(rf"-D(?P<of>[A-Za-z_]\w*)={_NAME}")
_CONDITION = re.compile(r"[ \t]*(?:#|%:)[ \t]*(?:if|elif|define)\b")
_ASSEMBLED = re.compile(r'\.(?:incbin|include)[ \t]+\\*"([^"\\\n]+)')
"""What the assembler reads, of which no list of headers tells."""
_ASSEMBLES = re.compile(r"\.(?:incbin|include)\b(?!\s*\()")
_BETWEEN_LITERALS = re.compile(r'(?<!\\)"\s*"')
_FORCED = re.compile(r"-(?:include|imacros)(.+)")
_FOLDER_FLAG = re.compile(r"(?:-Xcompiler=)?-(?:I|isystem|iquote|idirafter)=?(.+)")
_FOLDER_FLAGS = ("-I", "-isystem", "-iquote", "-idirafter")
_SYSTEM = Path("/usr")
_SHOWN = 10


class Whose(Enum):
    """Whose a file is that a compile read."""

    PROJECT = auto()
    MADE = auto()
    """Of the work directory."""
    INSTALLED = auto()
    """Of what it is compiled with, in the store or in trees, which an identity names."""
    SYSTEM = auto()
    """The compiler's own, or the C library's, of this machine."""
    NOBODY = auto()
    """Nothing in the project, and nothing that the build chose, says that it is read."""


_INSTALLED = (Whose.INSTALLED, Whose.SYSTEM)


class Declared:
    """What one action may read. Links are followed: into the project, and out of it.

    Of directories with system headers, it is what the C library, the kernel and the compiler have there. A compiler
    that nobody asked where its headers are may read all of ``/usr``.
    """

    def __init__(self, action: Action, places: Places) -> None:
        whole = [places.store]
        whole += [folder for tree in action.trees for folder in (*tree.folders, *([tree.root] if tree.root else []))]
        own = [folder for tool in action.tools for folder in tool.headers if not folder.is_relative_to(places.store)]
        # A stdio.h in there is nobody's, whatever it is called.
        shared = [folder for tool in action.tools for folder in tool.shared if folder != SITE]
        known = any(tool.headers or tool.shared for tool in action.tools)
        self._work, self._project = _prefixes((places.work,)), _prefixes((places.root,))
        self._whole, self._system = _prefixes(whole), _prefixes(own if known else [*own, _SYSTEM])
        self._shared = _prefixes(shared)

    def whose(self, path: str) -> Whose:
        """Whose the file at ``path``, which is absolute, is."""
        plain = os.path.normpath(path)
        found = self._of(plain)
        if found in _INSTALLED:
            return found
        # A link in the project may lead out of it, and one out of it into it.
        real = os.path.realpath(path)
        behind = found if real == plain else self._of(real)
        return found if found is Whose.MADE and behind is Whose.PROJECT else behind

    def _of(self, path: str) -> Whose:
        found, longest = Whose.NOBODY, 0
        # The innermost directory counts: the store, and what a kernel is compiled with, may lie in the project.
        for whose, prefixes in (
            (Whose.PROJECT, self._project),
            (Whose.SYSTEM, self._system),
            (Whose.INSTALLED, self._whole),
            (Whose.MADE, self._work),
        ):
            length = _depth(path, prefixes)
            if length > longest:
                found, longest = whose, length
        for prefix in self._shared:
            if len(prefix) > longest and path.startswith(prefix) and is_of_c_library(path[len(prefix) :]):
                return Whose.SYSTEM
        # Asked last: it reads directories.
        if found is Whose.NOBODY and any(path in behind_links(prefix) for prefix in self._shared):
            return Whose.SYSTEM
        return found


def _prefixes(folders: Iterable[Path]) -> tuple[str, ...]:
    names = {name for folder in folders for name in (os.path.normpath(folder), os.path.realpath(folder))}
    return tuple(sorted(f"{name.rstrip(os.sep)}{os.sep}" for name in names))


def _depth(path: str, prefixes: Iterable[str]) -> int:
    return max((len(prefix) for prefix in prefixes if path.startswith(prefix)), default=0)


@dataclass(frozen=True, order=True)
class _Place:
    """Where a file is named: a line (0: not known) of a file, or an option."""

    file: str
    line: int = 0


Preprocess = Callable[[], AbstractContextManager[Path | None]]
"""Gives a file with the preprocessed source of an action, if its compiler makes one."""


def undeclared(action: Action, places: Places, preprocess: Preprocess, *, sandboxed: bool = False) -> tuple[str, ...]:
    """What people are told of files that ``action``, which ran, read or asked for, and that are nobody's; empty where
    all is well. ``preprocess`` is called where only the preprocessor knows what the assembler reads.

    In a sandbox, whatever is asked for is not there. What is installed is taken out of the list of headers: it is known
    by the identity of compilers and trees. Which of the compiler's and the C library's headers were read is noted.
    """
    if action.depfile is None:
        return ()
    declared, depfile = Declared(action, places), places.path(action.depfile, action)
    listed = {path: os.path.join(places.work, path) for path in headers(depfile)}  # noqa: PTH118
    whose = {path: declared.whose(full) for path, full in listed.items()}
    own = [full for path, full in listed.items() if whose[path] in (Whose.PROJECT, Whose.MADE)]
    nobodys = dict.fromkeys(os.path.normpath(full) for path, full in listed.items() if whose[path] is Whose.NOBODY)
    search = _Search(action, places, declared, own)
    asked = {} if nobodys or sandboxed else search.asked_for
    assembled = search.assembled() or ({} if sandboxed else search.assembled_by_macros(preprocess))
    if nobodys or asked or assembled:
        return tuple(_told(search, tuple(nobodys), {"__has_include finds": asked, "the assembler reads": assembled}))
    system = {os.path.normpath(full) for path, full in listed.items() if whose[path] is Whose.SYSTEM}
    if any(of in _INSTALLED for of in whose.values()):
        keep_in_depfile(depfile, lambda path: whose.get(path) not in _INSTALLED, sorted(system))
    return ()


class _Search:
    """Where ``action`` looks for headers, and what in the project's ``files``, which it read, has it look."""

    def __init__(self, action: Action, places: Places, declared: Declared, files: Sequence[str]) -> None:
        self._declared, self._places, self.source, self._files = declared, places, action.source, files
        words = [word for step in (*action.steps, *action.fallback) for word in places.expanded(action, step.command)]
        told = [match[1] for word in words if (match := _FOLDER_FLAG.fullmatch(word)) is not None]
        pairs = itertools.pairwise(words)
        told += [value for option, value in pairs if option in _FOLDER_FLAGS]
        self._words = words
        # Compilers run in the work directory.
        self._folders = tuple(dict.fromkeys(os.path.normpath(places.work / folder) for folder in told))
        self._shared = tuple(str(folder) for tool in action.tools for folder in tool.shared)
        self._lines = cache(_lines)  # what is looked for differs, the files do not

    def shown(self, path: str) -> str:
        """A file of the project's as people name it."""
        for root in (self._places.root, self._places.root.resolve()):
            if Path(path).is_relative_to(root):
                return Path(path).relative_to(root).as_posix()
        return path

    def through(self, path: str) -> str | None:
        """The directory, which an option names, in which ``path`` was found."""
        found = [folder for folder in self._folders if path.startswith(f"{folder}/")]
        strange = [folder for folder in found if self._declared.whose(f"{folder}/x") is Whose.NOBODY]
        return max(strange, key=len, default=None)

    def includers(self, path: str) -> list[_Place]:
        """Where the files include ``path``, or what includes it without a line."""
        found, perhaps = [], []
        for file in self._files:
            for line, text in enumerate(self._lines(file), start=1):
                match = _INCLUDE.match(text)
                if match is None:
                    continue
                name = match["name"] or self._macros.get(match["macro"], ("", ""))[1]
                if name and _means(name, path, file):
                    found.append(_Place(file, line))
                elif not name:  # of a macro that takes arguments, or has other macros in it
                    perhaps.append(_Place(file, line))
        options = itertools.pairwise(self._words)
        found += [
            _Place(f"{option} {value}")
            for option, value in dict.fromkeys(options)
            if option in ("-include", "-imacros") and self._is(value, path)
        ]
        joined = (match for word in dict.fromkeys(self._words) if (match := _FORCED.fullmatch(word)) is not None)
        found += [_Place(match[0]) for match in joined if self._is(match[1], path)]
        return found or perhaps or self.asked_for.get(path, [])

    def _is(self, name: str, path: str) -> bool:
        """Whether an option that names a header means the one at ``path``."""
        return name == os.path.basename(path) or os.path.normpath(self._places.work / name) == path  # noqa: PTH119

    @cached_property
    def asked_for(self) -> dict[str, list[_Place]]:
        """The files of nobody's that ``__has_include`` in the files finds, which decide what is compiled."""
        found: dict[str, list[_Place]] = {}
        for file in self._files:
            for line, text in _whole_lines(self._lines(file)):
                if "__has_" not in text or not _CONDITION.match(text):
                    continue
                for match in _ASKED.finditer(text):
                    kind, name = match["kind"], match["name"]
                    if match["macro"]:
                        kind, name = self._macros.get(match["macro"], ("", ""))
                    path = self._found(name, file if kind == '"' else None) if name else None
                    if path is not None and self._declared.whose(path) is Whose.NOBODY:
                        found.setdefault(path, []).append(_Place(file, line))
        return found

    @cached_property
    def _macros(self) -> Mapping[str, tuple[str, str]]:
        """How names of headers begin, and what they are, by the macros that the files and options define for them."""
        texts = (text for file in self._files for text in self._lines(file) if "define" in text)
        matches = [*map(_MACRO.match, texts), *map(_GIVEN_MACRO.fullmatch, self._words)]
        told = {match["of"]: match for match in matches if match is not None}
        found = {}
        for name, first in told.items():
            match, passed = first, {name}
            while match["macro"] in told and match["macro"] not in passed:
                passed.add(match["macro"])
                match = told[match["macro"]]
            if match["name"]:
                found[name] = (match["kind"], match["name"])
        return found

    def assembled(self) -> dict[str, list[_Place]]:
        """The files of nobody's that assembly in the files has the assembler read, which runs in the work directory."""
        found: dict[str, list[_Place]] = {}
        for file in self._files:
            for line, text in enumerate(self._lines(file), start=1):
                said = ".inc" in text and not text.lstrip().startswith(("//", "*"))
                for name in _ASSEMBLED.findall(text) if said else ():
                    path = self._found(name, str(self._places.work / "x"))
                    if path is not None and self._declared.whose(path) is Whose.NOBODY:
                        found.setdefault(path, []).append(_Place(file, line))
        return found

    def assembled_by_macros(self, preprocess: Preprocess) -> dict[str, list[_Place]]:
        """As :meth:`assembled`, for names that are put together by macros, as the preprocessor has them."""
        saying = [
            _Place(file, line)
            for file in self._files
            for line, text in enumerate(self._lines(file), start=1)
            if ".inc" in text and _ASSEMBLES.search(text)
        ]
        if not saying:
            return {}
        with preprocess() as text:
            whole = "" if text is None else _BETWEEN_LITERALS.sub("", "\n".join(_lines(str(text))))
        found: dict[str, list[_Place]] = {}
        for name in dict.fromkeys(_ASSEMBLED.findall(whole)):
            path = self._found(name, str(self._places.work / "x"))
            if path is not None and self._declared.whose(path) is Whose.NOBODY:
                found[path] = saying[:1]
        return found

    def _found(self, name: str, includer: str | None) -> str | None:
        """The first file that is meant by ``name``; what is the compiler's own is not looked for."""
        beside = [os.path.dirname(includer)] if includer is not None else []  # noqa: PTH120
        for folder in (*beside, *self._folders, *self._shared):
            path = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118
            if os.path.isfile(path):  # noqa: PTH113
                return path
        return None


def _means(name: str, path: str, includer: str) -> bool:
    """Whether an include of ``name`` in ``includer`` may be one of ``path``."""
    plain = os.path.normpath(name)
    if plain.startswith(("/", "..")):
        beside = os.path.join(os.path.dirname(includer), name)  # noqa: PTH118, PTH120
        return path in (os.path.normpath(beside), os.path.realpath(beside)) or path.endswith(
            f"/{plain.removeprefix('../')}"
        )
    return path.endswith(f"/{plain}")


def _whole_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """``lines`` of a file as the preprocessor has them, continued ones in one, with the numbers of the first."""
    begun, text = 1, ""
    for number, line in enumerate(lines, start=1):
        begun = begun if text else number
        if line.endswith("\\"):
            text += f"{line[:-1]} "
            continue
        yield begun, text + line
        text = ""
    if text:
        yield begun, text


def _lines(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:  # noqa: PTH123
            return opened.read().splitlines()
    except OSError:
        return []


def _told(search: _Search, nobodys: Sequence[str], others: Mapping[str, dict[str, list[_Place]]]) -> Iterator[str]:
    """A line for each file and place, as compilers write them, and what to do. ``others`` are files that no include
    names, by what is done with them.
    """
    by_path = {path: search.includers(path) for path in nobodys}
    # What a file of nobody's includes in turn is named only where nothing else is.
    first = {path: places for path, places in by_path.items() if places} or {path: [_Place("")] for path in nobodys}
    lines = []
    for path, places in first.items():
        folder = search.through(path)
        found = f" (found in {folder}, which an option names)" if folder is not None else ""
        real = os.path.realpath(path)
        found += f" (which is {real})" if real != path else ""
        lines += [f"{_where(search, place)}: error: this includes {path}{found}" for place in places]
    for done, found_there in others.items():
        for path, places in found_there.items():
            lines += [f"{_where(search, place)}: error: {done} {path}" for place in places]
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"and {len(lines) - _SHOWN} more of this kind"
    more = len(nobodys) - len(first)
    if more > 0:
        yield f"and these include {more} more"
    where = "outside the project and its toolchain, so builds on other machines would differ"
    yield f"cause: {'it is' if len(first) + sum(map(len, others.values())) == 1 else 'they are'} {where}"
    yield (
        "remedy: copy it into the project, and name its directory in 'include' of the section in build.toml; or name a"
        " library that has it in 'depends'"
    )


def _where(search: _Search, place: _Place) -> str:
    if not place.file:
        return f"{search.source}:0"
    return f"{search.shown(place.file)}:{place.line}" if place.line else f"{search.source}:0 ({place.file})"
