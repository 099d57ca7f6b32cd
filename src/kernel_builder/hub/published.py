"""The interface of a kernel in its sources, in built variants, or in a revision on the Hub."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.artifact.built import BuiltVariant, variants_in
from kernel_builder.artifact.digest import METADATA
from kernel_builder.config.backends import HOST
from kernel_builder.config.model import Project
from kernel_builder.errors import UsageError
from kernel_builder.hub.plan import BUILD
from kernel_builder.hub.remote import Remote
from kernel_builder.interface.diff import Published
from kernel_builder.interface.read import (
    functions_of_library,
    functions_of_project,
    ops_of_library,
    ops_of_project,
    read_interface,
)

_LIBRARIES = (".so", ".pyd")
_LARGEST_LIBRARY = 64 << 20
"""A library of more bytes is not fetched for the sake of its op schemas, which then are not compared."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison, and ``place``: for people, where it was read."""

    published: Published
    place: str


def of_project(project: Project) -> Side:
    """The interface in the sources of ``project``."""
    return Side(
        published=Published(
            interface=read_interface(
                project.package, ops=ops_of_project(project), library=functions_of_project(project)
            ),
            version=project.version,
        ),
        place=str(project.package),
    )


def of_variants(variants: Sequence[BuiltVariant]) -> Side:
    """The interface of built variants, which all have the same Python files: it is read from the first by name."""
    first = _reference(variant.name for variant in variants)
    variant = next(variant for variant in variants if variant.name == first)
    ops: dict[str, str] = {}
    functions: tuple[str, ...] = ()
    for library in sorted(variant.path.iterdir()):
        if library.suffix in _LIBRARIES and library.is_file():
            ops |= ops_of_library(library)
            functions += functions_of_library(library)
    return Side(
        published=Published(
            interface=read_interface(variant.path, ops=ops, library=functions),
            version=variant.version or 0,
            variants=tuple(candidate.name for candidate in variants),
        ),
        place=str(variant.path),
    )


def of_revision(remote: Remote, revision: str, scratch: Path) -> Side:
    """The interface of what the Hub has at ``revision`` (a branch or a commit): one variant is fetched to ``scratch``.

    Raises :class:`UsageError` when there are no variants, and what :class:`Remote` raises.
    """
    files = remote.snapshot(revision).files
    names = sorted({path.split("/")[1] for path in files if path.startswith(f"{BUILD}/") and path.endswith(METADATA)})
    if not names:
        raise UsageError(
            f"{remote.repo_id} has no variants at {revision}",
            hint="name another revision: kernel-builder api-diff --against REVISION",
        )
    first = _reference(names)
    wanted = [
        path
        for path, file in files.items()
        if path.startswith(f"{BUILD}/{first}/")
        and (path.endswith((".py", METADATA)) or (path.endswith(_LIBRARIES) and file.size <= _LARGEST_LIBRARY))
    ]
    for path in wanted:
        remote.download(path, revision, scratch)
    side = of_variants(variants_in(scratch / BUILD))
    return Side(published=replace(side.published, variants=tuple(names)), place=f"{remote.repo_id} at {revision}")


def newest_branch(branches: Iterable[str], version: int) -> str | None:
    """The branch to compare ``version`` with: its own, or that of the version before it; ``None`` without either."""
    published = sorted(int(name[1:]) for name in branches if name[:1] == "v" and name[1:].isdigit())
    earlier = [other for other in published if other <= version]
    return f"v{earlier[-1]}" if earlier else None


def _reference(names: Iterable[str]) -> str:
    """The variant to read an interface from: one for the host if there is one, whose library is small."""
    return min(names, key=lambda name: (f"-{HOST}" not in name, name))
