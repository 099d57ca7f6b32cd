"""Headers and export tables of one release of a framework, out of the beginning and the middle of its wheel (F1, F2,
F11).

One wheel serves the CPU variant and every CUDA version of its release: the headers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from packaging.specifiers import SpecifierSet

from kernel_builder.config.backends import Backend
from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import require_space
from kernel_builder.store.index import Index, IndexFile, describe_index, fitting_wheels, locate, why_none
from kernel_builder.store.progress import Progress
from kernel_builder.store.transport import NotFoundError
from kernel_builder.store.wheel import Member, Wheel
from kernel_builder.toolchain.choice import FrameworkCandidate, FrameworkFacts, Refused, Taken, ToolchainRequest
from kernel_builder.toolchain.link_tables import EXPORTS, read_symbols, table_cost, write_table
from kernel_builder.toolchain.recipe import FrameworkRecipe, LibraryRecipe
from kernel_builder.toolchain.torch_abi import prove_abi
from kernel_builder.toolchain.wheels import wheel_artefact
from kernel_builder.variants.names import System
from kernel_builder.versions import Version

_LEADING = 5 * 2**19  # bytes that the names of one of its large libraries take over the wire
_TABLE_SPACE = 32 * 2**20
"""Room for the export tables, in bytes; torch's take about 15 MiB."""


class FrameworkWheels:
    """The wheels of a framework in one index. A :class:`~kernel_builder.toolchain.choice.FrameworkSource`.

    ``stored`` gives the entry of a wheel that is in the store, where its facts can be read without the network;
    ``parts`` a directory, for the time of a block, where what arrives of a wheel is kept: its fetching goes on from it.
    """

    def __init__(
        self,
        index: Index,
        recipe: FrameworkRecipe,
        *,
        stored: Callable[[Taken], Path | None],
        parts: Callable[[Taken], AbstractContextManager[Path]],
    ) -> None:
        self._index = index
        self._recipe = recipe
        self._stored = stored
        self._parts = parts
        self._files: dict[str, IndexFile] = {}
        self._facts: dict[tuple[str, Backend | None], FrameworkFacts] = {}

    @property
    def label(self) -> str:
        """The index's."""
        return self._index.label

    def candidates(self, request: ToolchainRequest) -> tuple[Sequence[FrameworkCandidate], Sequence[Refused]]:
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`."""
        project = self._recipe.project
        allowed = SpecifierSet(f"=={request.release}.*")
        wanted = f"{project} {allowed}"
        try:
            files = self._index.files(project)
        except NotFoundError:
            return (), (self._refuse(wanted, f"{describe_index(self.label)} has no such project"),)
        fitting, rejections = fitting_wheels(
            files, allowed=allowed, machine=request.machine.value, macos=request.system is System.DARWIN
        )
        if not fitting:
            return (), (self._refuse(wanted, why_none(files, rejections, allowed)),)
        candidates: list[FrameworkCandidate] = []
        refused: list[Refused] = []
        build = self._recipe.own_build(request.toolkit.backend) if request.toolkit is not None else None
        for file in fitting:
            reason = unserved(self._recipe.of(build), request, file.version.local)
            if reason is not None:
                refused.append(self._refuse(file.filename, reason))
                continue
            self._files[file.filename] = file
            artefact = file.artefact(self.label)
            made = build is not None and not self._recipe.of(build).serves(file.version.local, *request.compute)
            candidates.append(FrameworkCandidate(version=file.version, artefact=artefact, build=build, made=made))
        return candidates, refused

    def _refuse(self, candidate: str, reason: str) -> Refused:
        return Refused(part=self._recipe.kind.value, source=self.label, candidate=candidate, reason=reason)

    def facts(self, candidate: FrameworkCandidate) -> FrameworkFacts:
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`."""
        taken = candidate.taken(self._recipe.kind.value)
        known = (taken.artefact.filename, taken.build)
        if known not in self._facts:
            entry = self._stored(taken)
            file = self._files[taken.artefact.filename]
            self._facts[known] = self._from_wheel(file, taken) if entry is None else self._from_entry(entry, taken)
        return self._facts[known]

    def _from_wheel(self, file: IndexFile, taken: Taken) -> FrameworkFacts:
        recipe = self._recipe.of(taken.build)
        members = {library.soname: library.member for library in recipe.libraries}
        with self._parts(taken) as scratch:
            wheel = self._index.open(file, scratch, lambda _: None)
            headers = bool(wheel.select((recipe.headers,)))
            abi, proof = None, recipe.abi_library
            if proof is not None and members[proof] in wheel.members:
                _, symbols = read_symbols(wheel, members[proof], leading=False)
                abi = prove_abi(symbol.name for symbol in symbols)
        return FrameworkFacts(
            abi=abi,
            has_headers=headers,
            backends=recipe.backends_with(lambda library: _member(wheel, library) is not None),
        )

    def _from_entry(self, entry: Path, taken: Taken) -> FrameworkFacts:
        """The facts about one that is in the store."""
        tables = {path.name: path for path in (entry / EXPORTS).iterdir()}
        proof, names = self._recipe.abi_library, list[str]()
        if proof is not None:
            names = tables[f"{proof}.txt"].read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return FrameworkFacts(
            abi=prove_abi(names),
            backends=self._recipe.of(taken.build).backends_with(lambda library: f"{library.soname}.txt" in tables),
            has_headers=True,
        )

    def weigh(self, taken: Taken) -> int:
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`. Reads the wheel's directory."""
        with self._parts(taken) as scratch:
            wheel = self._index.open(self._file(taken), scratch, lambda _: None)
            return _cost(wheel, *self._wanted(wheel, taken))

    def _file(self, taken: Taken) -> IndexFile:
        return self._files.get(taken.artefact.filename) or locate(self._index, taken.artefact)

    def _wanted(self, wheel: Wheel, taken: Taken) -> tuple[Sequence[Member], Mapping[str, LibraryRecipe]]:
        """Headers, and the libraries whose names are wanted, by their sonames: each as the wheel has it."""
        recipe = self._recipe.of(taken.build)
        if _is_for_macos(taken):
            return wheel.select(recipe.include), {}  # their names are looked up when a kernel is loaded
        found = {library.soname: (_member(wheel, library), library) for library in recipe.libraries}
        libraries = {
            soname: library if member is None else replace(library, member=member)
            for soname, (member, library) in found.items()
            if member is not None or library.backend is None
        }
        return wheel.select(recipe.include), libraries

    def fill(self, taken: Taken, *, scratch: Path, progress: Progress, into: Path) -> Sequence[Artefact]:
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`.

        Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` (disk), and
        :class:`ToolchainError` when the wheel has no headers, or lacks a library.
        """
        file = self._file(taken)
        wheel = self._index.open(file, scratch, progress.add)
        members, libraries = self._wanted(wheel, taken)
        self._refuse_incomplete(wheel, file, libraries.values())
        require_space(into.parent, sum(member.size for member in members) + _TABLE_SPACE)
        progress.expect(_cost(wheel, members, libraries))
        wheel.extract(members, into, lambda name: name.removeprefix(self._recipe.strip))
        for soname, library in libraries.items():
            found, symbols = read_symbols(wheel, library.member, leading=library.leading)
            write_table(into, soname if library.soname != soname else found, symbols)
        return (wheel_artefact(file, wheel, self.label),)

    def _refuse_incomplete(self, wheel: Wheel, file: IndexFile, libraries: Iterable[LibraryRecipe]) -> None:
        lacking = [] if wheel.select((self._recipe.headers,)) else ["no C++ headers"]
        lacking += [f"no {library.member}" for library in libraries if library.member not in wheel.members]
        if lacking:
            where = describe_index(self.label)
            raise ToolchainError(
                f"{file.filename} of {where} has {' and '.join(lacking)}, which kernels are compiled with",
                hint=f"remove it from {where}, or name an index that has a whole one before that in"
                " kernel-builder.toml ([[index]] and 'sources')",
            )


def _cost(wheel: Wheel, members: Sequence[Member], libraries: Mapping[str, LibraryRecipe]) -> int:
    return sum(member.compressed for member in members) + table_cost(wheel, libraries.values(), leading_bytes=_LEADING)


def unserved(recipe: FrameworkRecipe, request: ToolchainRequest, flavour: str | None) -> str | None:
    """Why a build of torch with that flavour does not serve ``request``, whose builds ``recipe`` is for; ``None`` where
    it does.
    """
    if recipe.serves(flavour, *request.compute) or recipe.can_make(request.release, flavour):
        return None
    since = recipe.made_since
    if since is not None and recipe.is_base(flavour) and Version.parse(request.release) < since:
        return f"its headers are for other devices, and only those of torch {since} and later can be made into others"
    return f"{flavour} builds have different headers"


def _is_for_macos(taken: Taken) -> bool:
    return "-macosx_" in taken.artefact.filename


def _member(wheel: Wheel, library: LibraryRecipe) -> str | None:
    """The library, or what stands for it in another build."""
    return next((member for member in (library.member, library.instead) if member in wheel.members), None)
