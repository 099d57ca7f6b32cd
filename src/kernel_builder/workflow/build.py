"""The chain from a project directory to finished variants: every command runs a prefix of it.

    Project -> Matrix -> Toolchains -> BuildPlan -> engine -> variant directories -> proof of loading

Nothing here prints; progress goes to a reporter and the result is a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.artifact.built import CARD, variants_in
from kernel_builder.artifact.variant import check_space, recover
from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Project
from kernel_builder.engine.ninja import NinjaEngine
from kernel_builder.engine.protocol import EngineOptions
from kernel_builder.engine.work import claim, exclusive
from kernel_builder.errors import BuildError, ConfigError
from kernel_builder.events import Notice, Reporter
from kernel_builder.files import write_text
from kernel_builder.load.client import Environment, NoEnvironment, find_environment
from kernel_builder.plan.model import BuildPlan, VariantPlan
from kernel_builder.project.identity import identify
from kernel_builder.project.inputs import build_inputs
from kernel_builder.project.tree import WORK_DIRECTORY
from kernel_builder.toolchain.lock import LockUse
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import VariantSet
from kernel_builder.workflow.finish import Finisher
from kernel_builder.workflow.outcome import BuildOutcome
from kernel_builder.workflow.prepare import Prepared, prepare, refuse_unknown_architectures
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import Selection
from kernel_builder.workflow.toolchains import ToolchainOptions, provide

_SPACE_PER_ARCHITECTURE = 1 << 20
_SPACE_PER_LIBRARY = 2 << 20


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What ``kernel-builder build`` was asked for.

    ``patterns`` are globs over variant names, ``local`` means what the client loads in the active environment, and
    what can run there, ``platform`` and ``within`` are as in :class:`Selection`; with ``complete`` all of them must be
    possible here; with ``list_unreachable`` a server that does not answer makes variants unavailable, instead of being
    an error at once; with ``recall`` a source that had nothing is not asked again for an hour; ``lock`` says what
    becomes of the project's lock. ``jobs`` overrides the number of jobs, ``variants_at_once`` and ``cores`` that of
    variants and of one variant's jobs; without ``load`` none is loaded; ``output`` the directory for variants (default
    ``build``), ``python`` the interpreter that loads them, ``ignore`` the conformance rules that are passed over.
    ``settings_from``: whose ``kernel-builder.toml`` counts (default: that of the root).
    """

    root: Path
    patterns: tuple[str, ...] = ()
    backends: tuple[Backend, ...] = ()
    local: bool = False
    platform: Platform | None = None
    within: VariantSet | None = None
    complete: bool = False
    list_unreachable: bool = False
    recall: bool = False
    lock: LockUse = LockUse.PREFER
    jobs: int | None = None
    variants_at_once: int | None = None
    cores: int | None = None
    load: bool = True
    keep_going: bool = False
    verbose: bool = False
    output: Path | None = None
    python: Path | None = None
    ignore: tuple[str, ...] = ()
    settings_from: Path | None = None

    @property
    def selection(self) -> Selection:
        """Which variants are wanted."""
        return Selection(
            patterns=self.patterns,
            backends=self.backends,
            local=self.local,
            python=self.python,
            platform=self.platform,
            within=self.within,
        )

    @property
    def options(self) -> ToolchainOptions:
        """How their toolchains are chosen."""
        return ToolchainOptions(
            lock=self.lock,
            list_unreachable=self.list_unreachable,
            recall=self.recall,
            settings_from=self.settings_from,
            to_build=True,
        )


def prepare_build(request: BuildRequest, run: Run) -> Prepared:
    """Everything up to the plan of ``request``. Raises what :func:`~kernel_builder.workflow.prepare.prepare` does."""
    return prepare(
        request.root,
        request.selection,
        request.options,
        run,
        complete=request.complete,
        output=request.output,
        ignore=request.ignore,
    )


def build(request: BuildRequest, run: Run) -> BuildOutcome:
    """Build, install and load the variants of ``request``.

    A variant that fails is a value of the outcome. Raises what the earlier stages raise; Ctrl-C leaves no child and no
    half-made variant.
    """
    claim(request.root.resolve() / WORK_DIRECTORY, run.store.root, run.reporter)
    prepared = prepare_build(request, run)
    told = prepared.plan.notes
    places = prepared.plan.places
    _tell(prepared, run.reporter)
    conformance = prepared.conformance
    check_space(places.output, _space_needed(prepared.plan))
    environment = _environment(request, run)
    if request.verbose:
        run.reporter.emit(Notice(message=f"variants are {environment.confinement}"))
    conformance.remember_sources(prepared.identity.unique)
    knew = prepared.has_compilers
    fetched = provide(prepared.chosen, prepared.matrix, run)
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
        verbose=request.verbose,
    )
    finisher = Finisher(prepared=prepared, environment=environment, conformance=conformance, reporter=run.reporter)
    with exclusive(places.work, places.store, run.reporter):
        recover(places.output, tuple(variant.name for variant in plan.variants))
        result = NinjaEngine().run(plan, options)
        inputs = build_inputs(prepared.project, places.output)
        if identify(prepared.project, inputs, environ=run.environ) != prepared.identity:
            raise BuildError(
                "files of the kernel changed during the build, so the result has no name of its own",
                hint="run the build again; nothing was installed",
            )
        outcomes = [finisher.finish(variant, result.of_variant(variant.name)) for variant in plan.variants]
        _fill_card(prepared.project, places.output, run.reporter)
    return BuildOutcome(
        plan=plan,
        variants=tuple(outcomes),
        fetched=fetched,
        confinement=environment.confinement,
        unavailable=prepared.unavailable,
        remarks=prepared.matrix.remarks,
    )


def _environment(request: BuildRequest, run: Run) -> Environment | NoEnvironment:
    """What loads the variants, or why nothing does."""
    if request.load:
        return find_environment(request.python, run.environ)
    message = "--no-load: variants are installed without the proof that the kernels client can load them"
    run.reporter.emit(Notice(message=message, warning=True))
    return NoEnvironment(reason="--no-load skips it")


def _tell(prepared: Prepared, reporter: Reporter) -> None:
    """What people should know before anything is fetched or compiled."""
    for diagnostic in prepared.warnings:
        reporter.emit(Notice(message=diagnostic.render(), warning=True))
    work = prepared.plan.places.work
    if work.parent != prepared.plan.places.root:
        reporter.emit(Notice(message=f"the project cannot be written, so objects and logs go to {work}"))
    if prepared.unavailable:
        total = len(prepared.matrix.kept)
        message = f"{len(prepared.unavailable)} of the {total} variants cannot be built here (listed at the end)"
        reporter.emit(Notice(message=message))
    for backend, reason in prepared.without_variant:
        reporter.emit(Notice(message=f"nothing to build for {backend.value}: {reason}", warning=True))
    for text in prepared.plan.warnings:
        reporter.emit(Notice(message=text, warning=True))
    _tell_notes(prepared.plan, reporter)


def _tell_notes(plan: BuildPlan, reporter: Reporter, *, told: Sequence[str] = ()) -> None:
    for text in plan.notes:
        if text not in told:
            reporter.emit(Notice(message=text))


def _fill_card(project: Project, output: Path, reporter: Reporter) -> None:
    """Fill in the project's card, if it has one, beside the variants that it describes (contract 6.3)."""
    if not (project.root / CARD).is_file():
        return
    from kernel_builder.interface.card import fill_card  # noqa: PLC0415  (jinja2's sandbox takes its time)

    try:
        variants = variants_in(output)
        if variants:
            text = fill_card(project, variants)
            if not (output / CARD).is_file() or (output / CARD).read_text(encoding="utf-8") != text:
                write_text(output / CARD, text)
    except ConfigError as error:  # the variants are good without it
        details = "".join(f"\n{diagnostic.render()}" for diagnostic in error.diagnostics)
        hint = f" ({error.hint})" if error.hint else ""
        reporter.emit(Notice(message=f"no card was made: {error.message}{hint}{details}", warning=True))


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
