"""Components of toolkits out of a vendor's repository of Debian packages, verified as apt would and never installed.

The chain of trust is that of :mod:`kernel_builder.toolchain.debian`, with the vendor's keys in the place of Debian's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import require_space
from kernel_builder.store.transport import Transport
from kernel_builder.store.wheel import matching
from kernel_builder.toolchain.choice import Refused, Taken, ToolkitTree, whole_files
from kernel_builder.toolchain.debian import DebianArchive, DebPackage, open_repository
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.kinds import Opening
from kernel_builder.toolchain.link_tables import read_local_symbols, write_table
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.settings import FurtherRepository
from kernel_builder.variants.names import Machine


class PackageComponents:
    """The packages of one repository. A :class:`~kernel_builder.toolchain.choice.ComponentSource`.

    Each component is one package, and of it what lies below the component's ``package_root``. ``downloads`` is where
    interrupted downloads wait. Programs run where the kernel is built, so all of it is for that machine.
    """

    whole = True

    def __init__(
        self, repository: FurtherRepository, transport: Transport, downloads: Path, environ: Mapping[str, str]
    ) -> None:
        self._repository = repository
        self._transport = transport
        self._downloads = downloads
        self._environ = environ
        self._found: dict[str, DebPackage | str] = {}

    @classmethod
    def opened(cls, opening: Opening) -> Self | None:
        """The repository that ``opening`` is for; ``None`` when it is for another kind of source."""
        if opening.repository is None:
            return None
        transport = opening.transport(opening.repository.place, False)
        return cls(opening.repository, transport, opening.downloads, opening.environ)

    @property
    def label(self) -> str:
        """What the settings call it."""
        return self._repository.name

    @cached_property
    def _archive(self) -> DebianArchive:
        return open_repository(
            self._repository,
            self._transport,
            machine=build_machine(),
            downloads=self._downloads,
            environ=self._environ,
        )

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        self._look_for(components)
        answers: dict[str, Taken | Refused] = {}
        for component in components:
            found = self._found[component.package] if component.package is not None else component.lacking
            if machine.value != build_machine():
                found = f"its packages are for {build_machine()}, not for {machine.value}"
            if isinstance(found, str):
                candidate = component.package or f"{component.name} {version}"
                answers[component.name] = Refused(
                    part=component.name, source=self.label, candidate=candidate, reason=found
                )
            else:
                answers[component.name] = Taken(part=component.name, source=self.label, artefact=found.artefact)
        return answers

    def _look_for(self, components: Sequence[Component]) -> None:
        """Find the packages that were not looked for yet, out of one reading of the index.

        Raises :class:`NetworkError` and :class:`IntegrityError`.
        """
        named = dict.fromkeys(component.package for component in components if component.package is not None)
        missing = [name for name in named if name not in self._found]
        if missing:
            try:
                self._found.update(self._archive.look_for(missing, self._repository.suite))
            except ToolchainError as error:
                self._found.update(dict.fromkeys(missing, error.message))

    def weigh(self, parts: Sequence[tuple[Component, Taken]], scratch: Path) -> Mapping[str, int]:  # noqa: ARG002
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        return whole_files(parts)

    def fill(self, parts: Sequence[tuple[Component, Taken]], tree: ToolkitTree) -> Sequence[Artefact]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`: whole packages, each once.

        Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` (disk).
        """
        self._look_for([component for component, _ in parts])
        located = [self._locate(component, taken) for component, taken in parts]
        require_space(tree.into.parent, sum(package.size + package.installed_size for package in located))
        tree.progress.expect(sum(package.size for package in located))
        for (component, _), package in zip(parts, located, strict=True):
            self._unpack(package, component, tree)
        return [package.artefact for package in located]

    def _locate(self, component: Component, taken: Taken) -> DebPackage:
        found = self._found.get(component.package or "", "it is gone")
        if isinstance(found, str):
            raise ToolchainError(f"{self.label}: {component.package} is no longer available: {found}")
        if found.sha256 != taken.artefact.sha256:
            raise ToolchainError(
                f"{self.label} has {found.version} of {found.name} now, not {taken.artefact.version}, which was"
                " chosen earlier",
                hint="run 'kernel-builder lock --upgrade' to choose again",
            )
        return found

    def _unpack(self, package: DebPackage, component: Component, tree: ToolkitTree) -> None:
        """Write what ``component`` takes of ``package``, and the tables of its libraries."""
        root = re.compile(re.escape(component.package_root).replace(r"\*", "[^/]*"))

        def select(member: str) -> str | None:
            below = root.match(member)
            path = member[below.end() :] if below is not None else ""
            return path if matching([path], component.include) else None

        self._archive.fetch(package, tree.into, select, tree.progress.add)
        for library in component.libraries:
            path = tree.into / library.member
            if not path.is_file():
                raise ToolchainError(
                    f"{package.name} {package.version} has no {library.member}, which kernels are linked with"
                )
            write_table(tree.into, library.soname, read_local_symbols(path, leading=library.leading)[1])
