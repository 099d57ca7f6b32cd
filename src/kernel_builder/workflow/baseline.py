"""What a build is measured against: torch's own way, another revision of the project, or another build."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.artifact.built import BuiltVariant, variants_in
from kernel_builder.artifact.digest import METADATA
from kernel_builder.config.model import Project
from kernel_builder.config.reader import FILE_NAME
from kernel_builder.errors import BuildError, UsageError
from kernel_builder.events import Notice
from kernel_builder.git import GitError
from kernel_builder.project.tree import OUTPUT_DIRECTORY
from kernel_builder.variants.matrix import Kept
from kernel_builder.workflow.build import BuildRequest
from kernel_builder.workflow.environments import Workplace
from kernel_builder.workflow.outcome import BuildOutcome
from kernel_builder.workflow.revisions import checked_out, commit_of
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.testing import build_variant

TORCH = "torch"
"""The word for the reference of the benchmarks. A directory or a revision of that name is written ``./torch``,
``refs/heads/torch``.
"""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """``path`` is the variant's directory, ``None`` for torch. ``label`` is for people, ``commit`` that of its kernel,
    where it is known. ``failed`` is a build of it that failed: then there is no path.
    """

    label: str
    path: Path | None = None
    commit: str | None = None
    failed: BuildOutcome | None = None


@contextmanager
def open_baseline(
    against: str, project: Project, entry: Kept, workplace: Workplace, build: BuildRequest, run: Run
) -> Iterator[Baseline]:
    """What ``against`` names, built where it is not: ``torch``, else a directory, else a revision of the project.

    A revision is checked out beside, until the block ends. Raises :class:`UsageError` for what is none of these, and
    what building raises.
    """
    if against == TORCH:
        yield Baseline(label=TORCH)
        return
    folder = Path(against)
    if folder.is_dir():
        yield _of_folder(folder.resolve(), against, entry, workplace, build, run)
        return
    commit = _commit(against, project, run)
    with (
        tempfile.TemporaryDirectory(prefix="kernel-builder-bench-") as scratch,
        checked_out(commit, project.root, Path(scratch) / "tree", run) as root,
    ):
        if not (root / FILE_NAME).is_file():
            raise UsageError(f"{against} ({commit[:12]}) has no {FILE_NAME} in the project's directory")
        # What it is compiled with is the same for both: the settings that count here.
        request = replace(build, root=root, settings_from=project.root)
        yield _built(against, entry, workplace, request, run)


def _built(label: str, entry: Kept, workplace: Workplace, build: BuildRequest, run: Run) -> Baseline:
    run.reporter.emit(Notice(message=f"building {entry.name} of {label}"))
    outcome = build_variant(entry, workplace, build, run)
    (variant,) = outcome.variants
    if variant.path is None:
        return Baseline(label=label, failed=outcome)
    (there,) = [one for one in variants_in(variant.path.parent) if one.path == variant.path]
    return Baseline(label=label, path=variant.path, commit=there.commit)


def _of_folder(folder: Path, label: str, entry: Kept, workplace: Workplace, build: BuildRequest, run: Run) -> Baseline:
    if (folder / FILE_NAME).is_file():
        return _built(label, entry, workplace, replace(build, root=folder), run)
    places = (folder.parent, folder, folder / OUTPUT_DIRECTORY)
    alone = folder / METADATA
    found = [one for one in variants_in(places[0]) if one.path == folder] if alone.is_file() else []
    found = found or [*variants_in(places[1]), *variants_in(places[2])]
    if not found:
        raise UsageError(
            f"{label} is neither a project nor a directory of built variants",
            hint="pass a directory that has build.toml, or one that has built variants, such as build/",
        )
    fitting = [one for one in found if one.name == entry.name]
    if not fitting:
        raise UsageError(
            f"{label} has no {entry.name}; it has {', '.join(one.name for one in found)}",
            hint="name a variant that both have: kernel-builder bench --variant NAME",
        )
    _refuse_no_release(fitting[0], label)
    return Baseline(label=label, path=fitting[0].path, commit=fitting[0].commit)


def _refuse_no_release(variant: BuiltVariant, label: str) -> None:
    if not variant.build_type.is_release:
        raise BuildError(
            f"{variant.name} in {label} was built with {variant.build_type.options}: its times are not comparable",
            hint="build it without these options, and measure again",
        )


def _commit(text: str, project: Project, run: Run) -> str:
    try:
        return commit_of(text, project.root, run)
    except GitError as error:
        why = "" if error.silent else f": {error}"
        raise UsageError(
            f"--against {text} is neither 'torch', nor a directory, nor a git revision of the project{why}",
            hint="write it as git does (HEAD~1, main, v1.2), or pass a directory",
        ) from error
