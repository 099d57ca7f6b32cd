"""The chain from a project directory to finished variants: every command runs a prefix of it.

Project -> Matrix -> Toolchains -> BuildPlan -> engine -> variant directories -> proof of loading
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kernel_builder.artifact.variant import check_space, recover
from kernel_builder.engine.elsewhere import OtherMachines
from kernel_builder.engine.local import LocalEngine
from kernel_builder.engine.protocol import EngineOptions
from kernel_builder.engine.sandbox import ActionSandbox, find_bubblewrap
from kernel_builder.engine.timeline import Stage, add_stages
from kernel_builder.engine.work import exclusive
from kernel_builder.errors import MachineError, UsageError
from kernel_builder.events import Notice, Reporter
from kernel_builder.load.client import Environment, NoEnvironment, find_environment
from kernel_builder.plan.model import BuildPlan, VariantPlan
from kernel_builder.seen import Sighting
from kernel_builder.toolchain.sanitizers import sanitizer_runtimes, sanitizer_variables
from kernel_builder.toolchain.torch_slim import provide_slim_headers
from kernel_builder.workflow.ahead import Ahead
from kernel_builder.workflow.basis import basis_of
from kernel_builder.workflow.build import BuildRequest, SandboxUse
from kernel_builder.workflow.caching import open_cache
from kernel_builder.workflow.finish import Finisher
from kernel_builder.workflow.installing import Installing, fill_card, refuse_changes
from kernel_builder.workflow.outcome import BuildOutcome
from kernel_builder.workflow.prepare import Prepared, prepare, refuse_unknown_architectures, work_directory
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import Selection
from kernel_builder.workflow.toolchains import ToolchainOptions, provide
from kernel_builder.workflow.unchanged import Noting, keep

_SPACE_PER_ARCHITECTURE = 1 << 20
_SPACE_PER_LIBRARY = 2 << 20


def prepared_for(request: BuildRequest, run: Run) -> Prepared:
    """Everything up to the plan of ``request``. Raises what :func:`~kernel_builder.workflow.prepare.prepare` does."""
    selection = Selection(
        patterns=request.patterns,
        backends=request.backends,
        local=request.local,
        python=request.python,
        platform=request.platform,
        within=request.within,
    )
    options = ToolchainOptions(
        lock=request.lock,
        list_unreachable=request.list_unreachable,
        recall=request.recall,
        settings_from=request.settings_from,
        to_build=True,
    )
    return prepare(
        request.root,
        selection,
        options,
        run,
        complete=request.complete,
        output=request.output,
        ignore=request.ignore,
        architectures=request.architectures,
        fast=request.fast,
        mark=request.mark,
        headers=request.headers,
        build_type=request.build_type,
    )


def make(request: BuildRequest, run: Run) -> BuildOutcome:
    """Build, install and load the variants of ``request``.

    A variant that fails is a value of the outcome. Raises what the earlier stages raise; Ctrl-C leaves no child and no
    half-made variant.
    """
    sighting, started = Sighting(), time.time()
    bubblewrap = _bubblewrap(request, run)
    if request.scheduler is not None:
        from kernel_builder.cluster.client import require_scheduler  # noqa: PLC0415  (an extra)

        require_scheduler(request.scheduler)
    noting = Noting(run.reporter)
    run = replace(run, reporter=noting)
    prepared = prepared_for(request, run)
    told = prepared.plan.notes
    places = prepared.plan.places
    _tell(prepared, run.reporter)
    conformance = prepared.conformance
    check_space(places.output, _space_needed(prepared.plan))
    variables = _runtimes(prepared, request, run)
    torch = prepared.project.framework.kind.needs_torch
    environment = _environment(
        request, replace(run, environ={**run.environ, **variables}) if variables else run, torch=torch
    )
    if request.verbose:
        run.reporter.emit(Notice(message=f"variants are {environment.confinement}"))
    conformance.remember_sources(prepared.identity.unique)
    knew = prepared.has_compilers
    fetched = provide(prepared.chosen, prepared.matrix, run)
    for toolchain in prepared.planning.toolchains.values():
        if toolchain.framework.slim is not None:
            provide_slim_headers(run.store, toolchain.framework)
    if not knew:
        prepared = prepared.planned_again()
    plan = prepared.plan
    _tell_notes(plan, run.reporter, told=told)
    refuse_unknown_architectures(plan, prepared.chosen)
    options = EngineOptions(
        environ=run.environ,
        reporter=run.reporter,
        jobs=request.jobs,
        variants=request.variants_at_once,
        cores=request.cores,
        keep_going=request.keep_going,
        cache=open_cache(run) if request.cache else None,
        sandbox=None if bubblewrap is None else ActionSandbox(program=bubblewrap, plan=plan),
        verbose=request.verbose,
    )
    ahead = Ahead(environment, places.output)
    finisher = Finisher(
        prepared=prepared,
        ahead=ahead,
        conformance=conformance,
        reporter=run.reporter,
        environ=run.environ,
        sandboxed=options.sandbox is not None,
    )
    installing = Installing(finisher, plan, lambda: refuse_changes(prepared, run, request.mark, sighting.since))
    # One lock for whatever is built: the variants go to the same place.
    with exclusive(work_directory(prepared.project, run.store), places.store, run.reporter):
        places.work.mkdir(exist_ok=True)
        recover(places.output, tuple(variant.name for variant in plan.variants))
        began = time.time()
        with _elsewhere(prepared, request, run) as elsewhere, ahead:
            options = replace(options, over=installing.finish_early, spare=installing.prepare, elsewhere=elsewhere)
            try:
                result = LocalEngine().run(plan, options)
                outcomes = installing.finish_all(result)
            finally:
                fill_card(prepared.project, places.output, run.reporter)
        if result.finished:
            add_stages(places.work, (Stage(stage="prepare", begin=started, end=began), *installing.stages))
        outcome = BuildOutcome(
            output=places.output,
            variants=outcomes,
            fetched=fetched,
            warnings=plan.warnings,
            notes=plan.notes,
            confinement=environment.confinement,
            unavailable=prepared.unavailable,
            remarks=prepared.matrix.remarks,
            variables=variables,
        )
        keep(request, run, outcome, noting.notices, basis_of(prepared, outcome, environment, run, sighting))
    return outcome


def _bubblewrap(request: BuildRequest, run: Run) -> str | None:
    """What makes sandboxes, if one was asked for. Raises :class:`MachineError` where it must run, and cannot."""
    if request.sandbox is SandboxUse.NO:
        return None
    try:
        return find_bubblewrap(run.environ)
    except MachineError as error:
        if request.sandbox is SandboxUse.ALWAYS:
            raise
        message = f"{error.message.replace('--sandbox', '--try-sandbox')}; this build runs without a sandbox"
        run.reporter.emit(Notice(message=message, warning=True))
        return None


@contextmanager
def _elsewhere(prepared: Prepared, request: BuildRequest, run: Run) -> Iterator[OtherMachines | None]:
    """The other machines that were asked for. Raises what :func:`open_cluster` does."""
    if request.scheduler is None:
        yield None
        return
    from kernel_builder.workflow.cluster import open_cluster  # noqa: PLC0415  (an extra)

    with open_cluster(request.scheduler, prepared, request, run) as cluster:
        yield cluster


def _runtimes(prepared: Prepared, request: BuildRequest, run: Run) -> dict[str, str]:
    """The variables that whatever loads the variants needs: those of sanitizers' runtimes.

    Raises :class:`ToolchainError` for a compiler without them, :class:`UsageError` where variants need different ones.
    """
    sanitizers = prepared.planning.build_type.sanitizers
    if not sanitizers:
        return {}
    found: dict[tuple[Path, ...], list[str]] = {}
    for name, toolchain in prepared.planning.toolchains.items():
        runtimes = sanitizer_runtimes(toolchain.host, sanitizers, run.environ, run.answers)
        found.setdefault(runtimes, []).append(name)
    if len(found) > 1:
        told = " and ".join(f"{names[0]} ({runtimes[0]})" for runtimes, names in found.items())
        raise UsageError(
            f"the variants use different compilers, whose sanitizer runtimes cannot be loaded together: {told}",
            hint="choose one: kernel-builder build --variant NAME",
        )
    return sanitizer_variables(next(iter(found), ()), sanitizers, run.environ, python=request.python)


def _environment(request: BuildRequest, run: Run, *, torch: bool) -> Environment | NoEnvironment:
    """What loads the variants, or why nothing does."""
    if request.load:
        return find_environment(request.python, run.environ, run.memory, torch=torch)
    message = "--no-load: variants are installed without checking that the kernels client can load them"
    if not request.loaded_next:
        run.reporter.emit(Notice(message=message, warning=True))
    # What devices there are, nobody looked at.
    seen = None if request.local or request.fast else Sighting().to_json()
    return NoEnvironment(reason="--no-load skips it", seen=seen)


def _tell(prepared: Prepared, reporter: Reporter) -> None:
    """What people should know before anything is fetched or compiled."""
    for diagnostic in prepared.warnings:
        reporter.emit(Notice(message=diagnostic.render(), warning=True))
    work = prepared.plan.places.work
    if not work.is_relative_to(prepared.plan.places.root):
        reporter.emit(Notice(message=f"the project is read-only, so objects and logs go to {work}"))
    if prepared.unavailable:
        total = len(prepared.matrix.kept)
        message = f"{len(prepared.unavailable)} of the {total} variants cannot be built here (listed at the end)"
        reporter.emit(Notice(message=message))
    for backend, reason in prepared.without_variant:
        reporter.emit(Notice(message=f"nothing to build for {backend.value}: {reason}", warning=True))
    for text in prepared.plan.warnings:
        reporter.emit(Notice(message=text, warning=True, publishing=text == prepared.identity.reason))
    _tell_notes(prepared.plan, reporter)


def _tell_notes(plan: BuildPlan, reporter: Reporter, *, told: Sequence[str] = ()) -> None:
    for text in plan.notes:
        if text not in told:
            reporter.emit(Notice(message=text))


def _space_needed(plan: BuildPlan) -> int:
    """A careful guess, in bytes, of what the variants will take in the output directory."""
    needed = 0
    for variant in plan.variants:
        needed += sum(plan.places.path(file.origin).stat().st_size for file in variant.installed if file.origin)
        if variant.library is not None:
            needed += _SPACE_PER_LIBRARY + _architectures(variant) * _SPACE_PER_ARCHITECTURE
    return needed


def _architectures(variant: VariantPlan) -> int:
    """How many times code for one architecture is made: by actions of their own, or by one for several."""
    several = sum(action.threads.most for action in variant.actions if action.threads is not None)
    return several + sum(action.architecture is not None for action in variant.actions)
