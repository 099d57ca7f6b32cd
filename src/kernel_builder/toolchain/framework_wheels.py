"""Headers and export tables of one release of a framework, out of the beginning and the middle of its wheel (F1, F2,
F11).

One wheel serves the CPU variant and every CUDA version of its release: the headers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from packaging.specifiers import SpecifierSet

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
        self._facts: dict[str, FrameworkFacts] = {}

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
        fitting, rejections = fitting_wheels(files, allowed=allowed, machine=request.machine.value)
        if not fitting:
            return (), (self._refuse(wanted, why_none(files, rejections, allowed)),)
        candidates: list[FrameworkCandidate] = []
        refused: list[Refused] = []
        for file in fitting:
            if not self._recipe.serves(file.version.local, *request.compute):
                refused.append(self._refuse(file.filename, f"{file.version.local} builds have different headers"))
                continue
            self._files[file.filename] = file
            candidates.append(FrameworkCandidate(version=file.version, artefact=file.artefact(self.label)))
        return candidates, refused

    def _refuse(self, candidate: str, reason: str) -> Refused:
        return Refused(part=self._recipe.kind.value, source=self.label, candidate=candidate, reason=reason)

    def facts(self, candidate: FrameworkCandidate) -> FrameworkFacts:
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`."""
        name = candidate.artefact.filename
        if name not in self._facts:
            taken = Taken(part=self._recipe.kind.value, source=self.label, artefact=candidate.artefact)
            entry = self._stored(taken)
            self._facts[name] = self._from_wheel(self._files[name], taken) if entry is None else self._from_entry(entry)
        return self._facts[name]

    def _from_wheel(self, file: IndexFile, taken: Taken) -> FrameworkFacts:
        members = {library.soname: library.member for library in self._recipe.libraries}
        with self._parts(taken) as scratch:
            wheel = self._index.open(file, scratch, lambda _: None)
            headers = bool(wheel.select(self._recipe.include[:1]))
            abi, proof = None, self._recipe.abi_library
            if proof is not None and members[proof] in wheel.members:
                _, symbols = read_symbols(wheel, members[proof], leading=False)
                abi = prove_abi(symbol.name for symbol in symbols)
        return FrameworkFacts(
            abi=abi,
            has_headers=headers,
            backends=self._recipe.backends_with(lambda library: library.member in wheel.members),
        )

    def _from_entry(self, entry: Path) -> FrameworkFacts:
        """The facts about one that is in the store."""
        tables = {path.name: path for path in (entry / EXPORTS).iterdir()}
        proof, names = self._recipe.abi_library, list[str]()
        if proof is not None:
            names = tables[f"{proof}.txt"].read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return FrameworkFacts(
            abi=prove_abi(names),
            backends=self._recipe.backends_with(lambda library: f"{library.soname}.txt" in tables),
            has_headers=True,
        )

    def weigh(self, taken: Taken) -> int:
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`. Reads the wheel's directory."""
        with self._parts(taken) as scratch:
            wheel = self._index.open(self._file(taken), scratch, lambda _: None)
            return _cost(wheel, *self._wanted(wheel))

    def _file(self, taken: Taken) -> IndexFile:
        return self._files.get(taken.artefact.filename) or locate(self._index, taken.artefact)

    def _wanted(self, wheel: Wheel) -> tuple[Sequence[Member], Sequence[LibraryRecipe]]:
        """Headers, and the libraries whose names are wanted."""
        libraries = [library for library in self._recipe.libraries if library.backend is None or _holds(wheel, library)]
        return wheel.select(self._recipe.include), libraries

    def fill(self, taken: Taken, *, scratch: Path, progress: Progress, into: Path) -> Sequence[Artefact]:
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`.

        Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` (disk), and
        :class:`ToolchainError` when the wheel has no headers.
        """
        file = self._file(taken)
        wheel = self._index.open(file, scratch, progress.add)
        members, libraries = self._wanted(wheel)
        if not members:
            raise ToolchainError(f"{file.filename} contains no C++ headers, so nothing can be compiled with it")
        require_space(into.parent, sum(member.size for member in members) + _TABLE_SPACE)
        progress.expect(_cost(wheel, members, libraries))
        wheel.extract(members, into, lambda name: name.removeprefix(self._recipe.strip))
        for library in libraries:
            write_table(into, *read_symbols(wheel, library.member, leading=library.leading))
        return (wheel_artefact(file, wheel, self.label),)


def _cost(wheel: Wheel, members: Sequence[Member], libraries: Sequence[LibraryRecipe]) -> int:
    return sum(member.compressed for member in members) + table_cost(wheel, libraries, leading_bytes=_LEADING)


def _holds(wheel: Wheel, library: LibraryRecipe) -> bool:
    return library.member in wheel.members
