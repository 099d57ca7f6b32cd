"""Building with workers: what a build sends of its kernel, and how a worker comes by what that is compiled with: from
the lock, by the code that every build fetches with, into its own store.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kernel_builder.actions.headers import Headers
from kernel_builder.cluster.client import Cluster, Parcel, connect
from kernel_builder.cluster.messages import LacksError, Provisions
from kernel_builder.cluster.service import WORKS, Abilities, Service
from kernel_builder.cluster.worker import WorkerOptions, serve
from kernel_builder.config.settings import FILE_NAME as SETTINGS_NAME
from kernel_builder.engine.outliving import outlived
from kernel_builder.engine.resources import measure
from kernel_builder.errors import MachineError
from kernel_builder.toolchain.host import find_host_compilers, measured, variable_for
from kernel_builder.toolchain.lock import LOCK_NAME, Lock, render
from kernel_builder.toolchain.lock_use import LockUse
from kernel_builder.toolchain.model import HostCompiler
from kernel_builder.toolchain.torch_slim import provide_slim_headers
from kernel_builder.variants.build_type import BuildType
from kernel_builder.variants.names import Machine, Platform
from kernel_builder.workflow.build import BuildRequest
from kernel_builder.workflow.caching import open_cache
from kernel_builder.workflow.lock import locked_variants
from kernel_builder.workflow.prepare import Prepared, prepare
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import Selection
from kernel_builder.workflow.toolchains import ToolchainOptions, provide

DEFAULT_BLOBS = 4 << 30
"""Bytes of contents that a worker keeps."""
_PREFIX, _ALIVE = "kernel-builder-worker-", "alive"


@contextmanager
def open_cluster(address: str, prepared: Prepared, request: BuildRequest, run: Run) -> Iterator[Cluster]:
    """The workers of the scheduler at ``address`` for what was prepared and fetched. Raises what
    :func:`~kernel_builder.cluster.client.connect` does.
    """
    with connect(address, parcel_of(prepared, request, run), run.reporter) as cluster:
        yield cluster


def parcel_of(prepared: Prepared, request: BuildRequest, run: Run) -> Parcel:
    """What workers get of the kernel."""
    inputs, root = prepared.planning.survey.inputs, prepared.project.root
    files = {path: root / path for path in inputs.real}
    settings = (request.settings_from or root) / SETTINGS_NAME
    if settings.is_file():
        files[SETTINGS_NAME] = settings
    links = {path: _relative(path, target) for path, target in inputs.behind.items()}
    variants = [plan.name for plan in prepared.plan.variants if plan.actions]
    brief = {
        "variants": variants,
        "platform": None if request.platform is None else str(request.platform),
        "ignore": list(request.ignore),
        "headers": prepared.planning.headers.value,
        "build-type": prepared.planning.build_type.to_json(),
        "sources": list(run.sources),
    }
    hosts = {chain.host for chain in prepared.planning.toolchains.values()}
    return Parcel(
        files=files,
        links=links,
        texts={LOCK_NAME: render(Lock.of(locked_variants(prepared.matrix, prepared.chosen)))},
        brief=brief,
        compilers={host.digest: told_of(host) for host in hosts if not host.cxx.is_relative_to(run.store.root)},
    )


def _relative(path: str, target: str) -> str:
    return f"{'../' * path.count('/')}{target}"


@dataclass(frozen=True, kw_only=True)
class WorkerRequest:
    """What ``kernel-builder worker`` was asked for. ``threads`` and ``memory`` (bytes) override what the machine has,
    ``folder`` is the directory in which the worker makes its own, ``blobs`` how many bytes of contents it keeps.
    """

    address: str
    threads: int | None = None
    memory: int | None = None
    folder: Path | None = None
    blobs: int = DEFAULT_BLOBS
    host: str | None = None
    name: str | None = None
    patience: float = 60.0


@contextmanager
def open_service(request: WorkerRequest, run: Run) -> Iterator[tuple[Service, Abilities, Path]]:
    """The service of a worker, what it announces, and its own directory, which is removed in the end.

    Raises :class:`MachineError`.
    """
    found, hosts = measure(), _compilers(run)
    abilities = Abilities(
        resources=replace(found, processors=request.threads or found.processors, memory=request.memory or found.memory),
        compilers={digest: told_of(host) for digest, host in hosts.items()},
    )
    try:
        _remove_what_is_left(request.folder or Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=request.folder))
    except OSError as error:
        raise MachineError(f"cannot write {request.folder or 'the temporary directory'}: {error.strerror}") from error
    service = Service(
        folder / "builds",
        store=run.store.root,
        environ=run.environ,
        abilities=abilities,
        provide=lambda root, brief, compiler: provisions(root, brief, hosts.get(compiler), run),
        cache=open_cache(run),
        limit=request.blobs,
    )
    alive = FileLock(folder / _ALIVE)
    try:
        with outlived(folder, WORKS):
            alive.acquire()
            yield service, abilities, folder
    finally:
        service.close()
        alive.release()
        shutil.rmtree(folder, ignore_errors=True)


def _remove_what_is_left(parent: Path) -> None:
    """Remove the directories of workers that were killed: nobody holds their locks. Raises ``OSError``."""
    for file in parent.glob(f"{_PREFIX}*/{_ALIVE}"):
        with suppress(Timeout, OSError), FileLock(file).acquire(timeout=0):
            shutil.rmtree(file.parent, ignore_errors=True)


def work_for(request: WorkerRequest, run: Run, ready: Callable[[str, Abilities], None]) -> bool:
    """Be a worker until the scheduler goes, or a signal comes. ``ready`` is called when it is one. Whether all that it
    did is over: ``False`` where a server is still waited for, and the process has to end all the same.

    Raises what :func:`~kernel_builder.cluster.worker.serve` does, and :class:`MachineError`.
    """
    with open_service(request, run) as (service, abilities, folder):
        options = WorkerOptions(
            address=request.address,
            host=request.host,
            threads=abilities.resources.processors,
            folder=folder,
            name=request.name,
            patience=request.patience,
        )
        serve(options, service, lambda address: ready(address, abilities))
        return not service.is_busy


def told_of(host: HostCompiler) -> str:
    """A host compiler for people, with what tells it from others of that version."""
    return f"{host} ({host.cxx}, {host.digest})"


def _compilers(run: Run) -> Mapping[str, HostCompiler]:
    """The host compilers of this machine, measured, by digest: for it, and for others."""
    found = [host for machine in Machine for host in find_host_compilers(run.environ, machine=machine.value).right]
    hosts = [measured(host, run.environ, run.answers) for host in found]
    return {host.digest: host for host in hosts}


def provisions(root: Path, brief: Mapping[str, Any], compiler: HostCompiler | None, run: Run) -> Provisions:
    """Fetch what the kernel in ``root`` is compiled with, as its lock lists it, with the host ``compiler``; the tools
    and trees of its plan here. Raises what preparing a build does, and :class:`LacksError`.
    """
    environ = dict(run.environ)
    if compiler is not None:
        environ[variable_for(compiler.machine)] = str(compiler.cxx)
    run = replace(run, environ=environ, sources=tuple(brief["sources"]))
    platform = brief["platform"]
    prepared = prepare(
        root,
        Selection(patterns=tuple(brief["variants"]), platform=None if platform is None else Platform.parse(platform)),
        ToolchainOptions(lock=LockUse.REQUIRE),
        run,
        ignore=tuple(brief["ignore"]),
        headers=Headers(brief["headers"]),
        build_type=BuildType.of(brief["build-type"]),
    )
    if prepared.unavailable:
        raise LacksError(f"{prepared.unavailable[0].name}: {prepared.unavailable[0].reason}")
    provide(prepared.chosen, prepared.matrix, run)
    for toolchain in prepared.planning.toolchains.values():
        if toolchain.framework.slim is not None:
            provide_slim_headers(run.store, toolchain.framework)
    return Provisions.of(prepared.planned_again().plan.actions)
