"""CUDA components out of wheels (DESIGN.md F3, F4), and which wheels belong together."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import require_space
from kernel_builder.store.index import Index, IndexFile, choose_wheel, describe_index, locate
from kernel_builder.store.parallel import run_all
from kernel_builder.store.transport import NotFoundError
from kernel_builder.store.wheel import Member, Wheel, matching
from kernel_builder.toolchain.choice import Refused, Taken, ToolkitTree
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.link_tables import read_symbols, table_cost, write_table
from kernel_builder.toolchain.recipe import Component, ToolkitRecipe, WheelPart
from kernel_builder.toolchain.wheels import wheel_artefact
from kernel_builder.variants.names import Machine

_TABLE_SPACE = 8 * 2**20
_LEADING = 2**18  # bytes that the names of one large library take over the wire
_WORKERS = 4
_NOT_TAKEN = ("**/__init__.py",)
"""The wheels of CUDA 11 and 12 make Python packages of their folders, include directories too."""


class CudaWheels:
    """The CUDA wheels of one index. A :class:`~kernel_builder.toolchain.choice.ComponentSource`.

    Programs are taken for the machine that builds, headers and libraries for the one that runs the kernel.
    """

    whole = False

    def __init__(self, index: Index, recipe: ToolkitRecipe) -> None:
        self._index = index
        self._recipe = recipe
        self._files: dict[str, IndexFile] = {}

    @property
    def label(self) -> str:
        """The index's."""
        return self._index.label

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """The versions that NVIDIA's meta package pins for the newest release of ``cuda`` whose parts are all here;
        without such a release, the newest of each that its own rule admits.
        """
        parts = [(component, component.wheel) for component in components if component.wheel is not None]
        answers: dict[str, Taken | Refused] = {
            component.name: self._refuse(component, component.name, component.lacking)
            for component in components
            if component.wheel is None
        }
        if not parts:
            return answers
        projects = list(dict.fromkeys(part.project for _, part in parts))
        release_files, *pages = run_all(
            [partial(self._page, self._recipe.release), *(partial(self._page, project) for project in projects)],
            transfers=self._index,
        )
        files = dict(zip(projects, pages, strict=True))
        for pins in (*self._releases(release_files, version), {}):
            found = {
                component.name: self._offer(component, part, files[part.project], machine, pins)
                for component, part in parts
            }
            if not pins or not any(isinstance(answer, Refused) for answer in found.values()):
                break  # else: an incomplete mirror, or a release that was published in part
        return answers | found

    def _page(self, project: str) -> tuple[IndexFile, ...] | None:
        try:
            return self._index.files(project)
        except NotFoundError:
            return None

    def _releases(self, files: Sequence[IndexFile] | None, cuda: str) -> list[Mapping[str, SpecifierSet]]:
        wanted = SpecifierSet(f"=={cuda}.*")
        releases = {f.version for f in files or () if f.version in wanted and not f.version.is_prerelease}
        pinned: list[Mapping[str, SpecifierSet]] = []
        for release in sorted(releases, reverse=True):
            with contextlib.suppress(ToolchainError):
                choice = choose_wheel(
                    files or (),
                    project=self._recipe.release,
                    allowed=SpecifierSet(f"=={release}"),
                    machine=build_machine(),
                )
                pinned.append(self._pins(choice.file))
        return [pins for pins in pinned if pins]

    def _pins(self, file: IndexFile) -> Mapping[str, SpecifierSet]:
        """Project -> versions, out of the meta package's requirements (they all hang on extras)."""
        with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
            wheel = self._index.open(file, Path(scratch), lambda _: None)
            (name,) = matching(wheel.members, ["*.dist-info/METADATA"]) or ("",)
            if not name:
                return {}
            from packaging.metadata import Metadata  # noqa: PLC0415  (start-up time: it imports email)

            metadata = Metadata.from_email(wheel.read(name), validate=False)
        return {canonicalize_name(r.name): r.specifier for r in metadata.requires_dist or () if r.specifier}

    def _offer(
        self,
        component: Component,
        part: WheelPart,
        files: Sequence[IndexFile] | None,
        machine: Machine,
        pins: Mapping[str, SpecifierSet],
    ) -> Taken | Refused:
        if files is None:
            return self._refuse(component, part.project, f"{describe_index(self.label)} has no such project")
        wanted_machine = build_machine() if component.compiler else machine.value
        own = SpecifierSet(part.version)
        pin = pins.get(part.project)
        # A range such as ">=13.0.88,<14" leaves a choice: then the version of this very release is right.
        attempts = [own] if pin is None else [pin & own, pin]
        for allowed in attempts:
            with contextlib.suppress(ToolchainError):
                file = choose_wheel(files, project=part.project, allowed=allowed, machine=wanted_machine).file
                self._files[file.filename] = file
                return Taken(part=component.name, source=self.label, artefact=file.artefact(self.label))
        try:
            choose_wheel(files, project=part.project, allowed=attempts[-1], machine=wanted_machine)
        except ToolchainError as error:
            return self._refuse(component, f"{part.project} {attempts[-1]}", error.hint or error.message)
        raise AssertionError("a wheel fits now that did not before")

    def _refuse(self, component: Component, candidate: str, reason: str) -> Refused:
        return Refused(part=component.name, source=self.label, candidate=candidate, reason=reason)

    def fill(self, parts: Sequence[tuple[Component, Taken]], tree: ToolkitTree) -> Sequence[Artefact]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`. Only what is needed of each wheel is fetched.

        Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` (disk).
        """
        artefacts = {taken.artefact.filename: taken.artefact for _, taken in parts}
        located = run_all([partial(self._locate, artefact) for artefact in artefacts.values()], transfers=self._index)
        files = dict(zip(artefacts, located, strict=True))
        wheels = self._open(files, tree.scratch, tree.progress.add)
        jobs = _jobs(parts, wheels)
        require_space(tree.into.parent, sum(member.size for *_, group in jobs for member in group) + _TABLE_SPACE)
        tree.progress.expect(sum(_cost(*job) for job in jobs))

        def fetch(part: WheelPart, wheel: Wheel, group: Sequence[Member]) -> None:
            wheel.extract(group, tree.into, lambda name: name.removeprefix(part.root))
            for library in part.libraries:
                write_table(tree.into, *read_symbols(wheel, library.member, leading=library.leading))

        run_all([partial(fetch, *job) for job in jobs], workers=_WORKERS, transfers=self._index)
        return [wheel_artefact(files[name], wheel, self.label) for name, wheel in wheels.items()]

    def weigh(self, parts: Sequence[tuple[Component, Taken]], scratch: Path) -> Mapping[str, int]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`. Reads the directories of the wheels."""
        files = {taken.artefact.filename: self._locate(taken.artefact) for _, taken in parts}
        wheels = self._open(files, scratch, lambda _: None)
        bytes_of = dict.fromkeys(wheels, 0)
        for part, wheel, members in _jobs(parts, wheels):
            bytes_of[wheel.filename] += _cost(part, wheel, members)
        return bytes_of

    def _open(
        self, files: Mapping[str, IndexFile], scratch: Path, on_bytes: Callable[[int], None]
    ) -> Mapping[str, Wheel]:
        opened = run_all(
            [partial(self._index.open, file, scratch, on_bytes) for file in files.values()],
            workers=_WORKERS,
            transfers=self._index,
        )
        return dict(zip(files, opened, strict=True))

    def _locate(self, artefact: Artefact) -> IndexFile:
        found = self._files.get(artefact.filename)
        return found if found is not None else locate(self._index, artefact)


_Job = tuple[WheelPart, Wheel, tuple[Member, ...]]
"""What is taken of a wheel: the members, and tables of the libraries of the part."""


def _jobs(parts: Sequence[tuple[Component, Taken]], wheels: Mapping[str, Wheel]) -> list[_Job]:
    jobs: list[_Job] = []
    for component, taken in parts:
        if component.wheel is not None:
            wheel = wheels[taken.artefact.filename]
            jobs.append((component.wheel, wheel, wheel.select(component.wheel.include, _NOT_TAKEN)))
    return jobs


def _cost(part: WheelPart, wheel: Wheel, members: Sequence[Member]) -> int:
    tables = table_cost(wheel, part.libraries, leading_bytes=_LEADING)
    return sum(member.compressed for member in members) + tables
