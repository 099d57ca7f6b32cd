"""The chain from a project directory to finished variants: every command runs a prefix of it.

    Project -> Matrix -> Toolchains -> BuildPlan -> ninja -> variant directories -> proof of loading

Nothing here prints; progress goes to a reporter and the result is a value.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kernel_builder.artifact.built import CARD, variants_in
from kernel_builder.artifact.digest import METADATA
from kernel_builder.artifact.variant import check_space, publish, recover, staged
from kernel_builder.binary.elf import read_elf
from kernel_builder.config.known import dependencies
from kernel_builder.config.model import Backend, Project
from kernel_builder.config.reader import load_project
from kernel_builder.engine.ninja import (
    EngineResult,
    StepFailure,
    exclusive,
    foreign_headers,
    is_up_to_date,
    run_plan,
)
from kernel_builder.engine.resources import measure, plan_jobs
from kernel_builder.engine.undefined import blame, find_missing
from kernel_builder.errors import BuildError, ConfigError, Diagnostic, IntegrityError, NetworkError, ToolchainError
from kernel_builder.events import Notice, Reporter
from kernel_builder.files import write_text
from kernel_builder.frameworks.stable_abi import stable_header_roots
from kernel_builder.load.client import (
    Environment,
    LoadResult,
    LoadStatus,
    NoEnvironment,
    find_environment,
    load_variant,
    remember,
    remembered,
)
from kernel_builder.plan.model import BuildPlan, Step, StepKind, VariantPlan
from kernel_builder.plan.planner import Places, plan_build, stable_target
from kernel_builder.project.identity import Identity, identify
from kernel_builder.project.tree import OUTPUT_DIRECTORY, WORK_DIRECTORY
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.cache import Store
from kernel_builder.store.index import SimpleIndex
from kernel_builder.store.settings import find_index
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.dependencies import Libraries, ResolvedLibrary
from kernel_builder.toolchain.host import find_host_compilers
from kernel_builder.toolchain.lock import LOCK_NAME, LockedVariant, LockError, LockUse, read_lock
from kernel_builder.toolchain.model import HostCompiler, Sysroot, Toolchain
from kernel_builder.toolchain.provide import ResolvedToolchain, Toolchains
from kernel_builder.toolchain.sources import open_sources
from kernel_builder.toolchain.stable_headers import provide_stable_headers, stable_sdk
from kernel_builder.toolchain.sysroot import provide_sysroot
from kernel_builder.variants.matrix import Kept, Matrix
from kernel_builder.variants.names import Platform, TorchTag
from kernel_builder.variants.support import SupportRow, VariantSet, load_support
from kernel_builder.workflow.conformance import Conformance
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import Selection, Unavailable, obstacles, refuse, select_variants, silent_backends

_NO_SUCH_FILE = re.compile(r"fatal error: (\S+): No such file or directory")
_LOG_HEAD = 30
_LOG_TAIL = 15
_SPACE_PER_ARCHITECTURE = 1 << 20
_SPACE_PER_LIBRARY = 2 << 20


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What ``kernel-builder build`` was asked for.

    ``patterns`` are globs over variant names, ``local`` means the one variant that fits the torch in the active
    environment, ``platform`` and ``within`` are as in :class:`Selection`; ``available`` leaves out what cannot be built
    here; with ``list_unreachable`` a server that does not answer makes variants unavailable, instead of being an error
    at once; ``lock`` says what becomes of the project's lock. ``jobs`` overrides the number of jobs, ``output`` the
    directory for variants (default ``build``), ``python`` the interpreter that loads them, ``ignore`` the conformance
    rules that are passed over. ``settings_from`` is the directory whose ``kernel-builder.toml`` counts (default: root).
    """

    root: Path
    patterns: tuple[str, ...] = ()
    backends: tuple[Backend, ...] = ()
    local: bool = False
    platform: Platform | None = None
    within: VariantSet | None = None
    available: bool = False
    list_unreachable: bool = False
    lock: LockUse = LockUse.PREFER
    jobs: int | None = None
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


class VariantStatus(StrEnum):
    """How a variant ended."""

    BUILT = "built"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    NOT_BUILT = "not built"


@dataclass(frozen=True, kw_only=True)
class VariantOutcome:
    """One variant: where it is, what ran for it, and whether it loads. ``problem`` is set when it failed."""

    plan: VariantPlan
    status: VariantStatus
    path: Path | None = None
    compiled: tuple[str, ...] = ()
    load: LoadResult | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class BuildOutcome:
    """All variants in plan order. ``fetched`` is in bytes over the network.

    ``unavailable`` are the variants that were asked for and left out, because they cannot be built here.
    """

    plan: BuildPlan
    variants: tuple[VariantOutcome, ...]
    fetched: int
    unavailable: tuple[Unavailable, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every variant of the plan was made."""
        return all(outcome.status in {VariantStatus.BUILT, VariantStatus.UNCHANGED} for outcome in self.variants)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A plan with what carrying it out needs."""

    project: Project
    plan: BuildPlan
    identity: Identity
    store: Path
    matrix: Matrix
    warnings: tuple[Diagnostic, ...]
    resolved: Mapping[str, ResolvedToolchain] = field(default_factory=dict)
    toolchains: Toolchains | None = None
    libraries: Libraries | None = None
    depends: Mapping[Backend, tuple[ResolvedLibrary, ...]] = field(default_factory=dict)
    unavailable: tuple[Unavailable, ...] = ()
    without_variant: tuple[tuple[Backend, str], ...] = ()
    """Backends that were asked for and that no variant is for, with the reason."""
    locked: Mapping[str, LockedVariant] = field(default_factory=dict)


def prepare(request: BuildRequest, run: Run) -> Prepared:
    """Everything up to the plan. Toolchains are chosen, not fetched, so that a dry run costs nothing."""
    project, warnings = load_project(request.root)
    matrix = select_variants(project, request.selection, run)
    unavailable = obstacles(matrix)
    compiled = [entry for entry in matrix.kept if entry.row is not None and entry.obstacle is None]
    store, reporter = run.store, run.reporter
    toolchains: dict[str, Toolchain] = {}
    resolved: dict[str, ResolvedToolchain] = {}
    provider: Toolchains | None = None
    libraries: Libraries | None = None
    depends: dict[Backend, tuple[ResolvedLibrary, ...]] = {}
    locked: Mapping[str, LockedVariant] = {}
    if compiled:
        # Variants of one build are for one platform.
        (machine,) = {entry.row.variant.machine for entry in compiled if entry.row is not None}
        index = SimpleIndex(find_index(run.environ), reporter, offline=run.offline)
        libraries = Libraries(store, index, reporter, index.transport_without_credentials(), run.environ)
        depends = {entry.backend: _resolve_libraries(project, entry.backend, libraries) for entry in compiled}
        sources = open_sources(
            run.settings(request.settings_from or request.root),
            store,
            reporter,
            environ=run.environ,
            offline=run.offline,
            indexes={index.label: index},
        )
        hosts = find_host_compilers(run.environ, machine=machine)
        provider = Toolchains(sources, store, hosts, reporter, offline=run.offline)
        sysroots: dict[HostCompiler, Sysroot] = {}
        guide = _LockGuide(request, reporter)
        for entry in compiled:
            try:
                answer = guide.resolve(entry, provider, depends[entry.backend])
            except (ToolchainError, NetworkError) as error:
                collected = isinstance(error, ToolchainError) or request.list_unreachable
                if len(matrix.kept) == 1 or not collected or isinstance(error, IntegrityError):
                    raise
                unavailable.append(
                    Unavailable(name=entry.name, reason=error.message, remedy=error.hint, exit_code=error.exit_code)
                )
                continue
            resolved[entry.name] = answer
            if answer.host not in sysroots:
                sysroots[answer.host] = provide_sysroot(store, answer.host)
            toolchains[entry.name] = Toolchain(
                host=answer.host,
                sysroot=sysroots[answer.host],
                torch=answer.torch if stable_target(entry) is None else stable_sdk(store, answer.torch),
                cuda=answer.cuda,
                libraries=tuple(library.headers for library in depends[entry.backend]),
            )
        locked = guide.finish(len(compiled))
    missing = {entry.name for entry in unavailable}
    order = [entry.name for entry in matrix.kept]
    unavailable.sort(key=lambda entry: order.index(entry.name))
    if unavailable and (not request.available or len(missing) == len(matrix.kept)):
        raise refuse(unavailable, matrix, request.selection)
    output = (request.output or project.root / OUTPUT_DIRECTORY).absolute()
    identity = identify(project, output, environ=run.environ)
    plan = plan_build(
        project,
        tuple(entry for entry in matrix.kept if entry.name not in missing),
        toolchains=toolchains,
        table=load_support(),
        identity=identity,
        places=Places(root=project.root, work=project.root / WORK_DIRECTORY, output=output, store=store.root),
    )
    prepared = Prepared(
        project=project,
        plan=plan,
        identity=identity,
        store=store.root,
        matrix=matrix,
        warnings=warnings,
        resolved=resolved,
        toolchains=provider,
        libraries=libraries,
        depends=depends,
        unavailable=tuple(unavailable),
        without_variant=silent_backends(project, request.selection, run),
        locked=locked,
    )
    _refuse_unknown_architectures(prepared)  # of compilers that are in the store already
    return prepared


class _LockGuide:
    """Chooses toolchains as the project's lock says, as far as ``request`` wants that."""

    def __init__(self, request: BuildRequest, reporter: Reporter) -> None:
        self._use = request.lock
        self._available = request.available
        self._reporter = reporter
        self._lock = None if self._use is LockUse.UPGRADE else read_lock(request.root)
        self._locked: dict[str, LockedVariant] = {}
        self._problems: list[str] = []
        if self._use is LockUse.REQUIRE and self._lock is None:
            raise LockError([f"there is no {LOCK_NAME} in {request.root}"])

    def resolve(self, entry: Kept, provider: Toolchains, libraries: tuple[ResolvedLibrary, ...]) -> ResolvedToolchain:
        """The toolchain of a variant. Raises what resolving raises; what the lock forbids is collected."""
        assert entry.row is not None  # noqa: S101  (compiled variants have a row)
        wanted = toolchain_request(entry.row)
        locked = self._lock.get(entry.name) if self._lock is not None else None
        if locked is None:
            if self._use is LockUse.REQUIRE:
                if self._available:
                    raise ToolchainError(f"{LOCK_NAME} does not have it", hint="kernel-builder lock")
                raise self._refusal(entry.name, "the lock does not have it")
            return provider.resolve(wanted, fresh=self._use is LockUse.UPGRADE)
        own = [artefact for artefact in locked.artefacts if artefact.kind is not ArtefactKind.TREE]
        try:
            answer = provider.resolve_locked(wanted, own)
        except NetworkError:
            raise
        except ToolchainError as error:
            if self._use is LockUse.REQUIRE:
                raise self._refusal(entry.name, error.message) from error
            self._differs(entry.name, error.message)
            return provider.resolve(wanted)
        trees = {artefact for artefact in locked.artefacts if artefact.kind is ArtefactKind.TREE}
        if trees != {artefact for library in libraries for artefact in library.artefacts}:
            self._differs(entry.name, "the libraries that its sections depend on are others than those in the lock")
        if not locked.accepts(answer.host):
            compiler = f"{answer.host.cxx} ({answer.host})"
            self._differs(entry.name, f"the lock accepts {locked.accepted}, and {compiler} would be used")
        self._locked[entry.name] = locked
        return answer

    def _refusal(self, name: str, what: str) -> LockError:
        """Said at once where there is one variant only; otherwise :meth:`finish` tells all of them."""
        self._problems.append(f"{name}: {what}")
        return LockError(self._problems)

    def _differs(self, name: str, what: str) -> None:
        if self._use is LockUse.REQUIRE:
            self._refusal(name, what)
        else:
            self._reporter.emit(Notice(message=f"{LOCK_NAME}: {name}: {what}", warning=True))

    def finish(self, total: int) -> Mapping[str, LockedVariant]:
        """The variants that are compiled with what the lock names. Raises :class:`LockError` for what it forbids."""
        if self._problems:
            raise LockError(self._problems)
        if self._lock is not None and len(self._locked) < total and self._use is LockUse.PREFER:
            message = f"{LOCK_NAME} has {len(self._locked)} of the {total} variants; what the others are compiled with"
            self._reporter.emit(Notice(message=f"{message} was chosen now ('kernel-builder lock' adds them)"))
        elif self._locked:
            self._reporter.emit(Notice(message=f"compiled with what {LOCK_NAME} names"))
        return self._locked


def _resolve_libraries(project: Project, backend: Backend, libraries: Libraries) -> tuple[ResolvedLibrary, ...]:
    """What the sections of ``backend`` depend on besides torch, sorted by name."""
    names = {name for section in project.sections_for(backend) for name in section.depends} - {"torch"}
    return tuple(libraries.resolve(name) for name in sorted(names))


def toolchain_request(row: SupportRow) -> ToolchainRequest:
    """What a build of torch for Linux is compiled with."""
    variant = row.variant
    version = variant.compute.version
    return ToolchainRequest(
        torch=str(row.torch),
        machine=variant.machine,
        abi=variant.tag.abi if isinstance(variant.tag, TorchTag) else None,
        cuda=f"{version[0]}.{version[1]}" if version else None,
    )


def build(request: BuildRequest, run: Run) -> BuildOutcome:
    """Build, install and load the variants of ``request``.

    A variant that fails is a value of the outcome. Raises what the earlier stages raise; Ctrl-C leaves no child and no
    half-made variant.
    """
    prepared = prepare(request, run)
    plan, reporter = prepared.plan, run.reporter
    for diagnostic in prepared.warnings:
        reporter.emit(Notice(message=diagnostic.render(), warning=True))
    for entry in prepared.unavailable:
        reporter.emit(Notice(message=f"{entry.name} is not built: {entry.summary}", warning=True))
    for backend, reason in prepared.without_variant:
        reporter.emit(Notice(message=f"nothing is built for {backend.value}: {reason}", warning=True))
    for text in plan.warnings:
        reporter.emit(Notice(message=text, warning=True))
    for text in plan.notes:
        reporter.emit(Notice(message=text))
    conformance = Conformance(project=prepared.project, work=plan.work, ignore=request.ignore)
    conformance.check_sources(prepared.identity.unique, reporter)
    check_space(plan.output, _space_needed(plan))
    environment = find_environment(request.python, run.environ)
    fetched = provide(prepared)
    with exclusive(plan.work, reporter):
        recover(plan.output, tuple(variant.name for variant in plan.variants))
        result = _run(request, plan, reporter)
        if identify(prepared.project, plan.output, environ=run.environ) != prepared.identity:
            raise BuildError(
                "files of the kernel changed while it was built, so what was built has no name of its own",
                hint="run the build again; nothing was installed",
            )
        foreign = foreign_headers(plan, _toolchain_folders(prepared)) if plan.steps else {}
        outcomes = [
            _finish(prepared, variant, result, environment, foreign.get(variant.name, ()), conformance)
            for variant in plan.variants
        ]
        _fill_card(prepared.project, plan.output, reporter)
    return BuildOutcome(plan=plan, variants=tuple(outcomes), fetched=fetched, unavailable=prepared.unavailable)


def _toolchain_folders(prepared: Prepared) -> tuple[Path, ...]:
    """Where headers of toolchains lie: the store, and what is used in place on this machine."""
    include = [folder for answer in prepared.resolved.values() for folder in answer.torch.include]
    include += [folder for answer in prepared.resolved.values() if answer.cuda for folder in answer.cuda.include]
    return (prepared.store, *dict.fromkeys(place for folder in include for place in (folder, folder.resolve())))


def _refuse_unknown_architectures(prepared: Prepared) -> None:
    """Ask each CUDA compiler that is there already whether it can make code for what its variant is compiled for.

    Raises :class:`ConfigError`.
    """
    for variant in prepared.plan.variants:
        answer = prepared.resolved.get(variant.name)
        known = answer.cuda.known_codes() if answer is not None and answer.cuda is not None else None
        if answer is None or answer.cuda is None or known is None:
            continue
        for section in variant.sections:
            # Compilers do not list the variants of an architecture, such as sm_90a.
            missing = [one for one in section.capabilities if f"sm_{one.major}{one.minor}" not in known]
            if missing:
                raise ConfigError(
                    f"{variant.name}: {section.id} is to be compiled for {', '.join(map(str, missing))}, which the"
                    f" compiler of CUDA {answer.cuda.version} does not know",
                    hint=f"it knows {', '.join(known)}; cuda-capabilities says what a section is compiled for",
                )


def provide(prepared: Prepared) -> int:
    """Fetch and make what the plan compiles with, as far as it is not in the store; how many bytes came, in all."""
    fetched = 0
    if prepared.toolchains is not None:
        prepared.toolchains.provide_all(tuple(dict.fromkeys(prepared.resolved.values())))
        for name, locked in prepared.locked.items():
            _compare_with_lock(name, locked, prepared.toolchains.artefacts(prepared.resolved[name]))
        _refuse_unknown_architectures(prepared)
        _provide_stable(prepared)
        fetched += prepared.toolchains.bytes_received
    if prepared.libraries is not None:
        wanted = {library.key.name: library for libraries in prepared.depends.values() for library in libraries}
        for name in sorted(wanted):
            prepared.libraries.provide(wanted[name])
        fetched += prepared.libraries.bytes_received
    return fetched


def _compare_with_lock(name: str, locked: LockedVariant, artefacts: tuple[Artefact, ...]) -> None:
    """The wheels that an entry of the store was made from must have the RECORD that the lock names."""
    records = {artefact.filename: artefact.record_sha256 for artefact in locked.artefacts}
    for artefact in artefacts:
        expected = records.get(artefact.filename)
        if expected is not None and artefact.record_sha256 not in {None, expected}:
            raise IntegrityError(
                f"{name}: the SHA-256 of RECORD in {artefact.filename} is {artefact.record_sha256}, and {LOCK_NAME}"
                f" names {expected}",
                hint="get the lock back from version control; kernel-builder lock --upgrade writes it anew",
            )


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


def _provide_stable(prepared: Prepared) -> None:
    """Put the stable headers of each release that a variant on the stable ABI is built with where its plan has them."""
    store = Store(prepared.store)
    for entry in prepared.matrix.kept:
        if entry.name in prepared.resolved and stable_target(entry) is not None:
            provide_stable_headers(store, prepared.resolved[entry.name].torch)


def _device_passes(step: Step) -> int:
    """How many architectures a step compiles device code for; none unless it runs nvcc."""
    return sum(word.startswith("-gencode") for word in step.command)


def _space_needed(plan: BuildPlan) -> int:
    """A careful guess, in bytes, of what the variants will take in the output directory."""
    needed = 0
    for variant in plan.variants:
        needed += sum(file.origin.stat().st_size for file in variant.installed if file.origin is not None)
        if variant.library is not None:
            architectures = sum(_device_passes(step) for step in variant.steps)
            needed += _SPACE_PER_LIBRARY + architectures * _SPACE_PER_ARCHITECTURE
    return needed


def _run(request: BuildRequest, plan: BuildPlan, reporter: Reporter) -> EngineResult:
    device_passes = [count for count in map(_device_passes, plan.steps) if count]
    budget = plan_jobs(
        measure(),
        largest_step=max((step.memory for step in plan.steps), default=1),
        nvcc_steps=len(device_passes),
        architectures=max(device_passes, default=1),
        asked=request.jobs,
    )
    return run_plan(plan, budget=budget, keep_going=request.keep_going, verbose=request.verbose, reporter=reporter)


def _finish(
    prepared: Prepared,
    variant: VariantPlan,
    result: EngineResult,
    environment: Environment | NoEnvironment,
    foreign: tuple[str, ...],
    conformance: Conformance,
) -> VariantOutcome:
    """Check, install and load one variant whose steps have ended."""
    ran = result.ran.get(variant.name, ())
    compiled = tuple(step.source for step in ran if step.kind is StepKind.COMPILE and not step.source.startswith("("))
    failures = [failure for failure in result.failures if failure.variant == variant.name]
    if failures:
        return VariantOutcome(
            plan=variant,
            status=VariantStatus.FAILED,
            compiled=compiled,
            problem="\n".join(_failure_text(failure, _all_headers(prepared, variant)) for failure in failures),
        )
    if variant.library is not None:
        if result.stopped_early and not is_up_to_date(prepared.plan, variant.name):
            return VariantOutcome(
                plan=variant,
                status=VariantStatus.NOT_BUILT,
                compiled=compiled,
                problem="the build stopped at another variant's failure; --keep-going builds the rest",
            )
        problem = _foreign_text(foreign) or _check_library(variant, variant.library)
        if problem is not None:
            # Gone, so that the next build links and checks again.
            variant.library.unlink()
            return VariantOutcome(plan=variant, status=VariantStatus.FAILED, compiled=compiled, problem=problem)
        _remove_earlier_libraries(variant.library)
    return _install(prepared, variant, environment, compiled, conformance)


def _foreign_text(foreign: tuple[str, ...]) -> str | None:
    if not foreign:
        return None
    return (
        f"its sources include files outside the project: {', '.join(foreign)}\n"
        "    a kernel's name stands for its own files, so it would not change with these; copy them into the project"
    )


def _all_headers(prepared: Prepared, variant: VariantPlan) -> tuple[Path, ...]:
    """Where all of torch's headers are, for a variant that is compiled with the stable ones alone; else nothing."""
    if variant.undefined is None or variant.undefined.stable is None:
        return ()
    return prepared.resolved[variant.name].torch.include


def _failure_text(failure: StepFailure, all_headers: tuple[Path, ...]) -> str:
    step, words = failure.step, failure.words
    tail = "\n".join(f"    {line}" for line in _excerpt(words))
    if any("No space left on device" in line for line in words):
        return f"{step.source}: the disk is full; free some space and build again (the compiler's words: {step.log})"
    if any("Python.h: No such file" in line for line in words):
        tail += "\n    (Python's headers are not installed: apt-get install python3-dev, or dnf install python3-devel)"
    for name in dict.fromkeys(match[1] for line in words for match in _NO_SUCH_FILE.finditer(line)):
        if any((directory / name).is_file() for directory in all_headers):
            tail += f"\n    ({name} does not belong to torch's stable ABI, which torch.stable-abi asks for)"
            tail += f"\n    (headers that do: {', '.join(f'{root}/' for root in stable_header_roots())})"
    verb = "could not be linked" if step.kind is StepKind.LINK else "does not compile"
    return f"{step.source} {verb}:\n{tail}\n  the command and all of its words: {step.log}"


def _excerpt(words: tuple[str, ...]) -> tuple[str, ...]:
    """The beginning, where the first error is, and the end, where a fatal one is."""
    left_out = len(words) - _LOG_HEAD - _LOG_TAIL
    if left_out <= 0:
        return words
    return (*words[:_LOG_HEAD], f"... ({left_out} lines)", *words[-_LOG_TAIL:])


def _check_library(variant: VariantPlan, library: Path) -> str | None:
    """What is wrong with a linked library: run paths, names that nothing supplies."""
    elf = read_elf(library.read_bytes())
    if elf.run_paths:
        return f"{library.name} has a run path, {', '.join(elf.run_paths)}: it would look for libraries of this machine"
    if variant.undefined is None:
        return None
    missing = find_missing(elf, variant.undefined)
    if not missing:
        return None
    objects = {step.output: step.source for step in variant.steps if step.kind is StepKind.COMPILE}
    release = ", ".join(f"{name} {version}" for name, version in variant.toolchain.items() if name in {"torch", "cuda"})
    lines = [f"{library.name} needs names that it will not find when it is loaded ({release}):"]
    for entry in blame(missing, objects):
        users = f" (used by {', '.join(entry.used_by)})" if entry.used_by else ""
        lines.append(f"    {entry.readable}{users}: {entry.reason}")
    return "\n".join(lines)


def _remove_earlier_libraries(library: Path) -> None:
    """The ops id is in the file name, so every edit of a dirty tree makes a new one."""
    for path in library.parent.glob("*.abi3.so"):
        if path != library:
            path.unlink()


def _install(
    prepared: Prepared,
    variant: VariantPlan,
    environment: Environment | NoEnvironment,
    compiled: tuple[str, ...],
    conformance: Conformance,
) -> VariantOutcome:
    plan = prepared.plan
    with staged(variant, plan.output) as stage:
        # The metadata hold the digest of every file, so equal metadata mean an equal variant.
        fingerprint = hashlib.sha256((stage / METADATA).read_bytes()).hexdigest()
        stamp = plan.work / variant.name / "loaded.json"
        load = remembered(stamp, fingerprint, environment)
        if load is None:
            load = load_variant(
                stage,
                variant=variant.variant,
                ops_id=variant.ops_id,
                python_name=plan.python_name,
                depends=_modules(variant),
                environment=environment,
            )
            remember(stamp, fingerprint, environment, load)
        problem = _load_problem(prepared.project, load) or conformance.check_variant(stage, variant.name, fingerprint)
        if problem is not None:
            return VariantOutcome(
                plan=variant, status=VariantStatus.FAILED, compiled=compiled, load=load, problem=problem
            )
        changed = publish(stage, plan.output, variant.name)
    return VariantOutcome(
        plan=variant,
        status=VariantStatus.BUILT if changed else VariantStatus.UNCHANGED,
        path=plan.output / variant.name,
        compiled=compiled,
        load=load,
    )


def _modules(variant: VariantPlan) -> dict[str, str]:
    """Declared Python dependencies of a variant -> the modules that the client will look for."""
    known = dependencies()
    tables = {**known.python_table(None), **known.python_table(variant.backend)}
    declared = variant.metadata["python-depends"]
    if not isinstance(declared, list):
        raise BuildError("metadata without python-depends")
    return {tables[name].package: tables[name].module for name in declared if tables[name].module}


def _load_problem(project: Project, load: LoadResult) -> str | None:
    """Why a loaded variant is no good. An op without implementation is wrong only where no other backend has one."""
    if load.status is LoadStatus.FAILED:
        return "\n".join(
            [f"the kernels client cannot load it: {load.reason}", *(f"    {line}" for line in load.frames)]
        )
    if load.unimplemented and len(project.backends) == 1:
        names = ", ".join(name.split("::", 1)[1] for name in load.unimplemented)
        return (
            f"ops are declared but nothing implements them: {names}"
            " (a def() without impl(), or an impl() for another device)"
        )
    return None
