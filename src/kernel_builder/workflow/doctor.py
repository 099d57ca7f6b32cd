"""``doctor``: what this machine has, what of the required set can be built with it, and how to fix the rest.

Whether a variant can be built is not guessed from what is installed: the steps of ``build`` up to its plan are taken.
Nothing is changed outside of the store, and nothing here raises for what is merely missing.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.backends import Backend
from kernel_builder.config.reader import FILE_NAME, load_project
from kernel_builder.config.settings import FILE_NAME as SETTINGS_NAME
from kernel_builder.engine.resources import measure
from kernel_builder.errors import ConfigError, ExitCode, KernelBuilderError
from kernel_builder.events import Silent
from kernel_builder.load.client import Environment, find_environment
from kernel_builder.load.confinement import Sandbox
from kernel_builder.store.cache import Store
from kernel_builder.store.index import SimpleIndex
from kernel_builder.store.inventory import list_entries
from kernel_builder.store.offline import OfflineError
from kernel_builder.store.settings import find_index, redact
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.debian import KEYRINGS, apt_mirrors
from kernel_builder.toolchain.host import Purpose, build_machine, find_host_compilers, variable_for, why_unfit
from kernel_builder.toolchain.kinds import ToolkitKind
from kernel_builder.toolchain.machine import (
    find_compilers,
    find_program,
    install_command,
    missing_tools,
    try_compiler,
)
from kernel_builder.toolchain.model import HostChoice, HostCompiler, Toolkit
from kernel_builder.toolchain.recipe import bound_for, default_recipe
from kernel_builder.toolchain.settings import DEBIAN, INDEX, ToolchainSettings
from kernel_builder.variants.matrix import Matrix
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import load_support
from kernel_builder.workflow.build import BuildRequest, prepare_build
from kernel_builder.workflow.outcome import Unavailable
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import Selection, UnavailableError, select_variants

LOW_DISK = 3 << 30
"""Bytes: all toolchains of the required set take about this much."""
LOW_MEMORY = 2 << 30
"""Bytes: one compile of torch's headers takes up to 1.5 GB."""
_INDEX_SECONDS = 20.0


def _minimal_project() -> Mapping[str, str]:
    """The files of a smallest project that is compiled for every backend that can be."""
    compiled = [backend for backend in Backend if backend.has_module]
    sources = {backend: f"{backend}/kernel{(*backend.sources, '.cpp')[0]}" for backend in compiled}
    sections = "".join(
        f'\n[kernel.{backend}]\nbackend = "{backend}"\ndepends = ["torch"]\nsrc = ["{source}"]\n'
        for backend, source in sources.items()
    )
    names = ", ".join(f'"{backend}"' for backend in compiled)
    return {
        FILE_NAME: _MINIMAL.replace("BACKENDS", names) + sections,
        "torch-ext/binding.cpp": "int binding;\n",
        "torch-ext/any_kernel/__init__.py": "",
        **dict.fromkeys(sources.values(), "int kernel;\n"),
    }


_MINIMAL = """\
[general]
name = "any-kernel"
version = 1
edition = 5
license = "Apache-2.0"
backends = [BACKENDS]

[general.hub]
repo-id = "any/any-kernel"

[torch]
src = ["torch-ext/binding.cpp"]
"""


class Standing(StrEnum):
    """What a check came to."""

    OK = "ok"
    ABSENT = "absent"
    """Not there, or short, and needed only for something special; the remedy says for what."""
    MISSING = "missing"
    """Nothing can be compiled without it."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at. ``found`` says what is there, or what is wrong."""

    name: str
    standing: Standing
    found: str
    remedy: str | None = None


@dataclass(frozen=True, kw_only=True)
class VariantCheck:
    """A required variant: ``reason`` says why it cannot be built here, ``None`` when it can."""

    variant: str
    reason: str | None = None
    remedy: str | None = None


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Everything. ``project`` is the project's directory, ``None`` when no project was looked at.

    ``problem`` is set when there is no telling what the required set is: ``build.toml`` has mistakes, say.
    """

    project: Path | None
    checks: tuple[Check, ...]
    variants: tuple[VariantCheck, ...]
    problem: KernelBuilderError | None = None

    @property
    def exit_code(self) -> ExitCode:
        """0 when every required variant can be built here."""
        if self.problem is not None:
            return self.problem.exit_code
        return ExitCode.OK if all(entry.reason is None for entry in self.variants) else ExitCode.TOOLCHAIN


def examine(directory: Path, run: Run, platform_: Platform | None = None) -> Diagnosis:
    """Look at the machine and at the project in ``directory``; without one, at a kernel with CPU and CUDA code.

    ``platform_`` is what the variants are to run on (default: this machine).
    """
    environ = run.environ
    machine = platform_.machine.value if platform_ is not None else build_machine()
    project = directory if (directory / FILE_NAME).exists() else None
    problem: KernelBuilderError | None = None
    settings = ToolchainSettings()
    try:
        settings = run.settings(directory)
    except KernelBuilderError as error:
        problem = error
    checks = [*_python(environ), *_compilers(run, machine, settings), *_tools(environ, settings)]
    checks += [*_devices(environ, settings), *_resources(run.store), _sources(settings)]
    unreachable: KernelBuilderError | None = None
    if INDEX in settings.order:
        index, unreachable = _index(run)
        checks.append(index)
    if settings.indexes or settings.redistrib or settings.debian_mirror:
        unreachable = None  # there are others to ask
    blocked = next((check for check in checks if check.standing is Standing.MISSING), None)
    selection = Selection(platform=platform_)
    variants: tuple[VariantCheck, ...] = ()
    try:
        with _root(project) as root:
            matrix = select_variants(load_project(root)[0], selection, run)
            if blocked is None:
                request = BuildRequest(root=root, platform=platform_, settings_from=directory)
                variants = _capabilities(request, matrix, run, unreachable)
            else:
                variants = tuple(_blocked(entry.name, entry.row is None, blocked) for entry in matrix.kept)
    except KernelBuilderError as error:
        problem = problem or error
    return Diagnosis(project=project, checks=tuple(checks), variants=variants, problem=problem)


def _python(environ: Mapping[str, str]) -> Iterator[Check]:
    libc, version = platform.libc_ver()
    system = f"{platform.system()} {platform.machine()}, {libc or 'no glibc'} {version}".strip()
    if libc == "glibc":
        yield Check(name="system", standing=Standing.OK, found=system)
    else:
        remedy = "build on Linux with glibc, for example in a container"
        yield Check(name="system", standing=Standing.MISSING, found=system, remedy=remedy)
    yield Check(name="Python", standing=Standing.OK, found=f"{platform.python_version()}, {sys.executable}")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if header.is_file():
        yield Check(name="Python headers", standing=Standing.OK, found=str(header.parent))
    else:
        remedy = f"for kernels that include Python.h: {install_command('python headers', environ)}"
        yield Check(name="Python headers", standing=Standing.ABSENT, found=f"no {header}", remedy=remedy)


def _can_be_fetched(run: Run, settings: ToolchainSettings) -> bool:
    """Whether a compiler comes out of the store, or from the index, where none is installed."""
    wanted = settings.host_compiler in {HostChoice.AUTO, HostChoice.ZIG}
    at_hand = any(run.store.entries.glob(f"{default_recipe().zig.project}-*"))
    return wanted and (at_hand or (not run.offline and INDEX in settings.order))


def _compilers(run: Run, machine: str, settings: ToolchainSettings) -> Iterator[Check]:
    environ = run.environ
    here = machine == build_machine()
    package = "c++" if here else f"{machine} c++"
    install = install_command(package, environ)
    compilers = find_host_compilers(environ, machine=machine, choice=settings.host_compiler)
    hosts = compilers.right
    if not hosts and not compilers.chosen and _can_be_fetched(run, settings):
        found = (
            f"no g++ or clang++ for {machine}-linux is installed; builds use clang from {default_recipe().zig.project}"
        )
        yield Check(name="C++ compiler", standing=Standing.ABSENT, found=found, remedy=f"to use g++: {install}")
    elif not hosts:
        tried = "; ".join(
            [*map(str, compilers.rejected), *(f"{h.cxx} compiles for {h.target}" for h in compilers.found)]
        )
        yield Check(
            name="C++ compiler",
            standing=Standing.MISSING,
            found=f"no g++ or clang++ for {machine}-linux{f' ({tried})' if tried else ''}",
            remedy=f"{install}, or set {variable_for(machine)} to a compiler",
        )
    for host in hosts:
        found = f"{host}, {host.cxx}{_limits(host)}"
        yield Check(name="C++ compiler", standing=Standing.OK, found=found)
    if hosts:
        host = hosts[0]
        missing = missing_tools(host, environ)
        if missing:
            yield Check(
                name="binutils",
                standing=Standing.MISSING,
                found=f"no {' and no '.join(missing)}",
                remedy=install_command("binutils", environ),
            )
        else:
            yield Check(name="binutils", standing=Standing.OK, found="as, ld and ar")
            problem = try_compiler(host, environ)
            yield Check(
                name="static libstdc++",
                standing=Standing.OK if problem is None else Standing.MISSING,
                found=problem or "can be linked into shared libraries",
                remedy=None if problem is None else install,
            )
    known = {host.cxx.resolve() for host in hosts}
    for compiler in find_compilers(environ):
        if compiler.machine == build_machine() and compiler.cxx.resolve() not in known:
            yield Check(name="another compiler", standing=Standing.OK, found=f"{compiler}, {compiler.cxx}")
    if build_machine() == "x86_64":
        if here:
            yield from _cross(environ)
        yield _emulator(environ)


def _limits(host: HostCompiler) -> str:
    """What a compiler does not serve, of all that is in the support table."""
    rows = [row for row in load_support().rows if row.platform.machine.value == host.machine]
    releases = sorted({row.torch for row in rows})
    fitting = [str(torch) for torch in releases if why_unfit(host, Purpose(release=str(torch))) is None]
    old = [str(torch) for torch in releases if str(torch) not in fitting]
    limits = [f"too old for torch {old[0]} and later"] if old else []
    for backend, kind in toolkit_kinds().items():
        versions = sorted({row.toolkit for row in rows if row.variant.backend is backend and row.toolkit})
        new = [str(version) for version in versions if fitting and not _serves(host, fitting[0], kind, str(version))]
        if new:
            limits.append(f"not for {backend.label} {', '.join(new)}")
    return "".join(f"; {limit}" for limit in limits)


def _serves(host: HostCompiler, torch: str, kind: ToolkitKind, version: str) -> bool:
    bound = bound_for(kind.recipe.host_compilers, version)
    purpose = Purpose(release=torch, toolkit=Toolkit(backend=kind.backend, version=version), bound=bound)
    return why_unfit(host, purpose) is None


def _cross(environ: Mapping[str, str]) -> Iterator[Check]:
    """The compilers that a build for aarch64 chooses among: the one that CXX_AARCH64_LINUX names, or all of them."""
    hosts = find_host_compilers(environ, machine="aarch64")
    for host in hosts.right:
        yield Check(name="compiler for aarch64", standing=Standing.OK, found=f"{host}, {host.cxx}")
    if not hosts.right:
        variable = variable_for(hosts.machine)
        remedy = f"to build for aarch64-linux: {install_command('aarch64 c++', environ)}"
        if hosts.chosen:
            remedy = f"to build for aarch64-linux: unset {variable}, or set it to a compiler for aarch64"
        found = f"none; {variable} is {environ[variable]}" if hosts.chosen else "none"
        yield Check(name="compiler for aarch64", standing=Standing.ABSENT, found=found, remedy=remedy)


def _emulator(environ: Mapping[str, str]) -> Check:
    emulator = find_program("qemu-aarch64", environ) or find_program("qemu-aarch64-static", environ)
    if emulator is not None:
        return Check(name="qemu", standing=Standing.OK, found=f"{emulator.version}, {emulator.path}")
    remedy = f"to load what was built for aarch64-linux: {install_command('qemu', environ)}"
    return Check(name="qemu", standing=Standing.ABSENT, found="no qemu-aarch64", remedy=remedy)


def _tools(environ: Mapping[str, str], settings: ToolchainSettings) -> Iterator[Check]:
    git = find_program("git", environ)
    if git is not None:
        yield Check(name="git", standing=Standing.OK, found=f"{git.version}, {git.path}")
    else:
        remedy = f"to name kernels by their commit: {install_command('git', environ)}"
        yield Check(name="git", standing=Standing.ABSENT, found="none", remedy=remedy)
    if DEBIAN in settings.order:
        yield from _debian(environ, settings)


def _debian(environ: Mapping[str, str], settings: ToolchainSettings) -> Iterator[Check]:
    releases = [f"{kind.backend.label} {' and '.join(kind.debian_releases)}" for kind in toolkit_kinds().values()]
    purpose = f"for {', '.join(releases)} from Debian's archive"
    verifier = find_program("gpgv", environ)
    keyrings = KEYRINGS if settings.debian_keyring is None else (settings.debian_keyring,)
    keyring = next((path for path in keyrings if path.is_file()), None)
    if verifier is None:
        remedy = f"{purpose}: {install_command('gpgv', environ)}"
        yield Check(name="gpgv", standing=Standing.ABSENT, found="none", remedy=remedy)
    else:
        yield Check(name="gpgv", standing=Standing.OK, found=f"{verifier.version}, {verifier.path}")
    if keyring is None:
        remedy = f"{purpose}: {install_command('debian keyring', environ)}"
        yield Check(name="Debian's keyring", standing=Standing.ABSENT, found="none", remedy=remedy)
    else:
        yield Check(name="Debian's keyring", standing=Standing.OK, found=str(keyring))
    mirrors = [redact(mirror) for mirror in apt_mirrors()]
    if settings.debian_mirror is not None:
        mirrors = [str(settings.debian_mirror)]
    if mirrors:
        yield Check(name="Debian's mirror", standing=Standing.OK, found=", ".join(mirrors))
    else:
        remedy = f"{purpose}: set one in kernel-builder.toml"
        yield Check(name="Debian's mirror", standing=Standing.ABSENT, found="none in apt's sources", remedy=remedy)


def _devices(environ: Mapping[str, str], settings: ToolchainSettings) -> Iterator[Check]:
    kinds = toolkit_kinds()
    for backend, kind in kinds.items():
        name = f"{backend.label} toolkit"
        toolkits = kind.installed(environ, settings)
        for toolkit in toolkits:
            yield Check(name=name, standing=Standing.OK, found=f"{toolkit.version}, {toolkit.root}")
        if not toolkits:
            yield Check(name=name, standing=Standing.OK, found="none installed; compilers come from packages")
    environment = find_environment(None, environ)
    if isinstance(environment, Environment):
        found = f"{environment.label} and kernels {environment.client}, {environment.python}"
        yield Check(name="torch", standing=Standing.OK, found=found)
        yield _sandbox(environment.sandbox, environ)
    else:
        remedy = "to check that built variants load: pip install torch kernels"
        yield Check(name="torch", standing=Standing.ABSENT, found=environment.reason, remedy=remedy)
    devices = [found for kind in kinds.values() for found in kind.devices(environ)]
    for device in devices:
        yield Check(name="GPU", standing=Standing.OK, found=device.label)
    if not devices:
        yield Check(name="GPU", standing=Standing.OK, found="none found; building needs no GPU")


def _sandbox(sandbox: Sandbox, environ: Mapping[str, str]) -> Check:
    if sandbox.program is not None:
        found = f"{sandbox.program}: kernels are {sandbox.label}"
        return Check(name="sandbox", standing=Standing.OK, found=found)
    install = install_command("bubblewrap", environ)
    remedy = f"to load kernels without access to the network and your files: {install}"
    return Check(name="sandbox", standing=Standing.ABSENT, found=f"none: {sandbox.why_not}", remedy=remedy)


def _resources(store: Store) -> Iterator[Check]:
    resources = measure()
    found = f"{resources.processors} cores usable, {_gib(resources.memory)} memory free"
    if resources.memory < LOW_MEMORY:
        remedy = f"free some: one compile of torch's headers takes up to {_gib(LOW_MEMORY)}"
        yield Check(name="processors", standing=Standing.ABSENT, found=found, remedy=remedy)
    else:
        yield Check(name="processors", standing=Standing.OK, found=found)
    yield _store(store)


def _sources(settings: ToolchainSettings) -> Check:
    files = f" ({', '.join(map(str, settings.files))})" if settings.files else ""
    names = [f"{name} (named by {SETTINGS_NAME})" if name in settings.by_project else name for name in settings.order]
    return Check(name="sources", standing=Standing.OK, found=f"{', '.join(names)}{files}")


def _store(store: Store) -> Check:
    root = store.root.absolute()
    place = next(folder for folder in (root, *root.parents) if _exists(folder))
    remedy = "set KERNEL_BUILDER_CACHE to a directory that you can write to, on a disk with space"
    usable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    if not usable and not _exists(store.entries):
        return Check(name="store", standing=Standing.MISSING, found=f"cannot write {store.root}", remedy=remedy)
    try:
        size = sum(entry.size for entry in list_entries(store))
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Check(
            name="store", standing=Standing.MISSING, found=f"cannot read {store.root}: {error.strerror}", remedy=remedy
        )
    found = f"{store.root}: {_gib(size)}, {_gib(free)} free"
    if not usable:
        found += "; it is not writable, so only what is in it can be used"
        return Check(name="store", standing=Standing.ABSENT, found=found, remedy=remedy)
    if free < LOW_DISK:
        return Check(name="store", standing=Standing.ABSENT, found=found, remedy=f"free some space, or {remedy}")
    return Check(name="store", standing=Standing.OK, found=found)


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110  (Path.exists raises where a folder above must not be looked into)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _index(run: Run) -> tuple[Check, KernelBuilderError | None]:
    """The package index, and what is wrong with it if it was asked."""
    if run.offline:
        return Check(name="package index", standing=Standing.OK, found="not contacted (--offline)"), None
    project = next(iter(toolkit_kinds().values())).recipe.compiler_project
    try:
        settings = find_index(run.environ)
        transport = Transport(settings, read_seconds=_INDEX_SECONDS)
        try:
            files = SimpleIndex(settings, Silent(), transport).files(project)
        finally:
            transport.close()
    except KernelBuilderError as error:
        # Not MISSING: what is in the store can be built with.
        return Check(name="package index", standing=Standing.ABSENT, found=error.message, remedy=error.hint), error
    origin = "no other index is configured" if settings.url is None else f"set by {settings.origin}"
    found = f"responds, with {len(files)} wheels of {project} ({origin})"
    return Check(name="package index", standing=Standing.OK, found=found), None


@contextlib.contextmanager
def _root(project: Path | None) -> Iterator[Path]:
    """The project's directory, or a smallest project that has every compiled backend."""
    if project is not None:
        yield project
        return
    with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
        for name, text in _minimal_project().items():
            file = Path(scratch) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        yield Path(scratch)


def _blocked(name: str, noarch: bool, check: Check) -> VariantCheck:
    if noarch:
        return VariantCheck(variant=name)
    return VariantCheck(variant=name, reason=f"{check.name}: {check.found}", remedy=check.remedy)


def _capabilities(
    request: BuildRequest, matrix: Matrix, run: Run, unreachable: KernelBuilderError | None
) -> tuple[VariantCheck, ...]:
    """Every variant of ``matrix``, planned as ``build`` would: all together, or one by one when that fails.

    ``unreachable`` is why the only index does not answer; it is not asked again for each of them.
    """
    names = tuple(entry.name for entry in matrix.kept)
    run = replace(run, reporter=Silent(), offline=run.offline or unreachable is not None)
    try:
        prepared = prepare_build(replace(request, list_unreachable=True), run)
        found = {entry.name: entry for entry in prepared.unavailable}
    except UnavailableError as error:
        found = {entry.name: entry for entry in error.unavailable}
    except KernelBuilderError:
        return tuple(_alone(replace(request, patterns=(name,)), run, unreachable) for name in names)
    return tuple(_capability(name, found.get(name), unreachable) for name in names)


def _capability(name: str, found: Unavailable | None, unreachable: KernelBuilderError | None) -> VariantCheck:
    if found is None:
        return VariantCheck(variant=name)
    if unreachable is not None and found.exit_code is ExitCode.NETWORK:
        return VariantCheck(variant=name, reason=unreachable.message, remedy=unreachable.hint)
    return VariantCheck(variant=name, reason=found.reason, remedy=found.remedy)


def _alone(request: BuildRequest, run: Run, unreachable: KernelBuilderError | None) -> VariantCheck:
    (name,) = request.patterns
    try:
        prepare_build(request, run)
    except UnavailableError as error:
        entry = error.unavailable[0]
        return VariantCheck(variant=name, reason=entry.reason, remedy=entry.remedy)
    except KernelBuilderError as error:
        cause = unreachable if unreachable is not None and isinstance(error, OfflineError) else error
        if isinstance(cause, ConfigError) and cause.diagnostics:
            return VariantCheck(variant=name, reason=cause.message, remedy="run: kernel-builder check-config")
        return VariantCheck(variant=name, reason=cause.message, remedy=cause.hint)
    return VariantCheck(variant=name)
