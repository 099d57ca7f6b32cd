"""``rebuild``: what a build came from is built again, and held against it, file by file.

A kernel runs as native code in other people's processes. Whoever has the sources can see that a published library is
what they give, and not something else.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from kernel_builder.actions.headers import Headers
from kernel_builder.artifact.built import BuiltVariant, variants_in
from kernel_builder.artifact.digest import METADATA, SIGNATURE
from kernel_builder.artifact.tools import flag_differences, source_differences, tool_differences, without_tools
from kernel_builder.binary.compare import differences
from kernel_builder.binary.elf import mapped
from kernel_builder.config.reader import FILE_NAME
from kernel_builder.config.settings import FILE_NAME as SETTINGS
from kernel_builder.errors import BuildError, UsageError
from kernel_builder.files import parse_json
from kernel_builder.git import GitError
from kernel_builder.hub.local import UploadSource, find_source, places_in
from kernel_builder.hub.plan import BUILD
from kernel_builder.hub.remote import Remote
from kernel_builder.toolchain.lock import LOCK_NAME
from kernel_builder.toolchain.lock_use import LockUse
from kernel_builder.variants.build_type import BuildType
from kernel_builder.workflow.build import BuildRequest, SandboxUse, build
from kernel_builder.workflow.outcome import BuildOutcome
from kernel_builder.workflow.revisions import checked_out, commit_of
from kernel_builder.workflow.run import Run

_ON_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[\w./-]+)")


@dataclass(frozen=True, kw_only=True)
class RebuildRequest:
    """``target`` is a directory of built variants, or ``OWNER/NAME@REVISION`` on the Hub; ``project`` the kernel's
    sources in git (default: those around a directory). ``patterns`` are globs over variant names (empty: all).
    ``output`` keeps what is built. ``sandbox`` says whether compilers run in a sandbox.
    """

    target: str
    project: Path | None = None
    patterns: tuple[str, ...] = ()
    output: Path | None = None
    jobs: int | None = None
    verbose: bool = False
    sandbox: SandboxUse = SandboxUse.NO


@dataclass(frozen=True, kw_only=True)
class FileDifference:
    """How a file differs; ``lines`` are for people, and name what the build at hand has first."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RebuiltVariant:
    """One variant, and what differs in what was built again: nothing, if it is the same.

    ``sources`` says which files of the project were others, if the variant is not what its commit says, and ``tools``
    what of its compilers, headers and libraries is another here, ``flags`` what the project gave compilers. Each may
    or may not be why.
    """

    variant: str
    files: int
    differences: tuple[FileDifference, ...] = field(default=())
    sources: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether every file is the same, byte for byte."""
        return not self.differences


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """What became of it: ``comparisons`` unless a build failed. ``outcomes`` has one for each way of building that the
    variants tell. ``notes`` are for people.
    """

    commit: str
    outcomes: tuple[BuildOutcome, ...]
    comparisons: tuple[RebuiltVariant, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything was built."""
        return all(outcome.ok for outcome in self.outcomes)


def rebuild(request: RebuildRequest, run: Run) -> Rebuilt:
    """Build the commit of a build again, with what its lock names, and without what was compiled before.

    Raises :class:`UsageError` for what is no build, and where its commit is not at hand; :class:`BuildError` for
    variants that were changed since they were built, or that do not say which commit they are of; and what building
    raises.
    """
    with tempfile.TemporaryDirectory(prefix="kernel-builder-rebuild-") as scratch, ExitStack() as stack:
        source = _source(request, Path(scratch) / "published", run)
        # What somebody changed since is a different matter from another build: every file is held against its digest.
        given = {variant.name: places_in(variant) for variant in source.variants}
        commit = _commit(source.variants)
        root = _repository(request, source, commit, run)
        tree = stack.enter_context(checked_out(commit, root, Path(scratch) / "tree", run))
        if not (tree / FILE_NAME).is_file():
            raise UsageError(f"{root} has no {FILE_NAME} in {commit[:12]}", hint=_WHICH_PROJECT)
        made = request.output or Path(scratch) / "made"
        ways: dict[_Way, list[BuiltVariant]] = {}
        for variant in source.variants:
            ways.setdefault(_Way.of(variant), []).append(variant)
        outcomes = tuple(_build(request, way, of, tree, root, made, run) for way, of in ways.items())
        rebuilt = Rebuilt(commit=commit, outcomes=outcomes, notes=_notes(tree, ways))
        if not rebuilt.ok:
            return rebuilt
        found = [one for one in variants_in(made) if one.name in given]
        return replace(
            rebuilt, comparisons=tuple(_compared(one.name, given[one.name], places_in(one)) for one in found)
        )


@dataclass(frozen=True, kw_only=True)
class _Way:
    """How a variant says that it was built, where that was asked for."""

    build_type: BuildType
    headers: Headers
    architectures: tuple[str, ...]

    @classmethod
    def of(cls, variant: BuiltVariant) -> _Way:
        return cls(
            build_type=variant.build_type,
            headers=next((one for one in Headers if one.value == variant.headers), Headers.FULL),
            architectures=variant.archs if variant.left_out else (),
        )


_WHICH_PROJECT = "name the kernel's sources: kernel-builder rebuild --project DIR"


def _source(request: RebuildRequest, scratch: Path, run: Run) -> UploadSource:
    on_hub = _ON_HUB.fullmatch(request.target)
    if Path(request.target).is_dir():
        place = Path(request.target)
        alone = place if (place / METADATA).is_file() else None
        source = find_source(place.resolve().parent if alone else place, {place.resolve().name} if alone else None)
    elif on_hub is not None:
        source = _fetched(on_hub["repo"], on_hub["revision"], request.patterns, scratch, run)
    else:
        raise UsageError(
            f"{request.target} is neither a directory nor a revision on the Hub",
            hint="pass a directory of built variants, or OWNER/NAME@REVISION",
        )
    chosen = [one for one in source.variants if _matches(one.name, request.patterns)]
    if not chosen:
        raise UsageError(
            f"no variant of {request.target} matches {', '.join(request.patterns)}",
            hint=f"it has {', '.join(one.name for one in source.variants)}",
        )
    return replace(source, variants=tuple(chosen))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _fetched(repo: str, revision: str, patterns: Sequence[str], scratch: Path, run: Run) -> UploadSource:
    """The variants of a revision on the Hub, brought here."""
    remote = Remote(repo, "kernel", run.reporter)
    for path in remote.snapshot(revision).files:
        folder, _, rest = path.partition("/")
        if folder == BUILD and "/" in rest and _matches(rest.partition("/")[0], patterns):
            remote.download(path, revision, scratch)
    if not (scratch / BUILD).is_dir():
        raise UsageError(
            f"{repo}@{revision} has no variant{f' that matches {chr(44).join(patterns)}' if patterns else ''}",
            hint="a kernel's versions are branches: OWNER/NAME@v1",
        )
    return find_source(scratch / BUILD)


def _commit(variants: Sequence[BuiltVariant]) -> str:
    """The commit that all of them are of."""
    problems = [f"{one.name} does not record which commit it was built from" for one in variants if one.commit is None]
    problems += [f"{one.name} was built from uncommitted sources" for one in variants if one.commit and one.is_dirty]
    commits = {one.commit: one.name for one in variants if one.commit is not None}
    if len(commits) > 1:
        problems += [f"{name} was built from commit {commit[:12]}" for commit, name in commits.items()]
    if problems:
        some = any(one.commit and not one.is_dirty for one in variants)
        raise BuildError(
            "cannot rebuild these variants:\n  " + "\n  ".join(problems),
            hint="choose variants that were built from one commit: kernel-builder rebuild --variant NAME"
            if some
            else "commit the sources, then build them: kernel-builder build",
        )
    return next(iter(commits))


def _repository(request: RebuildRequest, source: UploadSource, commit: str, run: Run) -> Path:
    root = request.project or (source.project.root if source.project is not None else Path.cwd())
    try:
        commit_of(commit, root, run)
    except GitError as error:
        why = "it has no such commit" if error.silent else str(error)
        url = next((one.metadata["source"] for one in source.variants if one.metadata.get("source")), None)
        where = f" (its source: {url})" if isinstance(url, str) else ""
        raise UsageError(
            f"{root} is not what {request.target} was built from: {why}", hint=_WHICH_PROJECT + where
        ) from error
    return root


def _build(
    request: RebuildRequest,
    way: _Way,
    variants: Sequence[BuiltVariant],
    tree: Path,
    root: Path,
    made: Path,
    run: Run,
) -> BuildOutcome:
    settings = tree if (tree / SETTINGS).is_file() else root
    asked = BuildRequest(
        root=tree,
        patterns=tuple(one.name for one in variants),
        architectures=way.architectures,
        build_type=way.build_type,
        headers=way.headers,
        lock=LockUse.REQUIRE if (tree / LOCK_NAME).is_file() else LockUse.PREFER,
        # What was compiled before is what the build at hand may have come from.
        cache=False,
        # They are compared with what was loaded, and installed nowhere.
        load=False,
        loaded_next=True,
        keep_going=True,
        jobs=request.jobs,
        verbose=request.verbose,
        output=made,
        settings_from=settings,
        sandbox=request.sandbox,
    )
    return build(asked, run)


def _compared(name: str, ours: Mapping[str, Path], theirs: Mapping[str, Path]) -> RebuiltVariant:
    paths = {*ours, *theirs} - {SIGNATURE}  # which nobody can make again
    found = [FileDifference(path=path, lines=tuple(_lines(ours.get(path), theirs.get(path)))) for path in sorted(paths)]
    before, after = (_document(files.get(METADATA)) for files in (ours, theirs))
    return RebuiltVariant(
        variant=name,
        files=len(ours.keys() - {SIGNATURE}),
        differences=tuple(one for one in found if one.lines),
        sources=source_differences(before, after),
        tools=tool_differences(before, after),
        flags=flag_differences(before, after),
    )


def _document(metadata: Path | None) -> Mapping[str, object]:
    document = parse_json(metadata.read_bytes()) if metadata is not None else None
    return document if isinstance(document, dict) else {}


def _lines(one: Path | None, other: Path | None) -> Iterator[str]:
    if one is None:
        yield "is only in the rebuild"
    elif other is None:
        yield "is missing from the rebuild"
    elif one.name == METADATA:
        # What made a build is told by itself: another compiler may well make the same.
        ours, theirs = (_what_it_is(_document(path)) for path in (one, other))
        documents = (ours, _as_told_by(ours, theirs))
        yield from differences(*(json.dumps(document, indent=2).encode() for document in documents))
    else:
        with mapped(one) as before, mapped(other) as after:
            yield from differences(before, after)


def _what_it_is(metadata: Mapping[str, object]) -> dict[str, object]:
    """``metadata`` without what made the variant, and without the single files that it was made of."""
    document = without_tools(metadata)
    provenance = document.get("provenance")
    sources = provenance.get("sources") if isinstance(provenance, dict) else None
    if not isinstance(provenance, dict) or not isinstance(sources, dict):
        return document
    told = {key: value for key, value in sources.items() if key != "files"}
    return {**document, "provenance": {**provenance, "sources": told}}


def _as_told_by(ours: Mapping[str, object], theirs: Mapping[str, object]) -> Mapping[str, object]:
    """``theirs`` without the record of sources where ``ours``, of an older version, has none: it cannot differ."""
    before, after = ours.get("provenance"), theirs.get("provenance")
    if not isinstance(before, dict) or not isinstance(after, dict) or "sources" in before:
        return theirs
    return {**theirs, "provenance": {key: value for key, value in after.items() if key != "sources"}}


def _notes(tree: Path, ways: Iterable[_Way]) -> tuple[str, ...]:
    notes = []
    if not (tree / LOCK_NAME).is_file():
        notes.append(f"the commit has no {LOCK_NAME}: toolchains were chosen as they are today")
    traced = sorted({way.build_type.options for way in ways if not way.build_type.is_release})
    if traced:
        notes.append(
            f"a build with {' or '.join(traced)} contains the paths of its directories, so it differs between machines"
        )
    return tuple(notes)
