"""Rules about what lies where: names of variants, packages, files that do not belong into a kernel, what is missing.

Source: the requirements page ("Directory layout"), contract 2 and 3.5, and the Hub's documented limits.
"""

from __future__ import annotations

import ast
import os
import re
import struct
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from kernel_builder.check.model import Finding, Settings, Severity, checks, few, rule
from kernel_builder.check.namespace import native_sources, without_noise
from kernel_builder.check.subject import BuildFolder, EntryKind, PythonFile, SourceTree, TreeEntry, VariantDir, join
from kernel_builder.files import LARGEST_FILE
from kernel_builder.portable import unportable
from kernel_builder.toml.nodes import printable
from kernel_builder.variants.matrix import all_variants, choose
from kernel_builder.variants.names import ArchVariant
from kernel_builder.variants.support import VariantSet, load_support
from kernel_builder.walking import BYTECODE as BYTECODE_FOLDER

VARIANT_NAME = rule(
    "KB401",
    "variant-name",
    Severity.ERROR,
    summary="A variant's directory is named after framework, ABI, backend, machine and system",
    rationale="The client chooses by the name what a machine can load, and ignores directories with any other name.",
    remedy="Build it with kernel-builder, or rename it after what it contains, such as"
    " torch213-cxx11-cu130-x86_64-linux.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
OLD_NAME = rule(
    "KB402",
    "old-variant-name",
    Severity.WARNING,
    summary="Variants use current names",
    rationale="Clients still load it, but builders no longer produce it.",
    remedy="Build torch-<backend> variants instead.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
NO_PACKAGE = rule(
    "KB403",
    "no-package",
    Severity.ERROR,
    summary="A variant has an __init__.py",
    rationale="The client runs it; without it, the kernel cannot be imported.",
    remedy="Rebuild the variant; its package comes from torch-ext/<name>/.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
NO_COMPATIBILITY = rule(
    "KB404",
    "no-compatibility-package",
    Severity.NOTE,
    summary="A variant also has <name>/__init__.py, a package named after the kernel",
    rationale=(
        "The requirements page requires it; clients from before 2025, and Python through PYTHONPATH, find the "
        "kernel through it."
    ),
    remedy="Build the variant with kernel-builder, which writes one.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
EXPORTS_DIFFER = rule(
    "KB405",
    "exports-differ",
    Severity.ERROR,
    summary="Both packages of a variant export the same names",
    rationale="Otherwise, what users get depends on how they import the kernel.",
    remedy="Make <name>/__init__.py re-export everything from its parent package, as kernel-builder does.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
STRAY = rule(
    "KB450",
    "stray-file",
    Severity.WARNING,
    summary="A variant contains no leftovers of editors, operating systems or builds",
    rationale="Every user downloads them, and the digest covers them.",
    remedy="Delete the file and rebuild the variant.",
    source="kernel-builder",
)
BYTECODE = rule(
    "KB451",
    "bytecode",
    Severity.WARNING,
    summary="A variant contains no bytecode, except Python's own cache of its files",
    rationale=(
        "No digest covers it, and Python runs it instead of the source it claims to come from. The cache that "
        "Python writes when it loads the kernel from here is not uploaded."
    ),
    remedy="Delete the __pycache__ directories.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
LINK_OUT = rule(
    "KB452",
    "link-out",
    Severity.ERROR,
    summary="No link points outside the variant, to a directory, or to a missing file",
    rationale="Its target is not published, and no digest covers it.",
    remedy="Replace it with a copy of its target.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
LINK = rule(
    "KB453",
    "link",
    Severity.WARNING,
    summary="A variant contains no links",
    rationale="The digest lists the file, but the reference uploader skips links, so the file is missing on the Hub.",
    remedy="Replace it with a copy of its target.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
SPECIAL_FILE = rule(
    "KB454",
    "special-file",
    Severity.ERROR,
    summary="A variant contains only regular files and directories",
    rationale="Nothing else can be published.",
    remedy="Delete it.",
    source="kernel-builder",
)
FILE_NAME = rule(
    "KB455",
    "file-name",
    Severity.ERROR,
    summary="File names are UTF-8, without control characters or backslashes",
    rationale="metadata.json cannot list such a file, and the Hub or some systems cannot store it.",
    remedy="Rename it.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
PORTABLE_NAME = rule(
    "KB462",
    "portable-name",
    Severity.WARNING,
    summary="Windows and macOS can store every file",
    rationale="Downloading the kernel fails there, or one file overwrites another.",
    remedy="Rename the file in the sources and build the variant again.",
    source="kernel-builder",
)
HUB_FILE_SIZE = rule(
    "KB457",
    "hub-file-size",
    Severity.ERROR,
    summary="No file exceeds the Hub's limit (50 GB)",
    rationale="The upload fails, after a long time.",
    remedy="Build for fewer architectures, or split the kernel.",
    source="the Hub's documentation, storage limits",
)
HUB_FILE_COUNT = rule(
    "KB458",
    "hub-file-count",
    Severity.WARNING,
    summary="No directory exceeds the Hub's limit on entries (10 000)",
    rationale="The Hub rejects commits with more, and clients are slow to list them.",
    remedy="Move the files into subdirectories, or into one archive.",
    source="the Hub's documentation, storage limits",
)
STRAY_DIRECTORY = rule(
    "KB459",
    "stray-directory",
    Severity.NOTE,
    summary="A build folder contains only variants and files published with them",
    rationale="Nothing loads this directory; it may be a variant without metadata.json.",
    remedy="Delete it, or add its metadata.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
MISSING_VARIANTS = rule(
    "KB460",
    "missing-variants",
    Severity.NOTE,
    summary="Every required variant of each backend is built",
    rationale="Users whose machine needs a missing variant cannot load the kernel.",
    remedy=(
        "Build the missing variants before publishing: kernel-builder build --complete builds all that this "
        "platform requires, and kernel-builder build --variant NAME builds one of them."
    ),
    source="docs/requirements.md, 'Layout, names and metadata'",
)
MISSING_VARIANTS_PUBLISHED = rule(
    "KB461",
    "missing-variants-published",
    Severity.WARNING,
    summary="A published kernel has every required variant of its backends",
    rationale="Users whose machine needs a missing variant cannot load the kernel.",
    remedy="Build and upload the missing variants: kernel-builder build --complete, then kernel-builder upload.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
NATIVE_EXIT = rule(
    "KB470",
    "exit-in-sources",
    Severity.WARNING,
    summary="Native code does not exit the process",
    rationale="exit() and abort() terminate the user's program, which cannot catch them; a notebook loses its state.",
    remedy="Use TORCH_CHECK, which raises an exception in Python, or throw.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)

_OLD_NAMES = frozenset({"torch-universal", "torch-npu"})


@checks(VariantDir, VARIANT_NAME, OLD_NAME)
def variant_name(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """The directory's name."""
    if variant.variant is not None:
        return
    if variant.name in _OLD_NAMES:
        yield OLD_NAME.at(variant, f"{variant.name} is an old name", symbol=variant.name)
    else:
        yield VARIANT_NAME.at(variant, f"{printable(variant.name)!r} is not a variant name", symbol=variant.name)


@checks(VariantDir, NO_PACKAGE, NO_COMPATIBILITY, EXPORTS_DIFFER)
def packages(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """The kernel's package, and the one of its name."""
    files = variant.python.by_path
    name = variant.python.name
    flat = files.get("__init__.py")
    nested = files.get(f"{name}/__init__.py") if name is not None else None
    if flat is None and nested is None:
        yield NO_PACKAGE.at(variant, "__init__.py is missing")
    elif nested is None and name is not None:
        yield NO_COMPATIBILITY.at(variant, f"{printable(name)}/__init__.py is missing", symbol=name)
    elif flat is not None and nested is not None:
        ours, theirs = _listed(flat), _listed(nested)
        if ours is not None and theirs is not None and ours != theirs:
            told = ", ".join(sorted(ours ^ theirs)[:8])
            yield EXPORTS_DIFFER.at(nested, f"its __all__ differs from that of its parent package in: {told}")


def _listed(file: PythonFile) -> frozenset[str] | None:
    """The names in a plain ``__all__ = [...]``."""
    for node in file.tree.body if file.tree is not None else ():
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.List | ast.Tuple):
            continue
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            return frozenset(str(part.value) for part in node.value.elts if isinstance(part, ast.Constant))
    return None


# --- files ---

_STRAYS = (
    *(".DS_Store", "Thumbs.db", "desktop.ini", "*.swp", "*.swo", "*~", "*.orig", "*.rej", "*.bak", ".#*", "#*#"),
    *("*.o", "*.obj", "*.a", "*.d", "*.gcda", "*.gcno", ".ninja_*", "CMakeCache.txt", "*.ninja", "nohup.out"),
    *(".gitignore", ".gitattributes", ".gitmodules", "core.[0-9]*"),
)
_STRAY_DIRECTORIES = frozenset(
    {".git", ".hg", ".svn", ".idea", ".vscode", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints"}
    | {".venv", "venv", "node_modules", ".tox", ".nox", "CMakeFiles", "_cmake_build"}
)
_MOST_HUB_ENTRIES = 10_000


@checks(
    VariantDir, STRAY, BYTECODE, LINK_OUT, LINK, SPECIAL_FILE, FILE_NAME, PORTABLE_NAME, HUB_FILE_SIZE, HUB_FILE_COUNT
)
def files(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """Every entry of a variant, by its name and kind."""
    counts: dict[str, int] = {}
    bytecode: dict[str, None] = {}
    for entry in variant.listing.entries:
        directory, _, name = entry.relative.rpartition("/")
        counts[directory] = counts.get(directory, 0) + 1
        in_folder = directory.split("/")[-1] == BYTECODE_FOLDER
        is_bytecode = entry.kind is EntryKind.FILE and (in_folder or name.endswith(".pyc"))
        if is_bytecode and not _is_kept_by_python(variant.path / entry.relative):
            bytecode[directory if in_folder else entry.relative] = None
        yield from _entry(variant, entry, directory, name)
    for path, why in unportable(entry.relative for entry in variant.listing.entries if "\\" not in entry.relative):
        yield PORTABLE_NAME.at(join(variant.shown, path), f"{printable(path)!r} cannot be stored everywhere: {why}")
    if bytecode:
        more = f", and in {len(bytecode) - 1} more places" if len(bytecode) > 1 else ""
        yield BYTECODE.at(join(variant.shown, next(iter(bytecode))), f"contains bytecode{more}")
    for directory, count in counts.items():
        if count > _MOST_HUB_ENTRIES:
            yield HUB_FILE_COUNT.at(join(variant.shown, directory), f"contains {count} entries")
    if not variant.listing.complete:
        yield HUB_FILE_COUNT.at(variant, f"contains more than {len(variant.listing.entries)} files and directories")


def _is_kept_by_python(file: Path) -> bool:
    """Whether Python wrote this bytecode for the source that is there now, and would not run it for another one.

    Its head: a number of four bytes each for Python's version, flags (0: by time and size), and the source's time and
    size. Reference: PEP 552.
    """
    source = file.parent.parent / f"{file.name.partition('.')[0]}.py"
    try:
        with file.open("rb") as opened:
            flags, modified, size = struct.unpack("<3I", opened.read(16)[4:])
        found = source.stat()
    except (OSError, struct.error):
        return False
    seen = int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF
    return file.parent.name == BYTECODE_FOLDER and flags == 0 and (modified, size) == seen


def _entry(variant: VariantDir, entry: TreeEntry, directory: str, name: str) -> Iterator[Finding]:
    place = join(variant.shown, entry.relative)
    if not _is_good_name(name):
        yield FILE_NAME.at(place, f"{printable(name)!r} is not a publishable file name")
    if entry.kind is EntryKind.OTHER:
        yield SPECIAL_FILE.at(place, "not a regular file or directory")
    elif entry.kind is EntryKind.LINK:
        where = "to a missing file" if entry.dangling else "to a directory" if entry.inside else "outside the variant"
        yield LINK_OUT.at(place, f"a link that points {where}: {printable(entry.target or '')}")
    elif entry.target is not None and _is_inside(variant, entry):
        yield LINK.at(place, f"a link to {printable(entry.target)}")
    if entry.kind is EntryKind.FILE and entry.size > LARGEST_FILE:
        yield HUB_FILE_SIZE.at(place, f"is {entry.size / 10**9:.0f} GB in size")
    parents = directory.split("/")
    is_stray = name in _STRAY_DIRECTORIES if entry.kind is EntryKind.DIRECTORY else _is_stray(name)
    if is_stray and not _STRAY_DIRECTORIES & set(parents):
        yield STRAY.at(place, f"{printable(name)} does not belong in a kernel")


def _is_stray(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _STRAYS)


def _is_inside(variant: VariantDir, entry: TreeEntry) -> bool:
    """Whether a link to a file stays in the variant; in the Hub's cache all files are links, to its store."""
    real = os.path.realpath(variant.path / entry.relative)
    return real.startswith(os.path.realpath(variant.path) + os.sep)


def _is_good_name(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\\" not in name and not any(ord(character) < 0x20 or ord(character) == 0x7F for character in name)


# --- folders ---

_NAMED = 24
_BESIDE_VARIANTS = frozenset({"benchmarks", "CARD.md", "README.md", "LICENSE", ".gitignore", ".gitattributes"})


@checks(BuildFolder, STRAY_DIRECTORY, MISSING_VARIANTS, MISSING_VARIANTS_PUBLISHED)
def folder(folder: BuildFolder, settings: Settings) -> Iterator[Finding]:
    """What lies beside the variants, and which variants are not there."""
    is_repository_root = (folder.path / "build.toml").exists() or (folder.path / ".git").exists()
    for name in () if is_repository_root else folder.strays:
        if name not in _BESIDE_VARIANTS and not name.startswith("."):
            yield STRAY_DIRECTORY.at(join(folder.shown, name), f"{printable(name)} is not a variant")
    if not settings.required:
        return
    wanted, missing = _missing(folder)
    if missing:
        which = MISSING_VARIANTS_PUBLISHED if folder.repository else MISSING_VARIANTS
        said = f"{len(missing)} of {wanted} required variants are missing: {few(missing, _NAMED)}"
        yield which.at(folder.shown, said)


def _missing(folder: BuildFolder) -> tuple[int, list[str]]:
    """``(number of required variants, names of those that are not there)``."""
    table = load_support()
    present = {variant.name for variant in folder.variants}
    project = folder.source.project if folder.source is not None else None
    if project is not None:
        required = [entry.name for entry in choose(all_variants(project, table, None), within=VariantSet.REQUIRED).kept]
    else:
        parsed = [variant.variant for variant in folder.variants if isinstance(variant.variant, ArchVariant)]
        # Without build.toml only full torch variants tell what is wanted: stable ones serve several releases.
        backends = {variant.backend for variant in parsed if str(variant.tag).startswith("torch2")}
        required = [row.name for row in table.rows if row.required and row.variant.backend in backends]
    return len(required), [name for name in required if name not in present]


# --- sources ---

_ENDS = re.compile(r"(?<![\w.>:~])(?:std\s*::\s*|::\s*)?\b(exit|_exit|_Exit|quick_exit|abort|terminate)\s*\(")
_MEMBER = re.compile(r"(?:->|\.|\w\s*::)\s*$")
_DECLARED = re.compile(r"(?:\bvoid|\]\])\s+$")


@checks(SourceTree, NATIVE_EXIT)
def native_exits(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """Calls of ``exit`` and its like in the sources that ``build.toml`` lists. One finding per file."""
    for relative, text in native_sources(source):
        if not any(word in text for word in ("exit", "abort", "terminate")):
            continue
        clean = without_noise(text)
        lines = [
            (clean.count("\n", 0, match.start()) + 1, match[1])
            for match in _ENDS.finditer(clean)
            if _is_call(clean, match)
        ]
        if lines:
            number, what = lines[0]
            more = f" (and {len(lines) - 1} more times in this file)" if len(lines) > 1 else ""
            said = f"{what}() terminates the user's process{more}"
            yield NATIVE_EXIT.at(join(source.shown, relative), said, line=number, symbol=what)


def _is_call(text: str, match: re.Match[str]) -> bool:
    before = text[max(0, match.start() - 40) : match.start()]
    if _MEMBER.search(before) or _DECLARED.search(before):
        return False
    if match[1] == "terminate" and "std" not in match[0]:
        return False  # a common name for other things
    after = text[match.end() : match.end() + 200].lstrip()
    return not after.startswith("void)")
