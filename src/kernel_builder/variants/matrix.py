"""Project x support table x what was asked for -> the variants to build, and those left out with the reason.

Reference: interoperability contract 2.5 and 2.6. Pure: nothing here looks at the machine; what the machine is comes in
as :class:`Host`.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kernel_builder.config.model import Backend, FrameworkKind, Project
from kernel_builder.variants.names import Machine, NoarchVariant, System, Variant
from kernel_builder.variants.support import SupportRow, SupportTable
from kernel_builder.versions import Version

COMPILED_BACKENDS = (Backend.CPU, Backend.CUDA)
"""Backends that this version of kernel-builder has a compiler for. Noarch variants need none."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """The platform that variants are built for."""

    machine: Machine
    system: System

    @classmethod
    def current(cls) -> Host:
        """This machine. Raises ``ValueError`` when no variant name exists for it."""
        machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        return cls(machine=Machine(machine), system=System(platform.system().lower()))


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A variant to build. ``row`` says what it is compiled against; ``None`` for a noarch variant."""

    variant: Variant
    row: SupportRow | None

    @property
    def name(self) -> str:
        """The variant's name."""
        return str(self.variant)

    @property
    def backend(self) -> Backend:
        """The compute backend."""
        return self.variant.backend


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A variant that is not built, and why."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class DroppedBackend(Dropped):
    """A whole backend that the project declares and this version cannot compile: people must be told."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Variants in build order, and what was left out, both in the order of the support table."""

    kept: tuple[Kept, ...]
    dropped: tuple[Dropped, ...]


def all_variants(project: Project, table: SupportTable, host: Host) -> Matrix:
    """Every variant that ``project`` can have on ``host``'s platform, whatever is required of it."""
    kept: list[Kept] = []
    dropped: list[Dropped] = []
    for backend in project.backends:
        if not project.is_compiled_for(backend):
            kept.append(Kept(variant=NoarchVariant(backend=backend), row=None))
            continue
        reason = _why_no_compiler(project, backend)
        if reason is not None:
            dropped.append(DroppedBackend(name=f"*-{backend.value}-*", reason=reason))
            continue
        for row in table.rows:
            if row.variant.backend is not backend:
                continue
            reason = _why_not(project, row, host)
            if reason is None:
                kept.append(Kept(variant=row.variant, row=row))
            else:
                dropped.append(Dropped(name=str(row.variant), reason=reason))
    return Matrix(kept=tuple(kept), dropped=tuple(dropped))


def _why_no_compiler(project: Project, backend: Backend) -> str | None:
    """The reason why this version compiles no variant of ``backend`` at all; ``None`` when it does."""
    if backend not in COMPILED_BACKENDS:
        return (
            f"only {' and '.join(other.value for other in COMPILED_BACKENDS)} kernels can be compiled by this version"
        )
    if project.framework.kind is FrameworkKind.TVM_FFI:
        return "tvm-ffi kernels cannot be compiled by this version"
    if backend in project.framework.stable_abi:
        return "kernels on torch's stable ABI cannot be compiled by this version"
    return None


def _why_not(project: Project, row: SupportRow, host: Host) -> str | None:
    """The reason why ``project`` has no variant for ``row``; ``None`` when it has one."""
    variant = row.variant
    if (variant.machine, variant.system) != (host.machine, host.system):
        return f"it is for {variant.machine.value}-{variant.system.value}"
    framework = project.framework
    reason = _outside(f"torch {row.torch}", row.torch, framework.minver, framework.maxver, "torch")
    if reason is None and variant.compute.version is not None:
        options = project.backend_options.get(variant.backend)
        if options is not None:
            toolkit = Version.parse(f"{variant.compute.version[0]}.{variant.compute.version[1]}")
            section = f"general.{variant.backend.value}"
            reason = _outside(f"{variant.backend.value} {toolkit}", toolkit, options.minver, options.maxver, section)
    return reason


def _outside(what: str, version: Version, low: Version | None, high: Version | None, section: str) -> str | None:
    if low is not None and not version.is_at_least(low):
        return f"{what} is below {section}.minver = {low}"
    if high is not None and not version.is_at_most(high):
        return f"{what} is above {section}.maxver = {high}"
    return None


def choose(
    matrix: Matrix, *, patterns: tuple[str, ...] = (), backends: tuple[Backend, ...] = (), required_only: bool = False
) -> Matrix:
    """Narrow ``matrix`` to names that match one of ``patterns`` (globs) and to ``backends``.

    ``required_only`` keeps what Hub kernels must have now; noarch variants always belong to it. Nothing is raised for
    a pattern without a match: see :func:`unmatched`.
    """
    kept: list[Kept] = []
    dropped = list(matrix.dropped)
    for entry in matrix.kept:
        if backends and entry.backend not in backends:
            dropped.append(Dropped(name=entry.name, reason="its backend was not asked for"))
        elif patterns and not any(fnmatchcase(entry.name, pattern) for pattern in patterns):
            dropped.append(Dropped(name=entry.name, reason="no --variant names it"))
        elif required_only and entry.row is not None and not entry.row.required:
            dropped.append(Dropped(name=entry.name, reason="it is not required of Hub kernels; name it to build it"))
        else:
            kept.append(entry)
    return Matrix(kept=tuple(kept), dropped=tuple(dropped))


def unmatched(matrix: Matrix, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns that match no variant of ``matrix``, in order."""
    return tuple(pattern for pattern in patterns if not any(fnmatchcase(entry.name, pattern) for entry in matrix.kept))
