"""What decides what a build makes: every file that is read or packed, and a digest over all of it.

The digest must be known before anything is compiled, because the op namespace holds it, and only compilers know for
certain what they read. So files are found by their names: what a source includes, embeds or mentions by name counts,
whatever its suffix and wherever it is, and so does what such a file names in turn. Too many files cost a name that
changes without need, too few a name that two different kernels share; where the compilers read a file that was not
found here, the check of the linked library says so, from their dependency files.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_builder.config.checks import LEADS_OUT_HINT, leads_out_message
from kernel_builder.config.model import Project
from kernel_builder.config.reader import FILE_NAME
from kernel_builder.errors import ConfigError, Diagnostic, Level
from kernel_builder.files import open_to_hash
from kernel_builder.project.tree import (
    HEADER_SUFFIXES,
    OUTPUT_DIRECTORY,
    SOURCE_SUFFIXES,
    WORK_DIRECTORY,
    package_files,
)
from kernel_builder.seen import Sighting, stamp
from kernel_builder.toml.document import decode
from kernel_builder.walking import BYTECODE, VERSION_CONTROL, Link, Walked, is_inside, leaving_link, relative_to, walk

SCHEME = "kernel-builder sources 3"
"""Changes whenever the same tree would get another digest, so that digests of two schemes are never compared."""

_DIRECTIVE = re.compile(
    rb'^[ \t]*(?:#|%:)[ \t]*(?:include|include_next|import|embed)[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)'
    rb'|\b__has_(?:include|include_next|embed)[ \t]*\([ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)',
    re.MULTILINE,
)
_COMPUTED = re.compile(rb"^[ \t]*(?:#|%:)[ \t]*(?:include|include_next|import|embed)[ \t]+[A-Za-z_]", re.MULTILINE)
_TEXT = re.compile(rb'//[^\n]*|/\*.*?\*/|"((?:[^"\\\n]|\\.)*)"|([\w.+~@%-]+)', re.DOTALL)
_WORD = re.compile(rb"[\w.+~@%-]+")
_UNLISTED = (b"incbin", b"INCBIN", b".include", b"system_header")
"""What makes a compiler read files that its dependency file does not list: the assembler's directives in ``asm``, and
headers that say that they are the system's.
"""
_LARGEST_TEXT = 32 << 20


@dataclass(frozen=True, kw_only=True)
class BuildInputs:
    """Files whose content decides what a build makes, as sorted POSIX paths relative to the project root.

    ``declared`` are ``build.toml``, declared sources and the package's installed files; ``named`` those that a source
    names. ``included`` are the ones that compilers may read. ``contents`` maps each to the SHA-256 of its content,
    behind links; of ``build.toml``, of what it says. ``links`` are those to directories of the project on the way to
    one of these, with the directory; ``behind`` says which of the files are links, and to which file. ``is_listed``
    says whether the compilers' dependency files will list all that they read. ``seen`` is what was looked at for it:
    while that is as it was, so are the inputs.
    """

    declared: tuple[str, ...]
    named: tuple[str, ...]
    included: tuple[str, ...]
    contents: Mapping[str, str] = field(repr=False)
    links: tuple[tuple[str, str], ...] = ()
    behind: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_listed: bool = True
    seen: Sighting = field(default_factory=Sighting, repr=False, compare=False)

    @property
    def all(self) -> tuple[str, ...]:
        """All files, sorted."""
        return tuple(sorted({*self.declared, *self.named}))

    @property
    def real(self) -> tuple[str, ...]:
        """All files by the paths of what is behind links, sorted."""
        return tuple(sorted({self.behind.get(path, path) for path in self.all}))

    @property
    def entries(self) -> dict[str, str]:
        """The digests of all files by path, and then where links lead: ``-> other``."""
        return {path: self.contents[path] for path in self.all} | {path: f"-> {to}" for path, to in self.links}

    @property
    def digest(self) -> str:
        """Hex SHA-256 over the names and contents of all files, and the links: the same wherever the project is."""
        digest = hashlib.sha256(f"{SCHEME}\n".encode())
        for path, content in self.entries.items():
            name = os.fsencode(path)
            digest.update(f"{len(name)} ".encode() + name + b" " + os.fsencode(content) + b"\n")
        return digest.hexdigest()


def build_inputs(project: Project, output: Path | None = None) -> BuildInputs:
    """The inputs of ``project``; ``output`` is where variants go, if it is not ``build``.

    Raises :class:`ConfigError` for links that lead out of the project and for names that are not UTF-8, ``OSError`` for
    a file that cannot be read.
    """
    package = project.package.relative_to(project.root).as_posix()
    sources = {source for section in project.sections for source in section.src} | set(project.framework.src)
    declared = {FILE_NAME, *sources, *(f"{package}/{path}" for path in package_files(project).kept)}
    search = _Search(project, output)
    search.run(posixpath.normpath(source) for source in sources)
    included = tuple(sorted(search.contents))
    everything = {posixpath.normpath(path) for path in declared}
    for path in everything:
        if path not in search.contents:
            data = search.read(path)
            if path == FILE_NAME:
                search.contents[path] = hashlib.sha256(_meaning(data)).hexdigest()
    real = {path: relative_to(os.path.realpath(project.root / path), str(project.root)) for path in search.contents}
    return BuildInputs(
        declared=tuple(sorted(everything)),
        named=tuple(sorted(search.contents.keys() - everything)),
        included=included,
        contents=search.contents,
        links=tuple(
            (path, to)
            for path, to in search.tree.links.items()
            if any(file.startswith(f"{to}/" if to else "") for file in real.values())
        ),
        behind={path: target for path, target in real.items() if target != path},
        is_listed=search.is_listed,
        seen=search.seen_with(real),
    )


def _meaning(data: bytes) -> bytes:
    """What a ``build.toml`` says, whatever comments it has and however it is laid out. Sections keep their order, which
    is the one that their objects are linked in; other keys have none.
    """
    text, undecodable = decode(data)
    try:
        says = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return data  # somebody is just writing it
    if undecodable:
        return data
    sections = says.get("kernel")
    order = list(sections) if isinstance(sections, dict) else []
    return json.dumps([says, order], sort_keys=True, default=repr).encode("utf-8", "surrogatepass")


def follow_links(project: Project) -> None:
    """Raise :class:`ConfigError` for links that sources are read through and that lead out of the project; a tree
    without any link is not read.
    """
    skipped = {OUTPUT_DIRECTORY, WORK_DIRECTORY, ".git"}
    for parent, directories, files in os.walk(project.root):
        directories[:] = [name for name in directories if name not in skipped]
        if any(os.path.islink(os.path.join(parent, name)) for name in (*directories, *files)):  # noqa: PTH114, PTH118
            build_inputs(project)
            return


def source_record(digest: str) -> dict[str, str]:
    """What metadata records of the sources, to be compared with them later."""
    return {"scheme": SCHEME, "sha256": digest}


def sources_of(project: Project, output: Path | None = None) -> dict[str, str] | None:
    """The record of ``project`` as it is now, whose variants are in ``output``; ``None`` when it cannot be made."""
    try:
        return source_record(build_inputs(project, output).digest)
    except (ConfigError, OSError):
        return None


class _Search:
    """Follows names from file to file, beginning with the sources and the flags of ``build.toml``."""

    def __init__(self, project: Project, output: Path | None) -> None:
        self.root = project.root
        self.seen = Sighting()
        skip = [project.root / OUTPUT_DIRECTORY, project.root / WORK_DIRECTORY, *([output] if output else [])]
        self.tree: Walked = walk(project.root, skip=skip)
        self.contents: dict[str, str] = {}
        self.is_listed = True
        self._skipped = tuple(skip)
        self._work = project.root / WORK_DIRECTORY
        self._folders = include_folders(project)
        self._flags = _flags(project)
        self._by_name: dict[bytes, list[str]] = {}
        for path in (*self.tree.files, *self.tree.aside):
            self._by_name.setdefault(os.fsencode(posixpath.basename(path)), []).append(path)
        self._odd_names = [name for name in self._by_name if _WORD.fullmatch(name) is None]
        self._pending: list[str] = []
        self._known: set[str] = set()
        self._leaving: set[Link] = set()
        self._takes_all = False
        self._real: dict[str, str] = {}
        self._elsewhere: dict[str, tuple[str, ...]] = {}

    def run(self, sources: Iterable[str]) -> None:
        """Find all files that compilers may read for ``sources``."""
        self._scan("", "\n".join(self._flags).encode("utf-8", "surrogateescape"))
        self._add(sources)
        while self._pending:
            path = self._pending.pop()
            self._scan(path, self.read(path))
        if self._leaving:
            self._refuse_leaving()

    def read(self, path: str) -> bytes:
        """The content of a file, which is noted as an input; nothing for one that is too large to be text."""
        data = b""
        with open_to_hash(self.root / path) as file:
            status = os.fstat(file.fileno())
            if status.st_size > _LARGEST_TEXT:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            else:
                data = file.read()
                digest = hashlib.sha256(data).hexdigest()
        self.contents[path] = digest
        self.seen.read(f"{self.root}/{path}", stamp(status), digest)
        return data

    def seen_with(self, real: Mapping[str, str]) -> Sighting:
        """All that was looked at. ``real`` says where the files are, links resolved."""
        for path, (status, names) in self.tree.folders.items():
            place = self.root / path
            skipped = {skip.name for skip in self._skipped if skip.parent == place}
            self.seen.listed(place, stamp(status), names, {BYTECODE, *skipped})
            if path and not VERSION_CONTROL.isdisjoint(names):
                self.seen.disturbed = str(place)  # another repository, whose state git asks for
        for path in (*self.tree.links, *(path for path, target in real.items() if path != target)):
            self.seen.link(self.root / path)
        return self.seen

    def _add(self, paths: Iterable[str]) -> None:
        new = [path for path in paths if path not in self._known]
        self._known.update(new)
        self._pending += new

    def _scan(self, path: str, data: bytes) -> None:
        said = _what_it_says(data)
        self.is_listed = self.is_listed and said.is_listed
        for wanted in said.included:
            self._add(self._find(path, wanted))
        for name in self._by_name.keys() & said.words:
            self._add(self._by_name[name])
        for name in self._odd_names:
            if name in data:
                self._add(self._by_name[name])
        if said.has_computed and not self._takes_all:
            # A macro can make a name of parts. So every file that is called like a source or a header counts.
            self._takes_all = True
            suffixes = HEADER_SUFFIXES | SOURCE_SUFFIXES
            self._add(file for file in self.tree.files if posixpath.splitext(file)[1].lower() in suffixes)

    def _find(self, including: str, wanted: bytes) -> tuple[str, ...]:
        """The files that ``wanted`` may mean: all that are where compilers look, else all that are called like it."""
        text = os.fsdecode(wanted)
        here = posixpath.dirname(including)
        if text not in self._elsewhere:
            self._elsewhere[text] = tuple(path for folder in self._folders for path in self._at(folder, text))
        exact = (*self._at(here, text), *self._elsewhere[text])
        if exact:
            return exact
        tail = posixpath.normpath(text).removeprefix("/")
        while tail.startswith("../"):
            tail = tail[3:]
        others = self._by_name.get(os.fsencode(posixpath.basename(tail)), ())
        return tuple(path for path in others if path == tail or path.endswith(f"/{tail}"))

    def _at(self, folder: str, text: str) -> Iterator[str]:
        """The file ``text`` of ``folder``, by the path that inputs list it by: its directory resolved, so that it has
        one; a link is itself. Nothing for one outside of the project or in the tool's own directory.
        """
        place = os.path.join(self.root, folder, text)  # noqa: PTH118
        if not os.path.isfile(place):  # noqa: PTH113
            return
        head, tail = os.path.split(place)
        if head not in self._real:
            self._real[head] = os.path.realpath(head)
        real = os.path.join(self._real[head], tail)  # noqa: PTH118
        if os.path.islink(real) or self._real[head] != os.path.normpath(head):  # noqa: PTH114
            link = leaving_link(self.root, posixpath.join(folder, text))
            if link is not None:
                self._leaving.add(link)
                return
        if is_inside(real, str(self.root)) and not is_inside(real, str(self._work)):
            yield relative_to(real, str(self.root))

    def _refuse_leaving(self) -> None:
        raise ConfigError(
            "sources include files through links that lead out of the project",
            diagnostics=[
                Diagnostic(
                    severity=Level.ERROR,
                    file=self.root / link.path,
                    message=leads_out_message(link),
                    hint=LEADS_OUT_HINT,
                )
                for link in sorted(self._leaving)
            ],
        )


def include_folders(project: Project) -> tuple[str, ...]:
    """Where compilers look for headers in the project, relative to its root. No flag can name more."""
    given = [*project.framework.include, *(path for section in project.sections for path in section.include)]
    folders = [*map(posixpath.normpath, given), "csrc", project.framework.directory]
    return tuple(dict.fromkeys("" if folder == "." else folder for folder in folders))


def _flags(project: Project) -> tuple[str, ...]:
    sections = (flag for section in project.sections for flag in (*section.cxx_flags, *section.flags))
    return (*project.framework.cxx_flags, *sections)


@dataclass(frozen=True, kw_only=True)
class _Said:
    """What a text says of other files. ``included`` are the names in its directives, ``words`` what may be the last
    part of a name anywhere else; comments do not count.
    """

    included: frozenset[bytes]
    words: frozenset[bytes]
    has_computed: bool
    is_listed: bool


def _what_it_says(data: bytes) -> _Said:
    joined = data.replace(b"\\\r\n", b" ").replace(b"\\\n", b" ")
    words: set[bytes] = set()
    for text, word in set(_TEXT.findall(_DIRECTIVE.sub(b" ", joined))):
        words.update((word,) if word else _WORD.findall(re.sub(rb"\\.", b" ", text)))
    return _Said(
        included=frozenset(group for groups in _DIRECTIVE.findall(joined) for group in groups if group),
        words=frozenset(words),
        has_computed=_COMPUTED.search(joined) is not None,
        is_listed=not any(mark in joined for mark in _UNLISTED),
    )
