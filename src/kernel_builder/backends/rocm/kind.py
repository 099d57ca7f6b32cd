"""The ROCm toolkit, as :mod:`kernel_builder.toolchain.kinds` wants toolkits described."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_builder.backends.rocm.debian import NOT_A_RELEASE, RocmDebian
from kernel_builder.backends.rocm.declared import write_declared
from kernel_builder.backends.rocm.layout import CLANG, WRAPPERS, find_layout, write_wrappers
from kernel_builder.backends.rocm.local import RocmLocal, find_toolkits
from kernel_builder.backends.rocm.packages import RocmPackages
from kernel_builder.backends.rocm.therock import CORE, DEVEL, IN_CORE, RocmWheels
from kernel_builder.backends.rocm.torch import RocmTorch
from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import is_architecture, parse_architecture
from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.toolchain.choice import Taken
from kernel_builder.toolchain.kinds import Device, Installed, OpenedSource, Opening
from kernel_builder.toolchain.link_tables import EXPORTS
from kernel_builder.toolchain.model import Toolkit, ToolkitSdk
from kernel_builder.toolchain.programs import answer_of, ask
from kernel_builder.toolchain.recipe import Component, ToolkitRecipe, default_recipe
from kernel_builder.toolchain.settings import DEBIAN, LOCAL, ToolchainSettings

GPU_CODES = "gpu-codes.txt"
_PROBE_SECONDS = 60
_ARCHITECTURE = re.compile(r"^\s*(gfx[0-9a-f]+)\s*$", re.MULTILINE)


class RocmToolkit:
    """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""

    backend = Backend("rocm")
    torch_maker = RocmTorch()
    debian_releases = ()

    @property
    def recipe(self) -> ToolkitRecipe:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        return default_recipe().toolkits[self.backend]

    def open(self, opening: Opening) -> OpenedSource | None:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        settings = opening.settings
        packages = RocmPackages.opened(opening)
        if packages is not None:
            return OpenedSource(source=packages, facts="")
        if opening.index is not None:
            return OpenedSource(source=RocmWheels(opening.index), facts="")
        if opening.name == DEBIAN:
            source = RocmDebian(
                settings, opening.transport(settings.debian_mirror, False), opening.downloads, opening.environ
            )
            return OpenedSource(source=source, facts=f"{settings.debian_facts} {settings.usual}")
        if opening.name == LOCAL:
            return OpenedSource(source=RocmLocal(opening.environ, settings.toolkits), facts="", at_hand=True)
        return None

    def describe(self, toolkit: Toolkit, taken: Sequence[Taken], entry: Path, stubs: Path) -> ToolkitSdk:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        components = self._components(toolkit, taken)
        sonames = [library.soname for component in components for library in component.libraries]
        sonames += [component.declares for component in components if component.declares is not None]
        return ToolkitSdk(
            toolkit=toolkit,
            compiler=entry / WRAPPERS / CLANG,
            include=tuple(root / folder for root in _roots(taken, entry) for folder in self.recipe.include_directories),
            libraries=stubs,
            exports=tuple(entry / EXPORTS / f"{name}.txt" for name in sorted(sonames)),
            # What is used in place was measured when it was chosen: its identity is part of the entry's key.
            identity=entry.name,
            gpu_codes=entry / GPU_CODES,
            unfit=NOT_A_RELEASE if any(part.source == DEBIAN for part in taken) else None,
        )

    def complete(self, toolkit: Toolkit, taken: Sequence[Taken], entry: Path, environ: Mapping[str, str]) -> None:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        root = next((part.root for part in taken if part.part == "compiler" and part.root is not None), entry)
        layout = find_layout(root)
        if isinstance(layout, str):
            raise ToolchainError(f"the compiler of {toolkit} is not complete: {layout}")
        write_wrappers(layout, entry)
        clang = entry / WRAPPERS / CLANG
        answer = _ask(clang, ("--target=amdgcn-amd-amdhsa", "--print-supported-cpus"), toolkit, environ)
        codes = sorted(set(_ARCHITECTURE.findall(answer)))
        if not codes:
            raise ToolchainError(f"the clang of {toolkit} cannot compile for AMD's GPUs", hint="use another source")
        (entry / GPU_CODES).write_text("".join(f"{code}\n" for code in codes), encoding="ascii")
        write_declared(self._components(toolkit, taken), _roots(taken, entry), entry)

    def _components(self, toolkit: Toolkit, taken: Sequence[Taken]) -> list[Component]:
        parts = {part.part for part in taken}
        return [one for one in self.recipe.components(toolkit.version) if one.name in parts]

    def is_part(self, component: Component, artefact: Artefact) -> bool:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        if artefact.kind is ArtefactKind.LOCAL or artefact.source == DEBIAN:
            return artefact.name == component.name
        if artefact.kind is ArtefactKind.WHEEL:
            return artefact.name == (CORE if component.name in IN_CORE else DEVEL)
        return component.package is not None and artefact.name == component.package

    def where_else(self, toolkit: Toolkit, labels: Sequence[str], silent: Sequence[str]) -> str:  # noqa: ARG002
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        return (
            f"install {toolkit} and set ROCM_PATH to its directory, or name AMD's repository of packages for it as a"
            " [[repository]], or AMD's index of wheels as an [[index]], in kernel-builder.toml: docs/rocm.md shows how"
        )

    def installed(self, environ: Mapping[str, str], settings: ToolchainSettings) -> tuple[Installed, ...]:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        found, _ = find_toolkits(environ, settings.toolkits)
        return tuple(Installed(version=toolkit.version, root=toolkit.root) for toolkit in found)

    def devices(self, environ: Mapping[str, str]) -> tuple[Device, ...]:
        """AMD's GPUs, out of ``rocminfo`` or ``rocm_agent_enumerator``; none where these are absent or fail."""
        program = next(filter(None, (shutil.which(name, path=environ.get("PATH", "")) for name in _PROBES)), None)
        answer = answer_of([program], environ) or "" if program is not None else ""
        names = re.findall(r"^(?:\s*Name:\s*)?(gfx[0-9a-f]+)\s*$", answer, re.MULTILINE)
        return tuple(
            Device(label=f"AMD {name}", architecture=parse_architecture(self.backend, name))
            for name in names
            if name != "gfx000" and is_architecture(self.backend, name)
        )


def _roots(taken: Sequence[Taken], entry: Path) -> tuple[Path, ...]:
    """Where the parts lie, each place once."""
    return tuple(dict.fromkeys(entry if part.root is None else part.root for part in taken))


_PROBES = ("rocm_agent_enumerator", "rocminfo")


def _ask(clang: Path, question: Sequence[str], toolkit: Toolkit, environ: Mapping[str, str]) -> str:
    try:
        answer = ask([clang, *question], environ, seconds=_PROBE_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        complaint = getattr(error, "stderr", None) or str(error)
        raise ToolchainError(
            f"the clang of {toolkit} does not run on this machine: {str(complaint).strip()[-300:]}",
            hint="is the cache on a disk that is mounted noexec? set KERNEL_BUILDER_CACHE to a directory elsewhere",
        ) from error
    return answer.stdout + answer.stderr
