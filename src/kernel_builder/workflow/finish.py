"""What becomes of a variant once its actions have ended: it is installed if it loads and conforms."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_builder.actions.host import MODULE_SOURCE
from kernel_builder.actions.model import ActionKind
from kernel_builder.artifact.built import variants_in
from kernel_builder.artifact.digest import METADATA, files_told
from kernel_builder.artifact.variant import fill, publish
from kernel_builder.binary.stable_abi import stable_header_roots
from kernel_builder.config.headers import what_to_add
from kernel_builder.config.known import dependencies
from kernel_builder.config.model import FrameworkKind
from kernel_builder.engine.complaints import excerpt, explained
from kernel_builder.engine.own_names import OwnNames
from kernel_builder.engine.protocol import ActionResult, ActionStatus
from kernel_builder.errors import BuildError, ConfigError
from kernel_builder.events import Notice, Reporter
from kernel_builder.load.client import Environment, Loadable, NoEnvironment
from kernel_builder.load.evidence import LoadResult, LoadStatus
from kernel_builder.load.proofs import FOLDER as PROOFS
from kernel_builder.load.proofs import Proofs
from kernel_builder.load.proving import Former, prove
from kernel_builder.plan.model import VariantPlan
from kernel_builder.toolchain.host import variable_with
from kernel_builder.variants.matrix import stable_target
from kernel_builder.workflow.ahead import Ahead
from kernel_builder.workflow.conformance import Conformance
from kernel_builder.workflow.evidence import with_headers_read
from kernel_builder.workflow.native import native_digest
from kernel_builder.workflow.outcome import VariantOutcome, VariantStatus
from kernel_builder.workflow.prepare import Prepared
from kernel_builder.workflow.slim import with_headers_told

_OF_TORCH = ("torch/", "ATen/", "c10/")
_NO_SUCH_FILE = re.compile(r"fatal error: (\S+): No such file or directory")


@dataclass(frozen=True, kw_only=True)
class Finisher:
    """Finishes the variants of one build: ``ahead`` has what loads them, ``conformance`` judges them. ``environ`` is
    the user's. ``sandboxed``: what made them ran in a sandbox, which their metadata then say.
    """

    prepared: Prepared
    ahead: Ahead
    conformance: Conformance
    reporter: Reporter
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    sandboxed: bool = False

    def finish(self, variant: VariantPlan, results: tuple[ActionResult, ...]) -> VariantOutcome:
        """Install and load one variant whose actions ended with ``results``."""
        outcome = self._finish(variant, results)
        self.ahead.give_up(variant.name)
        return outcome

    def _finish(self, variant: VariantPlan, results: tuple[ActionResult, ...]) -> VariantOutcome:
        compiled = _sources(results, ActionStatus.DONE, ActionStatus.FAILED)
        failures = [result for result in results if result.status is ActionStatus.FAILED]
        if failures:
            problems = tuple(self._failure_text(variant, failure) for failure in failures)
            return self._outcome(variant, VariantStatus.FAILED, compiled=compiled, problems=problems)
        if any(result.status is ActionStatus.NOT_RUN for result in results):
            return self._outcome(
                variant,
                VariantStatus.NOT_BUILT,
                compiled=compiled,
                problems=(
                    (
                        "the build stopped because another variant failed; 'kernel-builder build --keep-going' "
                        "builds the rest"
                    ),
                ),
            )
        if self.sandboxed and variant.actions:
            variant = _with_sandbox_told(variant)
        variant = with_headers_read(variant, self.prepared.plan.places)
        variant = with_headers_told(variant, results, self.prepared.plan.places.work, self.reporter)
        if variant.library is not None:
            _remove_earlier_libraries(self.prepared.plan.places.path(variant.library))
        return replace(self._install(variant, compiled), recalled=_sources(results, ActionStatus.RECALLED))

    def _outcome(
        self,
        variant: VariantPlan,
        status: VariantStatus,
        *,
        compiled: tuple[str, ...],
        path: Path | None = None,
        load: LoadResult | None = None,
        problems: tuple[str, ...] = (),
    ) -> VariantOutcome:
        return VariantOutcome(
            name=variant.name,
            backend=variant.backend,
            ops_id=variant.ops_id,
            is_compiled=variant.library is not None,
            status=status,
            path=path,
            compiled=compiled,
            load=load,
            problems=problems,
        )

    def _failure_text(self, variant: VariantPlan, failure: ActionResult) -> str:
        action, lines = failure.action, failure.output
        log = self.prepared.plan.places.path(action.log)
        if any("No space left on device" in line for line in lines):
            return f"{action.source}: the disk is full; free some space and build again (compiler output: {log})"
        if action.kind is ActionKind.INSPECT:
            return "\n".join(lines)
        tail = "\n".join(f"    {line}" for line in excerpt(lines))
        if any("Python.h: No such file" in line for line in lines):
            tail += (
                "\n    (Python's headers are not installed: apt-get install python3-dev, or dnf install python3-devel)"
            )
        for name in dict.fromkeys(match[1] for line in lines for match in _NO_SUCH_FILE.finditer(line)):
            tail += self._library_of(name, variant) + self._in_variable(name)
            if self.prepared.project.framework.kind is FrameworkKind.TVM_FFI and name.startswith(_OF_TORCH):
                tail += (
                    f"\n    ({name} is a torch header; only [torch] kernels have these, because [tvm-ffi] "
                    "kernels load without torch)"
                )
            if any((directory / name).is_file() for directory in self._all_headers(variant)):
                tail += f"\n    ({name} is not part of torch's stable ABI, which torch.stable-abi selects)"
                tail += f"\n    (these headers are: {', '.join(f'{root}/' for root in stable_header_roots())})"
        for cause in explained(lines, action.source, self._own_names(variant)):
            tail += f"\n    cause: {cause.why}\n    remedy: {cause.instead}"
        verb = "could not be linked" if action.kind is ActionKind.LINK else "does not compile"
        return f"{action.source} {verb}:\n{tail}\n  the command and its full output: {log}"

    def _library_of(self, header: str, variant: VariantPlan) -> str:
        """What to write where ``header`` is one of a library that sections can depend on."""
        libraries = dependencies().bringing(header, variant.backend)
        sections = self.prepared.project.sections_for(variant.backend)
        listed = sorted({name for section in sections for name in section.depends} & {*libraries})
        if listed:
            return f"\n    ({' and '.join(listed)} has no {header}; releases: {', '.join(libraries)})"
        return f"\n    ({what_to_add(libraries)} of the section that the file is in)" if libraries else ""

    def _in_variable(self, header: str) -> str:
        """What to tell where a variable names the directory of ``header``."""
        found = variable_with(header, self.environ)
        if found is None:
            return ""
        variable, place = found
        return (
            f"\n    ({variable} points to {place}, but the build ignores it, because other machines may not set it)"
            "\n    (copy the header into the project, and name its directory in 'include' of the section)"
        )

    def _own_names(self, variant: VariantPlan) -> OwnNames:
        """The project, and the objects of ``variant`` so far."""
        places = self.prepared.plan.places
        compiled = [action for action in variant.actions if action.kind is ActionKind.COMPILE]
        objects = {places.path(word, action): action.source for action in compiled for word in action.outputs}
        return OwnNames.of(places.root, objects)

    def _all_headers(self, variant: VariantPlan) -> tuple[Path, ...]:
        """Where all of torch's headers are, for a variant that is compiled with the stable ones alone; else nothing."""
        entry = next(kept for kept in self.prepared.matrix.kept if kept.name == variant.name)
        if stable_target(entry) is None:
            return ()
        return self.prepared.chosen.resolved[variant.name].framework.include

    def _install(self, variant: VariantPlan, compiled: tuple[str, ...]) -> VariantOutcome:
        plan = self.prepared.plan
        with self.ahead.place_for(variant) as (stage, environment):
            fill(stage, variant, plan.places)
            # The metadata hold the digest of every file, so equal metadata mean an equal variant.
            fingerprint = hashlib.sha256((stage / METADATA).read_bytes()).hexdigest()
            load = self._load(variant, stage, environment)
            problem = _load_problem(load, variant) or self.conformance.check_variant(
                stage, variant.name, fingerprint, load, self.reporter
            )
            if problem is not None:
                return self._outcome(variant, VariantStatus.FAILED, compiled=compiled, load=load, problems=(problem,))
            self._tell_replaced(plan.places.output / variant.name)
            changed = publish(stage, plan.places.output, variant.name)
        return self._outcome(
            variant,
            VariantStatus.BUILT if changed else VariantStatus.UNCHANGED,
            path=plan.places.output / variant.name,
            compiled=compiled,
            load=load,
        )

    def _tell_replaced(self, place: Path) -> None:
        """A variant that was built for something else is not what is there any more: whoever tries it must know."""
        build_type = self.prepared.planning.build_type
        try:
            before = next((one.build_type for one in variants_in(place.parent) if one.path == place), build_type)
        except ConfigError:
            return
        if before != build_type:
            told = f"the build with {before.options}" if not before.is_release else "the release build"
            now = f"one with {build_type.options}" if not build_type.is_release else "the release build"
            self.reporter.emit(Notice(message=f"{place.name}: {told} is replaced by {now}", once=True))

    def _load(self, variant: VariantPlan, stage: Path, environment: Environment | NoEnvironment) -> LoadResult:
        """What loading what is in ``stage`` shows."""
        plan = self.prepared.plan
        folder = plan.places.work / variant.name
        kernel = Loadable(
            directory=stage,
            variant=variant.variant,
            ops_id=variant.ops_id,
            python_name=plan.python_name,
            depends=_modules(variant),
        )
        native = native_digest(variant, plan.places)
        return prove(
            kernel,
            environment,
            Proofs(plan.places.store / PROOFS),
            files_told(stage),
            former=None if native is None else Former(folder=folder, native=native),
            log=folder / "load.log",
        )


def _sources(results: Iterable[ActionResult], *statuses: ActionStatus) -> tuple[str, ...]:
    """The project's sources whose objects have one of ``statuses``."""
    return tuple(
        result.action.source
        for result in results
        if result.action.kind is ActionKind.COMPILE
        and result.status in statuses
        and result.action.source != MODULE_SOURCE
    )


def _remove_earlier_libraries(library: Path) -> None:
    """The ops id is in the file name, so every edit of a dirty tree makes a new one."""
    for path in library.parent.glob("*.so"):
        if path != library:
            path.unlink()


def _modules(variant: VariantPlan) -> dict[str, str]:
    """Declared Python dependencies of a variant -> the modules that the client will look for."""
    known = dependencies()
    tables = {**known.python_table(None), **known.python_table(variant.backend)}
    declared = variant.metadata["python-depends"]
    if not isinstance(declared, list):
        raise BuildError("metadata without python-depends")
    return {tables[name].package: tables[name].module for name in declared if tables[name].module}


def _load_problem(load: LoadResult, variant: VariantPlan) -> str | None:
    """Why a variant did not load, and what to do about it; ``None`` if it did, or was not tried."""
    if load.status is not LoadStatus.FAILED:
        return None
    from kernel_builder.check.formats import as_texts  # noqa: PLC0415  (start-up time)
    from kernel_builder.check.loaded import CANNOT_LOAD, failure_text, judge_foreign  # noqa: PLC0415

    elsewhere = as_texts(judge_foreign(variant.name, load.foreign, variant.ops_id))
    return "\n".join([failure_text(CANNOT_LOAD, load), *elsewhere])


def _with_sandbox_told(variant: VariantPlan) -> VariantPlan:
    provenance = variant.metadata.get("provenance")
    told = {**provenance, "sandbox": True} if isinstance(provenance, dict) else provenance
    return replace(variant, metadata={**variant.metadata, "provenance": told})
