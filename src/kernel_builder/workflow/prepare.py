"""From a project to its plan: variants are selected, toolchains chosen, the tree looked at, and all of it planned.

Nothing is fetched, so that a dry run costs nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.actions.headers import Headers
from kernel_builder.actions.places import Places
from kernel_builder.backends import rules_for
from kernel_builder.config.backends import Backend, Role
from kernel_builder.config.intents import idle_variables
from kernel_builder.config.model import Project
from kernel_builder.errors import ConfigError, Diagnostic
from kernel_builder.events import Notice, Preparing
from kernel_builder.frameworks import rules_of
from kernel_builder.plan.model import BuildPlan
from kernel_builder.plan.planner import Planning, plan_build
from kernel_builder.plan.slim import uses_slim
from kernel_builder.project.identity import Identity, identify
from kernel_builder.project.inputs import build_inputs
from kernel_builder.project.output import output_directory
from kernel_builder.project.survey import survey
from kernel_builder.project.tree import WORK_DIRECTORY
from kernel_builder.store.cache import Store
from kernel_builder.store.inventory import BUILDS
from kernel_builder.toolchain.apple import find_apple
from kernel_builder.toolchain.host import measured
from kernel_builder.toolchain.model import HostCompiler, Sysroot, Toolchain
from kernel_builder.toolchain.python_headers import python_headers
from kernel_builder.toolchain.stable_headers import stable_sdk
from kernel_builder.toolchain.sysroot import provide_sysroot
from kernel_builder.toolchain.torch_slim import operators_of, slim_sdk
from kernel_builder.variants.build_type import RELEASE, BuildType
from kernel_builder.variants.matrix import Kept, Matrix, stable_target
from kernel_builder.variants.names import System
from kernel_builder.variants.support import load_support
from kernel_builder.workflow.conformance import Conformance, read_to_build
from kernel_builder.workflow.narrow import narrowing_of
from kernel_builder.workflow.outcome import Unavailable
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import Selection, refuse, select_variants, silent_backends
from kernel_builder.workflow.slim import known_to_differ
from kernel_builder.workflow.toolchains import Chosen, ToolchainOptions, choose_toolchains


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A plan with what it follows from. ``without_variant`` are backends that were asked for and that no variant is
    for, with the reason; ``warnings`` are those about ``build.toml``. ``conformance`` has nothing against the project.
    """

    project: Project
    conformance: Conformance
    warnings: tuple[Diagnostic, ...]
    matrix: Matrix
    without_variant: tuple[tuple[Backend, str], ...]
    chosen: Chosen
    identity: Identity
    planning: Planning
    plan: BuildPlan

    @property
    def has_compilers(self) -> bool:
        """Whether every toolkit's compiler is at hand, and could be asked how it works, and so are slim headers."""
        toolchains = self.planning.toolchains.values()
        slim = [toolchain.framework.slim for toolchain in toolchains]
        return all(
            toolchain.toolkit is None or toolchain.toolkit.compiler.is_file() for toolchain in toolchains
        ) and all(folder is None or operators_of(folder) is not None for folder in slim)

    def planned_again(self) -> Prepared:
        """With the plan that follows now that compilers are in the store, which can be asked how they work."""
        return replace(self, plan=plan_build(self.planning))

    @property
    def unavailable(self) -> tuple[Unavailable, ...]:
        """What was asked for and cannot be built here."""
        return self.chosen.unavailable


def prepare(
    root: Path,
    selection: Selection,
    options: ToolchainOptions,
    run: Run,
    *,
    complete: bool = False,
    output: Path | None = None,
    ignore: tuple[str, ...] = (),
    mark: str = "",
    headers: Headers = Headers.SLIM,
    architectures: Sequence[str] = (),
    fast: bool = False,
    build_type: BuildType = RELEASE,
) -> Prepared:
    """Everything up to the plan. ``output`` is the directory for variants (default: ``build``), ``ignore`` the
    conformance rules that are passed over, ``mark`` is as in :func:`~kernel_builder.project.identity.identify`,
    ``headers`` says which of torch's headers sources are compiled with; ``architectures`` and
    ``fast`` are as in :func:`~kernel_builder.workflow.narrow.narrowing_of`; ``build_type`` is what it is built for.

    What the project itself gives as a reason not to build it is said first. What cannot be built here is left out.
    Raises :class:`UnavailableError` when that is everything, when it was asked for by its full name, or anything with
    ``complete``; :class:`ConfigError`, :class:`BuildError`, :class:`UsageError`, and what choosing toolchains raises.
    """
    project, warnings = read_to_build(root, run.environ, ignore)
    places = Places(
        root=project.root,
        work=work_directory(project, run.store) / build_type.folder,
        output=output_directory(project, output),
        store=run.store.root,
    )
    if build_type.device_lines is not None:  # what is told of lines is told of the very headers
        headers = Headers.FULL
    with _telling(run, "reading", sum(len(section.src) for section in project.sections)):
        inputs = build_inputs(project, places.output)
    identity = identify(project, inputs, environ=run.environ, mark=mark)
    matrix = select_variants(project, selection, run)
    narrowing = narrowing_of(matrix, architectures, run.environ, fast=fast)
    names = tuple(entry.name for entry in matrix.kept)
    conformance = Conformance(project=project, work=places.work, variants=names, ignore=ignore)
    with _telling(run, "checking", len(inputs.all)):
        conformance.check_sources(identity.unique, run.reporter)
    for text in idle_variables(run.environ, {entry.backend for entry in matrix.kept if entry.row is not None}):
        run.reporter.emit(Notice(message=text))
    chosen = choose_toolchains(project, matrix, run, options)
    _refuse_what_is_missed(chosen, matrix, selection, complete=complete)
    missing = {entry.name for entry in chosen.unavailable}
    toolchains, framework = _toolchains(matrix, chosen, run, headers), rules_of(project.framework.kind)
    slim = any(toolchain.framework.slim is not None for toolchain in toolchains.values())
    with _telling(run, "planning with", len(inputs.included)):
        planning = Planning(
            project=project,
            variants=tuple(entry for entry in matrix.kept if entry.name not in missing),
            toolchains=toolchains,
            table=load_support(),
            identity=identity,
            survey=survey(project, inputs, framework.marks_of, framework.needs_of if slim else None),
            places=places,
            headers=headers,
            complete=complete,
            differing=known_to_differ(places.work) if slim else {},
            narrowing=narrowing,
            build_type=build_type,
            environ=run.environ,
        )
        plan = plan_build(planning)
    refuse_unknown_architectures(plan, chosen)  # of compilers that are in the store already
    run.answers.keep()
    return Prepared(
        project=project,
        conformance=conformance,
        warnings=warnings,
        matrix=matrix,
        without_variant=silent_backends(project, selection, run),
        chosen=chosen,
        identity=identity,
        planning=planning,
        plan=plan,
    )


@contextmanager
def _telling(run: Run, what: str, files: int) -> Iterator[None]:
    run.reporter.emit(Preparing(what=what, files=files))
    try:
        yield
    finally:
        run.reporter.emit(Preparing())


def work_directory(project: Project, store: Store) -> Path:
    """Where the objects and logs of ``project`` go: into it, or into ``store`` where it cannot be written.

    What is built there is told from another checkout at the same path, another mount say, whose files may be older.
    """
    own = project.root / WORK_DIRECTORY
    if os.access(own if own.exists() else project.root, os.W_OK | os.X_OK):
        return own
    status = project.root.stat()
    facts = f"{project.root.resolve()}\0{status.st_dev}\0{status.st_ino}"
    digest = hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()
    return store.root / BUILDS / f"{project.name}-{digest[:16]}"


def _refuse_what_is_missed(chosen: Chosen, matrix: Matrix, selection: Selection, *, complete: bool) -> None:
    missing = chosen.unavailable
    named = [entry.name for entry in missing if entry.name in selection.patterns]
    if named and not complete:
        options = " ".join(f"--variant {name}" for name in named)
        others = f"run kernel-builder build without {options} to build the other {{count}}"
    else:
        others = "run kernel-builder build without --complete to build the other {count}"
    if missing and (complete or named or len(missing) == len(matrix.kept)):
        raise refuse(missing, matrix, selection, others=others)


def _toolchains(matrix: Matrix, chosen: Chosen, run: Run, headers: Headers) -> Mapping[str, Toolchain]:
    """What each compiled variant is compiled with, by name. The link-time view of the C library is made now."""
    hosts: dict[HostCompiler, tuple[HostCompiler, Sysroot]] = {}
    headers_here = python_headers()

    def toolchain(entry: Kept) -> Toolchain:
        answer = chosen.resolved[entry.name]
        python = headers_here if headers_here is not None and headers_here.serve(answer.request.machine) else None
        if answer.request.system is System.DARWIN:
            return Toolchain(
                host=answer.host,
                sdk=find_apple(run.environ).sdk,
                framework=answer.framework,
                libraries=tuple(library.headers for library in chosen.depends[entry.name]),
                python=python,
                by_project=answer.by_project,
            )
        if answer.host not in hosts:
            hosts[answer.host] = (
                measured(answer.host, run.environ, run.answers),
                provide_sysroot(run.store, answer.host, run.environ, run.answers),
            )
        host, sysroot = hosts[answer.host]
        framework = answer.framework
        if stable_target(entry) is not None:
            framework = stable_sdk(run.store, framework)
        elif uses_slim(headers, framework) is not Headers.FULL:
            framework = slim_sdk(run.store, framework)
        return Toolchain(
            host=host,
            sysroot=sysroot,
            framework=framework,
            toolkit=answer.toolkit,
            libraries=tuple(library.headers for library in chosen.depends[entry.name]),
            python=python,
            by_project=answer.by_project,
        )

    return {entry.name: toolchain(entry) for entry in matrix.kept if entry.name in chosen.resolved}


def refuse_unknown_architectures(plan: BuildPlan, chosen: Chosen) -> None:
    """Ask each toolkit's compiler that is there already whether it can make code for what its variant is compiled for.

    Raises :class:`ConfigError`.
    """
    for variant in plan.variants:
        answer = chosen.resolved.get(variant.name)
        toolkit = answer.toolkit if answer is not None else None
        known = toolkit.known_codes() if toolkit is not None else None
        if toolkit is None or known is None:
            continue
        for section in variant.sections:
            missing = rules_for(variant.backend).unknown(section.effective, toolkit)
            if missing:
                key = variant.backend.key(Role.ARCHITECTURES)
                raise ConfigError(
                    f"{variant.name}: {section.id} must be compiled for {', '.join(map(str, missing))}, which the"
                    f" compiler of {toolkit.toolkit} does not support",
                    hint=f"it supports {', '.join(known)}; {key.name if key else 'its list'} sets what a section is"
                    " compiled for",
                )
