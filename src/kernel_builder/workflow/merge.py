"""``merge``: variants that several jobs built of one tree, put into one directory.

A matrix of jobs builds a variant each; what is published has to come from one tree all the same, or a user of one
variant runs other code than a user of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.artifact.built import CARD, BuiltVariant, variants_in
from kernel_builder.artifact.digest import METADATA
from kernel_builder.artifact.tools import source_differences, tool_differences, without_tools
from kernel_builder.artifact.variant import copied, publish, recover
from kernel_builder.config.reader import FILE_NAME, load_project
from kernel_builder.errors import BuildError, UsageError
from kernel_builder.events import Notice, Recorder
from kernel_builder.files import replacing
from kernel_builder.hub.local import UploadSource, find_source, places_in
from kernel_builder.workflow.installing import fill_card

_SHOWN = 3
"""How many variants are named for one value that the others do not have."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    """``taken`` are the names of variants that were put into ``output``, ``present`` those that were there already.

    ``notes`` are for people.
    """

    output: Path
    taken: tuple[str, ...]
    present: tuple[str, ...]
    notes: tuple[str, ...]


def merge(directories: Sequence[Path], output: Path) -> Merged:
    """Put the variants of all ``directories`` into ``output``, beside those that are there.

    Each directory holds variants, or is a project with a ``build``. Every file is held against the digest in its
    metadata first, and nothing is written unless all variants, those in ``output`` included, are of one tree: one name,
    version and license, and the same sources.
    Raises :class:`UsageError` for a directory without variants; :class:`BuildError` for variants that were changed
    since they were built, that are of different trees, or of which there are different builds, each with all that is
    wrong.
    """
    here = variants_in(output)
    given: list[BuiltVariant] = []
    notes: list[str] = []
    sources: list[UploadSource] = []
    for directory in directories:
        source = find_source(directory)
        if source.folder.resolve() == output.resolve():
            raise UsageError(
                f"{directory} is both an input and the output",
                hint="choose another output directory: kernel-builder merge DIR --output OTHER",
            )
        sources.append(source)
        given += source.variants
        notes += source.notes
    files = _files_of(given)
    _refuse_other_trees(here, given)
    chosen = _one_of_each((*here, *given), files)
    taken = [variant for variant in chosen if variant.path in files]
    recover(output, tuple(variant.name for variant in taken))
    with ExitStack() as stack:
        # All of them are copied before the first one gets its place: a full disk leaves the output as it was.
        stages = [(stack.enter_context(copied(one.name, files[one.path], output)), one.name) for one in taken]
        changed = {name for stage, name in stages if publish(stage, output, name)}
    notes += _card(sources, output)
    names = sorted({variant.name for variant in given})
    return Merged(
        output=output,
        taken=tuple(name for name in names if name in changed),
        present=tuple(name for name in names if name not in changed),
        notes=(*notes, *_builders(chosen)),
    )


def _files_of(given: Sequence[BuiltVariant]) -> dict[Path, Mapping[str, Path]]:
    """The files of each variant, by where it lies, held against its digest. Raises :class:`BuildError` that names all
    variants which are not as they were built.
    """
    files: dict[Path, Mapping[str, Path]] = {}
    problems: list[str] = []
    for variant in given:
        try:
            files[variant.path] = places_in(variant)
        except BuildError as error:
            problems.append(error.message)
    if problems:
        raise BuildError("\n".join(problems), hint="use the unchanged output of its job, or build it again")
    return files


def _card(sources: Sequence[UploadSource], output: Path) -> list[str]:
    """Have the card beside the variants tell of all of them; what people must know of it. Each job's card tells of its
    own variants alone.
    """
    projects = [place for place in (output.resolve().parent, *(one.directory for one in sources)) if _has_card(place)]
    if projects:
        recorder = Recorder()
        fill_card(load_project(projects[0])[0], output, recorder)
        return [event.message for event in recorder.events if isinstance(event, Notice)]
    cards = {file.read_bytes(): file for one in sources for file in (one.folder / CARD,) if file.is_file()}
    if len(cards) == 1 and not (output / CARD).exists():
        with replacing(output / CARD) as file:
            file.write(next(iter(cards)))
    elif cards.keys() - ({(output / CARD).read_bytes()} if (output / CARD).is_file() else set()):
        return [f"{CARD} differs between the jobs and is left out: 'kernel-builder upload' in the project fills it in"]
    return []


def _has_card(place: Path) -> bool:
    return (place / FILE_NAME).is_file() and (place / CARD).is_file()


def _sources(variant: BuiltVariant) -> str | None:
    """What says which tree a variant is of: the digest of its sources, else a commit without changes beside it."""
    recorded = variant.sources.get("sha256")
    if isinstance(recorded, str):
        return f"sources {recorded[:12]}"
    return None if variant.commit is None or variant.is_dirty else f"commit {variant.commit[:12]}"


_AGREED: Mapping[str, Callable[[BuiltVariant], object]] = {
    "name": lambda variant: variant.metadata.get("name"),
    "version": lambda variant: variant.version,
    "license": lambda variant: variant.metadata.get("license"),
    "commit": lambda variant: variant.commit or "none",
    "sources": _sources,
}
"""What all variants of one tree have in common."""


def _refuse_other_trees(here: Sequence[BuiltVariant], given: Sequence[BuiltVariant]) -> None:
    variants = (*here, *given)
    unknown = [variant for variant in variants if _sources(variant) is None]
    problems = [f"{variant.path} does not record what it was built from" for variant in unknown]
    for what, read in _AGREED.items():
        by_value: dict[str, list[BuiltVariant]] = {}
        for variant in variants:
            if what != "sources" or variant not in unknown:
                by_value.setdefault(str(read(variant)), []).append(variant)
        if len(by_value) > 1:
            problems += [f"{what} {value.removeprefix(f'{what} ')}: {_listed(of)}" for value, of in by_value.items()]
    problems += _files_that_differ(variants)
    if problems:
        raise BuildError(
            "these variants were built from different sources:\n  " + "\n  ".join(problems),
            hint="build all of them from one commit"
            + (", or put them elsewhere: kernel-builder merge --output DIR" if here else ""),
        )


def _files_that_differ(variants: Sequence[BuiltVariant]) -> list[str]:
    """Which files two variants were built from that are not the same: the first one, and the first that is of another
    tree.
    """
    for other in variants[1:]:
        lines = source_differences(variants[0].metadata, other.metadata)
        if lines:
            return [f"{variants[0].path} against {other.path}:", *(f"  {line}" for line in lines)]
    return []


def _listed(variants: Sequence[BuiltVariant]) -> str:
    shown = ", ".join(str(variant.path) for variant in variants[:_SHOWN])
    return shown if len(variants) <= _SHOWN else f"{shown} and {len(variants) - _SHOWN} more"


def _one_of_each(
    variants: Sequence[BuiltVariant], files: Mapping[Path, Mapping[str, Path]]
) -> tuple[BuiltVariant, ...]:
    """One build of each variant, the first; all builds of it must be the same."""
    chosen: dict[str, BuiltVariant] = {}
    problems: list[str] = []
    for variant in variants:
        first = chosen.setdefault(variant.name, variant)
        differing = [] if first is variant else _differing(first, variant)
        if differing:
            problems.append(f"{first.path} and {variant.path}: {', '.join(differing)}")
            problems += [f"  {line}" for line in tool_differences(first.metadata, variant.metadata)]
    if problems:
        raise BuildError(
            "these variants were built several times, with different results:\n  " + "\n  ".join(problems),
            hint="keep one build of each variant",
        )
    # What is in the output already is taken again where a job built it, too: the copy there was not read.
    given = {variant.name: variant for variant in variants if variant.path in files}
    return tuple({**chosen, **given}.values())


def _differing(one: BuiltVariant, other: BuiltVariant) -> list[str]:
    """The names of files that differ between two builds of a variant, by what their metadata says. What made them may
    differ, as long as it made the same.
    """
    if without_tools(one.metadata) == without_tools(other.metadata):
        return []
    ours, theirs = (_digests(variant) for variant in (one, other))
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    return names or [METADATA]


def _digests(variant: BuiltVariant) -> Mapping[str, object]:
    digest = variant.metadata.get("digest")
    files = digest.get("files") if isinstance(digest, dict) else None
    return files if isinstance(files, dict) else {}


def _builders(variants: Iterable[BuiltVariant]) -> list[str]:
    """What to tell where the variants were made by several versions of the builder."""
    versions = sorted({variant.builder_version or "unknown" for variant in variants})
    return [f"built by different versions of kernel-builder: {', '.join(versions)}"] if len(versions) > 1 else []
