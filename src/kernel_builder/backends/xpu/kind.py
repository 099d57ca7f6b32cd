"""Intel's oneAPI compiler, as :mod:`kernel_builder.toolchain.kinds` wants toolkits described."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_builder.backends.xpu.local import COMPILER, LocalOneapiComponents, find_compilers
from kernel_builder.config.backends import Backend
from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.toolchain.choice import Taken
from kernel_builder.toolchain.kinds import Device, Installed, OpenedSource, Opening
from kernel_builder.toolchain.link_tables import EXPORTS
from kernel_builder.toolchain.model import Toolkit, ToolkitSdk
from kernel_builder.toolchain.packages import PackageComponents
from kernel_builder.toolchain.programs import answer_of, ask
from kernel_builder.toolchain.recipe import Component, ToolkitRecipe, default_recipe
from kernel_builder.toolchain.settings import LOCAL, ToolchainSettings

_GPU = re.compile(r"^\[level_zero:gpu\]\S* .*?, (.+?)(?: \d+(?:\.\d+)+)?(?: \[[^\]]*\])?$", re.MULTILINE)


class OneapiToolkit:
    """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""

    backend = Backend("xpu")

    def __init__(self, recipe: ToolkitRecipe | None = None) -> None:
        self._recipe = recipe

    @property
    def recipe(self) -> ToolkitRecipe:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        return self._recipe or default_recipe().toolkits[self.backend]

    @property
    def torch_maker(self) -> None:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`: only torch's own builds have its headers."""

    def open(self, opening: Opening) -> OpenedSource | None:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        packages = PackageComponents.opened(opening)
        if packages is not None:
            return OpenedSource(source=packages, facts="")
        if opening.name == LOCAL:
            source = LocalOneapiComponents(opening.environ, opening.settings.toolkits)
            return OpenedSource(source=source, facts="", at_hand=True)
        return None

    def describe(self, toolkit: Toolkit, taken: Sequence[Taken], entry: Path, stubs: Path) -> ToolkitSdk:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        names = {part.part for part in taken}
        components = [one for one in self.recipe.components(toolkit.version) if one.name in names]
        sonames = [library.soname for part in components for library in part.libraries]
        roots = dict.fromkeys(entry if part.root is None else part.root for part in taken)
        holding = [root for root in roots if root == entry or (root / "include").is_dir()]
        return ToolkitSdk(
            toolkit=toolkit,
            compiler=_compiler(taken, entry),
            include=tuple(root / "include" for root in holding),
            libraries=stubs,
            exports=tuple(entry / EXPORTS / f"{name}.txt" for name in sorted(sonames)),
            identity=entry.name,
        )

    def complete(self, toolkit: Toolkit, taken: Sequence[Taken], entry: Path, environ: Mapping[str, str]) -> None:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        compiler = _compiler(taken, entry)
        try:
            answer = ask([compiler, "--version"], environ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            said = error.stderr.strip()[-200:] if isinstance(error, subprocess.CalledProcessError) else error
            raise ToolchainError(
                f"{COMPILER} of {toolkit} does not run on this machine: {said}",
                hint="is the cache on a disk that is mounted noexec? set KERNEL_BUILDER_CACHE to a directory elsewhere",
            ) from error
        if f"Compiler {toolkit.version}." not in answer:
            raise ToolchainError(f"{COMPILER} of {toolkit} reports a different version: {answer.strip()[:200]}")

    def is_part(self, component: Component, artefact: Artefact) -> bool:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        if artefact.kind is ArtefactKind.PACKAGE:
            return artefact.name == component.package
        return artefact.name == component.name

    def where_else(self, toolkit: Toolkit, labels: Sequence[str], silent: Sequence[str]) -> str:  # noqa: ARG002
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        return (
            f"install Intel's oneAPI DPC++/C++ compiler {toolkit.version} and ocloc on this machine (ONEAPI_ROOT may"
            " name the directory), or name Intel's apt repository in kernel-builder.toml: docs/xpu.md shows how"
        )

    @property
    def debian_releases(self) -> tuple[str, ...]:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`: Debian has none."""
        return ()

    def installed(self, environ: Mapping[str, str], settings: ToolchainSettings) -> tuple[Installed, ...]:
        """See :class:`~kernel_builder.toolchain.kinds.ToolkitKind`."""
        found, _ = find_compilers(environ, settings.toolkits)
        return tuple(Installed(version=one.version, root=one.root) for one in found)

    def devices(self, environ: Mapping[str, str]) -> tuple[Device, ...]:
        """Intel's GPUs, out of ``sycl-ls``; none where that is absent or fails."""
        program = shutil.which("sycl-ls", path=environ.get("PATH", ""))
        answer = answer_of([program], environ) if program is not None else None
        return tuple(Device(label=name) for name in _GPU.findall(answer or ""))


def _compiler(taken: Sequence[Taken], entry: Path) -> Path:
    root = next((part.root for part in taken if part.part == "dpcpp"), None)
    return (entry if root is None else root) / "bin" / COMPILER
