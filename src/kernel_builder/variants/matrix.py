"""Project x support table x what was asked for -> the variants to build, and those left out with the reason.

Reference: interoperability contract 2.5 and 2.6. Pure: what is built for comes in as a :class:`Platform`. Only whether
a variant can be compiled depends on the machine: on its system.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from kernel_builder.config.backends import Backend
from kernel_builder.config.known import OLDEST_STABLE_ABI
from kernel_builder.config.model import FrameworkKind, Project
from kernel_builder.variants.names import (
    ArchVariant,
    Compute,
    NoarchVariant,
    Platform,
    StableAbiTag,
    System,
    Tag,
    TvmFfiTag,
    Variant,
)
from kernel_builder.variants.support import SupportRow, SupportTable, VariantSet
from kernel_builder.versions import Version

COMPILED_BACKENDS = tuple(backend for backend in Backend if backend.has_module)
"""Backends that this version of kernel-builder has a compiler for. Noarch variants need none."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A variant of the project. ``row`` says what it is compiled against; ``None`` for a noarch variant.

    ``stands_for`` are all builds of torch that the variant serves: ``row`` alone, but for variants on torch's stable
    ABI and on tvm-ffi. ``sets`` are the named sets that one of them belongs to. ``obstacle`` says why this version of
    kernel-builder cannot compile it, if it cannot.
    """

    variant: Variant
    row: SupportRow | None
    stands_for: tuple[SupportRow, ...] = ()
    sets: frozenset[VariantSet] = frozenset(VariantSet)
    obstacle: str | None = None

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
    """A variant that is not built, and why. ``other_platform``: because it is for another platform."""

    name: str
    backend: Backend
    reason: str
    other_platform: bool = False


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Variants in build order, and what was left out, both in the order of the support table.

    ``remarks`` are sentences that people must be told about the choice.
    """

    kept: tuple[Kept, ...]
    dropped: tuple[Dropped, ...]
    remarks: tuple[str, ...] = ()

    def silent_backends(self, project: Project) -> tuple[tuple[Backend, str], ...]:
        """Backends of ``project`` that have no variant here at all, and why: people must be told."""
        present = {entry.backend for entry in self.kept}
        silent: list[tuple[Backend, str]] = []
        for backend in dict.fromkeys(project.backends):
            if backend in present:
                continue
            own = [entry for entry in self.dropped if entry.backend is backend]
            here = [entry for entry in own if not entry.other_platform]
            if here:
                silent.append((backend, here[-1].reason))
            elif own:
                platforms = sorted({_platform_of(entry.name) for entry in own})
                silent.append((backend, f"its variants are for {' and '.join(platforms)}"))
            else:
                silent.append((backend, "no torch build is known for it"))
        return tuple(silent)


def _platform_of(name: str) -> str:
    return "-".join(name.rsplit("-", 2)[-2:])


def all_variants(project: Project, table: SupportTable, platform: Platform | None) -> Matrix:
    """Every variant that ``project`` can have on ``platform`` (``None``: on any), whatever is required of it."""
    kept: list[Kept] = []
    dropped: list[Dropped] = []
    for backend in dict.fromkeys(project.backends):
        if not project.is_compiled_for(backend):
            kept.append(Kept(variant=NoarchVariant(backend=backend), row=None))
            continue
        admitted: list[SupportRow] = []
        for row in table.rows:
            if row.variant.backend is not backend:
                continue
            elsewhere = platform is not None and row.platform != platform
            reason = f"it is for {row.platform}" if elsewhere else _out_of_bounds(project, row)
            if reason is None:
                admitted.append(row)
            else:
                dropped.append(Dropped(name=row.name, backend=backend, reason=reason, other_platform=elsewhere))
        if project.framework.kind is FrameworkKind.TVM_FFI:
            _collapse_tvm_ffi(admitted, kept, dropped)
        elif backend in project.framework.stable_abi:
            _collapse_stable(project.framework.stable_abi[backend], admitted, kept, dropped)
        else:
            kept += [_kept(row.variant, (row,)) for row in admitted]
    return Matrix(kept=_completed(kept, table), dropped=tuple(dropped))


def _completed(kept: Iterable[Kept], table: SupportTable) -> tuple[Kept, ...]:
    """``kept`` with the sets that they belong to, and with what keeps this version from compiling them."""
    return tuple(
        replace(entry, sets=table.sets_of(entry.stands_for), obstacle=why_not_compiled(entry.variant))
        if isinstance(entry.variant, ArchVariant)
        else entry
        for entry in kept
    )


def variants_of_any(table: SupportTable, platform: Platform | None) -> tuple[Kept, ...]:
    """Every compiled variant that some project can have on ``platform`` (``None``: on any): of each build of torch, of
    each release's stable ABI, and of tvm-ffi.
    """
    dropped: list[Dropped] = []
    rows = [row for row in table.rows if platform is None or row.platform == platform]
    kept = [_kept(row.variant, (row,)) for row in rows]
    releases = {Version.parse(f"{row.torch.major}.{row.torch.minor}") for row in rows}
    for backend in Backend:
        own = [row for row in rows if row.variant.backend is backend]
        for release in sorted(releases):
            if release >= OLDEST_STABLE_ABI:
                _collapse_stable(release, own, kept, dropped)
        _collapse_tvm_ffi(own, kept, dropped)
    return _completed(kept, table)


def full_names(
    project: Project, kept: Kept, table: SupportTable, platform: Platform | None, within: VariantSet
) -> tuple[str, ...]:
    """The builds of torch behind a variant, by their full names, as the reference names its shells (contract 2.5).

    That is the one that it is compiled with; for a variant of Python alone, every build in the set ``within``. Those of
    tvm-ffi kernels are called like the variant.
    """
    if isinstance(kept.variant, ArchVariant):
        is_tvm = isinstance(kept.variant.tag, TvmFfiTag)
        return (kept.name if is_tvm or kept.row is None else kept.row.name,)
    return tuple(
        row.name
        for row in table.rows
        if row.variant.backend is kept.backend
        and (platform is None or row.platform == platform)
        and table.contains(within, row)
        and _out_of_bounds(project, row) is None
    )


def stable_target(kept: Kept) -> Version | None:
    """The release whose stable ABI a variant is for; ``None`` for one that uses all of torch."""
    variant = kept.variant
    if not isinstance(variant, ArchVariant) or not isinstance(variant.tag, StableAbiTag):
        return None
    major, minor = variant.tag.version
    return Version.parse(f"{major}.{minor}")


def _kept(variant: ArchVariant, rows: tuple[SupportRow, ...]) -> Kept:
    """``rows`` in the order of the table: the last one has the newest torch."""
    return Kept(variant=variant, row=rows[-1], stands_for=rows)


def why_not_compiled(variant: ArchVariant, here: System | None = None) -> str | None:
    """The reason why this version cannot compile kernels for ``variant`` on a machine with the system ``here``
    (default: this one's); ``None`` when it can.
    """
    here = here or System.current()
    if variant.system is System.WINDOWS:
        return "this version of kernel-builder cannot compile for Windows"
    if not variant.needs_torch and variant.system is not System.LINUX:
        return "this version of kernel-builder compiles tvm-ffi kernels only for Linux, on Linux"
    if variant.system is not here:
        where = {System.DARWIN: "a Mac with Xcode", System.LINUX: "Linux"}[variant.system]
        if here is System.WINDOWS:
            wsl = " (WSL serves)" if variant.system is System.LINUX else ""
            return f"this version of kernel-builder compiles nothing on Windows: run it on {where}{wsl}"
        only = f"this version of kernel-builder compiles only for {here.label}"
        return f"{only}, not for {variant.system.value}, on this machine: run it on {where}"
    if variant.backend not in COMPILED_BACKENDS:
        return f"this version of kernel-builder cannot compile {variant.backend.value} kernels"
    return None


def _grouped(rows: Iterable[SupportRow]) -> list[tuple[SupportRow, ...]]:
    """Rows of one backend that differ in torch (and ABI) alone, older torch first."""
    groups: dict[tuple[Compute, Platform], list[SupportRow]] = {}
    for row in rows:
        groups.setdefault((row.variant.compute, row.platform), []).append(row)
    return [tuple(groups[key]) for key in sorted(groups)]


def _collapse_stable(target: Version, rows: list[SupportRow], kept: list[Kept], dropped: list[Dropped]) -> None:
    """One variant per toolkit and platform, built with the newest torch that the project admits (contract 2.6).

    Major and minor of ``target`` count: variants are named by them, and patch releases add nothing to the ABI.
    """
    target = Version.parse(f"{target.major}.{target.minor}")
    for group in _grouped(rows):
        newest = group[-1]
        backend = newest.variant.backend
        variant = _with_tag(newest, StableAbiTag(version=(target.major, target.minor)))
        serving = tuple(row for row in group if row.torch >= target)
        if serving:
            kept.append(_kept(variant, serving))
        else:
            toolkit = newest.variant.compute.label
            reason = f"torch {newest.torch} is the newest with {toolkit}, but the stable ABI of {target} is needed"
            dropped.append(Dropped(name=str(variant), backend=backend, reason=reason))
        for row in group:
            reason = (
                f"{variant} covers it, built with torch {newest.torch}"
                if row in serving
                else f"torch {row.torch} is older than {target}, whose stable ABI is needed"
            )
            dropped.append(Dropped(name=row.name, backend=backend, reason=reason))


def _collapse_tvm_ffi(rows: list[SupportRow], kept: list[Kept], dropped: list[Dropped]) -> None:
    """The variants of a tvm-ffi kernel: of the builds that are paired with a release of tvm-ffi (contract 2.6)."""
    for group in _grouped(rows):
        releases: dict[Version, list[SupportRow]] = {}
        for row in group:
            if row.tvm_ffi is None:
                dropped.append(
                    Dropped(name=row.name, backend=row.variant.backend, reason="no tvm-ffi release is paired with it")
                )
            else:
                releases.setdefault(row.tvm_ffi, []).append(row)
        for release, members in releases.items():
            variant = _with_tag(members[-1], TvmFfiTag(version=(release.major, release.minor)))
            kept.append(_kept(variant, tuple(members)))


def _with_tag(row: SupportRow, tag: Tag) -> ArchVariant:
    variant = row.variant
    return ArchVariant(tag=tag, compute=variant.compute, machine=variant.machine, system=variant.system)


def _out_of_bounds(project: Project, row: SupportRow) -> str | None:
    """The reason why the project's own bounds leave ``row`` out; ``None`` when they do not."""
    framework = project.framework
    reason = _outside(f"torch {row.torch}", row.torch, framework.minver, framework.maxver, "torch")
    if reason is None and row.toolkit is not None:
        backend = row.variant.backend
        options = project.backend_options.get(backend)
        if options is not None:
            section = f"general.{backend.value}"
            what = f"{backend.value} {row.toolkit}"
            reason = _outside(what, row.toolkit, options.minver, options.maxver, section)
    return reason


def _outside(what: str, version: Version, low: Version | None, high: Version | None, section: str) -> str | None:
    if low is not None and not version.is_at_least(low):
        return f"{what} is below {section}.minver = {low}"
    if high is not None and not version.is_at_most(high):
        return f"{what} is above {section}.maxver = {high}"
    return None


def choose(
    matrix: Matrix,
    *,
    patterns: tuple[str, ...] = (),
    backends: tuple[Backend, ...] = (),
    within: VariantSet = VariantSet.ALL,
) -> Matrix:
    """Narrow ``matrix`` to names that match one of ``patterns`` (globs), to ``backends``, and to a named set.

    Noarch variants belong to every set. Nothing is raised for a pattern without a match: see :func:`unmatched`.
    """
    kept: list[Kept] = []
    dropped = list(matrix.dropped)

    def drop(entry: Kept, reason: str) -> None:
        dropped.append(Dropped(name=entry.name, backend=entry.backend, reason=reason))

    for entry in matrix.kept:
        if backends and entry.backend not in backends:
            drop(entry, "its backend was not requested")
        elif patterns and not any(fnmatchcase(entry.name, pattern) for pattern in patterns):
            drop(entry, "no --variant matches it")
        elif within not in entry.sets:
            drop(entry, _not_in_set(within))
        else:
            kept.append(entry)
    return Matrix(kept=tuple(kept), dropped=tuple(dropped))


def _not_in_set(within: VariantSet) -> str:
    if within is VariantSet.REQUIRED:
        return "it is not required of Hub kernels; 'kernel-builder build --variant NAME' builds it"
    return f"it does not belong to the set '{within.value}'"


def unmatched(matrix: Matrix, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns that match no variant of ``matrix``, in order."""
    return tuple(pattern for pattern in patterns if not any(fnmatchcase(entry.name, pattern) for entry in matrix.kept))
