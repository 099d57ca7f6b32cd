"""CUDA components out of NVIDIA's redistributable archives, as a source of components (DESIGN.md F4)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kernel_builder.backends.cuda.redistrib import RedistArchive, Redistrib, redist_platform
from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.cache import require_space
from kernel_builder.store.parallel import Stoppable, run_all
from kernel_builder.store.wheel import matching
from kernel_builder.toolchain.choice import Refused, Taken, ToolkitTree, whole_files
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.link_tables import read_local_symbols, write_table
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.settings import REDISTRIB
from kernel_builder.variants.names import Machine

_LIBRARIES = ".libraries"
_INFLATION = 6  # an archive's contents, on average


class CudaArchives:
    """NVIDIA's archives. A :class:`~kernel_builder.toolchain.choice.ComponentSource`.

    ``transfers`` stop when one fails. ``by_default``: nobody asked for them, so that where they cannot be
    reached they are a source that has nothing, and no error.
    """

    label = REDISTRIB
    whole = False

    def __init__(self, redistrib: Redistrib, transfers: Stoppable, *, by_default: bool = False) -> None:
        self._redistrib = redistrib
        self._transfers = transfers
        self._by_default = by_default
        self._asking = threading.Lock()
        self._unreachable: NetworkError | None = None
        self._releases: dict[str, Mapping[tuple[str, str], RedistArchive] | str] = {}

    def _release(self, cuda: str) -> Mapping[tuple[str, str], RedistArchive] | str:
        """``(component, platform)`` -> archive, or why there are none. A server that failed once is not asked again."""
        with self._asking:
            if cuda not in self._releases:
                if self._unreachable is not None:
                    raise self._unreachable
                try:
                    found = self._redistrib.release(cuda)
                    self._releases[cuda] = {(archive.component, archive.platform): archive for archive in found}
                except NetworkError as error:
                    self._unreachable = error
                    raise
                except ToolchainError as error:
                    self._releases[cuda] = error.message
            return self._releases[cuda]

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`. Programs are for the machine that builds."""
        try:
            release = self._release(version)
        except NetworkError as error:
            if not self._by_default or isinstance(error, IntegrityError):
                raise
            _, _, words = error.message.partition(": ")  # behind the URL, which nobody gave
            reason = f"NVIDIA's archives cannot be reached from here: {words or error.message}"
            return {
                component.name: replace(self._refuse(component, f"CUDA {version}", reason), unreachable=True)
                for component in components
            }
        answers: dict[str, Taken | Refused] = {}
        for component in components:
            if isinstance(release, str):
                answers[component.name] = self._refuse(component, f"CUDA {version}", release)
                continue
            archive = self._archive(release, component, machine)
            if archive is None:
                wanted = component.redistrib or component.name
                answers[component.name] = self._refuse(component, wanted, f"CUDA {version} has none there")
            else:
                answers[component.name] = Taken(part=component.name, source=REDISTRIB, artefact=_artefact(archive))
        return answers

    def _archive(
        self, release: Mapping[tuple[str, str], RedistArchive], component: Component, machine: Machine
    ) -> RedistArchive | None:
        if component.redistrib is None:
            return None
        platform = redist_platform(build_machine() if component.compiler else machine.value)
        return release.get((component.redistrib, platform))

    def _refuse(self, component: Component, candidate: str, reason: str) -> Refused:
        return Refused(part=component.name, source=REDISTRIB, candidate=candidate, reason=reason)

    def weigh(self, parts: Sequence[tuple[Component, Taken]], scratch: Path) -> Mapping[str, int]:  # noqa: ARG002
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        return whole_files(parts)

    def fill(self, parts: Sequence[tuple[Component, Taken]], tree: ToolkitTree) -> Sequence[Artefact]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`: whole archives, each once.

        Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` (disk).
        """
        release = self._release(tree.version)
        if isinstance(release, str):
            raise ToolchainError(f"CUDA {tree.version} is no longer available: {release}")
        by_name = {archive.filename: archive for archive in release.values()}
        for _, taken in parts:
            archive = by_name.get(taken.artefact.filename)
            if archive is None or archive.sha256 != taken.artefact.sha256:
                raise ToolchainError(
                    f"NVIDIA's manifest of CUDA {tree.version} no longer lists {taken.artefact.filename}, which"
                    " was chosen earlier",
                    hint="run 'kernel-builder lock --upgrade' to choose again",
                )
        wanted: dict[str, list[Component]] = {}
        for component, taken in parts:
            wanted.setdefault(taken.artefact.filename, []).append(component)
        total = sum(by_name[name].size for name in wanted)
        require_space(tree.into.parent, _INFLATION * total)
        tree.progress.expect(total)
        run_all(
            [partial(self._fetch, by_name[name], group, tree) for name, group in wanted.items()],
            workers=2,
            transfers=self._transfers,
        )
        shutil.rmtree(tree.into / _LIBRARIES, ignore_errors=True)
        return [_artefact(by_name[name]) for name in wanted]

    def _fetch(self, archive: RedistArchive, components: Sequence[Component], tree: ToolkitTree) -> None:
        """Members that are wanted go into the tree; libraries into a directory of their own, for their names."""
        patterns = [pattern for component in components for pattern in component.include]
        libraries = {library.soname: library for component in components for library in component.libraries}

        def select(member: str) -> str | None:
            if matching([member], patterns):
                return member
            if member.startswith("lib/") and member.removeprefix("lib/") in libraries:
                return f"{_LIBRARIES}/{member}"
            return None

        self._redistrib.fetch(archive, tree.into, select, tree.progress.add)
        for soname, library in libraries.items():
            path = tree.into / _LIBRARIES / "lib" / soname
            if not path.is_file():
                raise ToolchainError(f"{archive.filename} contains no lib/{soname}, which kernels are linked with")
            write_table(tree.into, soname, read_local_symbols(path, leading=library.leading)[1])


def _artefact(archive: RedistArchive) -> Artefact:
    return Artefact(
        name=archive.component,
        version=archive.version,
        filename=archive.filename,
        kind=ArtefactKind.ARCHIVE,
        size=archive.size,
        sha256=archive.sha256,
        source=REDISTRIB,
    )
