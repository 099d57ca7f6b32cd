"""The sources of toolchains that the settings name, opened, in their order."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import IntegrityError, ToolchainError
from kernel_builder.events import Reporter
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.store.index import FolderIndex, Index, SimpleIndex
from kernel_builder.store.parallel import Stoppable
from kernel_builder.store.settings import IndexSettings, find_certificates, find_index, index_at, split_credentials
from kernel_builder.store.transport import FIRST_SECONDS, Transport
from kernel_builder.toolchain.choice import (
    ComponentSource,
    FrameworkSource,
    Taken,
    ToolchainRequest,
    rank_of,
)
from kernel_builder.toolchain.framework_wheels import FrameworkWheels
from kernel_builder.toolchain.kinds import Kinds, Opening
from kernel_builder.toolchain.local_frameworks import LocalFramework, site_packages
from kernel_builder.toolchain.model import ProjectPart
from kernel_builder.toolchain.recipe import Component, FrameworkRecipe, default_recipe
from kernel_builder.toolchain.settings import BUILT_IN, INDEX, LOCAL, Place, ToolchainSettings

DOWNLOADS = "downloads"
"""The folder of the store where interrupted downloads of whole archives wait."""
PARTS = "parts"
"""The folder of the store where parts of wheels wait, one folder for each entry that they are to become."""


class Transfers(Stoppable, Protocol):
    """Whatever counts bytes and can be stopped: a transport, or an index."""

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
        """Take one :meth:`cancel` back."""
        for transfers in self._all:
            transfers.resume()

    def check(self) -> None:
        """Raise :class:`~kernel_builder.store.transport.CancelledError` after :meth:`cancel`."""
        for transfers in self._all:
            transfers.check()


def _identity_of(taken: Taken, by_project: Mapping[str, str]) -> str:
    """What the store keys on. An index vouches for the digests that it gives, and the store is for all projects: what
    comes from a source that a project names never takes the place of what the user's sources have.
    """
    place = by_project.get(taken.source)
    return taken.artefact.identity if place is None else f"{taken.artefact.identity} from {place}"


def _framework_key(taken: Taken, recipe: FrameworkRecipe, by_project: Mapping[str, str]) -> StoreKey:
    wheel = _identity_of(taken, by_project)
    build = f"-{taken.build.value}" if taken.build is not None else ""
    stem = f"{recipe.kind.value}-{taken.artefact.version}{build}"
    return StoreKey.of(stem, wheel=wheel, recipe=recipe.of(taken.build).digest)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Everything that toolchains can come from, in the order to try. ``fingerprint`` tells one configuration from
    another, without naming hosts. ``toolkits`` are those of each backend that has one. ``by_project`` are the labels of
    sources that the project itself names, each with a text that tells its place from others. ``debian`` is for packages
    of Debian's mirror.
    """

    frameworks: Mapping[FrameworkKind, tuple[FrameworkSource, ...]]
    toolkits: Mapping[Backend, tuple[ComponentSource, ...]]
    network: Network
    fingerprint: str
    recipes: Mapping[FrameworkKind, FrameworkRecipe]
    debian: Transport
    at_hand: frozenset[str] = field(default_factory=frozenset)
    by_project: Mapping[str, str] = field(default_factory=dict)

    def identity_of(self, taken: Taken) -> str:
        """What the store keys on: see :func:`_identity_of`."""
        return _identity_of(taken, self.by_project)

    def framework_key(self, taken: Taken) -> StoreKey:
        """The entry of the store for a framework."""
        return _framework_key(taken, self.recipes[FrameworkKind(taken.part)], self.by_project)

    def build_for(self, request: ToolchainRequest) -> Backend | None:
        """The backend of ``request``, if the framework's builds for it have headers of their own."""
        backend = request.toolkit.backend if request.toolkit is not None else None
        return self.recipes[request.framework].own_build(backend)

    def must_be_made(self, taken: Taken) -> bool:
        """Whether the headers of a framework are those of another build than it was taken for."""
        recipe = self.recipes[FrameworkKind(taken.part)].of(taken.build)
        return taken.build is not None and not recipe.is_own(taken.artefact.version)

    def parts_by_project(self, taken: Sequence[Taken]) -> tuple[ProjectPart, ...]:
        """What among ``taken`` comes from sources that the project itself names, each file once."""
        return tuple(
            dict.fromkeys(
                ProjectPart(name=part.artefact.name, version=part.artefact.version, source=part.source)
                for part in taken
                if part.source in self.by_project
            )
        )

    def is_at_hand(self, label: str) -> bool:
        """Whether that source is on this machine."""
        return label in self.at_hand

    def rank(self, of: Backend | FrameworkKind, label: str) -> int:
        """The place of a source in the order of a backend's toolkits, or of a framework; behind all others when it is
        not configured.
        """
        labels = [source.label for source in (self.toolkits[of] if isinstance(of, Backend) else self.frameworks[of])]
        return labels.index(label) if label in labels else len(labels)

    def framework_named(self, kind: FrameworkKind, label: str) -> FrameworkSource:
        """The source of that label, as a lock may name it. Raises :class:`ToolchainError` when it is not configured."""
        return _named(self.frameworks[kind], label)

    def toolkit_named(self, backend: Backend, label: str) -> ComponentSource:
        """The source of that label, as a lock may name it. Raises :class:`ToolchainError` when it is not configured."""
        return _named(self.toolkits[backend], label)

    def local_now(
        self,
        request: ToolchainRequest,
        part: str,
        label: str,
        components: Sequence[Component],
        *,
        was: Artefact | None = None,
    ) -> Taken | None:
        """What the source ``label``, on this machine, has now for a part: its best, or ``was`` where that still is
        there. ``None`` when it no longer has anything.
        """
        if part == request.part:
            own = next((source for source in self.frameworks[request.framework] if source.label == label), None)
            candidates = own.candidates(request)[0] if own else ()
            here = [candidate for candidate in candidates if candidate.root is not None]
            here.sort(key=lambda candidate: (candidate.artefact != was, rank_of(candidate, request.toolkit)))
            found = here[0] if here else None
            if found is None:
                return None
            return found.taken(part)
        if request.toolkit is None:
            return None
        sources = self.toolkits[request.toolkit.backend]
        source = next((source for source in sources if source.label == label), None)
        if source is None:
            return None
        wanted = [component for component in components if component.name == part]
        answer = source.offers(wanted, request.toolkit.version, request.machine).get(part)
        return answer if isinstance(answer, Taken) else None


_Labelled = TypeVar("_Labelled", FrameworkSource, ComponentSource)


def _named(sources: Sequence[_Labelled], label: str) -> _Labelled:
    for source in sources:
        if source.label == label:
            return source
    names = ", ".join(source.label for source in sources) or "none"
    raise ToolchainError(
        f"what a lock lists comes from the source {label!r}, which is not configured here (configured: {names})",
        hint="add it to 'sources' in kernel-builder.toml, or choose again with: kernel-builder lock --upgrade",
    )


def open_sources(
    settings: ToolchainSettings,
    store: Store,
    reporter: Reporter,
    kinds: Kinds,
    *,
    environ: Mapping[str, str],
    offline: bool = False,
    indexes: Mapping[str, Index] | None = None,
) -> Sources:
    """The sources that ``settings`` name, for toolkits of ``kinds``. Nothing is asked yet. ``indexes`` stand in for
    those of their labels.

    Raises :class:`NetworkError` for an address that is none.
    """
    opener = _Opener(settings, store, reporter, kinds, environ, offline, dict(indexes or {}))
    for name in settings.order:
        opener.add(name)
    return opener.sources()


class _Opener:
    def __init__(
        self,
        settings: ToolchainSettings,
        store: Store,
        reporter: Reporter,
        kinds: Kinds,
        environ: Mapping[str, str],
        offline: bool,
        indexes: dict[str, Index],
    ) -> None:
        self._settings = settings
        self._store = store
        self._reporter = reporter
        self._kinds = kinds
        self._environ = environ
        self._offline = offline
        self._recipes = default_recipe().frameworks
        self._given = indexes
        self._frameworks: dict[FrameworkKind, list[FrameworkSource]] = {kind: [] for kind in self._recipes}
        self._toolkits: dict[Backend, list[ComponentSource]] = {backend: [] for backend in kinds}
        self._indexes: list[Index] = []
        self._transports: list[Transport] = []
        self._facts: list[str] = []
        self._at_hand: set[str] = set()
        self._by_project: dict[str, str] = {}

    def add(self, name: str) -> None:
        before = len(self._facts)
        self._open(name)
        if name in self._settings.by_project:
            self._by_project[name] = "; ".join(self._facts[before:])

    def _open(self, name: str) -> None:
        index = None
        repository = next((one for one in self._settings.repositories if one.name == name), None)
        if repository is not None:
            facts = (repository.place, repository.suite, repository.component, repository.keyring, repository.expires)
            self._facts.append(f"{name} {' '.join(map(str, facts))}")
            if repository.place.path is not None:
                self._at_hand.add(name)
        elif name not in BUILT_IN or name == INDEX:
            index = self._given.get(name) or self._open_index(name)
            self._indexes.append(index)
            for kind, recipe in self._recipes.items():
                wheels = FrameworkWheels(index, recipe, stored=self._stored, parts=self._parts)
                self._frameworks[kind].append(wheels)
            self._facts.append(f"{name} {index.fingerprint}")
        elif name == LOCAL:
            for kind, recipe in self._recipes.items():
                self._frameworks[kind].append(LocalFramework(site_packages(self._environ), recipe))
            self._facts.append(name)
            self._at_hand.add(name)
        opening = Opening(
            name=name,
            settings=self._settings,
            environ=self._environ,
            transport=self._transport,
            downloads=self._store.root / DOWNLOADS,
            index=index,
            repository=repository,
        )
        for backend, toolkit in self._kinds.items():
            opened = toolkit.open(opening)
            if opened is None:
                continue
            self._toolkits[backend].append(opened.source)
            if opened.facts:
                self._facts.append(opened.facts)
            if opened.at_hand:
                self._at_hand.add(name)

    def _open_index(self, name: str) -> Index:
        if name == INDEX:
            return SimpleIndex(find_index(self._environ), self._reporter, offline=self._offline)
        place = next(index.place for index in self._settings.indexes if index.name == name)
        if place.path is not None:
            self._at_hand.add(name)
            return FolderIndex(place.path, label=name)
        settings = index_at(place.url or "", name, self._environ)
        return SimpleIndex(settings, self._reporter, label=name, offline=self._offline)

    def _transport(self, place: Place | None, impatient: bool) -> Transport:
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
            first_seconds=FIRST_SECONDS if impatient else None,
        )
        self._transports.append(transport)
        return transport

    def _framework_key(self, taken: Taken) -> StoreKey:
        return _framework_key(taken, self._recipes[FrameworkKind(taken.part)], self._by_project)

    def _stored(self, taken: Taken) -> Path | None:
        key = self._framework_key(taken)
        return self._store.path(key) if self._store.has(key) else None

    @contextmanager
    def _parts(self, taken: Taken) -> Iterator[Path]:
        """The folder for parts of the entry that ``taken`` is to become, for this process alone. It does not stay when
        what arrived was wrong: a later attempt would go on from the same bytes.
        """
        name = self._framework_key(taken).name
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
        debian = self._transport(self._settings.debian_mirror, False)
        return Sources(
            debian=debian,
            frameworks={kind: tuple(sources) for kind, sources in self._frameworks.items()},
            toolkits={backend: tuple(sources) for backend, sources in self._toolkits.items()},
            network=Network(indexes=tuple(self._indexes), transports=tuple(self._transports)),
            fingerprint=digest,
            recipes=self._recipes,
            at_hand=frozenset(self._at_hand),
            by_project=dict(self._by_project),
        )
