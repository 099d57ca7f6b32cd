"""What planning needs to know of a project's tree: looked up once, before anything is planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.model import Project
from kernel_builder.project.tree import PackageFiles, includable_files, package_files

REGISTRATION = "registration.h"
"""The header with the registration macros: the project's own, or else a generated one."""


Marks = Mapping[str, frozenset[str]]
"""What the text of files says, as the framework's own marks: path relative to the project root -> marks. Files without
any are left out.
"""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The tree of one project.

    ``package`` are the package's files, ``includable`` every file that a source may include, ``marks`` what these
    files say; ``has_csrc`` and ``has_registration`` whether the project has such a directory and such a header of its
    own.
    """

    package: PackageFiles
    includable: tuple[str, ...]
    marks: Marks
    has_csrc: bool = False
    has_registration: bool = False


def survey(project: Project, output: Path, read_marks: Callable[[bytes], frozenset[str]]) -> Survey:
    """Look at the tree of ``project``, whose variants go to ``output``; ``read_marks`` gives the marks of a text.

    Raises :class:`ConfigError` for a name that is not UTF-8, ``OSError`` for a file that cannot be read.
    """
    sources = (*project.framework.src, *(source for section in project.sections for source in section.src))
    includable = includable_files(project.root, output)
    found = {path: read_marks((project.root / path).read_bytes()) for path in dict.fromkeys((*sources, *includable))}
    return Survey(
        package=package_files(project),
        includable=includable,
        marks={path: marks for path, marks in found.items() if marks},
        has_csrc=(project.root / "csrc").is_dir(),
        has_registration=(project.root / project.framework.directory / REGISTRATION).is_file(),
    )
