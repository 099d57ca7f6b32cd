"""Headers that are not where compilers look for them: those of a library that a section does not depend on, and those
that are nowhere.
"""

from __future__ import annotations

import os
import posixpath
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from kernel_builder.config.backends import Backend
from kernel_builder.config.checks import COMPILED_SUFFIXES, Located, plain_path
from kernel_builder.config.known import dependencies
from kernel_builder.config.model import Framework
from kernel_builder.config.tables import TextEntry
from kernel_builder.toml.nodes import quoted
from kernel_builder.toml.report import Report
from kernel_builder.walking import walk

_TABLE = Path(__file__).parent.parent / "data" / "headers.toml"
_SYSTEM = ("/usr/include", "/usr/local/include", "/usr/include/*-linux-gnu*", "/usr/lib/gcc/*/*/include")
"""Where headers of this machine are, as compilers on Linux have it. Nothing is started to ask them."""
_FORCED = re.compile(r"(?:--?(?:pre-)?include|--?imacros)[= ]?(?P<path>[^\s=-].*)")
_FOLLOWED = frozenset({"-include", "--include", "--pre-include", "-imacros", "--imacros"})
_MOST_FOUND = 3
_TO_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Windows has no pipes among files, and changes what it reads as text."""
_LARGEST = 4 << 20
_COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(
    rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|endif|include)\b[ \t]*(?:[<\"]([^>\"\n]+)[>\"])?", re.MULTILINE
)


def unconditional_includes(text: bytes) -> Iterator[tuple[int, str]]:
    """Line and name of each header that ``text`` includes whatever is defined."""
    text = _COMMENT.sub(lambda match: b"\n" * match[0].count(b"\n"), text)
    depth = 0
    for match in _DIRECTIVE.finditer(text):
        word, name = match[1], match[2]
        if word == b"endif":
            depth = max(0, depth - 1)
        elif word != b"include":
            depth += 1
        elif not depth and name is not None:
            yield text.count(b"\n", 0, match.start()) + 1, name.decode("utf-8", "replace")


def missing_libraries(sections: Sequence[Located], framework: Framework | None, root: Path, report: Report) -> None:
    """Notice, once for a section, sources that cannot be compiled without a library that it does not depend on.

    Includes that depend on what is defined are not judged, nor those of headers.
    """
    known = dependencies()
    beginnings = tuple(beginning.encode() for beginning in known.provides)
    depends: dict[tuple[Backend, str], set[str]] = {}  # a file in several sections is compiled with what all have
    for placed in sections:
        for source in placed.section.src:
            depends.setdefault((placed.section.backend, plain_path(source)), set()).update(placed.section.depends)
    own = (framework.directory,) if framework is not None else ()
    for placed in sections:
        backend = placed.section.backend
        names = {name for beginning in known.provides for name in known.bringing(beginning, backend)}
        if not placed.known or not names or names & {*placed.section.depends}:
            continue
        for source in placed.section.src:
            if os.path.splitext(source)[1] not in COMPILED_SUFFIXES:  # noqa: PTH122  (there may be thousands)
                continue
            text = _read(os.path.join(root, source))  # noqa: PTH118
            if not any(beginning in text for beginning in beginnings):
                continue
            folders = (str(PurePosixPath(source).parent), *placed.section.include, "csrc", *own)
            if _judge(placed, source, text, [root / folder for folder in folders], depends, report):
                break


def _judge(
    placed: Located,
    source: str,
    text: bytes,
    folders: Sequence[Path],
    depends: dict[tuple[Backend, str], set[str]],
    report: Report,
) -> bool:
    """Whether something is missing for ``source``; it is noticed."""
    backend = placed.section.backend
    for line, header in unconditional_includes(text):
        names = dependencies().bringing(header, backend)
        if not names or depends[backend, plain_path(source)] & set(names):
            continue
        if any((folder / header).is_file() for folder in folders):
            continue
        report.error(
            (*placed.reader.path, "depends"),
            f"line {line} of {quoted(source)} includes {header}, but this section depends on no library that has it",
            hint=what_to_add(names),
        )
        return True
    return False


def what_to_add(names: Sequence[str]) -> str:
    """What to write in ``depends`` for one of the libraries ``names``, oldest first."""
    others = f" (or an older release: {', '.join(names[:-1])})" if len(names) > 1 else ""
    return f"add \"{names[-1]}\" to 'depends'{others}"


def _read(file: str) -> bytes:
    """The beginning of a file; nothing of what cannot be read, which has been noticed. Never waits for a pipe."""
    try:
        descriptor = os.open(file, _TO_READ)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(descriptor, _LARGEST)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


# --- headers that are nowhere ---


class _Outside(NamedTuple):
    directories: frozenset[str]
    names: re.Pattern[str]
    partly: re.Pattern[str]


@cache
def _outside() -> _Outside:
    data = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return _Outside(frozenset(data["directories"]), re.compile(data["names"]), re.compile(data["partly"]))


def comes_with_compilers(path: str) -> bool:
    """Whether ``path``, as a source includes it, may be a header of compilers, torch, toolkits, or of this machine."""
    table = _outside()
    first, separator, _ = path.partition("/")
    if separator:
        if first in table.directories or table.partly.fullmatch(path) is not None:
            return True
    elif "." not in path or table.names.fullmatch(path) is not None:
        return True
    return any((folder / path).is_file() for folder in _system_folders())


@cache
def _system_folders() -> tuple[Path, ...]:
    return tuple(found for pattern in _SYSTEM for found in sorted(Path("/").glob(pattern.removeprefix("/"))))


def is_included(root: Path, folders: Iterable[str], path: str) -> bool:
    """Whether an include of ``path`` finds a file in one of the ``folders`` of the project, or may be from outside."""
    return any((root / folder / path).is_file() for folder in folders) or comes_with_compilers(path)


def where_instead(root: Path, path: str) -> str:
    """What to do about ``path``, which no compiler would find from where it is included."""
    files = walk(root, skip=[root / "build", root / ".kernel-builder"]).files
    plain = posixpath.normpath(path)
    while plain.startswith("../"):
        plain = plain[3:]
    found = [file.removesuffix(plain).rstrip("/") or "." for file in files if f"/{file}".endswith(f"/{plain}")]
    if found and not path.startswith(".."):
        places = " or ".join("the project's top" if folder == "." else folder for folder in found[:_MOST_FOUND])
        shown = " or ".join(f'include = ["{folder}"]' for folder in found[:_MOST_FOUND])
        return f"it is in {places}; add that directory to the section: {shown}"
    name = posixpath.basename(plain)
    same = [file for file in files if posixpath.basename(file) == name]
    if same:
        shown = " or ".join(same[:_MOST_FOUND])
        return f"is it {shown}? Write its path from the source, or list its directory in 'include'"
    near = get_close_matches(name, {posixpath.basename(file) for file in files}, n=1, cutoff=0.8)
    if near:
        return f"did you mean {next(file for file in files if posixpath.basename(file) == near[0])}?"
    return "add the file to the project; headers of other libraries must be copied into it"


class Flagged(NamedTuple):
    """A list of flags, and the directories of headers of the table that it is in."""

    flags: Sequence[TextEntry]
    include: Sequence[str]


def missing_forced(lists: Iterable[Flagged], framework: Framework | None, root: Path, report: Report) -> None:
    """Notice ``-include FILE`` in flags where no compiler would find the file: it looks in the directories of headers,
    not in the one that ``build.toml`` is in.
    """
    own = (framework.directory,) if framework is not None else ()
    for flags, include in lists:
        for entry, path in _forced(flags):
            if path.startswith("/") or is_included(root, ("csrc", *own, *include), path):
                continue
            report.error(
                entry.path,
                f"{quoted(path)} is in no directory of headers, so no compiler finds it",
                hint=where_instead(root, path),
            )


def _forced(entries: Sequence[TextEntry]) -> Iterator[tuple[TextEntry, str]]:
    """Each file that flags include before the source, and the word that names it."""
    waits = False
    for entry in entries:
        if waits:
            yield entry, entry.text
        match = None if waits or entry.text in _FOLLOWED else _FORCED.fullmatch(entry.text)
        if match is not None:
            yield entry, match["path"]
        waits = not waits and entry.text in _FOLLOWED
