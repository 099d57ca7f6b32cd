"""What a request is met with, as values: the exact files, and every path that providing them will make."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.toolchain.choice import Chain, Taken, ToolchainRequest
from kernel_builder.toolchain.kinds import Kinds
from kernel_builder.toolchain.link_tables import EXPORTS
from kernel_builder.toolchain.model import FrameworkSdk, HostCompiler, ProjectPart, ToolkitSdk
from kernel_builder.toolchain.sources import Sources
from kernel_builder.variants.names import System

_STUB_RECIPE = 1  # raise when stubs come out differently from the same tables


@dataclass(frozen=True, kw_only=True)
class ResolvedToolchain:
    """What a request is met with: the exact files, and the final values whose directories are made when it is provided.

    ``chain`` says which part comes from where, the framework first, and what was refused. ``host`` is the compiler that
    fits. ``by_project`` are the parts whose source the project itself names.
    ``expected_bytes`` is 0 when everything is in the store, ``None`` when something must be fetched (how much is known
    only once the wheels' directories are read).
    """

    request: ToolchainRequest
    host: HostCompiler
    framework: FrameworkSdk
    toolkit: ToolkitSdk | None
    chain: Chain = field(repr=False)
    expected_bytes: int | None
    framework_key: StoreKey
    framework_stubs_key: StoreKey
    toolkit_key: StoreKey | None
    toolkit_stubs_key: StoreKey | None
    by_project: tuple[ProjectPart, ...] = ()

    @property
    def fetched_keys(self) -> tuple[StoreKey, ...]:
        """The entries of the store that come from elsewhere; the others are made from these on this machine."""
        toolkit = () if self.toolkit_key is None else (self.toolkit_key,)
        return (self.framework_key, *toolkit, *(package.key for package in self.host.packages))

    @property
    def artefacts(self) -> tuple[Artefact, ...]:
        """The files that it is made from, the framework first, each once, as far as their source describes them."""
        parts = [taken.artefact for taken in self.chain.taken]
        return tuple(dict.fromkeys([*parts, *(one for package in self.host.packages for one in package.artefacts)]))


@dataclass(frozen=True, kw_only=True)
class Provided:
    """The same values as in :class:`ResolvedToolchain`, now with everything they name on disk."""

    framework: FrameworkSdk
    toolkit: ToolkitSdk | None


class Describer:
    """Turns decisions into :class:`ResolvedToolchain`: store paths follow from the digests of what was chosen."""

    def __init__(self, sources: Sources, store: Store, kinds: Kinds) -> None:
        self._sources = sources
        self._store = store
        self._kinds = kinds

    @property
    def recipes(self) -> str:
        """A text that changes with what is taken from where."""
        frameworks = (recipe.digest for recipe in self._sources.recipes.values())
        digests = [*frameworks, *(kind.recipe.digest for kind in self._kinds.values())]
        return " ".join(digests)

    def describe(self, request: ToolchainRequest, host: HostCompiler, chain: Chain) -> ResolvedToolchain:
        """The toolchain that is made of what ``chain`` took."""
        framework, *others = chain.taken
        framework_key = self._sources.framework_key(framework)
        framework_stubs = self._stubs_key(framework_key, host)
        keys = [framework_key]
        toolkit: ToolkitSdk | None = None
        tree: StoreKey | None = None
        stubs: StoreKey | None = None
        if request.toolkit is not None:
            kind = self._kinds[request.toolkit.backend]
            tree = StoreKey.of(
                f"{request.toolkit.backend.value}-{request.toolkit.version}",
                parts=sorted(f"{part.part} {self._sources.identity_of(part)}" for part in others),
                recipe=kind.recipe.digest,
            )
            stubs = self._stubs_key(tree, host)
            keys.append(tree)
            toolkit = kind.describe(request.toolkit, others, self._store.path(tree), self._store.path(stubs))
        return ResolvedToolchain(
            request=request,
            host=host,
            framework=self._framework_sdk(
                request, framework, self._store.path(framework_key), self._store.path(framework_stubs)
            ),
            toolkit=toolkit,
            chain=chain,
            expected_bytes=0 if all(self._store.has(key) for key in keys) else None,
            framework_key=framework_key,
            framework_stubs_key=framework_stubs,
            toolkit_key=tree,
            toolkit_stubs_key=stubs,
            by_project=self._sources.parts_by_project(chain.taken),
        )

    def _framework_sdk(self, request: ToolchainRequest, taken: Taken, entry: Path, stubs: Path) -> FrameworkSdk:
        backend = request.toolkit.backend if request.toolkit is not None else None
        recipe = self._sources.recipes[request.framework].of(taken.build)
        names = sorted(library.soname for library in recipe.libraries if library.backend in {None, backend})
        if request.system is System.DARWIN:
            names = []
        root = entry if taken.root is None else taken.root
        # What is used in place was measured when it was chosen: its identity is part of the entry's key.
        return FrameworkSdk(
            version=taken.artefact.version.partition("+")[0],
            include=tuple(root / folder for folder in recipe.include_directories),
            libraries=stubs,
            exports=tuple(entry / EXPORTS / f"{name}.txt" for name in names),
            identity=entry.name,
            kind=request.framework,
            build=taken.build,
            made=self._sources.must_be_made(taken),
            package=root,
        )

    def _stubs_key(self, tables: StoreKey, host: HostCompiler) -> StoreKey:
        return StoreKey.of(f"{tables.stem}-stubs", tables=tables.digest, target=host.target, recipe=_STUB_RECIPE)
