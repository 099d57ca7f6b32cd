"""The CUDA compiler out of Debian's archive, as a source of components (DESIGN.md F4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import require_space
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.choice import Refused, Taken, ToolkitTree
from kernel_builder.toolchain.debian import NON_FREE, DebPackage
from kernel_builder.toolchain.debian_components import DebianComponents
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.settings import DEBIAN, ToolchainSettings
from kernel_builder.variants.names import Machine

CUDA_PACKAGE = "nvidia-cuda-toolkit"
"""Holds all programs of the compiler; its headers are in a package of 0.9 GB, so they come from wheels instead."""

CUDA_SUITES: Mapping[str, tuple[str, ...]] = {"11.8": ("bookworm",), "12.4": ("trixie", "sid")}
"""CUDA version -> suites that have it, in the order to try."""

_PROGRAMS = ("cudafe++", "fatbinary", "ptxas", "nvlink", "bin2c", "cuobjdump")
_PRIVATE = "usr/lib/nvidia-cuda-toolkit"
CUDA_MEMBERS: Mapping[str, str] = {
    **{f"usr/bin/{name}": f"bin/{name}" for name in _PROGRAMS},
    f"{_PRIVATE}/bin/nvcc": "bin/nvcc",  # usr/bin/nvcc is a script with absolute paths in it
    f"{_PRIVATE}/bin/crt/link.stub": "bin/crt/link.stub",
    f"{_PRIVATE}/bin/crt/prelink.stub": "bin/crt/prelink.stub",
    f"{_PRIVATE}/bin/cicc": "nvvm/bin/cicc",
    f"{_PRIVATE}/libdevice/libdevice.10.bc": "nvvm/libdevice/libdevice.10.bc",
}
"""Member of :data:`CUDA_PACKAGE` -> its place in a toolkit's own layout."""

NVCC_PROFILE = """\
TOP                = $(_HERE_)/..
CICC_PATH          = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH              += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES          += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES         =+ $(_SPACE_) "-L$(TOP)/lib"
"""
"""What belongs in ``bin/nvcc.profile`` beside a compiler in that layout (Debian's own names absolute paths)."""


def cuda_target(member: str) -> str | None:
    """Where a member of :data:`CUDA_PACKAGE` goes; ``None`` for what compiling does not need."""
    return CUDA_MEMBERS.get(member)


class CudaDebian(DebianComponents):
    """Debian's ``nvidia-cuda-toolkit``. A :class:`~kernel_builder.toolchain.choice.ComponentSource`."""

    component = NON_FREE
    whole = False

    def __init__(
        self, settings: ToolchainSettings, transport: Transport, downloads: Path, environ: Mapping[str, str]
    ) -> None:
        super().__init__(settings, transport, downloads, environ)
        self._found: dict[str, DebPackage | str] = {}

    def _package(self, cuda: str) -> DebPackage | str:
        """The package with the compiler of CUDA ``cuda``, or why there is none."""
        if cuda not in self._found:
            suites = self._settings.debian_suites or CUDA_SUITES.get(cuda, ())
            if not suites:
                known = ", ".join(sorted(CUDA_SUITES))
                self._found[cuda] = f"no suite of Debian has it; they have CUDA {known}"
            else:
                self._found[cuda] = self._search(cuda, suites)
        return self._found[cuda]

    def _search(self, cuda: str, suites: Sequence[str]) -> DebPackage | str:
        reasons: list[str] = []
        try:
            archives = self._archives
        except ToolchainError as error:
            return error.message
        for suite in suites:
            for archive in archives:
                try:
                    package = archive.find(CUDA_PACKAGE, suite)
                except ToolchainError as error:
                    reasons.append(error.message)
                    continue
                if package.version.startswith(f"{cuda}."):
                    return package
                reasons.append(f"{suite} has {CUDA_PACKAGE} {package.version}")
        return "; ".join(dict.fromkeys(reasons))

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`. Programs are for the machine that builds."""
        answers: dict[str, Taken | Refused] = {
            component.name: self._refuse(
                component, f"its headers for {machine.value} are in a package of a gigabyte, which is not fetched"
            )
            for component in components
            if not component.debian
        }
        wanted = [component for component in components if component.debian]
        if not wanted:
            return answers
        package = self._package(version)
        for component in wanted:
            if isinstance(package, str):
                answers[component.name] = self._refuse(component, package)
            else:
                answers[component.name] = Taken(part=component.name, source=DEBIAN, artefact=package.artefact)
        return answers

    def _refuse(self, component: Component, reason: str) -> Refused:
        return Refused(part=component.name, source=DEBIAN, candidate=CUDA_PACKAGE, reason=reason)

    def fill(self, parts: Sequence[tuple[Component, Taken]], tree: ToolkitTree) -> Sequence[Artefact]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`.

        Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` (disk).
        """
        package = self._package(tree.version)
        if isinstance(package, str):
            raise ToolchainError(f"{CUDA_PACKAGE} for CUDA {tree.version} is no longer available: {package}")
        wanted = parts[0][1].artefact
        if wanted.sha256 != package.sha256:
            raise ToolchainError(
                f"Debian has {package.version} of {CUDA_PACKAGE} now, not {wanted.version}, which was chosen earlier",
                hint="run 'kernel-builder lock --upgrade' to choose again; a mirror of snapshots may have"
                " the earlier one",
            )
        require_space(tree.into.parent, package.size + package.installed_size)
        tree.progress.expect(package.size)
        failure: NetworkError | None = None
        for archive in self._archives:
            try:
                archive.fetch(package, tree.into, cuda_target, tree.progress.add)
                break
            except IntegrityError:
                raise
            except NetworkError as error:
                failure = error
        else:
            raise failure or ToolchainError(f"no mirror has {package.filename}")
        (tree.into / "bin" / "nvcc.profile").write_text(NVCC_PROFILE, encoding="utf-8")
        return [package.artefact for _ in parts[:1]]
