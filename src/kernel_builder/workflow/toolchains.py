"""Toolchains for variants: one loop that chooses them, for whichever command, and the step that fetches them.

Nothing here prints; progress goes to the run's reporter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.model import FrameworkKind, Project
from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.index import Index, SimpleIndex
from kernel_builder.store.settings import find_index
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.cxx_libraries import CxxLibraries
from kernel_builder.toolchain.deciding import all_of
from kernel_builder.toolchain.dependencies import Libraries, ResolvedLibrary
from kernel_builder.toolchain.host import HostCompilers, build_machine, find_host_compilers
from kernel_builder.toolchain.lock import LOCK_NAME, LockedVariant
from kernel_builder.toolchain.lock_use import LockUse
from kernel_builder.toolchain.model import HostChoice, Toolkit
from kernel_builder.toolchain.provide import Toolchains
from kernel_builder.toolchain.resolved import ResolvedToolchain
from kernel_builder.toolchain.settings import ToolchainSettings
from kernel_builder.toolchain.sources import DOWNLOADS, Sources, open_sources
from kernel_builder.toolchain.stable_headers import provide_stable_headers
from kernel_builder.toolchain.zig import ZigCompilers
from kernel_builder.variants.matrix import Kept, Matrix, stable_target
from kernel_builder.variants.names import ArchVariant, TorchTag, TvmFfiTag, Variant
from kernel_builder.variants.support import SupportRow
from kernel_builder.workflow.guide import LockGuide
from kernel_builder.workflow.outcome import Unavailable
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import obstacles


def toolchain_request(row: SupportRow, compiled: Variant | None = None) -> ToolchainRequest:
    """What the variant ``compiled`` for Linux, with the build ``row`` of torch behind it, is compiled with; ``None``
    stands for the variant of that build itself.
    """
    variant = row.variant
    version = variant.compute.version
    toolkit = Toolkit(backend=variant.backend, version=f"{version[0]}.{version[1]}") if version else None
    if isinstance(compiled, ArchVariant) and isinstance(compiled.tag, TvmFfiTag):
        major, minor = compiled.tag.version
        release, kind = f"{major}.{minor}", FrameworkKind.TVM_FFI
        return ToolchainRequest(release=release, machine=variant.machine, toolkit=toolkit, framework=kind)
    return ToolchainRequest(
        release=str(row.torch),
        machine=variant.machine,
        abi=variant.tag.abi if isinstance(variant.tag, TorchTag) else None,
        toolkit=toolkit,
        system=variant.system,
    )


def open_toolchains(
    run: Run, root: Path | None, machine: str | None = None, *, indexes: Mapping[str, Index] | None = None
) -> Toolchains:
    """The toolchains that the settings in ``root`` lead to, for variants for ``machine`` (``None``: this one).

    ``indexes`` stand in for those of their labels. Raises what reading settings and opening sources raise.
    """
    kinds = toolkit_kinds()
    settings = run.settings(root)
    sources = open_sources(
        settings,
        run.store,
        run.reporter,
        kinds,
        environ=run.environ,
        offline=run.offline,
        indexes=indexes,
    )
    machine = machine or build_machine()
    choice = settings.host_compiler
    hosts = find_host_compilers(run.environ, machine=machine, choice=choice, answers=run.answers)
    return Toolchains(
        sources,
        run.store,
        hosts,
        run.reporter,
        kinds,
        offline=run.offline,
        zig=_zig_compilers(settings, sources, hosts, run),
    )


def _zig_compilers(
    settings: ToolchainSettings, sources: Sources, hosts: HostCompilers, run: Run
) -> ZigCompilers | None:
    """The compilers that can be fetched, where the settings and the environment want them: out of the user's own
    indexes, since whoever looks at a project has not agreed to run its programs.
    """
    asked = settings.host_compiler is HostChoice.ZIG
    if not asked and (settings.host_compiler is not HostChoice.AUTO or hosts.chosen):
        return None
    return ZigCompilers(
        indexes=[index for index in sources.network.indexes if index.label not in sources.by_project],
        store=run.store,
        reporter=run.reporter,
        environ=run.environ,
        machine=hosts.machine,
        answers=run.answers,
        libraries=CxxLibraries(
            settings=settings,
            store=run.store,
            reporter=run.reporter,
            transport=sources.debian,
            downloads=run.store.root / DOWNLOADS,
            environ=run.environ,
            machine=hosts.machine,
            offline=run.offline,
        ),
        offline=run.offline,
        asked=asked,
    )


@dataclass(frozen=True, kw_only=True)
class Resolving:
    """What came of choosing toolchains: those that were chosen, by the names of variants, and what is not available."""

    resolved: Mapping[str, ResolvedToolchain]
    unavailable: tuple[Unavailable, ...]


def resolve_all(
    wanted: Iterable[tuple[str, Callable[[], ResolvedToolchain]]],
    *,
    alone: bool = False,
    list_unreachable: bool = False,
) -> Resolving:
    """Choose the toolchain of each variant; ``wanted`` pairs its name with the way to choose.

    What no source has is collected, unless one variant ``alone`` was asked for: then its own error says it best. A
    server that does not answer is an error at once, unless ``list_unreachable``; a file that is not what it should be
    always is.
    """
    resolved: dict[str, ResolvedToolchain] = {}
    unavailable: list[Unavailable] = []
    for name, choose in wanted:
        try:
            resolved[name] = choose()
        except (ToolchainError, NetworkError) as error:
            collected = isinstance(error, ToolchainError) or list_unreachable
            if alone or not collected or isinstance(error, IntegrityError):
                raise
            unavailable.append(
                Unavailable(name=name, reason=error.message, remedy=error.hint, exit_code=error.exit_code)
            )
    return Resolving(resolved=resolved, unavailable=tuple(unavailable))


@dataclass(frozen=True, kw_only=True)
class ToolchainOptions:
    """How toolchains of a project are chosen.

    ``lock`` says what becomes of the project's lock; ``list_unreachable`` is that of :func:`resolve_all`, ``recall``
    that of :meth:`Toolchains.resolve`. ``settings_from`` is the directory whose ``kernel-builder.toml`` counts
    (default: the project's). With ``to_build``, what sections depend on must be within reach.
    """

    lock: LockUse = LockUse.PREFER
    list_unreachable: bool = False
    recall: bool = False
    to_build: bool = False
    settings_from: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The toolchains of a project's variants, chosen and not yet fetched.

    ``depends`` are the libraries that the sections of each variant depend on, ``locked`` the variants that are compiled
    with what the lock names, ``unavailable`` what cannot be built here, in the order of the matrix. ``provider`` and
    ``libraries`` fetch; they are ``None`` where nothing is compiled.
    """

    resolved: Mapping[str, ResolvedToolchain] = field(default_factory=dict)
    depends: Mapping[str, tuple[ResolvedLibrary, ...]] = field(default_factory=dict)
    locked: Mapping[str, LockedVariant] = field(default_factory=dict)
    unavailable: tuple[Unavailable, ...] = ()
    provider: Toolchains | None = None
    libraries: Libraries | None = None


def choose_toolchains(project: Project, matrix: Matrix, run: Run, options: ToolchainOptions) -> Chosen:
    """Choose what every compiled variant of ``matrix`` is compiled with.

    Raises what resolving raises, and :class:`LockError` for what the lock forbids.
    """
    blocked = obstacles(matrix)
    compiled = [(entry, entry.row) for entry in matrix.kept if entry.row is not None and entry.obstacle is None]
    if not compiled:
        return Chosen(unavailable=tuple(blocked))
    # Variants of one build are for one platform.
    (machine,) = {row.variant.machine for _, row in compiled}
    index = SimpleIndex(find_index(run.environ), run.reporter, offline=run.offline)
    transport = index.transport_without_credentials()
    libraries = Libraries(run.store, index, run.reporter, transport, run.environ)
    silent: dict[tuple[str, str], NetworkError] = {}
    depends = {
        entry.name: _depended(project, entry, row, libraries, silent, to_build=options.to_build)
        for entry, row in compiled
    }
    settings_from = options.settings_from or project.root
    provider = open_toolchains(run, settings_from, machine, indexes={index.label: index})
    guide = LockGuide(project.root, options.lock, run.reporter, recall=options.recall)

    def way(entry: Kept, row: SupportRow) -> Callable[[], ResolvedToolchain]:
        request = toolchain_request(row, entry.variant)
        own = depends[entry.name]
        if own.errors:
            return lambda: _refuse(own.errors, lambda: provider.resolve(request, recall=options.recall))
        return lambda: guide.resolve(entry.name, request, provider, own.libraries)

    found = resolve_all(
        ((entry.name, way(entry, row)) for entry, row in compiled),
        alone=len(matrix.kept) == 1,
        list_unreachable=options.list_unreachable,
    )
    order = [entry.name for entry in matrix.kept]
    return Chosen(
        resolved=found.resolved,
        depends={name: own.libraries for name, own in depends.items() if not own.errors},
        locked=guide.finish(sum(not own.errors for own in depends.values())),
        unavailable=tuple(sorted([*blocked, *found.unavailable], key=lambda entry: order.index(entry.name))),
        provider=provider,
        libraries=libraries,
    )


@dataclass(frozen=True, kw_only=True)
class _Depended:
    """The libraries that the sections of a variant depend on besides the framework, sorted by name; and why others are
    lacking.
    """

    libraries: tuple[ResolvedLibrary, ...]
    errors: tuple[ToolchainError | NetworkError, ...]


def _depended(
    project: Project,
    entry: Kept,
    row: SupportRow,
    libraries: Libraries,
    silent: dict[tuple[str, str], NetworkError],
    *,
    to_build: bool,
) -> _Depended:
    """What one variant depends on. Libraries whose servers do not answer are remembered in ``silent`` and asked for
    once.
    """
    names = {name for section in project.sections_for(entry.backend) for name in section.depends} - {"torch"}
    toolkit = toolchain_request(row, entry.variant).toolkit
    version = toolkit.version if toolkit is not None else ""
    found: list[ResolvedLibrary] = []
    errors: list[ToolchainError | NetworkError] = []
    for name in sorted(names):
        if (name, version) in silent:
            errors.append(silent[name, version])
            continue
        try:
            found.append(libraries.resolve(name, version))
            if to_build:
                libraries.require(found[-1])
        except (ToolchainError, NetworkError) as error:
            errors.append(error)
            if isinstance(error, NetworkError):
                silent[name, version] = error
    return _Depended(libraries=tuple(found), errors=tuple(errors))


def _refuse(errors: Sequence[ToolchainError | NetworkError], choose: Callable[[], object]) -> NoReturn:
    """Raise ``errors``, and what keeps ``choose`` from choosing, as one."""
    further: list[ToolchainError | NetworkError] = []
    if not any(isinstance(error, IntegrityError) for error in errors):
        try:
            choose()
        except (ToolchainError, NetworkError) as error:
            # What is lacking for sure is no matter of the network: a server that may have the rest is left out then.
            if isinstance(error, ToolchainError) or any(isinstance(one, NetworkError) for one in errors):
                further.append(error)
    raise all_of([*errors, *further])


def provide(chosen: Chosen, matrix: Matrix, run: Run) -> int:
    """Fetch and make what was chosen, as far as it is not in the store; how many bytes came, in all.

    Raises what fetching raises, and :class:`IntegrityError` for files that are not those of the lock.
    """
    fetched = 0
    # First: they are small, and what is wrong with them is known before gigabytes are fetched.
    if chosen.libraries is not None:
        wanted = {library.key.name: library for libraries in chosen.depends.values() for library in libraries}
        for name in sorted(wanted):
            chosen.libraries.provide(wanted[name])
        fetched += chosen.libraries.bytes_received
    if chosen.provider is not None:
        chosen.provider.provide_all(tuple(dict.fromkeys(chosen.resolved.values())))
        for name, locked in chosen.locked.items():
            _compare_with_lock(name, locked, chosen.provider.artefacts(chosen.resolved[name]))
        for entry in matrix.kept:
            # The headers of a variant on the stable ABI lie on their own, where its plan has them.
            if entry.name in chosen.resolved and stable_target(entry) is not None:
                provide_stable_headers(run.store, chosen.resolved[entry.name].framework)
        fetched += chosen.provider.bytes_received
    return fetched


def _compare_with_lock(name: str, locked: LockedVariant, artefacts: tuple[Artefact, ...]) -> None:
    """The wheels that an entry of the store was made from must have the RECORD that the lock names."""
    records = {artefact.filename: artefact.record_sha256 for artefact in locked.artefacts}
    for artefact in artefacts:
        expected = records.get(artefact.filename)
        if expected is not None and artefact.record_sha256 not in {None, expected}:
            raise IntegrityError(
                f"{name}: the SHA-256 of RECORD in {artefact.filename} is {artefact.record_sha256}, but {LOCK_NAME}"
                f" lists {expected}",
                hint="restore the lock from version control, or rewrite it with: kernel-builder lock --upgrade",
            )
