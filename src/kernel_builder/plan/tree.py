"""What in a project's tree belongs to the kernel: its package files, and every file that a build reads.

Only the project's own files are looked at, never those that a build or a checkout leaves behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.model import Project

WORK_DIRECTORY = ".kernel-builder"
"""The tool's own directory in a project: objects, logs, generated files. Safe to delete."""

OUTPUT_DIRECTORY = "build"
"""Where variants are installed by default, as with the reference implementation."""

HEADER_SUFFIXES = frozenset({".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".inc", ".inl", ".ipp", ".tcc", ".def"})

_ALWAYS_PACKAGED = frozenset({".py", ".pyi"})
_LICENCE_STEMS = ("license", "licence", "copying", "notice", "authors", "copyright")
_SKIPPED_DIRECTORIES = frozenset({"__pycache__", OUTPUT_DIRECTORY, "node_modules"})
GENERATED_OPS = "_ops.py"


@dataclass(frozen=True, kw_only=True)
class PackageFiles:
    """Files below the package directory, as sorted POSIX paths relative to it: ``kept`` are installed."""

    kept: tuple[str, ...]
    left_out: tuple[str, ...]


def _walk(directory: Path) -> Iterator[str]:
    """POSIX paths of all regular files below ``directory``; links to directories are not followed."""
    for parent, directories, files in os.walk(directory):
        directories[:] = sorted(name for name in directories if name != "__pycache__")
        relative = Path(parent).relative_to(directory)
        for name in sorted(files):
            if not name.endswith(".pyc") and (Path(parent) / name).is_file():
                yield (relative / name).as_posix()


def _is_licence(name: str) -> bool:
    return name.lower().startswith(_LICENCE_STEMS)


def package_files(project: Project) -> PackageFiles:
    """Split the package's files: Python, stubs, ``py.typed``, licences and every ``pyext`` suffix are installed.

    A ``_ops.py`` at the package's top is left out: that name is the generated module's.
    """
    suffixes = _ALWAYS_PACKAGED | {f".{extension}" for extension in project.framework.pyext or ()}
    kept: list[str] = []
    left_out: list[str] = []
    for path in _walk(project.package):
        name = path.rsplit("/", 1)[-1]
        wanted = name == "py.typed" or _is_licence(name) or any(name.endswith(suffix) for suffix in suffixes)
        (kept if wanted and path != GENERATED_OPS else left_out).append(path)
    return PackageFiles(kept=tuple(sorted(kept)), left_out=tuple(sorted(left_out)))


def project_headers(root: Path) -> tuple[str, ...]:
    """Every header-like file of the project, as sorted POSIX paths relative to ``root``.

    Hidden directories, build outputs and virtual environments are not searched.
    """
    found: list[str] = []
    for parent, directories, files in os.walk(root):
        directories[:] = sorted(
            name
            for name in directories
            if not name.startswith(".")
            and name not in _SKIPPED_DIRECTORIES
            and not (Path(parent) / name / "pyvenv.cfg").exists()
        )
        relative = Path(parent).relative_to(root)
        found.extend((relative / name).as_posix() for name in files if Path(name).suffix in HEADER_SUFFIXES)
    return tuple(sorted(found))


def build_inputs(project: Project) -> tuple[str, ...]:
    """Every file whose content decides what a build makes, as sorted POSIX paths relative to the project root.

    ``build.toml``, declared sources, the package's installed files, and all headers: a header need not be listed to be
    included.
    """
    package = project.package.relative_to(project.root).as_posix()
    paths = {"build.toml", *project.framework.src, *project_headers(project.root)}
    paths.update(source for section in project.sections for source in section.src)
    paths.update(f"{package}/{path}" for path in package_files(project).kept)
    return tuple(sorted({os.path.normpath(path) for path in paths}))
