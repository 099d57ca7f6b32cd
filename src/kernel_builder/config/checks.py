"""Checks that look at more than one key of ``build.toml``, or at the tree that it describes."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from kernel_builder.config.backends import Backend, Role
from kernel_builder.config.known import dependencies
from kernel_builder.config.model import Framework, Section
from kernel_builder.config.tables import TableReader, TextEntry
from kernel_builder.portable import unportable
from kernel_builder.toml.nodes import in_words, printable, quoted
from kernel_builder.toml.report import Report
from kernel_builder.toml.scan import Where
from kernel_builder.versions import Version
from kernel_builder.walking import Link, is_inside, leaving_link, relative_to, walk

_CXX = {".cpp", ".cc", ".cxx", ".c", ".mm", ".m"}
_DEVICE = {suffix for backend in Backend for suffix in backend.sources}
COMPILED_SUFFIXES = frozenset(_CXX | _DEVICE)
"""Of the files that some compiler is started for; others are headers."""


def plain_path(text: str) -> str:
    """``text`` without ``.``, ``..``, doubled and trailing slashes; a quick answer for the usual path."""
    if "/." in text or "//" in text or text.startswith(".") or text.endswith("/"):
        return posixpath.normpath(text)
    return text


class Located(NamedTuple):
    """A section with the reader of its table. Unless ``known``, its backend is missing or wrong."""

    section: Section
    known: bool
    reader: TableReader

    def path_of(self, source: str) -> Where:
        """Where a source is listed in the file; the last mention, when there are several."""
        entries = self.reader.texts("src") or ()
        return next((entry.path for entry in reversed(entries) if entry.text == source), self.reader.path)


def listed_twice(entries: Sequence[TextEntry], report: Report) -> None:
    """Warn, once for a list, of paths that it has more than once; they count once."""
    if len(entries) == len({plain_path(entry.text) for entry in entries}):
        return
    seen: set[str] = set()
    again: dict[str, TextEntry] = {}
    for entry in entries:
        plain = plain_path(entry.text)
        if plain in seen:
            again.setdefault(plain, entry)
        seen.add(plain)
    shown = ", ".join(quoted(plain) for plain in list(again)[:3])
    more = f" and {len(again) - 3} more" if len(again) > 3 else ""
    report.warning(
        next(iter(again.values())).path,
        f"{shown}{more} {'is' if len(again) == 1 else 'are'} listed twice",
        hint="remove the duplicates",
    )


def shared_sources(sections: Sequence[Located], report: Report) -> None:
    """Warn of a source that two sections of one backend list with different flags: it is built once, with
    all.
    """
    owners: dict[tuple[Backend, str], Located] = {}
    for placed in sections:
        if not placed.known:
            continue
        for source in placed.section.src:
            plain = plain_path(source)
            first = owners.setdefault((placed.section.backend, plain), placed)
            if first is placed:
                continue
            ours, theirs = _flags(placed.section, plain), _flags(first.section, plain)
            if ours is None or theirs is None or set(ours) == set(theirs):
                continue
            only = [
                f"{flag!r} ({owner})"
                for owner, flags, others in (
                    (first.section.id, theirs, ours),
                    (placed.section.id, ours, theirs),
                )
                for flag in dict.fromkeys(flags)
                if flag not in others
            ]
            report.warning(
                placed.path_of(source),
                f"{quoted(source)} is also in section '{first.section.id}', with different flags; it is built "
                f"once, with the "
                f"flags of both: {', '.join(only[:6])}{', ...' if len(only) > 6 else ''}",
                hint="use the same flags in both sections, or give each its own copy of the source",
            )


def _flags(section: Section, source: str) -> tuple[str, ...] | None:
    """The flags that a section compiles this source with; ``None`` for one that is not compiled."""
    suffix = PurePosixPath(source).suffix
    if suffix in _DEVICE:
        return section.flags if section.backend.sources else ()
    if suffix in _CXX:
        return section.cxx_flags if section.backend.sources else section.cxx_flags + section.flags
    return None


def uncompilable(
    sections: Sequence[Located], binding: Sequence[TextEntry], backends: Sequence[Backend], report: Report
) -> None:
    """Notice sources, of sections or of the ``binding``, in a language that their backend has no compiler for."""
    compiled = {placed.section.backend for placed in sections if placed.known} & set(backends)
    for placed in sections:
        if placed.known:
            entries = placed.reader.texts("src") or ()
            for entry in entries:
                _tell_language(entry, {placed.section.backend}, report)
    for entry in binding:
        _tell_language(entry, compiled, report)


def _tell_language(entry: TextEntry, backends: set[Backend], report: Report) -> None:
    suffix = os.path.splitext(entry.text)[1]  # noqa: PTH122  (there may be thousands)
    owners = [other for other in Backend if other.has_module and suffix in other.sources]
    wrong = [backend.value for backend in backends if backend.has_module and suffix not in backend.sources]
    if owners and wrong:
        report.error(
            entry.path,
            f"{quoted(entry.text)} is a {owners[0].label} source, which kernels for {in_words(sorted(wrong))}"
            " cannot compile",
            hint=f"list it in a kernel section for {owners[0].value}",
        )


def two_releases(sections: Sequence[Located], report: Report) -> None:
    """Notice a source whose sections depend on two releases of one library. Both have the same header names and the
    same C++ names, so one file can be compiled with one of them only.
    """
    library = dependencies().library
    first: dict[tuple[Backend, str, str], tuple[str, str]] = {}
    for placed in sections:
        section = placed.section
        for source in section.src if placed.known else ():
            if PurePosixPath(source).suffix not in COMPILED_SUFFIXES:
                continue
            for name in section.depends:
                key = (section.backend, plain_path(source), library.get(name, name))
                other, owner = first.setdefault(key, (name, section.id))
                if other != name:
                    owners = dict.fromkeys((f"[kernel.{owner}]", f"[kernel.{section.id}]"))
                    report.error(
                        placed.path_of(source),
                        f"{quoted(plain_path(source))} is in {in_words(owners)}, which depend on {other} and"
                        f" {name}: a file is compiled once, with one release of a library",
                        hint="depend on one of them, or give each section its own copy of the source",
                    )


def section_backends(sections: Sequence[Located], backends: tuple[Backend, ...], report: Report) -> None:
    """Notice sections for backends that the kernel does not claim to support."""
    for placed in sections:
        backend = placed.section.backend
        if backend not in backends:
            listed = ", ".join(f'"{name.value}"' for name in (*backends, backend))
            report.error(
                (*placed.reader.path, "backend"),
                f"'{backend.value}' is not in general.backends, so this section would never be built",
                hint=f"set backends = [{listed}] in [general], or remove the section",
            )


def no_sections(sections: Sequence[Located], report: Report) -> None:
    """Notice kernel sections beside ``[torch-noarch]``."""
    for placed in sections:
        report.error(
            placed.reader.path,
            "kernel sections are for compiled code, but [torch-noarch] declares that there is none",
            hint="use [torch] instead of [torch-noarch], or remove the section",
            at_key=True,
        )


def backends_without_sections(
    sections: Sequence[Located], backends: tuple[Backend, ...], bindings: Sequence[str], path: Where, report: Report
) -> None:
    """Warn of backends that get Python code alone while others have compiled code, or while there are ``bindings``,
    which nothing compiles then: often a forgotten section.
    """
    present = {placed.section.backend for placed in sections}
    missing = [backend for backend in backends if backend not in present]
    if (present or bindings) and missing:
        one = len(missing) == 1
        report.warning(
            path,
            f"there is no kernel section for {in_words(backend.value for backend in missing)}, so "
            f"{'its variant has' if one else 'their variants have'} only Python code",
        )


def never_built(sections: Sequence[Located], backend: Backend, maxver: Version, report: Report) -> None:
    """Warn of sections of ``backend`` whose oldest toolkit no allowed one reaches."""
    key = backend.key(Role.MINVER)
    for placed in sections:
        minver = placed.section.toolkit_minver
        if key is not None and placed.section.backend is backend and minver and not minver.is_at_most(maxver):
            report.warning(
                (*placed.reader.path, key.name),
                f"this section is never built: general.{backend}.maxver allows no {backend.label} newer than {maxver}",
            )


class _Expected(NamedTuple):
    text: str
    path: Where
    directory: bool


LEADS_OUT_HINT = "copy its target into the project: kernels are built only from their own directory"


def leads_out_message(link: Link) -> str:
    """What is said of a link out of the project."""
    return f"'{printable(link.path)}' is a link that leads out of the project, to '{printable(link.target)}'"


class _Directory(NamedTuple):
    """The plain files in a directory, and whether it really is somewhere else."""

    files: frozenset[str]
    leads_out: bool


@dataclass
class ProjectTree:
    """The files and directories that a ``build.toml`` speaks of, looked at in one pass."""

    report: Report
    root: Path
    _expected: list[_Expected] = field(default_factory=list)
    _directories: dict[str, _Directory] = field(default_factory=dict)
    _package: str | None = None
    _told: set[str] = field(default_factory=set)

    def add(self, text: str, path: Where, *, directory: bool) -> None:
        """Expect a file (or a ``directory``) at ``text``, relative to the root. Its form is judged at
        once.
        """
        if "\\" in text:
            self.report.error(path, f"{quoted(text)} contains a backslash", hint="write paths with '/'")
        elif text.startswith("/") or (len(text) > 1 and text[1] == ":"):
            self.report.error(path, f"{quoted(text)} is an absolute path", hint="write it relative to the project")
        elif plain_path(text).split("/", 1)[0] == "..":
            self.report.error(
                path,
                f"{quoted(text)} is outside the project",
                hint="move or copy it into the project: kernels are built only from their own directory",
            )
        else:
            self._expected.append(_Expected(text, path, directory))

    def judge(self) -> None:
        """Notice what is missing, of the wrong kind, or a link that leads out of the project."""
        for expected in self._expected:
            self._judge(expected)
        self._judge_links()

    def _judge_links(self) -> None:
        """Notice links out of the project wherever compilers look for files, and in the package."""
        named = (self._package, "csrc")
        asked = {
            expected.text if expected.directory else expected.text.rpartition("/")[0] for expected in self._expected
        }
        # Of the project's top, where anything can be, only what a source includes counts: that is seen later.
        places = [
            place for place in dict.fromkeys(plain_path(text or ".") for text in (*named, *asked)) if place != "."
        ]
        found: list[Link] = []
        starts: list[str] = []
        for place in ("build.toml", *places):
            link = leaving_link(self.root, place)
            if link is not None:
                found.append(link)
            elif place in places:
                starts.append(relative_to(os.path.realpath(self.root / place), str(self.root)))
        walked = walk(self.root, starts=starts)
        found += walked.leaving
        for link in sorted(set(found)):
            self._tell_leaving(link, ())
        self._judge_names(walked.files)

    def _judge_names(self, files: Sequence[str]) -> None:
        """Warn of what a checkout or a user's cache on another system cannot have."""
        listed = {plain_path(expected.text): expected.path for expected in self._expected}
        listed.pop(".", None)
        there = [path for path in listed if os.path.lexists(os.path.join(self.root, path))]  # noqa: PTH118
        for path, why in unportable([*there, *(path for path in files if path not in listed)]):
            self.report.warning(
                listed.get(path, ()),
                f"'{printable(path)}' cannot be stored on every system: {why}",
                hint="rename it",
            )

    def _tell_leaving(self, link: Link, path: Where) -> None:
        if link.path not in self._told:
            self._told.add(link.path)
            self.report.error(path, leads_out_message(link), hint=LEADS_OUT_HINT)

    def _judge(self, expected: _Expected) -> None:
        parent, _, name = expected.text.rpartition("/")
        directory = self._directories.get(parent)
        if directory is None:
            directory = self._directories[parent] = self._directory(parent)
        if not expected.directory and name in directory.files and not directory.leads_out:
            return
        # Not a plain file of the project: a directory, a link, or nothing. These are few, and cost a look
        # each.
        where = os.path.join(self.root, expected.text)  # noqa: PTH118
        link = leaving_link(self.root, plain_path(expected.text))
        if link is not None:
            self._tell_leaving(link, expected.path)
            return
        try:
            mode = os.stat(where).st_mode  # noqa: PTH116
        except (OSError, ValueError):
            kind = "directory" if expected.directory else "file"
            self.report.error(
                expected.path, f"{kind} {quoted(expected.text)} does not exist", hint=self._hint(expected)
            )
            return
        self._judge_kind(expected, mode)

    def _judge_kind(self, expected: _Expected, mode: int) -> None:
        if expected.directory and not stat.S_ISDIR(mode):
            message, hint = "is not a directory", "use the directory that contains it"
        elif not expected.directory and not stat.S_ISREG(mode):
            message = "is a directory" if stat.S_ISDIR(mode) else "is not a regular file"
            hint = "list each source file by name"
        else:
            return
        self.report.error(expected.path, f"{quoted(expected.text)} {message}", hint=hint)

    def _directory(self, parent: str) -> _Directory:
        where = os.path.join(self.root, parent)  # noqa: PTH118
        try:
            with os.scandir(where) as entries:
                files = frozenset(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        except (OSError, ValueError):
            files = frozenset()
        return _Directory(files, self._leads_out(where))

    def _leads_out(self, where: str) -> bool:
        """Whether the real place of ``where`` is outside of the root."""
        return not is_inside(os.path.realpath(where), str(self.root))

    def _hint(self, expected: _Expected) -> str | None:
        """A file of that name elsewhere nearby, or another spelling of it."""
        if "*" in expected.text:
            return "patterns are not expanded: list each file by name"
        pure = PurePosixPath(expected.text)
        parent = self.root / pure.parent
        try:
            names = sorted(entry.name for entry in parent.iterdir() if entry.is_dir() == expected.directory)
        except (OSError, ValueError):
            return f"directory {quoted(str(pure.parent))} does not exist"
        near = self.report.near(pure.name, names)
        if near is not None:
            return f"did you mean {quoted(str(pure.parent / near))}?"
        return "paths are relative to the directory of build.toml"

    def package(self, path: Where, name: str, framework: Framework) -> None:
        """Notice a missing Python package, and one that would be shadowed (interoperability contract
        3.7.3).
        """
        python_name = name.replace("-", "_")
        package = self.root / framework.directory / python_name
        self._package = framework.directory
        shown = f"{framework.directory}/{python_name}"
        if (package / python_name).is_dir():
            self.report.error(
                path,
                f"{shown}/{python_name} is not allowed: the build creates a directory there for older clients",
                hint="rename the inner directory",
            )
        if (package / "__init__.py").is_file():
            return
        if package.is_dir():
            self.report.error(path, f"{shown}/__init__.py is missing", hint="add it: users of the kernel import it")
            return
        dashed = self.root / framework.directory / name
        if name != python_name and dashed.is_dir():
            hint = f"rename {framework.directory}/{name} to {shown}: Python cannot import names with dashes"
        else:
            hint = f"the Python code of the kernel '{name}' is expected there"
            other = self.root / ("torch-ext" if framework.directory == "tvm-ffi-ext" else "tvm-ffi-ext") / python_name
            if other.is_dir():
                hint = f"move {other.relative_to(self.root).as_posix()} there"
        self.report.error(path, f"the Python package {shown}/__init__.py is missing", hint=hint)
