"""What is looked at: discovery of kernels below a path, and the facts about them, computed once and shared by rules.

The kinds of things that rules are about:

- :class:`SourceTree`: a directory with ``build.toml``;
- :class:`BuildFolder`: a directory of variants (``build/`` of a source tree or of a downloaded repository);
- :class:`VariantDir`: one variant;
- :class:`PythonTree`: the Python package of a source tree or of a variant;
- :class:`LibraryFile`: one shared library, in a variant or alone.

Facts are lazy and never raise for what a file holds: what cannot be read is a fact, too (``metadata_error``,
``PythonFile.error``). Nothing is trusted: trees are walked without following links, and every count is bounded.
"""

from __future__ import annotations

import ast
import json
import os
import stat
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path

from kernel_builder.artifact.built import BuiltVariant
from kernel_builder.artifact.digest import METADATA
from kernel_builder.binary.elf import ElfError, ElfFile, NamedSection, mapped, named_sections, read_elf_file
from kernel_builder.binary.macho import MAGICS, MachOError, MachOSlice, read_macho
from kernel_builder.binary.metallib import MetalLibrary, metal_libraries
from kernel_builder.binary.pe import PeError, PeFile, read_pe
from kernel_builder.config.model import Project
from kernel_builder.config.reader import FILE_NAME, load_draft, load_project
from kernel_builder.config.settings import FILE_NAME as SETTINGS_NAME
from kernel_builder.config.settings import Acceptance, SettingsFile
from kernel_builder.errors import ConfigError, Diagnostic, Level, UsageError
from kernel_builder.files import parse_json
from kernel_builder.interface.native import ReadFile, compiled_files, listed_sources
from kernel_builder.toml.nodes import printable
from kernel_builder.variants.build_type import BuildType
from kernel_builder.variants.names import ArchVariant, TvmFfiTag, Variant, parse_variant

LIBRARY_SUFFIXES = frozenset({".so", ".pyd", ".dylib", ".dll"})
MAX_ENTRIES = 100_000
"""Files looked at in one tree. The Hub takes fewer in a whole repository."""
MAX_TEXT = 16 * 2**20
"""Bytes of a Python or metadata file that are read; no honest one has as many."""


_NO_TEXT = (
    ".text",
    ".nv_fatbin",
    "__nv_relfatbin",
    ".hip_fatbin",
    ".debug_",
    ".eh_frame",
    ".rela",
    ".plt",
    ".gnu.hash",
)


class EntryKind(StrEnum):
    """What a directory entry is. Links are not followed to tell."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class TreeEntry:
    """Something in a tree. ``relative`` is its POSIX path from the root; ``size`` that of a file, in bytes.

    ``target`` is where a link points to, as written. ``inside`` says whether the link stays within the root, or leads
    to the store of a Hub cache, which keeps every file of a download behind such a link.
    """

    relative: str
    kind: EntryKind
    size: int = 0
    mode: int = 0
    target: str | None = None
    inside: bool = True
    dangling: bool = False


@dataclass(frozen=True, kw_only=True)
class Listing:
    """All entries below a root, in byte order of their paths; ``complete`` is false beyond :data:`MAX_ENTRIES`.

    ``errors`` are the directories that could not be read, with the reason.
    """

    entries: tuple[TreeEntry, ...]
    complete: bool
    errors: tuple[tuple[str, str], ...] = ()

    @cached_property
    def files(self) -> tuple[TreeEntry, ...]:
        """Regular files, and links to such that stay inside."""
        return tuple(e for e in self.entries if e.kind is EntryKind.FILE)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def walk(root: Path, *, limit: int = MAX_ENTRIES, skip: frozenset[str] = frozenset()) -> Listing:
    """List everything below ``root``, links not followed. Directories named in ``skip`` are not entered.

    A link to a regular file that stays inside the tree (or lies in the Hub's cache) is listed as a file with
    ``target`` set. Never raises for what is in the tree.
    """
    found: list[TreeEntry] = []
    errors: list[tuple[str, str]] = []
    pending = [""]
    real_root = os.path.realpath(root)
    while pending:
        directory = pending.pop()
        try:
            with os.scandir(root / directory) as scan:
                for item in scan:
                    if len(found) >= limit:
                        return _listing(found, errors, complete=False)
                    relative = f"{directory}/{item.name}" if directory else item.name
                    entry = _entry(item, relative, real_root)
                    found.append(entry)
                    if entry.kind is EntryKind.DIRECTORY and item.name not in skip:
                        pending.append(relative)
        except OSError as error:
            errors.append((directory, error.strerror or str(error)))
    return _listing(found, errors, complete=True)


def _listing(found: list[TreeEntry], errors: list[tuple[str, str]], *, complete: bool) -> Listing:
    found.sort(key=lambda entry: _bytes(entry.relative))
    return Listing(entries=tuple(found), complete=complete, errors=tuple(sorted(errors)))


def _entry(item: os.DirEntry[str], relative: str, real_root: str) -> TreeEntry:
    try:
        if item.is_symlink():
            return _link(item, relative, real_root)
        status = item.stat(follow_symlinks=False)
    except OSError:
        return TreeEntry(relative=relative, kind=EntryKind.OTHER)
    if stat.S_ISDIR(status.st_mode):
        return TreeEntry(relative=relative, kind=EntryKind.DIRECTORY, mode=status.st_mode)
    kind = EntryKind.FILE if stat.S_ISREG(status.st_mode) else EntryKind.OTHER
    return TreeEntry(relative=relative, kind=kind, size=status.st_size, mode=status.st_mode)


def _link(item: os.DirEntry[str], relative: str, real_root: str) -> TreeEntry:
    target = os.readlink(item.path)  # noqa: PTH115  (no Path per entry: trees may have many)
    real = os.path.realpath(item.path)
    inside = real == real_root or real.startswith(real_root + os.sep) or _in_hub_cache(real_root, real)
    try:
        status = os.stat(real)  # noqa: PTH116  (names may hold anything; no Path is made per entry)
    except (OSError, ValueError):
        return TreeEntry(relative=relative, kind=EntryKind.LINK, target=target, inside=inside, dangling=True)
    if inside and stat.S_ISREG(status.st_mode):
        return TreeEntry(
            relative=relative, kind=EntryKind.FILE, size=status.st_size, mode=status.st_mode, target=target
        )
    return TreeEntry(relative=relative, kind=EntryKind.LINK, target=target, inside=inside)


def _in_hub_cache(real_root: str, real: str) -> bool:
    """Whether ``real`` is ``<repository>/blobs/<name>`` for a root below ``<repository>/snapshots/<commit>``."""
    root, file = Path(real_root), Path(real)
    return any(parent.name == "snapshots" and file.parent == parent.parent / "blobs" for parent in root.parents)


@dataclass(frozen=True, kw_only=True)
class PythonFile:
    """A parsed Python file. ``tree`` is ``None`` when it does not parse; ``error`` and ``error_line`` then say why."""

    shown: str
    relative: str
    source: bytes
    tree: ast.Module | None
    error: str | None = None
    error_line: int | None = None

    @property
    def text(self) -> str:
        """The source as text; what is no UTF-8 is replaced."""
        return self.source.decode("utf-8-sig", "replace")


_PARSING = threading.Lock()  # warning filters are the process's
_LARGE = 2**20
"""Bytes: the tree of a larger file is not kept."""


@lru_cache(maxsize=2048)
def _parse(source: bytes) -> tuple[ast.Module | None, str | None, int | None]:
    """Parse once per content: the sources and the variants of a kernel hold the same files, most of which stay as they
    are while a kernel is worked on. Its caller holds :data:`_PARSING`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            _compile(tree)
    except SyntaxError as error:
        return None, f"not valid Python: {_in_our_words(error.msg)}", error.lineno
    except (ValueError, RecursionError, MemoryError) as error:
        return None, f"cannot be parsed: {str(error) or type(error).__name__}", None
    return tree, None, None


def _compile(tree: ast.Module) -> None:
    """Raise ``SyntaxError`` for what only the compiler refuses, such as ``return`` outside of functions."""
    try:
        compile(tree, "file", "exec", dont_inherit=True)
    except (ValueError, RecursionError, MemoryError):
        return  # the tree can be read all the same


def _in_our_words(message: str) -> str:
    """What Python says of a syntax error, but for what it advises its own user to do."""
    return "a number has too many digits" if "set_int_max_str_digits" in message else message


def read_python(path: Path, *, shown: str, relative: str) -> PythonFile:
    """Read and parse a file; what is wrong with it is in the result."""
    try:
        if path.stat().st_size > MAX_TEXT:
            return PythonFile(shown=shown, relative=relative, source=b"", tree=None, error="too large to check")
        source = path.read_bytes()
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
        return PythonFile(shown=shown, relative=relative, source=b"", tree=None, error=text)
    with _PARSING:
        parse = _parse if len(source) < _LARGE else _parse.__wrapped__
        tree, message, line = parse(source)
    return PythonFile(shown=shown, relative=relative, source=source, tree=tree, error=message, error_line=line)


@dataclass(eq=False)
class PythonTree:
    """The Python package of a kernel: ``root`` holds its ``__init__.py``.

    ``name`` is the name users know it by (``None`` when nothing says it), which its own files must not import
    absolutely. ``variant`` or ``source`` says where it stands. ``depends`` are the declared ``python-depends``,
    ``None`` when nothing declares them. ``skip`` names directories below the root that are not part of the package.
    """

    root: Path
    shown: str
    name: str | None
    depends: tuple[str, ...] | None
    variant: VariantDir | None = None
    source: SourceTree | None = None

    @cached_property
    def listing(self) -> Listing:
        """Everything below the root."""
        return self.variant.listing if self.variant is not None else walk(self.root)

    @cached_property
    def files(self) -> tuple[PythonFile, ...]:
        """All ``*.py`` files, parsed, in order of their paths."""
        return tuple(
            read_python(self.root / e.relative, shown=join(self.shown, e.relative), relative=e.relative)
            for e in self.listing.files
            if e.relative.endswith(".py")
        )

    @cached_property
    def by_path(self) -> Mapping[str, PythonFile]:
        """The files by their relative paths."""
        return {file.relative: file for file in self.files}


def join(shown: str, relative: str) -> str:
    """The path to show of something below something."""
    return relative if shown in {"", "."} else f"{shown.rstrip('/')}/{relative}"


@dataclass(eq=False)
class LibraryFile:
    """A shared library. ``variant`` is the one it is part of, if any."""

    path: Path
    shown: str
    variant: VariantDir | None = None

    @property
    def name(self) -> str:
        """Its file name."""
        return self.path.name

    @property
    def tvm_ffi(self) -> tuple[int, int] | None:
        """The release of tvm-ffi that its variant is for; ``None`` for one of torch's, or of no variant."""
        variant = self.variant.variant if self.variant else None
        tag = variant.tag if isinstance(variant, ArchVariant) else None
        return tag.version if isinstance(tag, TvmFfiTag) else None

    @property
    def format(self) -> str:
        """``ELF``, ``Mach-O``, ``PE``, or ``?`` for anything else."""
        if self.magic[:4] == b"\x7fELF":
            return "ELF"
        return "Mach-O" if self.magic[:4] in MAGICS else "PE" if self.magic[:2] == b"MZ" else "?"

    @cached_property
    def _read(self) -> ElfFile | tuple[MachOSlice, ...] | PeFile | str:
        """The file as its loader would see it, or why it is not available."""
        try:
            if self.format == "ELF":
                return read_elf_file(self.path)
            if self.format == "?":
                return "not a Linux, macOS or Windows library" if self.magic else "it is empty"
            with mapped(self.path) as data:
                return read_macho(data) if self.format == "Mach-O" else read_pe(data)
        except (ElfError, MachOError, PeError) as error:
            return str(error)
        except OSError as error:
            return error.strerror or str(error)

    @property
    def elf(self) -> ElfFile | None:
        """Its dynamic view; ``None`` when it is not an ELF file, or one that cannot be read."""
        return self._read if isinstance(self._read, ElfFile) else None

    @property
    def macho(self) -> tuple[MachOSlice, ...]:
        """Its parts, when it is a Mach-O file; one for each machine."""
        return self._read if isinstance(self._read, tuple) else ()

    @cached_property
    def metal(self) -> tuple[MetalLibrary, ...]:
        """The libraries of Metal shaders in it, when it is a Mach-O file."""
        if not self.macho:
            return ()
        with mapped(self.path) as data:
            return metal_libraries(data)

    @property
    def pe(self) -> PeFile | None:
        """Its imports and exports, when it is a library for Windows."""
        return self._read if isinstance(self._read, PeFile) else None

    @property
    def error(self) -> str | None:
        """Why none of the three is there."""
        return self._read if isinstance(self._read, str) else None

    @cached_property
    def sections(self) -> tuple[NamedSection, ...]:
        """Sections of an ELF file; none where there are no headers of them, or damaged ones."""
        try:
            with mapped(self.path) as data:
                return named_sections(data)
        except (ElfError, OSError):
            return ()

    @cached_property
    def magic(self) -> bytes:
        """The first eight bytes; empty when it cannot be read."""
        try:
            with self.path.open("rb") as file:
                return file.read(8)
        except OSError:
            return b""

    @cached_property
    def size(self) -> int:
        """Bytes; 0 when it cannot be told."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    @property
    def text_ranges(self) -> tuple[tuple[int, int], ...]:
        """(start, end) of the parts of the file where texts may be: all but code, GPU code and debug information.

        The whole file, where there are no section headers.
        """
        if not self.sections:
            return ((0, self.size),)
        return tuple(
            (section.offset, section.offset + section.size)
            for section in self.sections
            if section.occupies and section.size and not section.name.startswith(_NO_TEXT)
        )


@dataclass(eq=False)
class VariantDir:
    """One variant: ``path`` is its directory. ``folder`` is the build folder it was found in, if any."""

    path: Path
    shown: str
    folder: BuildFolder | None = None
    source: SourceTree | None = None

    @property
    def name(self) -> str:
        """Its directory's name."""
        return self.path.name

    @cached_property
    def variant(self) -> Variant | None:
        """What the name means; ``None`` when it is not a variant name."""
        try:
            return parse_variant(self.name)
        except ValueError:
            return None

    @cached_property
    def listing(self) -> Listing:
        """Everything in it."""
        return walk(self.path)

    @cached_property
    def metadata_bytes(self) -> bytes | None:
        """``metadata.json`` as is; ``None`` when there is none, or it cannot be read."""
        path = self.path / METADATA
        try:
            if not path.is_file() or path.stat().st_size > MAX_TEXT:
                return None
            return path.read_bytes()
        except OSError:
            return None

    @cached_property
    def _metadata(self) -> tuple[Mapping[str, object] | None, str | None, int | None]:
        raw = self.metadata_bytes
        if raw is None:
            return None, "there is no readable metadata.json", None
        try:
            document = parse_json(raw)
        except json.JSONDecodeError as error:
            return None, f"not valid JSON: {error.msg}", error.lineno
        except (ValueError, RecursionError) as error:
            return None, f"not valid JSON: {error}", None
        if not isinstance(document, dict):
            return None, "not a JSON object", 1
        return document, None, None

    @property
    def metadata(self) -> Mapping[str, object] | None:
        """The document of ``metadata.json``; ``None`` when there is none that can be read."""
        return self._metadata[0]

    @property
    def built(self) -> BuiltVariant:
        """It as a build, with whatever its metadata says."""
        return BuiltVariant(path=self.path, metadata=self.metadata or {})

    @property
    def build_type(self) -> BuildType:
        """What it says that it was built for."""
        return self.built.build_type

    @property
    def metadata_error(self) -> str | None:
        """Why :attr:`metadata` is ``None``."""
        return self._metadata[1]

    @property
    def metadata_error_line(self) -> int | None:
        """The line of :attr:`metadata_error`."""
        return self._metadata[2]

    def metadata_text(self, key: str) -> str | None:
        """A key of the metadata if it is there and a string."""
        value = (self.metadata or {}).get(key)
        return value if isinstance(value, str) else None

    @cached_property
    def id(self) -> str | None:
        """The ops id of its metadata."""
        return self.metadata_text("id")

    @cached_property
    def backend(self) -> str | None:
        """``backend.type`` of its metadata, else the backend of its name."""
        backend = (self.metadata or {}).get("backend")
        if isinstance(backend, dict) and isinstance(backend.get("type"), str):
            return str(backend["type"])
        if self.variant is None:
            return None
        return self.variant.backend.value

    @cached_property
    def package(self) -> Path:
        """The directory with the package's ``__init__.py``: the variant itself, or the older nested place."""
        name = self.metadata_text("name")
        if not (self.path / "__init__.py").exists() and name is not None and "/" not in name and "\0" not in name:
            nested = self.path / name.replace("-", "_")
            if (nested / "__init__.py").is_file():
                return nested
        return self.path

    @cached_property
    def python(self) -> PythonTree:
        """Its Python files, wherever its ``__init__.py`` stands."""
        name = self.metadata_text("name")
        depends = (self.metadata or {}).get("python-depends")
        return PythonTree(
            root=self.path,
            shown=self.shown,
            name=None if name is None else name.replace("-", "_"),
            depends=tuple(d for d in depends if isinstance(d, str)) if isinstance(depends, list) else None,
            variant=self,
            source=self.source,
        )

    @cached_property
    def libraries(self) -> tuple[LibraryFile, ...]:
        """Files named like shared libraries, ``libx.so.1`` among them, in order."""
        return tuple(
            LibraryFile(self.path / e.relative, join(self.shown, e.relative), self)
            for e in self.listing.files
            if is_library_name(e.relative)
        )


def is_library_name(name: str) -> bool:
    """Whether a file of this name is taken for a shared library."""
    last = name.rpartition("/")[2].lower()
    return any(last.endswith(suffix) for suffix in LIBRARY_SUFFIXES) or ".so." in last


@dataclass(eq=False)
class BuildFolder:
    """A directory of variants. ``strays`` are its other entries. ``source`` is the project that it was built from."""

    path: Path
    shown: str
    variants: tuple[VariantDir, ...] = ()
    strays: tuple[str, ...] = ()
    source: SourceTree | None = None
    repository: bool = False
    """Whether it is ``build/`` of a repository as the Hub has it, without a source tree."""


@dataclass(frozen=True, kw_only=True)
class Acceptances:
    """What ``kernel-builder.toml`` of a project accepts, and what is wrong with that part of it."""

    entries: tuple[Acceptance, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(eq=False)
class SourceTree:
    """A directory with ``build.toml``."""

    path: Path
    shown: str
    folder: BuildFolder | None = None
    ignored_result: bool = False
    """Whether a ``result`` beside ``build`` was not looked at."""
    loaded: tuple[Project, tuple[Diagnostic, ...]] | None = None
    """What reading ``build.toml`` gave, where somebody has read it."""

    @cached_property
    def _project(self) -> tuple[Project | None, tuple[Diagnostic, ...]]:
        if self.loaded is not None:
            return self.loaded
        try:
            return load_project(self.path.absolute())
        except ConfigError as error:
            whole = Diagnostic(severity=Level.ERROR, message=error.message, hint=error.hint)
            return None, error.diagnostics or (whole,)

    @property
    def project(self) -> Project | None:
        """``build.toml`` as read; ``None`` when it has mistakes."""
        return self._project[0]

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What reading ``build.toml`` had to say."""
        return self._project[1]

    @cached_property
    def draft(self) -> Project | None:
        """The project, or as much of it as can be read from a ``build.toml`` with mistakes, for what the sources say
        whatever the rest is; ``None`` without any.
        """
        return self.project or load_draft(self.path.absolute())

    @cached_property
    def compiled(self) -> tuple[ReadFile, ...]:
        """The native sources that ``build.toml`` has compiled, mistakes or not, and what they include of the project;
        read once.
        """
        return () if self.draft is None else tuple(compiled_files(self.draft))

    @cached_property
    def knows_all_sources(self) -> bool:
        """Whether all that is compiled is known: no mistake in ``build.toml`` is about sources, and all are there."""
        if self.draft is None or not self._is_right("src"):
            return False
        return all((self.draft.root / path).is_file() for path in listed_sources(self.draft))

    @property
    def knows_all_includes(self) -> bool:
        """Whether no mistake in ``build.toml`` is about where headers are."""
        return self._is_right("include")

    def _is_right(self, key: str) -> bool:
        """Whether no mistake is about a table as a whole, or about ``key`` in one."""
        mistakes = [one.key for one in self.diagnostics if one.severity is Level.ERROR]
        return not any(one is None or "." not in one or f".{key}" in one for one in mistakes)

    @cached_property
    def acceptances(self) -> Acceptances:
        """What findings the project accepts; nothing, where it has no ``kernel-builder.toml``."""
        path = self.path / SETTINGS_NAME
        if not path.is_file():
            return Acceptances()
        try:
            file = SettingsFile.open(path)
        except ConfigError as error:
            return Acceptances(diagnostics=(Diagnostic(severity=Level.ERROR, message=error.message, hint=error.hint),))
        return Acceptances(entries=file.acceptances(), diagnostics=file.report.diagnostics())

    @cached_property
    def python(self) -> PythonTree | None:
        """The package's sources; ``None`` when there is no such directory."""
        project = self.project
        if project is None:
            return self._guessed_package()
        if not project.package.is_dir():
            return None
        relative = project.package.relative_to(project.root).as_posix()
        depends = project.python_depends + tuple(
            name for options in project.backend_options.values() for name in options.python_depends
        )
        return PythonTree(
            root=self.path / relative,
            shown=join(self.shown, relative),
            name=project.python_name,
            depends=depends,
            source=self,
        )

    def _guessed_package(self) -> PythonTree | None:
        """Without a readable ``build.toml``: the only package below ``torch-ext`` or ``tvm-ffi-ext``."""
        for extension in ("torch-ext", "tvm-ffi-ext"):
            found = sorted(path.parent for path in (self.path / extension).glob("*/__init__.py"))
            if len(found) == 1:
                shown = join(self.shown, f"{extension}/{found[0].name}")
                return PythonTree(root=found[0], shown=shown, name=found[0].name, depends=None, source=self)
        return None


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """Everything that one path led to."""

    shown: str
    sources: tuple[SourceTree, ...] = ()
    folders: tuple[BuildFolder, ...] = ()
    variants: tuple[VariantDir, ...] = ()
    libraries: tuple[LibraryFile, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def units(self) -> Iterator[object]:
        """Each thing that rules are about: sources and their packages, folders, variants, packages, libraries."""
        for source in self.sources:
            yield source
            if source.python is not None:
                yield source.python
        yield from self.folders
        for variant in self.variants:
            yield variant
            yield variant.python
            yield from variant.libraries
        yield from self.libraries


def _is_variant_name(name: str) -> bool:
    try:
        parse_variant(name)
    except ValueError:
        return False
    return True


def _looks_like_variant(path: Path) -> bool:
    return path.is_dir() and ((path / METADATA).is_file() or _is_variant_name(path.name))


def _read_folder(path: Path, shown: str, source: SourceTree | None = None) -> BuildFolder | None:
    """``path`` as a folder of variants; ``None`` when it holds none."""
    variants: list[str] = []
    strays: list[str] = []
    try:
        with os.scandir(path) as scan:
            for count, item in enumerate(scan):
                if count >= MAX_ENTRIES:
                    break
                if _looks_like_variant(path / item.name):
                    variants.append(item.name)
                else:
                    strays.append(item.name)
    except OSError:
        return None
    if not variants:
        return None
    folder = BuildFolder(path, shown, strays=tuple(sorted(strays, key=_bytes)), source=source)
    folder.variants = tuple(
        VariantDir(path / name, join(shown, name), folder, source) for name in sorted(variants, key=_bytes)
    )
    return folder


def discover(path: Path) -> Discovery:
    """What ``path`` is, and all that is to be checked there.

    A library; a variant; a folder of variants; a source tree, with the variants in its ``build``; a repository, which
    has ``build``. ``result``, the link that Nix leaves, is looked at only where there is no ``build`` (the reference
    prefers it, even when it is older: contract 6.1 and sharp edge 33). Raises :class:`UsageError` when there is
    nothing of the kind.
    """
    shown = os.fspath(path)
    path = path if path.name not in {"", ".."} else Path(os.path.normpath(path.absolute()))
    if path.is_file():
        return _discover_file(path, shown)
    if not path.is_dir():
        raise UsageError(f"{printable(shown)} does not exist", hint="pass a kernel's directory or a shared library")
    source = SourceTree(path, shown) if (path / FILE_NAME).is_file() else None
    if source is None and _looks_like_variant(path) and not _read_folder(path, shown):
        return Discovery(shown=shown, variants=(VariantDir(path, shown, source=_source_above(path, 2)),))
    notes: list[str] = []
    folder = _read_folder(path / "build", join(shown, "build"), source)
    result = _read_folder(path / "result", join(shown, "result"), source)
    if folder is None:
        folder = result
    elif result is not None:
        notes.append(f"{printable(join(shown, 'result'))} is ignored, because there is a build directory next to it")
    if folder is not None:
        folder.repository = source is None
    elif source is None:
        folder = _read_folder(path, shown, _source_above(path, 1))
    if source is not None:
        source.folder, source.ignored_result = folder, bool(notes)
    if source is None and folder is None:
        raise UsageError(
            f"{printable(shown)} contains no kernel: neither {FILE_NAME} nor variants (directories with {METADATA})"
            " there, in build or in result",
            hint="pass a kernel's source tree, its build folder, one variant, a downloaded repository or a library",
        )
    return Discovery(
        shown=shown,
        sources=(source,) if source else (),
        folders=(folder,) if folder else (),
        variants=folder.variants if folder else (),
        notes=tuple(notes),
    )


def _source_above(path: Path, levels: int) -> SourceTree | None:
    """The source tree whose ``build`` (or ``build/<variant>``, two levels down) ``path`` is."""
    parents = Path(os.path.normpath(path.absolute())).parents
    if len(parents) < levels or not (parents[levels - 1] / FILE_NAME).is_file():
        return None
    built = path.absolute() if levels == 1 else parents[0]
    return SourceTree(parents[levels - 1], os.fspath(parents[levels - 1])) if built.name == "build" else None


def _discover_file(path: Path, shown: str) -> Discovery:
    if path.name == FILE_NAME:
        return discover(path.parent)
    library = LibraryFile(path, shown)
    if not is_library_name(path.name) and library.magic[:4] != b"\x7fELF":
        raise UsageError(
            f"{printable(shown)} is not a shared library", hint="pass a kernel's directory or a shared library"
        )
    return Discovery(shown=shown, libraries=(library,))
