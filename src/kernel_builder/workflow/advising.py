"""Smaller includes that were tried: each is compiled with the plan's own commands, in a copy of the project, before
anybody hears of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from kernel_builder.actions.host import MODULE_SOURCE
from kernel_builder.actions.model import Action, ActionKind
from kernel_builder.actions.places import Places
from kernel_builder.binary.elf import ObjectNames
from kernel_builder.config.model import FrameworkKind
from kernel_builder.engine.trial import Tried
from kernel_builder.engine.work import exclusive, write_generated
from kernel_builder.errors import UsageError
from kernel_builder.events import Notice
from kernel_builder.files import write_bytes
from kernel_builder.plan.model import BuildPlan
from kernel_builder.timing.smaller import Proposal, proposals, umbrellas_in
from kernel_builder.workflow.build import BuildRequest, prepare_build
from kernel_builder.workflow.caching import open_cache
from kernel_builder.workflow.prepare import Prepared
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.timing import FOLDER, last_build, request_for
from kernel_builder.workflow.trials import TrialCompiles

_WORTH, _PLAIN = 0.8, 0.5
"""What takes more than this part of the time is not worth an edit; what takes less is measured once, all else twice."""
_OF_THE_LIBRARY = (ActionKind.LINK, ActionKind.INSPECT)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What was found for a source. ``before`` and ``after`` are seconds of processors, in ``variants``, for one of the
    ``architectures`` of each, without precompiled headers. Without a ``proposal``, ``reason`` says why there is none;
    ``remarks`` are what people should know of one. ``text`` is that of the source.
    """

    source: str
    variants: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    text: str = field(default="", repr=False)
    before: float | None = None
    after: float | None = None
    proposal: Proposal | None = None
    patch: str = ""
    reason: str | None = None
    remarks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "source": self.source,
            "variants": list(self.variants),
            "architectures": list(self.architectures),
            "seconds-before": self.before,
            "seconds-after": self.after,
            "replaced": list(self.proposal.replaced) if self.proposal else [],
            "headers": list(self.proposal.headers) if self.proposal else [],
            "patch": self.patch,
            "reason": self.reason,
            "remarks": list(self.remarks),
        }


def advise(
    request: BuildRequest, run: Run, sources: Sequence[Path] = (), *, everywhere: bool = False
) -> tuple[Advice, ...]:
    """Try smaller includes for ``sources`` (default: all that the last build compiled). Nothing is changed. Device code
    is compiled for one architecture. With ``everywhere``, what is proposed compiles for each framework release of
    each backend of the last build, and not only for the first.

    Raises :class:`UsageError` where no build has run anything, or a file is not one of its sources, and what
    :func:`~kernel_builder.workflow.build.prepare_build` raises.
    """
    _, _, recorded = last_build(request, run)
    prepared = prepare_build(replace(request_for(request, recorded), fast=True), run)
    plan = prepared.plan
    wanted = _sources(plan, sources)
    with exclusive(plan.places.work, plan.places.store, run.reporter), _copy_of(prepared) as places:
        # What others measured says nothing of this machine.
        cache = open_cache(run, only_here=True)
        trials = TrialCompiles(places, run.environ, prepared.planning.survey.inputs.digest, cache)
        return tuple(_advise(plan, source, trials, run, everywhere=everywhere) for source in wanted)


def _sources(plan: BuildPlan, paths: Sequence[Path]) -> list[str]:
    known = list(dict.fromkeys(a.source for a in plan.actions if a.kind not in _OF_THE_LIBRARY))
    known = [source for source in known if source != MODULE_SOURCE]
    if not paths:
        return known
    root = plan.places.root.resolve()
    by_file = {(root / source).resolve(): source for source in known}
    found = [by_file.get(path.resolve()) or by_file.get((root / path).resolve()) for path in paths]
    wrong = [str(path) for path, source in zip(paths, found, strict=True) if source is None]
    if wrong:
        raise UsageError(f"the last build compiled no {', '.join(wrong)}", hint=f"it compiled {', '.join(known)}")
    return [source for source in dict.fromkeys(found) if source is not None]


@contextmanager
def _copy_of(prepared: Prepared) -> Iterator[Places]:
    """A copy of all files that the build of a project reads, with a work directory, until the block ends."""
    plan = prepared.plan
    scratch = plan.places.work / FOLDER / "trial"
    shutil.rmtree(scratch, ignore_errors=True)
    places = replace(plan.places, root=scratch / "project", work=scratch / "work")
    try:
        for path in prepared.planning.survey.inputs.all:
            target = places.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(plan.places.root / path, target)
        places.work.mkdir(parents=True)
        write_generated((places.path(file.path), file.content) for file in plan.generated)
        yield places
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


Targets = Mapping[str, Sequence[Action]]
"""The actions that make the object of a source, by the variant that it is for."""


def _targets(plan: BuildPlan, source: str) -> tuple[Targets, Targets]:
    """The targets of ``source`` in the first variant of each backend that has it; then one for each other release of
    the framework.
    """
    first: dict[str, Sequence[Action]] = {}
    others: dict[str, Sequence[Action]] = {}
    backends, releases = set(), set()
    for variant in plan.variants:
        actions = [a for a in variant.actions if a.source == source and a.kind not in _OF_THE_LIBRARY]
        release = (variant.backend, *(variant.toolchain.get(kind.value) for kind in FrameworkKind))
        if not actions or release in releases:
            continue
        (first if variant.backend not in backends else others)[variant.name] = actions
        backends.add(variant.backend)
        releases.add(release)
    return first, others


def _advise(plan: BuildPlan, source: str, trials: TrialCompiles, run: Run, *, everywhere: bool) -> Advice:
    places, (targets, others) = trials.places, _targets(plan, source)
    file = places.root / source
    before_text = file.read_bytes().decode("utf-8", "surrogateescape")
    if not umbrellas_in(before_text):
        return Advice(source=source, reason="it includes none of the headers that are worth replacing")
    run.reporter.emit(Notice(message=f"trying smaller includes for {source}"))

    def tried(text: str, where: Targets = targets, *, times: int = 1) -> dict[str, Tried]:
        return trials.of(source, text, where, times=times)

    try:
        now = tried(before_text)
        architectures = dict.fromkeys(a.architecture for actions in targets.values() for a in actions if a.architecture)
        known = Advice(source=source, variants=tuple(targets), architectures=tuple(architectures), text=before_text)
        failed = _failure(now)
        if failed is not None:
            return replace(known, reason=f"it does not compile as it is: {failed}")
        known = replace(known, before=_seconds(now))
        reason = "nothing smaller is known for what it uses"
        for proposal in proposals(before_text, lambda name: all(_exists(name, a, places) for a in targets.values())):
            then = tried(proposal.text)
            failed = _failure(then) or _other_names(now, then)
            if failed is not None:
                reason = f"nothing smaller compiles: {failed}"
                continue
            before, after = _seconds(now), _seconds(then)
            if after > _PLAIN * before:  # on a machine that others use, too, one time says little
                before, after = _seconds(tried(before_text, times=2)), _seconds(tried(proposal.text, times=2))
            known = replace(known, before=before, after=after)
            if after > _WORTH * before:
                return replace(known, reason=_no_gain(then, places, source))  # larger ones save less
            failed = _failure(tried(proposal.text, others)) if everywhere else None
            if failed is not None:
                reason = f"nothing smaller compiles for every release: {failed}"
                continue
            patch, remarks = proposal.patch(source, before_text), _differences(now, then)
            return replace(known, proposal=proposal, patch=patch, remarks=remarks)
        return replace(known, reason=reason)
    finally:
        write_bytes(file, before_text.encode("utf-8", "surrogateescape"))


def _seconds(tried: dict[str, Tried]) -> float:
    return round(sum(one.seconds for one in tried.values()), 2)


def _failure(tried: dict[str, Tried]) -> str | None:
    return next((f"{name}: {one.complaint}" for name, one in tried.items() if one.complaint is not None), None)


def _exists(name: str, actions: Sequence[Action], places: Places) -> bool:
    """Whether the source can include ``<name>``; a header of the language's own library always."""
    if "/" not in name:
        return True
    reader = actions[0]
    words = places.expanded(reader, reader.steps[0].command)
    folders = [word[2:] for word in words if word.startswith("-I")]
    folders += [folder for option, folder in pairwise(words) if option in ("-isystem", "-I")]
    return any((Path(folder) / name).is_file() for folder in folders if folder)


def _pairs(now: dict[str, Tried], then: dict[str, Tried]) -> Iterator[tuple[str, ObjectNames, ObjectNames]]:
    for variant, one in then.items():
        before, after = now[variant].names, one.names
        if before is not None and after is not None:
            yield variant, before, after


def _other_names(now: dict[str, Tried], then: dict[str, Tried]) -> str | None:
    """Why an object is not the same to others: it defines other names."""
    for variant, before, after in _pairs(now, then):
        different = sorted(before.defined ^ after.defined)
        if different:
            return f"for {variant} the object defines other names, such as {different[0]}"
    return None


def _differences(now: dict[str, Tried], then: dict[str, Tried]) -> tuple[str, ...]:
    """How names of the objects differ that others may define, or that they need."""
    found = []
    for variant, before, after in _pairs(now, then):
        more, less = after.undefined - before.undefined, before.undefined - after.undefined
        if more or less:
            found.append(f"{variant}: the object needs {len(more)} names more and {len(less)} fewer")
        more, less = after.weak - before.weak, before.weak - after.weak
        if more or less:
            found.append(f"{variant}: the object has {len(more)} inline functions more and {len(less)} fewer")
    return tuple(found)


def _no_gain(then: dict[str, Tried], places: Places, source: str) -> str:
    """Why smaller includes make no difference: mostly, because a header of the project brings the same."""
    text = "smaller includes compile, but save little or nothing"
    read = {path for one in then.values() for path in one.read if path.startswith(f"{places.root}/")}
    for path in sorted(read - {str(places.root / source)}):
        found = umbrellas_in(Path(path).read_text(encoding="utf-8", errors="replace"))
        if found:
            text += f"; {Path(path).relative_to(places.root)} includes <{found[0]}>"
    return text
