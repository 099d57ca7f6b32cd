"""Writing a project's lock, and comparing it with what the project wants now.

Nothing here prints; progress goes to a reporter and the result is a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.model import Project
from kernel_builder.config.reader import load_project
from kernel_builder.errors import ConfigError, ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.offline import OfflineError
from kernel_builder.toolchain.host import host_limits
from kernel_builder.toolchain.lock import LOCK_NAME, Lock, LockedVariant, LockError, changes, read_lock, render
from kernel_builder.toolchain.lock_use import LockUse
from kernel_builder.toolchain.model import Family
from kernel_builder.toolchain.provide import purpose_of
from kernel_builder.toolchain.resolved import ResolvedToolchain
from kernel_builder.variants.matrix import Kept, Matrix, all_variants
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import VariantSet, load_support
from kernel_builder.workflow.outcome import Unavailable
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import Selection, refuse, select_variants, this_platform
from kernel_builder.workflow.toolchains import Chosen, ToolchainOptions, choose_toolchains


@dataclass(frozen=True, kw_only=True)
class LockRequest:
    """Which variants are wanted in the lock of the project in ``root``: those that match ``patterns``, or of the set
    ``within`` (default: what is required), and those of the platform that are in it already. ``upgrade`` chooses again
    what they are compiled with.
    """

    root: Path
    patterns: tuple[str, ...] = ()
    within: VariantSet | None = None
    platform: Platform | None = None
    upgrade: bool = False


@dataclass(frozen=True, kw_only=True)
class Locking:
    """The lock as it is to be, what changes with it, and the variants that cannot be locked because no source has what
    they are compiled with.
    """

    lock: Lock
    changes: tuple[str, ...]
    unavailable: tuple[Unavailable, ...]


def make_lock(request: LockRequest, run: Run) -> Locking:
    """What the lock should be. Nothing is written, and of wheels only what is needed to read their RECORD is fetched.

    Raises :class:`ConfigError` when the lock that is there has mistakes, and what resolving raises.
    """
    old = read_lock(request.root)
    project, _ = load_project(request.root)
    names = _wanted(project, request, old, run)
    use = LockUse.UPGRADE if request.upgrade else LockUse.PREFER
    matrix, chosen = _choose(project, names, request, run, ToolchainOptions(lock=use))
    if len(chosen.unavailable) == len(matrix.kept):
        raise refuse(chosen.unavailable, matrix, Selection(patterns=names, platform=request.platform))
    valid = {entry.name for entry in all_variants(project, load_support(), None).kept}
    untouched = [v for v in old.variants if v.name in valid and v.name not in names] if old is not None else []
    lock = Lock.of([*untouched, *locked_variants(matrix, chosen)])
    return Locking(lock=lock, changes=changes(old, lock), unavailable=chosen.unavailable)


def _wanted(project: Project, request: LockRequest, old: Lock | None, run: Run) -> tuple[str, ...]:
    """Names of compiled variants: what was asked for, and what is locked for the platform already."""
    platform = request.platform or this_platform()
    selection = Selection(patterns=request.patterns, within=request.within, platform=platform)
    asked = select_variants(project, selection, run)
    names = [entry.name for entry in asked.kept if _can_be_locked(entry)]
    if old is not None:
        here = all_variants(project, load_support(), platform)
        names += [entry.name for entry in here.kept if _can_be_locked(entry) and old.get(entry.name) is not None]
    if not names:
        raise ConfigError(
            "nothing to lock: no variant of this kernel is compiled for this platform",
            hint="run 'kernel-builder list-variants --why' to see why",
        )
    return tuple(dict.fromkeys(names))


def _can_be_locked(entry: Kept) -> bool:
    return entry.row is not None and entry.obstacle is None


def _choose(
    project: Project, names: tuple[str, ...], request: LockRequest, run: Run, options: ToolchainOptions
) -> tuple[Matrix, Chosen]:
    """The variants of those names, and what they are compiled with."""
    matrix = select_variants(project, Selection(patterns=names, platform=request.platform), run)
    return matrix, choose_toolchains(project, matrix, run, options)


def locked_variants(matrix: Matrix, chosen: Chosen) -> Iterable[LockedVariant]:
    """What each variant that was chosen for is compiled with. Raises :class:`NetworkError`, :class:`IntegrityError`."""
    if chosen.provider is None:
        return
    for entry in matrix.kept:
        answer = chosen.resolved.get(entry.name)
        if answer is None:
            continue
        libraries = [artefact for library in chosen.depends[entry.name] for artefact in library.artefacts]
        yield LockedVariant(
            name=entry.name,
            host_compiler=_accepted(answer),
            artefacts=(*chosen.provider.with_records(answer), *libraries),
        )


def _accepted(resolved: ResolvedToolchain) -> Mapping[Family, str]:
    """The versions of each family's compilers that torch's headers and the toolkit accept, as specifiers."""
    limits = host_limits(purpose_of(resolved.request, toolkit_kinds()))
    return {family: limit.specifier for family, limit in limits.items()}


def drift(request: LockRequest, run: Run) -> tuple[str, ...]:
    """Everything in which the lock, the project, the files on the indexes and this machine's compiler differ; nothing,
    when all is in order. Indexes are not asked when the network must not be used.

    Raises :class:`ConfigError` when the lock has mistakes, and what resolving raises.
    """
    lock = read_lock(request.root)
    if lock is None:
        return (f"{LOCK_NAME} does not exist",)
    project, _ = load_project(request.root)
    problems: list[str] = []
    if render(lock) != (request.root / LOCK_NAME).read_text(encoding="utf-8"):
        problems.append("it differs from what 'kernel-builder lock' writes, so someone edited it")
    valid = {entry.name for entry in all_variants(project, load_support(), None).kept}
    problems += [f"{v.name}: the project no longer has this variant" for v in lock.variants if v.name not in valid]
    names = _wanted(project, request, lock, run)
    problems += _missing(project, request, [name for name in names if lock.get(name) is None], run)
    locked = tuple(name for name in names if lock.get(name) is not None)
    if locked:
        try:
            matrix, chosen = _choose(project, locked, request, run, ToolchainOptions(lock=LockUse.REQUIRE))
            if chosen.unavailable:
                raise refuse(chosen.unavailable, matrix, Selection(patterns=locked, platform=request.platform))
        except LockError as error:
            problems += error.problems
        else:
            problems += _bounds(lock, chosen)
            if chosen.provider is not None and not run.offline:
                problems += chosen.provider.differences(_once(lock, locked))
    return tuple(problems)


def _once(lock: Lock, names: Iterable[str]) -> tuple[Artefact, ...]:
    chosen = (lock.get(name) for name in names)
    return tuple(dict.fromkeys(artefact for variant in chosen if variant for artefact in variant.artefacts))


def _bounds(lock: Lock, chosen: Chosen) -> list[str]:
    problems: list[str] = []
    for name, answer in chosen.resolved.items():
        locked = lock.get(name)
        if locked is None:
            continue
        right = replace(locked, host_compiler=_accepted(answer))
        if locked != right:
            problems.append(f"{name}: the lock accepts {locked.accepted}, but {right.accepted} is correct")
    return problems


def _missing(project: Project, request: LockRequest, names: list[str], run: Run) -> list[str]:
    """Of variants that are not locked, those that could be: what no source has is no drift."""
    # Offline, each for itself: that nothing may be asked about one says nothing about the others.
    groups = [(name,) for name in names] if run.offline else [tuple(names)] if names else []
    found: set[str] = set()
    for group in groups:
        try:
            options = ToolchainOptions(lock=LockUse.UPGRADE)
            found.update(_choose(project, group, request, run, options)[1].resolved)
        except OfflineError:
            found.update(group)
        except ToolchainError:
            continue
    return [f"{name}: the project needs it, but the lock does not list it" for name in names if name in found]
