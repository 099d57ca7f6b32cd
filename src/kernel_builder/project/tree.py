"""What in a project's tree belongs to the kernel: its package files, and every file that a build reads.

Only the project's own files are looked at, never those that a build or a checkout leaves behind.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Project
from kernel_builder.errors import ConfigError

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


def _walk(directory: Path) -> Iterator[tuple[str, bool]]:
    """``(POSIX path, is it a regular file)`` of everything below ``directory`` but bytecode.

    Links to files count as files; links to directories are not followed, and like links to nowhere they are no files.
    """
    for parent, directories, files in os.walk(directory):
        here = Path(parent)
        links = [name for name in directories if (here / name).is_symlink()]
        directories[:] = sorted(name for name in directories if name != "__pycache__" and name not in links)
        for name in sorted([*files, *links]):
            if not name.endswith(".pyc"):
                yield (here / name).relative_to(directory).as_posix(), (here / name).is_file()


def _is_licence(name: str) -> bool:
    return name.lower().startswith(_LICENCE_STEMS)


def package_files(project: Project) -> PackageFiles:
    """Split the package's files: Python, stubs, ``py.typed``, licences and every ``pyext`` suffix are installed.

    Links to nowhere, to directories and out of the project are left out, whatever they are called.

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
        inside = (project.package / path).resolve().is_relative_to(project.root.resolve())
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
