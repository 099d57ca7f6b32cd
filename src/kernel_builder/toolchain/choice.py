"""What choosing the sources of a toolchain's parts is about: what is wanted, who may have it, and what was decided.

:mod:`~kernel_builder.toolchain.deciding` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packaging.version import Version

from kernel_builder.config.backends import HOST, Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.progress import Progress
from kernel_builder.toolchain.model import Toolkit
from kernel_builder.toolchain.recipe import Component
from kernel_builder.variants.names import Abi, Machine, System


@dataclass(frozen=True, kw_only=True)
class ToolchainRequest:
    """What is wanted: release ``2.13`` of a framework with a C++ ABI (``None``: whatever it has), and a toolkit or
    ``None`` for backends without one, for ``system`` on ``machine``.
    """

    release: str
    machine: Machine
    abi: Abi | None = None
    toolkit: Toolkit | None = None
    framework: FrameworkKind = FrameworkKind.TORCH
    system: System = System.LINUX

    @property
    def part(self) -> str:
        """What the framework's part of the toolchain is called; the others are named as the table names components."""
        return self.framework.value

    @property
    def compute(self) -> tuple[Backend | None, str]:
        """The backend of the toolkit, and its version."""
        return (None, "") if self.toolkit is None else (self.toolkit.backend, self.toolkit.version)

    @property
    def pattern(self) -> str:
        """A glob for the names of the variants that need it."""
        name = f"{self.framework.value}{''.join(self.release.split('.')[:2])}"
        abi = self.abi.value if self.abi else "*"
        abis = f"-{abi}" if self.framework is FrameworkKind.TORCH else ""
        compute = self.toolkit.compute if self.toolkit else HOST.value
        return f"{name}{abis}-{compute}-{self.machine.value}-{self.system.value}"

    def __str__(self) -> str:
        abi = f" ({self.abi.value})" if self.abi else ""
        return f"{self.framework.value} {self.release}{abi}" + (f" with {self.toolkit}" if self.toolkit else "")


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A part that was found: what it is, from where, and the file that holds it.

    ``root`` is set when it is used where it lies, outside of the store. ``build`` is the backend for which torch has a
    build with headers of its own, where it is taken for that.
    """

    part: str
    source: str
    artefact: Artefact
    root: Path | None = None
    build: Backend | None = None


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Something that was looked at and not taken. ``candidate`` is a file, or what was looked for. ``unreachable``: the
    source, which nobody asked for, does not answer.
    """

    part: str
    source: str
    candidate: str
    reason: str
    unreachable: bool = False

    def __str__(self) -> str:
        return f"{self.source}: {self.candidate}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class FrameworkCandidate:
    """A framework that may fit. ``version`` has its flavour (``2.6.0+cu126``), as far as its name tells. ``build`` is
    that of :class:`Taken`; ``made``: its headers are those of another build, of which that one's are made.
    """

    version: Version
    artefact: Artefact
    root: Path | None = None
    build: Backend | None = None
    made: bool = False

    def taken(self, part: str) -> Taken:
        """It, taken as ``part``."""
        return Taken(part=part, source=self.artefact.source, artefact=self.artefact, root=self.root, build=self.build)

    @property
    def flavour(self) -> str | None:
        """``cu126``, ``cpu``, ``rocm6.2``; ``None`` when its name does not say."""
        return self.version.local


@dataclass(frozen=True, kw_only=True)
class FrameworkFacts:
    """What a look into a framework showed. ``abi`` is ``None`` when its libraries do not prove one; ``backends`` are
    those whose libraries it has.
    """

    abi: Abi | None
    backends: frozenset[Backend]
    has_headers: bool


@dataclass(frozen=True, kw_only=True)
class ToolkitTree:
    """A toolkit that is being put together.

    ``into`` is its root, ``version`` its version, ``scratch`` a directory that
    keeps what arrives until all of it has; ``progress`` hears about bytes.
    """

    version: str
    into: Path
    scratch: Path
    progress: Progress


class ComponentSource(Protocol):
    """Somewhere that components of a backend's toolkits come from."""

    @property
    def label(self) -> str:
        """What people call it, and what locks and manifests hold."""
        ...

    @property
    def whole(self) -> bool:
        """Whether its other components are preferred to everyone else's when its compiler is taken."""
        ...

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """For each component by name: the file that would be taken, or why there is none. Raises
        :class:`NetworkError` when it cannot be asked.
        """
        ...

    def weigh(self, parts: Sequence[tuple[Component, Taken]], scratch: Path) -> Mapping[str, int]:
        """About how many bytes :meth:`fill` fetches of each file, by its name. Raises :class:`NetworkError`."""
        ...

    def fill(self, parts: Sequence[tuple[Component, Taken]], tree: ToolkitTree) -> Sequence[Artefact]:
        """Put what it offered into the tree, verified, with tables of its libraries. What is used in place gets tables
        alone.
        """
        ...


class FrameworkSource(Protocol):
    """Somewhere that a framework comes from."""

    @property
    def label(self) -> str:
        """See :class:`ComponentSource`."""
        ...

    def candidates(self, request: ToolchainRequest) -> tuple[Sequence[FrameworkCandidate], Sequence[Refused]]:
        """What has that release for that machine, best first, and those that are out of the question. Raises
        :class:`NetworkError` when it cannot be asked.
        """
        ...

    def facts(self, candidate: FrameworkCandidate) -> FrameworkFacts:
        """Look into one. Raises :class:`NetworkError`, :class:`IntegrityError`."""
        ...

    def weigh(self, taken: Taken) -> int:
        """About how many bytes :meth:`fill` fetches. Raises :class:`NetworkError`."""
        ...

    def fill(self, taken: Taken, *, scratch: Path, progress: Progress, into: Path) -> Sequence[Artefact]:
        """Put headers and tables of libraries into ``into``; tables alone when it is used in place. ``scratch`` keeps
        what arrives until all of it has.
        """
        ...


def whole_files(parts: Iterable[tuple[Component, Taken]]) -> Mapping[str, int]:
    """What :meth:`ComponentSource.weigh` answers where files are fetched as a whole; what is used in place is not."""
    artefacts = (taken.artefact for _, taken in parts)
    return {a.filename: 0 if a.kind is ArtefactKind.LOCAL else a.size or 0 for a in artefacts}


@dataclass(frozen=True, kw_only=True)
class Chain:
    """What was decided: parts taken, the framework first, in the table's order; and everything refused, as it was met.

    ``unreachable`` names sources that did not answer.
    """

    taken: tuple[Taken, ...]
    refused: tuple[Refused, ...] = ()
    unreachable: tuple[str, ...] = ()


def rank_of(candidate: FrameworkCandidate, toolkit: Toolkit | None) -> tuple[bool, tuple[int, ...], int]:
    """Smaller is better: what need not be made; newest patch; then the flavour of this very toolkit, of its major, any
    other.
    """
    newest = (candidate.made, tuple(-part for part in (*candidate.version.release, candidate.version.post or 0)))
    flavour = candidate.flavour
    if toolkit is None or flavour is None:
        return *newest, 0 if flavour is None or flavour.startswith(HOST.value) else 1
    flavour = flavour.replace(".", "")  # rocm7.2 is for what variants call rocm72
    wanted = toolkit.compute
    major = f"{toolkit.backend.prefix}{toolkit.version.partition('.')[0]}"
    return *newest, 0 if flavour.startswith(wanted) else 1 if flavour.startswith(major) else 2
