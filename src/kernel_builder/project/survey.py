"""What planning needs to know of a project's tree: looked up once, before anything is planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernel_builder.config.model import Project
from kernel_builder.project.inputs import BuildInputs
from kernel_builder.project.tree import PackageFiles, package_files

REGISTRATION = "registration.h"
"""The header with the registration macros: the project's own, or else a generated one."""


Marks = Mapping[str, frozenset[str]]
"""What the text of files says, as the framework's own marks: path relative to the project root -> marks. Files without
any are left out.
"""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The tree of one project.

    ``package`` are the package's files, ``inputs`` all that a build reads, ``marks`` what the sources, and the files
    that they may include, say, and ``needs`` what they need of the framework, where that was asked for;
    ``has_csrc`` and ``has_registration`` whether the project has such a directory and such
    a header of its own.
    """

    package: PackageFiles
    inputs: BuildInputs
    marks: Marks
    needs: Marks = field(default_factory=dict)
    has_csrc: bool = False
    has_registration: bool = False


def survey(
    project: Project,
    inputs: BuildInputs,
    read_marks: Callable[[bytes], frozenset[str]],
    read_needs: Callable[[bytes], frozenset[str]] | None = None,
) -> Survey:
    """Look at the tree of ``project``, of which a build reads ``inputs``; ``read_marks`` gives the marks of a text, and
    ``read_needs`` what it needs.

    Raises :class:`ConfigError` for a name that is not UTF-8, ``OSError`` for a file that cannot be read.
    """
    found: dict[str, frozenset[str]] = {}
    needs: dict[str, frozenset[str]] = {}
    for path in inputs.included:
        text = (project.root / path).read_bytes()
        found[path] = read_marks(text)
        if read_needs is not None:
            needs[path] = read_needs(text)
    return Survey(
        package=package_files(project),
        inputs=inputs,
        marks={path: marks for path, marks in found.items() if marks},
        needs=needs,
        has_csrc=(project.root / "csrc").is_dir(),
        has_registration=(project.root / project.framework.directory / REGISTRATION).is_file(),
    )
