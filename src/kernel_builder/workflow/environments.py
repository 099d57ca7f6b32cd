"""What this machine can run, and a Python for a variant: one that is there and has all it takes, else a new one."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Project
from kernel_builder.environments.adopt import missing_packages, why_not_adopted
from kernel_builder.environments.indexes import installer_variables
from kernel_builder.environments.install import find_installer
from kernel_builder.environments.kept import Environments
from kernel_builder.environments.mentions import wants_torch
from kernel_builder.environments.wanted import Needs, wanted_for
from kernel_builder.errors import ToolchainError, UsageError
from kernel_builder.events import Notice
from kernel_builder.load.client import Environment, NoEnvironment, find_devices, find_environment, why_not_loadable
from kernel_builder.toolchain.settings import ToolchainSettings
from kernel_builder.variants.matrix import Kept
from kernel_builder.variants.support import VariantSet, load_support
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import Selection, select_variants, this_platform


@dataclass(frozen=True, kw_only=True)
class EnvironmentRequest:
    """Which variants, and which Python for them.

    ``patterns`` are globs over variant names. ``python`` is the only interpreter to use; else, but not with
    ``isolated``, the active environment is used where it has all that is needed.
    """

    root: Path
    patterns: tuple[str, ...] = ()
    python: Path | None = None
    isolated: bool = False


@dataclass(frozen=True, kw_only=True)
class Here:
    """What this machine has: the ``active`` environment, and ``devices`` by the drivers that can be asked."""

    active: Environment | NoEnvironment
    devices: Mapping[Backend, int]

    def why_not(self, entry: Kept) -> str | None:
        """Why this machine cannot run ``entry``; ``None`` when it can."""
        backend = entry.backend
        if entry.obstacle is not None:
            return entry.obstacle
        if backend.is_host or self.devices.get(backend, 0) > 0:
            return None
        if backend.driver is None:
            system = this_platform().system.value
            if backend.torch.system == system:
                return None
            if isinstance(self.active, Environment) and backend in self.active.toolkits:
                return None  # whoever installed that torch has the device
        return f"no {backend.label} device was found here"


def look_here(project: Project, request: EnvironmentRequest, run: Run) -> Here:
    """Ask the machine. Raises :class:`UsageError` when ``request.python`` cannot load kernels such as ``project``."""
    active = find_environment(request.python, run.environ, run.memory, torch=project.framework.kind.needs_torch)
    known = active.devices if isinstance(active, Environment) else None
    return Here(active=active, devices=find_devices(run.environ) if known is None else known)


def variants_here(project: Project, request: EnvironmentRequest, here: Here, run: Run) -> tuple[Kept, ...]:
    """The variants that are asked for, the required ones without ``patterns``, best first.

    Devices come in their order, the processor last; of one device's variants, those come first that the active
    environment loads, then those whose torch the public index has, then newer torch. Raises what
    :func:`select_variants` does.
    """
    kept = select_variants(project, Selection(patterns=request.patterns), run).kept
    return _best_first(kept, here)


def _best_first(kept: Sequence[Kept], here: Here) -> tuple[Kept, ...]:
    def place(entry: Kept) -> tuple[bool, int, bool, bool, tuple[int, int]]:
        row = entry.row
        fits = isinstance(here.active, Environment) and why_not_loadable(entry.variant, here.active) is None
        newest = (-row.torch.major, -row.torch.minor) if row else (0, 0)
        published = row is None or row.is_published
        return entry.backend.is_host, entry.backend.tried, not fits, not published, newest

    return tuple(sorted(kept, key=place))


def best_variant(project: Project, request: EnvironmentRequest, here: Here, run: Run, *, to_run: bool = True) -> Kept:
    """The variant to work on where one is enough. Without ``to_run`` it need not run here, if it was asked for.

    Raises :class:`UsageError` when this machine runs none of them.
    """
    everything = variants_here(project, request, here, run)
    reasons: dict[str, None] = {}
    for entry in _best_first((*_of_active(project, request, everything, here, run), *everything), here):
        reason = here.why_not(entry)
        if reason is None or (request.patterns and not to_run and entry.obstacle is None):
            return entry
        reasons[reason] = None
    raise UsageError(
        f"this machine runs no variant of the kernel: {'; '.join(reasons)}",
        hint="run it on a machine with such a device; 'kernel-builder build' builds without one",
    )


def _of_active(
    project: Project, request: EnvironmentRequest, required: Sequence[Kept], here: Here, run: Run
) -> tuple[Kept, ...]:
    """What ``build --local`` builds, where the Hub does not ask for the active environment's release of torch, and that
    environment has all it takes: whoever works with it need not wait for another one.
    """
    active = here.active
    if request.patterns or request.isolated or not isinstance(active, Environment):
        return ()
    if any(why_not_loadable(entry.variant, active) is None for entry in required):
        return ()
    settings, support, torch = run.settings(project.root), load_support(), wants_torch(project)
    found = []
    for entry in select_variants(project, Selection(within=VariantSet.ALL), run).kept:
        if here.why_not(entry) is None and why_not_loadable(entry.variant, active) is None:
            wanted = wanted_for(project, entry, support, settings.requires, torch=torch)
            if wanted is not None and why_not_adopted(active, wanted, run.environ) is None:
                found.append(entry)
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """A Python for a variant. ``made`` is the name of the environment that was made for such, ``None`` for one that
    was there.
    """

    entry: Kept
    environment: Environment
    made: str | None = None

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.environment.python


def provide_environment(
    project: Project, entry: Kept, request: EnvironmentRequest, here: Here, run: Run, *, requires: Sequence[str] = ()
) -> Workplace:
    """A Python that runs ``entry``, with what its tests need and ``requires``.

    Raises :class:`UsageError` when the one that was asked for does not, :class:`ToolchainError` when none can be made.
    """
    settings = run.settings(project.root)
    support, packages = load_support(), (*settings.requires, *requires)
    wanted = wanted_for(project, entry, support, packages, torch=wants_torch(project))
    if wanted is None:
        raise ToolchainError(
            f"no build of torch is known for {entry.name}",
            hint="test with a Python that has one: kernel-builder test --python FILE",
        )
    active, why = here.active, ""
    if not request.isolated and isinstance(active, Environment):
        reason = why_not_adopted(active, wanted, run.environ)
        if reason is None:
            return Workplace(entry=entry, environment=active)
        if request.python is not None:
            raise UsageError(
                f"--python {request.python} cannot run {entry.name}: {reason}",
                hint=(
                    "install what is missing there, or let kernel-builder create an environment: kernel-builder "
                    "test --isolated"
                ),
            )
        why = f"the active environment is not used: {reason}{_remedy(active, wanted, run)}"
    return _made(entry, wanted, settings, run, why)


def _remedy(active: Environment, wanted: Needs, run: Run) -> str:
    """What adds to ``active`` what it lacks, where that is only packages."""
    missing = missing_packages(active.python, wanted.requirements, run.environ)
    if not missing or why_not_loadable(wanted.variant, active) is not None:
        return ""
    return f"; to use it: {shlex.join([str(active.python), '-m', 'pip', 'install', *missing])}"


def _made(entry: Kept, wanted: Needs, settings: ToolchainSettings, run: Run, why: str) -> Workplace:
    """An environment that is kept; ``why`` it takes one is told when it is made."""
    if sys.version_info[:2] < wanted.python:
        needed = ".".join(map(str, wanted.python))
        raise ToolchainError(
            f"{wanted.label} needs Python {needed}, and this is {sys.version_info.major}.{sys.version_info.minor}",
            hint="run kernel-builder with a newer Python, or pass one: kernel-builder test --python FILE",
        )
    variables = {uv: installer_variables(settings, run.environ, uv=uv, offline=run.offline) for uv in (False, True)}
    installer = find_installer(run.environ, lambda text: run.reporter.emit(Notice(message=text)), variables=variables)
    # An index that the project itself names is for that project alone: what it has may be anything.
    own = [f"{index.name} {index.place}" for index in settings.indexes if index.name in settings.by_project]
    name = wanted.key(str(installer.python.resolve()), sys.version, *own)
    environments = Environments(run.store, run.reporter)
    if why and not run.offline and environments.find(name) is None:
        run.reporter.emit(Notice(message=why))
    try:
        found = environments.ensure(name, wanted, installer)
    except ToolchainError as error:
        if run.offline:
            raise ToolchainError(
                f"the environment for {entry.name} does not exist, and --offline prevents creating it",
                hint="run it once with network access, or pass a Python: kernel-builder test --python FILE",
            ) from error
        raise
    environment = find_environment(found.python, run.environ, run.memory, torch=bool(wanted.torch))
    reason = (
        environment.reason
        if isinstance(environment, NoEnvironment)
        else why_not_adopted(environment, wanted, run.environ)
    )
    if isinstance(environment, NoEnvironment) or reason is not None:
        environments.discard(name)
        raise ToolchainError(
            f"the environment created for {entry.name} cannot run it: {reason}",
            hint="name an index that has the right torch in kernel-builder.toml, or pass a Python:"
            " kernel-builder test --python FILE",
        )
    return Workplace(entry=entry, environment=environment, made=name)
