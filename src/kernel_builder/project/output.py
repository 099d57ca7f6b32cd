"""Where variants may be installed: anywhere but among the files that the kernel, or the tool, is made of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kernel_builder.config.model import Project
from kernel_builder.errors import UsageError
from kernel_builder.project.inputs import include_folders
from kernel_builder.project.tree import OUTPUT_DIRECTORY, WORK_DIRECTORY
from kernel_builder.walking import VERSION_CONTROL, is_inside

_METADATA = "metadata.json"


def output_directory(project: Project, wanted: Path | None) -> Path:
    """The directory for variants, absolute: ``wanted``, or else ``build`` in the project.

    What is installed among the project's own files would be packed or compiled by the next build. Raises
    :class:`UsageError` for such a place, links followed, and for one inside of a variant.
    """
    place = (wanted or project.root / OUTPUT_DIRECTORY).absolute()
    if wanted is None:
        return place
    real, root = os.path.realpath(place), os.path.realpath(project.root)
    why = next(_reasons(project, real, root), None)
    if why is not None:
        raise UsageError(
            f"cannot install variants into {wanted}: {why}",
            hint="pass a directory outside of it, or run kernel-builder build without --output to use"
            f" {OUTPUT_DIRECTORY}/ in the project",
        )
    return place


def _reasons(project: Project, real: str, root: str) -> Iterator[str]:
    if real == root:
        yield "it is the project's own directory, whose files belong to the kernel"
    for folder, what in _folders(project).items():
        taken = os.path.realpath(project.root / folder)
        if is_inside(real, taken):
            yield f"{folder} in the project {what}"
        elif is_inside(taken, real) and is_inside(real, root):
            yield f"it contains {folder} of the project, which {what}"
    for place in (Path(real), *Path(real).parents):
        if place.name in VERSION_CONTROL:
            yield f"{place} belongs to version control"
        if (place / _METADATA).is_file() and place.parent.name == OUTPUT_DIRECTORY:
            yield f"{place} is a variant itself; --output names the directory that contains variants"


def _folders(project: Project) -> dict[str, str]:
    """The directories of the project that its files are in, with what that means; the top is not one of them."""
    sources = [source for section in project.sections for source in section.src]
    sources += project.framework.src
    found = {
        WORK_DIRECTORY: "is for objects and logs, and can be deleted at any time",
        project.framework.directory: "contains the Python package",
    }
    for path in (*include_folders(project), *(os.path.dirname(source) for source in sources)):  # noqa: PTH120
        first = next(iter(Path(path).parts), "")
        if first not in {"", ".."}:
            found.setdefault(first, "contains sources and headers")
    return found
