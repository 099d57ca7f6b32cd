"""The sources of toolchains that the settings name, opened, in their order."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from kernel_builder.errors import IntegrityError, ToolchainError
from kernel_builder.events import Reporter
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.store.index import FolderIndex, Index, SimpleIndex
from kernel_builder.store.settings import IndexSettings, find_certificates, find_index, index_at, split_credentials
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.choice import (
    TORCH,
    ComponentSource,
    Taken,
    ToolchainRequest,
    TorchSource,
)
from kernel_builder.toolchain.cuda_archives import CudaArchives
from kernel_builder.toolchain.cuda_debian import CudaDebian
from kernel_builder.toolchain.cuda_wheels import CudaWheels
from kernel_builder.toolchain.local import LocalCuda, LocalTorch, site_packages
from kernel_builder.toolchain.recipe import Recipe, default_recipe
from kernel_builder.toolchain.redistrib import PUBLIC_BASE, Redistrib
from kernel_builder.toolchain.settings import DEBIAN, INDEX, LOCAL, REDISTRIB, Place, ToolchainSettings
from kernel_builder.toolchain.torch_wheels import TorchWheels

DOWNLOADS = "downloads"
"""The folder of the store where interrupted downloads of whole archives wait."""
PARTS = "parts"
"""The folder of the store where parts of wheels wait, one folder for each entry that they are to become."""


class Transfers(Protocol):
    """Whatever counts bytes and can be stopped: a transport, or an index."""

    def cancel(self) -> None:
        """Make all transfers stop, until :meth:`resume`."""
        ...

    def resume(self) -> None:
        """Allow transfers again."""
        ...

    def check(self) -> None:
        """Raise after :meth:`cancel`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Network:
    """All connections of the sources together."""

    indexes: tuple[Index, ...] = ()
    transports: tuple[Transport, ...] = ()

    @property
    def _all(self) -> tuple[Transfers, ...]:
        return (*self.indexes, *self.transports)

    @property
    def bytes_received(self) -> int:
        """Bytes that came over the wire so far, pages included."""
        return sum(index.bytes_received for index in self.indexes) + sum(t.received for t in self.transports)

    def cancel(self) -> None:
        """Make all transfers stop, until :meth:`resume`."""
        for transfers in self._all:
            transfers.cancel()

    def resume(self) -> None:
        """Allow transfers again."""
        for transfers in self._all:
            transfers.resume()

    def check(self) -> None:
        """Raise :class:`~kernel_builder.store.transport.CancelledError` after :meth:`cancel`."""
        for transfers in self._all:
            transfers.check()


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Everything that toolchains can come from, in the order to try. ``fingerprint`` tells one configuration from
    another, without naming hosts.
    """

    torch: tuple[TorchSource, ...]
    cuda: tuple[ComponentSource, ...]
    network: Network
    fingerprint: str
    torch_key: Callable[[Taken], StoreKey]
    at_hand: frozenset[str] = field(default_factory=frozenset)

    def is_at_hand(self, label: str) -> bool:
        """Whether that source is on this machine."""
        return label in self.at_hand

    def rank(self, label: str) -> int:
        """The place of a source in the order; behind all others when it is not configured."""
        labels = [source.label for source in self.cuda]
        return labels.index(label) if label in labels else len(labels)

    def torch_named(self, label: str) -> TorchSource:
        """The source of that label. Raises :class:`ToolchainError` when it is not configured any more."""
        return _named(self.torch, label)

    def cuda_named(self, label: str) -> ComponentSource:
        """The source of that label. Raises :class:`ToolchainError` when it is not configured any more."""
        return _named(self.cuda, label)

    def local_now(self, request: ToolchainRequest, part: str, label: str, recipe: Recipe) -> Taken | None:
        """What the source ``label``, on this machine, has now for a part; ``None`` when it has nothing any more."""
        if part == TORCH:
            torch = next((source for source in self.torch if source.label == label), None)
            candidates = torch.candidates(request)[0] if torch else ()
            found = next((candidate for candidate in candidates if candidate.root is not None), None)
            if found is None:
                return None
            return Taken(part=part, source=label, artefact=found.artefact, root=found.root)
        cuda = next((source for source in self.cuda if source.label == label), None)
        if cuda is None or request.cuda is None:
            return None
        components = [component for component in recipe.cuda.components(request.cuda) if component.name == part]
        answer = cuda.offers(components, request.cuda, request.machine).get(part)
        return answer if isinstance(answer, Taken) else None


_Labelled = TypeVar("_Labelled", TorchSource, ComponentSource)


def _named(sources: Sequence[_Labelled], label: str) -> _Labelled:
    for source in sources:
        if source.label == label:
            return source
    raise ToolchainError(f"the source {label!r} is not configured any more", hint="run the command again")


def open_sources(
    settings: ToolchainSettings,
    store: Store,
    reporter: Reporter,
    *,
    environ: Mapping[str, str],
    offline: bool = False,
    recipe: Recipe | None = None,
    indexes: Mapping[str, Index] | None = None,
) -> Sources:
    """The sources that ``settings`` name. Nothing is asked yet. ``indexes`` stand in for those of their labels.

    Raises :class:`NetworkError` for an address that is none.
    """
    opener = _Opener(settings, store, reporter, environ, offline, recipe or default_recipe(), dict(indexes or {}))
    for name in settings.order:
        opener.add(name)
    return opener.sources()


class _Opener:
    def __init__(
        self,
        settings: ToolchainSettings,
        store: Store,
        reporter: Reporter,
        environ: Mapping[str, str],
        offline: bool,
        recipe: Recipe,
        indexes: dict[str, Index],
    ) -> None:
        self._settings = settings
        self._store = store
        self._reporter = reporter
        self._environ = environ
        self._offline = offline
        self._recipe = recipe
        self._given = indexes
        self._torch: list[TorchSource] = []
        self._cuda: list[ComponentSource] = []
        self._indexes: list[Index] = []
        self._transports: list[Transport] = []
        self._facts: list[str] = []
        self._at_hand: set[str] = set()

    def add(self, name: str) -> None:
        if name == REDISTRIB:
            self._add_redistrib()
        elif name == DEBIAN:
            transport = self._transport(self._settings.debian_mirror)
            self._cuda.append(CudaDebian(self._settings, transport, self._store.root / DOWNLOADS))
            self._facts.append(f"{name} {self._settings.debian_mirror} {self._settings.debian_suites}")
        elif name == LOCAL:
            self._torch.append(LocalTorch(site_packages(self._environ), self._recipe))
            self._cuda.append(LocalCuda(self._environ, self._settings.toolkits))
            self._facts.append(name)
            self._at_hand.add(name)
        else:
            self._add_index(name)

    def _add_redistrib(self) -> None:
        place = self._settings.redistrib or Place(url=PUBLIC_BASE)
        transport = self._transport(place)
        base = place.path if place.path is not None else split_credentials(place.url or "")[0]
        redistrib = Redistrib(base, transport, downloads=self._store.root / DOWNLOADS)
        self._cuda.append(CudaArchives(redistrib, transport.cancel))
        self._facts.append(f"{REDISTRIB} {place}")
        if place.path is not None:
            self._at_hand.add(REDISTRIB)

    def _add_index(self, name: str) -> None:
        index = self._given.get(name) or self._open_index(name)
        self._indexes.append(index)
        self._torch.append(TorchWheels(index, self._recipe, stored=self._stored, parts=self._parts))
        self._cuda.append(CudaWheels(index, self._recipe))
        self._facts.append(f"{name} {index.fingerprint}")

    def _open_index(self, name: str) -> Index:
        if name == INDEX:
            return SimpleIndex(find_index(self._environ), self._reporter, offline=self._offline)
        place = next(index.place for index in self._settings.indexes if index.name == name)
        if place.path is not None:
            self._at_hand.add(name)
            return FolderIndex(place.path, label=name)
        settings = index_at(place.url or "", name, self._environ)
        return SimpleIndex(settings, self._reporter, label=name, offline=self._offline)

    def _transport(self, place: Place | None) -> Transport:
        """A transport for files below ``place``, with the certificates that pip uses and its own credentials."""
        url, credentials = split_credentials(place.url) if place is not None and place.url else (None, None)
        transport = Transport(
            IndexSettings(
                url=url,
                origin="kernel-builder.toml",
                place="kernel-builder.toml",
                credentials=credentials,
                certificates=find_certificates(self._environ),
            ),
            offline=self._offline,
        )
        self._transports.append(transport)
        return transport

    @property
    def _torch_key(self) -> Callable[[Taken], StoreKey]:
        recipe = self._recipe

        def key(taken: Taken) -> StoreKey:
            version = taken.artefact.version
            return StoreKey.of(f"torch-{version}", wheel=taken.artefact.identity, recipe=recipe.torch.digest)

        return key

    def _stored(self, taken: Taken) -> Path | None:
        key = self._torch_key(taken)
        return self._store.path(key) if self._store.has(key) else None

    @contextmanager
    def _parts(self, taken: Taken) -> Iterator[Path]:
        """The folder for parts of the entry that ``taken`` is to become, for this process alone. It does not stay when
        what arrived was wrong: a later attempt would go on from the same bytes.
        """
        name = self._torch_key(taken).name
        with self._store.machine_errors(), self._store.lock(name):
            folder = self._store.root / PARTS / name
            folder.mkdir(parents=True, exist_ok=True)
            try:
                yield folder
            except (IntegrityError, ToolchainError):
                shutil.rmtree(folder)
                raise

    def sources(self) -> Sources:
        digest = hashlib.sha256(json.dumps(self._facts).encode()).hexdigest()[:12]
        return Sources(
            torch=tuple(self._torch),
            cuda=tuple(self._cuda),
            network=Network(indexes=tuple(self._indexes), transports=tuple(self._transports)),
            fingerprint=digest,
            torch_key=self._torch_key,
            at_hand=frozenset(self._at_hand),
        )
