"""The CUDA toolkit, as :mod:`kernel_builder.toolchain.kinds` wants toolkits described."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_builder.backends.cuda.archives import CudaArchives
from kernel_builder.backends.cuda.debian import CUDA_SUITES, CudaDebian
from kernel_builder.backends.cuda.local import LocalCuda, find_toolkits, header_directories
from kernel_builder.backends.cuda.redistrib import PUBLIC_BASE, Redistrib
from kernel_builder.backends.cuda.wheels import CudaWheels
from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import is_architecture, parse_capability
from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.settings import split_credentials
from kernel_builder.toolchain.choice import Taken
from kernel_builder.toolchain.kinds import Device, Installed, OpenedSource, Opening
from kernel_builder.toolchain.link_tables import EXPORTS
from kernel_builder.toolchain.model import Toolkit, ToolkitSdk
from kernel_builder.toolchain.programs import answer_of, ask
from kernel_builder.toolchain.recipe import Component, ToolkitRecipe, default_recipe
from kernel_builder.toolchain.settings import DEBIAN, LOCAL, REDISTRIB, Place, ToolchainSettings

GPU_CODES = "gpu-codes.txt"
_PROBE_SECONDS = 60


class CudaToolkit:
    """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""

    backend = Backend("cuda")
    torch_maker = None

    def __init__(self, recipe: ToolkitRecipe | None = None) -> None:
        self._recipe = recipe

    @property
    def recipe(self) -> ToolkitRecipe:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        return self._recipe or default_recipe().toolkits[self.backend]

    def open(self, opening: Opening) -> OpenedSource | None:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        settings = opening.settings
        if opening.index is not None:
            return OpenedSource(source=CudaWheels(opening.index, self.recipe), facts="")
        if opening.name == REDISTRIB:
            return _redistrib(opening)
        if opening.name == DEBIAN:
            transport = opening.transport(settings.debian_mirror, False)
            source = CudaDebian(settings, transport, opening.downloads, opening.environ)
            return OpenedSource(source=source, facts=settings.debian_facts)
        if opening.name == LOCAL:
            return OpenedSource(source=LocalCuda(opening.environ, settings.toolkits), facts="", at_hand=True)
        return None

    def describe(self, toolkit: Toolkit, taken: Sequence[Taken], entry: Path, stubs: Path) -> ToolkitSdk:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        components = self.recipe.components(toolkit.version)
        sonames = [library.soname for part in components for library in part.libraries]
        roots = dict.fromkeys(part.root for part in taken if part.root is not None)
        include = [folder for root in roots for folder in header_directories(root)]
        if any(part.root is None for part in taken):
            include += [entry / folder for folder in self.recipe.include_directories]
        # What is used in place was measured when it was chosen: its identity is part of the entry's key.
        return ToolkitSdk(
            toolkit=toolkit,
            compiler=_nvcc(taken, entry),
            include=tuple(include),
            libraries=stubs,
            exports=tuple(entry / EXPORTS / f"{name}.txt" for name in sorted(sonames)),
            identity=entry.name,
            gpu_codes=entry / GPU_CODES,
        )

    def complete(self, toolkit: Toolkit, taken: Sequence[Taken], entry: Path, environ: Mapping[str, str]) -> None:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        nvcc = _nvcc(taken, entry)
        _check_compiler(nvcc, toolkit, environ)
        words = _ask(nvcc, "--list-gpu-code", toolkit, environ).split()
        codes = "".join(f"{code}\n" for code in sorted(words) if code.startswith("sm_"))
        (entry / GPU_CODES).write_text(codes, encoding="ascii")

    def is_part(self, component: Component, artefact: Artefact) -> bool:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        if artefact.kind is ArtefactKind.LOCAL:
            return artefact.name == component.name
        if artefact.kind is ArtefactKind.PACKAGE:
            return component.debian
        if artefact.kind is ArtefactKind.ARCHIVE:
            return artefact.name == component.redistrib
        return component.wheel is not None and artefact.name == component.wheel.project

    def where_else(self, toolkit: Toolkit, labels: Sequence[str], silent: Sequence[str]) -> str:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        if REDISTRIB in silent:
            return "set KERNEL_BUILDER_REDISTRIB to a mirror of NVIDIA's archives, a URL or a directory"
        if REDISTRIB not in labels:
            order = [label for label in labels if label != LOCAL] + [REDISTRIB] + [LOCAL] * (LOCAL in labels)
            return f"set KERNEL_BUILDER_SOURCES={','.join(order)} to use NVIDIA's archives also"
        return f"install {toolkit} on this machine, and set CUDA_HOME to its directory"

    @property
    def debian_releases(self) -> tuple[str, ...]:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        return tuple(CUDA_SUITES)

    def installed(self, environ: Mapping[str, str], settings: ToolchainSettings) -> tuple[Installed, ...]:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        found, _ = find_toolkits(environ, settings.toolkits)
        return tuple(Installed(version=toolkit.version, root=toolkit.root) for toolkit in found)

    def devices(self, environ: Mapping[str, str]) -> tuple[Device, ...]:
        """NVIDIA's GPUs, out of ``nvidia-smi``; none where that is absent or fails."""
        program = shutil.which("nvidia-smi", path=environ.get("PATH", ""))
        if program is None:
            return ()
        query = "--query-gpu=name,compute_cap,driver_version"
        answer = answer_of([program, query, "--format=csv,noheader"], environ) or ""
        rows = [[part.strip() for part in line.split(",")] for line in answer.splitlines()]
        return tuple(
            Device(
                label=f"{row[0]}, compute capability {row[1]}, driver {row[2]}",
                architecture=parse_capability(row[1]) if is_architecture(self.backend, row[1]) else None,
            )
            for row in rows
            if len(row) == 3
        )


def _redistrib(opening: Opening) -> OpenedSource:
    place = opening.settings.redistrib or Place(url=PUBLIC_BASE)
    by_default = opening.settings.usual and opening.settings.redistrib is None
    transport = opening.transport(place, by_default)
    base = place.path if place.path is not None else split_credentials(place.url or "")[0]
    redistrib = Redistrib(base, transport, downloads=opening.downloads)
    return OpenedSource(
        source=CudaArchives(redistrib, transport, by_default=by_default),
        facts=f"{REDISTRIB} {place}",
        at_hand=place.path is not None,
    )


def _nvcc(taken: Sequence[Taken], entry: Path) -> Path:
    root = next((part.root for part in taken if part.part == "nvcc"), None)
    return (entry if root is None else root) / "bin" / "nvcc"


def _check_compiler(nvcc: Path, toolkit: Toolkit, environ: Mapping[str, str]) -> None:
    """See that nvcc starts here and is of the version that was asked for."""
    if not nvcc.with_name("nvcc.profile").is_file() and not str(nvcc).startswith("/usr/"):
        raise ToolchainError(f"the nvcc of {toolkit} cannot find its parts: there is no nvcc.profile beside it")
    answer = _ask(nvcc, "--version", toolkit, environ)
    if f"release {toolkit.version}," not in answer:
        raise ToolchainError(f"nvcc of {toolkit} reports a different version: {answer.strip()[-200:]}")


def _ask(nvcc: Path, question: str, toolkit: Toolkit, environ: Mapping[str, str]) -> str:
    try:
        return ask([nvcc, question], environ, seconds=_PROBE_SECONDS).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(
            f"nvcc of {toolkit} does not run on this machine: {error}",
            hint="is the cache on a disk that is mounted noexec? set KERNEL_BUILDER_CACHE to a directory elsewhere",
        ) from error
