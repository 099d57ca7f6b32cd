"""What in a project's tree belongs to the kernel: its package files, and every file that a build reads.

Only the project's own files are looked at, never those that a build or a checkout leaves behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Project
from kernel_builder.errors import ConfigError
from kernel_builder.walking import VERSION_CONTROL, is_inside, is_of_other_programs

WORK_DIRECTORY = ".kernel-builder"
"""The tool's own directory in a project: objects, logs, generated files. Safe to delete."""

OUTPUT_DIRECTORY = "build"
"""Where variants are installed by default, as with the reference implementation."""

HEADER_SUFFIXES = frozenset({".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".inc", ".inl", ".ipp", ".tcc", ".def"})

_ALWAYS_PACKAGED = frozenset({".py", ".pyi"})
_LICENCE_STEMS = ("license", "licence", "copying", "notice", "authors", "copyright")
SOURCE_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cxx", ".c++"}).union(*(backend.sources for backend in Backend))
_SKIPPED_DIRECTORIES = frozenset({"__pycache__", OUTPUT_DIRECTORY, "node_modules", "_cmake_build"})
GENERATED_OPS = "_ops.py"
GENERATED_NAMES = frozenset({GENERATED_OPS, "metadata.json"})


@dataclass(frozen=True, kw_only=True)
class PackageFiles:
    """Files below the package directory, as sorted POSIX paths relative to it: ``kept`` are installed."""

    kept: tuple[str, ...]
    left_out: tuple[str, ...]


def _walk(directory: Path, above: tuple[str, ...] = ()) -> Iterator[tuple[str, bool]]:
    """``(POSIX path, is it a regular file)`` of everything below ``directory`` but bytecode, in no order.

    Links are followed, but for those to a directory that they are in (``above``: the real ones on the way). They, and
    links to nowhere, are no files.
    """
    here = os.path.realpath(directory)
    with os.scandir(directory) as entries:
        found = [entry for entry in entries if entry.name != "__pycache__" and not entry.name.endswith(".pyc")]
    for entry in found:
        if not entry.is_dir():
            yield entry.name, entry.is_file()
        elif os.path.realpath(entry.path) in {here, *above}:
            yield entry.name, False
        elif not is_of_other_programs(entry.path) or entry.name in VERSION_CONTROL:
            for path, is_file in _walk(Path(entry.path), (*above, here)):
                yield f"{entry.name}/{path}", is_file


def _is_licence(name: str) -> bool:
    return name.lower().startswith(_LICENCE_STEMS)


def package_files(project: Project) -> PackageFiles:
    """Split the package's files: Python, stubs, ``py.typed``, licences and every ``pyext`` suffix are installed.

    Links to nowhere and out of the project are left out, whatever they are called. What is behind other links, to
    directories also, is installed like everything else.

    A ``_ops.py`` and a ``metadata.json`` at the package's top are left out: those names are the generated files'.
    Raises :class:`ConfigError` for a name that is not UTF-8, which no digest could hold.
    """
    suffixes = _ALWAYS_PACKAGED | {f".{extension}" for extension in project.framework.pyext or ()}
    kept: list[str] = []
    left_out: list[str] = []
    for path, is_file in _walk(project.package):
        _refuse_unwritable(project, path)
        name = path.rsplit("/", 1)[-1]
        wanted = name == "py.typed" or _is_licence(name) or any(name.endswith(suffix) for suffix in suffixes)
        # A link that leads out of the project could publish anything, and another machine does not have it.
        inside = is_inside(os.path.realpath(project.package / path), str(project.root))
        (kept if wanted and is_file and inside and path not in GENERATED_NAMES else left_out).append(path)
    return PackageFiles(kept=tuple(sorted(kept)), left_out=tuple(sorted(left_out)))


def _refuse_unwritable(project: Project, path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise ConfigError(
            f"{project.package}/{shown}: the file name is not valid UTF-8, so metadata.json could not list it",
            hint="rename the file",
        ) from error


def native_files(root: Path) -> tuple[str, ...]:
    """Every source and header below ``root``, listed or not, as sorted POSIX paths relative to it: for messages.

    Hidden directories, build outputs and Python environments are not searched.
    """
    found: list[str] = []
    suffixes = HEADER_SUFFIXES | SOURCE_SUFFIXES
    for parent, directories, files in os.walk(root):
        directories[:] = sorted(
            name
            for name in directories
            if not name.startswith(".")
            and name not in _SKIPPED_DIRECTORIES
            and not (Path(parent) / name / "pyvenv.cfg").exists()
        )
        relative = Path(parent).relative_to(root)
        found.extend((relative / name).as_posix() for name in files if Path(name).suffix.lower() in suffixes)
    return tuple(sorted(found))
