"""Toolchains ahead of time: everything that a project, or a set of the support table, is compiled with.

Nothing here prints; progress goes to a reporter and the result is a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.config.reader import load_project
from kernel_builder.errors import ToolchainError, UsageError
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.store.inventory import StoreEntry, list_entries
from kernel_builder.toolchain.model import HostCompiler
from kernel_builder.toolchain.provide import Toolchains
from kernel_builder.toolchain.resolved import ResolvedToolchain
from kernel_builder.toolchain.sysroot import provide_sysroot
from kernel_builder.variants.matrix import COMPILED_BACKENDS, Kept, Matrix, variants_of_any
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import VariantSet, load_support
from kernel_builder.workflow.outcome import Unavailable
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import Selection, names_like, refuse, select_variants, this_platform
from kernel_builder.workflow.toolchains import (
    Chosen,
    ToolchainOptions,
    choose_toolchains,
    open_toolchains,
    provide,
    resolve_all,
    toolchain_request,
)


@dataclass(frozen=True, kw_only=True)
class FetchRequest:
    """Which toolchains are wanted.

    With ``root``, those of a project's variants: that match ``patterns``, or of the set ``within`` (default: what is
    required). Without, those of the support table in the same way (default: the newest ones), from the sources that
    ``kernel-builder.toml`` in ``settings`` names. ``platform`` is what the variants run on (default: this machine);
    ``available`` leaves out what is not available.
    """

    root: Path | None = None
    settings: Path | None = None
    patterns: tuple[str, ...] = ()
    backends: tuple[Backend, ...] = ()
    within: VariantSet | None = None
    platform: Platform | None = None
    available: bool = False


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """What is in the store now: ``variants`` by name, and those that are not available. ``received`` is in bytes."""

    variants: tuple[str, ...]
    unavailable: tuple[Unavailable, ...]
    received: int


def fetch(request: FetchRequest, run: Run) -> Fetched:
    """Bring what was asked for into the store.

    Raises :class:`ToolchainError` when something is not available (unless ``available``), :class:`UsageError` for names
    that do not exist, and what fetching raises; what was complete by then stays.
    """
    return _fetch_named(request, run) if request.root is None else _fetch_project(request, run)


def _provide_c_library(host: HostCompiler, run: Run) -> None:
    """Make the link-time view of the C library, which builds for Linux need, too."""
    if not host.is_apple:
        provide_sysroot(run.store, host, run.environ)


def _fetch_project(request: FetchRequest, run: Run) -> Fetched:
    matrix, chosen = _choose_project(request, run)
    for host in dict.fromkeys(answer.host for answer in chosen.resolved.values()):
        _provide_c_library(host, run)
    received = provide(chosen, matrix, run)
    return Fetched(variants=tuple(chosen.resolved), unavailable=chosen.unavailable, received=received)


def _choose_project(request: FetchRequest, run: Run) -> tuple[Matrix, Chosen]:
    """The variants of the project that are meant, and what they are compiled with."""
    assert request.root is not None  # noqa: S101  (the caller asked)
    selection = Selection(
        patterns=request.patterns, backends=request.backends, within=request.within, platform=request.platform
    )
    project, _ = load_project(request.root)
    matrix = select_variants(project, selection, run)
    chosen = choose_toolchains(project, matrix, run, ToolchainOptions())
    if chosen.unavailable and (not request.available or len(chosen.unavailable) == len(matrix.kept)):
        raise refuse(
            chosen.unavailable,
            matrix,
            selection,
            others="run kernel-builder toolchain fetch --available to fetch the other {count}",
        )
    return matrix, chosen


def _named(request: FetchRequest) -> tuple[Kept, ...]:
    """The variants that are meant where no project says which there are: by default, those of whole builds of torch.

    Backends that no compiler is known for are meant only when they are named.
    """
    platform = request.platform or this_platform()
    table = load_support()
    here = variants_of_any(table, platform)
    builds = [row.name for row in table.rows if row.platform == platform]
    for pattern in request.patterns:
        if not any(fnmatchcase(entry.name, pattern) for entry in here):
            alike = names_like(pattern, [entry.name for entry in here])
            meant = f"did you mean '{alike[0]}'? It matches {alike[1]}" if alike is not None else None
            raise UsageError(
                f"no variant for {platform} matches {pattern}",
                hint=meant or f"use a name such as {builds[-1]}, or torch213-* for all of torch 2.13",
            )
    patterns = request.patterns or tuple(builds)
    # A pattern that means builds of torch does not mean variants of another kind, too, that can lack what is theirs.
    meant_builds = {pattern for pattern in patterns if any(fnmatchcase(name, pattern) for name in builds)}
    backends = request.backends or (COMPILED_BACKENDS if not request.patterns else tuple(Backend))
    within = request.within or (VariantSet.ALL if request.patterns else VariantSet.LATEST)
    return tuple(
        entry
        for entry in here
        if entry.backend in backends
        and within in entry.sets
        and any(
            fnmatchcase(entry.name, pattern) and (entry.name in builds or pattern not in meant_builds)
            for pattern in patterns
        )
    )


def _fetch_named(request: FetchRequest, run: Run) -> Fetched:
    provider = _provider(run, request.settings, request.platform)
    resolved, unavailable = _resolve_named(request, provider)
    for host in dict.fromkeys(answer.host for answer in resolved.values()):
        _provide_c_library(host, run)
    provider.provide_all(tuple(dict.fromkeys(resolved.values())))
    return Fetched(variants=tuple(resolved), unavailable=tuple(unavailable), received=provider.bytes_received)


def _resolve_named(
    request: FetchRequest, provider: Toolchains
) -> tuple[dict[str, ResolvedToolchain], list[Unavailable]]:
    named = _named(request)
    unavailable = [Unavailable(name=entry.name, reason=entry.obstacle) for entry in named if entry.obstacle is not None]
    found = resolve_all(
        (entry.name, partial(provider.resolve, toolchain_request(entry.row, entry.variant)))
        for entry in named
        if entry.row is not None and entry.obstacle is None
    )
    unavailable += found.unavailable
    resolved = dict(found.resolved)
    if unavailable and (not resolved or not request.available):
        raise _refusal(unavailable, len(named))
    return resolved, unavailable


def _refusal(unavailable: list[Unavailable], total: int) -> ToolchainError:
    lines = [f"the toolchains of {len(unavailable)} of {total} variants are not available:"]
    lines += [
        f"  {entry.name}: {entry.reason}" + (f" ({entry.remedy})" if entry.remedy else "") for entry in unavailable
    ]
    some = len(unavailable) < total
    return ToolchainError(
        "\n".join(lines), hint="run kernel-builder toolchain fetch --available to fetch the others" if some else None
    )


def _provider(run: Run, settings: Path | None, platform: Platform | None = None) -> Toolchains:
    return open_toolchains(run, settings, platform.machine if platform is not None else None)


@dataclass(frozen=True, kw_only=True)
class Portion:
    """A part of the store: entries that came from elsewhere, and what was chosen for what."""

    entries: tuple[StoreEntry, ...]
    resolutions: tuple[Path, ...]


def everything(store: Store) -> Portion:
    """All that came from elsewhere. What this machine made of it, another one makes by itself."""
    entries = tuple(entry for entry in list_entries(store) if entry.sources or entry.problem)
    return Portion(entries=entries, resolutions=tuple(sorted((store.root / "resolutions").glob("*.json"))))


def portion(request: FetchRequest, run: Run) -> Portion:
    """What ``request`` means, out of what is in the store already; the network is not used.

    Raises :class:`OfflineError` for what is not there, and what :func:`fetch` raises.
    """
    run = replace(run, offline=True)
    keys: list[StoreKey] = []
    if request.root is not None:
        _, chosen = _choose_project(request, run)
        resolved, provider = dict(chosen.resolved), chosen.provider
        keys += [library.key for libraries in chosen.depends.values() for library in libraries]
    else:
        provider = _provider(run, request.settings, request.platform)
        resolved, _ = _resolve_named(request, provider)
    kept: set[Path] = set()
    for answer in resolved.values():
        keys += answer.fetched_keys
        path = provider.kept_file(answer.request) if provider is not None else None
        if path is not None:
            kept.add(path)
    names = {key.name for key in keys}
    entries = tuple(entry for entry in list_entries(run.store) if entry.name in names)
    missing = names - {entry.name for entry in entries}
    if missing:
        raise ToolchainError(
            f"{', '.join(sorted(missing))} is not in the store", hint="run: kernel-builder toolchain fetch"
        )
    return Portion(entries=entries, resolutions=tuple(sorted(kept)))


def restore(names: Iterable[str], run: Run, settings: Path | None = None) -> tuple[str, ...]:
    """Provide deleted entries again that something asked for earlier; the names of those that are there now.

    They come from the sources that ``kernel-builder.toml`` in ``settings`` names.
    """
    wanted = set(names)
    provider = _provider(run, settings)
    again = []
    for request in provider.kept_requests():
        resolved = provider.resolve(request)
        _provide_c_library(resolved.host, run)
        keys = (resolved.framework_key, resolved.framework_stubs_key, resolved.toolkit_key, resolved.toolkit_stubs_key)
        if any(key is not None and key.name in wanted for key in keys):
            again.append(resolved)
    provider.provide_all(again)
    return tuple(sorted(name for name in wanted if (run.store.entries / name).is_dir()))
