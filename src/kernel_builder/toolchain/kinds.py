"""What ``toolchain/`` must know of a backend's toolkit. Each backend that has one brings a :class:`ToolkitKind`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Architecture
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.index import Index
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.choice import ComponentSource, Taken
from kernel_builder.toolchain.model import Toolkit, ToolkitSdk
from kernel_builder.toolchain.recipe import Component, ToolkitRecipe
from kernel_builder.toolchain.settings import FurtherRepository, Place, ToolchainSettings


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a source of toolkits is opened with.

    ``name`` is what the settings call it; ``index`` is set for an index of wheels, ``repository`` for a further
    repository of Debian packages. ``transport`` makes a transport for
    files below a place, with its credentials; with ``True``, one that soon gives up a server that never answered.
    ``downloads`` is where interrupted downloads wait.
    """

    name: str
    settings: ToolchainSettings
    environ: Mapping[str, str]
    transport: Callable[[Place | None, bool], Transport]
    downloads: Path
    index: Index | None = None
    repository: FurtherRepository | None = None


@dataclass(frozen=True, kw_only=True)
class OpenedSource:
    """A source, the facts that tell its configuration from another (no host names are shown), and whether it is on this
    machine.
    """

    source: ComponentSource
    facts: str
    at_hand: bool = False


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A toolkit that is installed on this machine. ``version`` is what its compiler says (``13.0.88``)."""

    version: str
    root: Path


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device of this machine: ``label`` describes it for people, ``architecture`` is what it runs code for, ``None``
    where that cannot be told.
    """

    label: str
    architecture: Architecture | None = None


class TorchMaker(Protocol):
    """Makes the headers of a backend's build of torch out of those of another build."""

    def make(self, version: str, entry: Path, environ: Mapping[str, str]) -> None:
        """Turn what is in ``entry`` into the headers and tables of torch ``version`` for the backend. Raises
        :class:`ToolchainError`.
        """
        ...


class ToolkitKind(Protocol):
    """The toolkit of one backend: what it is made of, where that comes from, and what comes out."""

    @property
    def backend(self) -> Backend:
        """Whose toolkit it is."""
        ...

    @property
    def recipe(self) -> ToolkitRecipe:
        """Its components, and the bounds that it sets on host compilers."""
        ...

    @property
    def torch_maker(self) -> TorchMaker | None:
        """What makes torch's headers for this backend, where they can be made."""
        ...

    def open(self, opening: Opening) -> OpenedSource | None:
        """The source of that name; ``None`` when toolkits of this backend do not come from there."""
        ...

    def describe(self, toolkit: Toolkit, taken: Sequence[Taken], entry: Path, stubs: Path) -> ToolkitSdk:
        """What a tree in ``entry``, put together of ``taken``, will be; ``stubs`` is where its link stubs will lie."""
        ...

    def complete(self, toolkit: Toolkit, taken: Sequence[Taken], entry: Path, environ: Mapping[str, str]) -> None:
        """See that the tree in ``entry`` works on this machine, and write down what its compiler says of itself when it
        runs with the variables ``environ``.

        Raises :class:`ToolchainError`.
        """
        ...

    def is_part(self, component: Component, artefact: Artefact) -> bool:
        """Whether a component is taken out of ``artefact``."""
        ...

    def where_else(self, toolkit: Toolkit, labels: Sequence[str], silent: Sequence[str]) -> str:
        """The one thing that helps somebody whose sources, named by ``labels``, lack a part of ``toolkit``; those
        in ``silent`` could not be reached.
        """
        ...

    @property
    def debian_releases(self) -> tuple[str, ...]:
        """The versions whose compiler Debian's archive is known to have."""
        ...

    def installed(self, environ: Mapping[str, str], settings: ToolchainSettings) -> tuple[Installed, ...]:
        """The toolkits on this machine."""
        ...

    def devices(self, environ: Mapping[str, str]) -> tuple[Device, ...]:
        """The backend's devices on this machine."""
        ...


Kinds = Mapping[Backend, ToolkitKind]
