"""Puts resolved toolchains on disk: entries of the store with headers and tables, and the link stubs made from them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import IntegrityError, ToolchainError
from kernel_builder.events import Reporter
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.store.parallel import run_all
from kernel_builder.store.progress import Fetch
from kernel_builder.toolchain.choice import Taken, ToolkitTree
from kernel_builder.toolchain.kinds import Kinds
from kernel_builder.toolchain.link_tables import write_stubs
from kernel_builder.toolchain.model import HostCompiler, Toolkit
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.resolved import ResolvedToolchain
from kernel_builder.toolchain.sources import PARTS, Sources

_WORKERS = 4  # entries that are provided at once


@dataclass(frozen=True, kw_only=True)
class _Tree:
    """An entry of the store with tables of libraries, and the one with the stubs that are made from them."""

    host: HostCompiler
    key: StoreKey
    stubs: StoreKey
    build: Callable[[Path], Sequence[Artefact]]
    compiler: bool = False


class Trees:
    """Provides the entries of toolchains out of ``sources``. ``environ`` are the variables that compilers run with."""

    def __init__(
        self, sources: Sources, store: Store, kinds: Kinds, reporter: Reporter, environ: Mapping[str, str]
    ) -> None:
        self._sources = sources
        self._store = store
        self._kinds = kinds
        self._reporter = reporter
        self._environ = environ
        self._weights: dict[StoreKey, Mapping[str, int]] = {}

    def provide(self, wanted: Sequence[ResolvedToolchain]) -> None:
        """Fetch what is missing, verified, and make the link stubs; what they share is fetched once. The first failure
        ends all of them. Raises as :meth:`Toolchains.provide_all` does.
        """
        trees = {tree.stubs: tree for resolved in wanted for tree in self._trees(resolved)}
        # The compilers first: they take longest.
        ordered = sorted(trees.values(), key=lambda tree: (not tree.compiler, tree.key.name))
        run_all(
            [partial(self._provide_tree, tree) for tree in ordered],
            transfers=self._sources.network,
            workers=_WORKERS,
        )

    def _trees(self, resolved: ResolvedToolchain) -> list[_Tree]:
        framework, *others = resolved.chain.taken
        trees = [
            _Tree(
                host=resolved.host,
                key=resolved.framework_key,
                stubs=resolved.framework_stubs_key,
                build=partial(self._build_framework, resolved.framework_key, framework),
            )
        ]
        toolkit = resolved.request.toolkit
        if toolkit is not None and resolved.toolkit_key is not None and resolved.toolkit_stubs_key is not None:
            trees.append(
                _Tree(
                    host=resolved.host,
                    key=resolved.toolkit_key,
                    stubs=resolved.toolkit_stubs_key,
                    build=partial(self._build_toolkit, resolved.toolkit_key, toolkit, others),
                    compiler=True,
                )
            )
        return trees

    def weigh(self, resolved: ResolvedToolchain) -> Mapping[str, int]:
        """About how many bytes are still to be fetched of each file that ``resolved`` is made from, by its name.

        Raises :class:`NetworkError`: the directories of wheels are read.
        """
        framework, *others = resolved.chain.taken
        bytes_of = dict.fromkeys((taken.artefact.filename for taken in resolved.chain.taken), 0)
        bytes_of.update(self._once(resolved.framework_key, partial(self._weigh_framework, framework)))
        toolkit = resolved.request.toolkit
        if toolkit is not None and resolved.toolkit_key is not None:
            bytes_of.update(self._once(resolved.toolkit_key, partial(self._weigh_toolkit, toolkit, others)))
        return bytes_of

    def _once(self, key: StoreKey, weigh: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
        """What is fetched for an entry of the store, which several toolchains may share."""
        if self._store.has(key):
            return {}
        if key not in self._weights:
            self._weights[key] = weigh()
        return self._weights[key]

    def _weigh_framework(self, taken: Taken) -> Mapping[str, int]:
        if self._sources.is_at_hand(taken.source):
            return {taken.artefact.filename: 0}
        source = self._sources.framework_named(FrameworkKind(taken.part), taken.source)
        return {taken.artefact.filename: source.weigh(taken)}

    def _weigh_toolkit(self, toolkit: Toolkit, taken: Iterable[Taken]) -> Mapping[str, int]:
        bytes_of: dict[str, int] = {}
        for label, parts in self._by_source(toolkit, taken).items():
            if not self._sources.is_at_hand(label):
                source = self._sources.toolkit_named(toolkit.backend, label)
                with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
                    bytes_of.update(source.weigh(parts, Path(scratch)))
        return bytes_of

    def _by_source(self, toolkit: Toolkit, taken: Iterable[Taken]) -> Mapping[str, Sequence[tuple[Component, Taken]]]:
        components = {c.name: c for c in self._kinds[toolkit.backend].recipe.components(toolkit.version)}
        by_source: dict[str, list[tuple[Component, Taken]]] = {}
        for part in taken:
            by_source.setdefault(part.source, []).append((components[part.part], part))
        return by_source

    def _provide_tree(self, tree: _Tree) -> None:
        check = self._sources.network.check
        entry = self._store.ensure(tree.key, tree.build, check)

        def stubs(into: Path) -> Sequence[Artefact]:
            write_stubs(entry, into, tree.host, self._environ)
            return ()

        self._store.ensure(tree.stubs, stubs, check)

    def _build_framework(self, key: StoreKey, taken: Taken, into: Path) -> Sequence[Artefact]:
        what = f"{taken.part} {taken.artefact.version}"
        with fetching(self._store, self._reporter, what, key) as (scratch, progress):
            source = self._sources.framework_named(FrameworkKind(taken.part), taken.source)
            made_from = source.fill(taken, scratch=scratch, progress=progress, into=into)
            maker = self._kinds[taken.build].torch_maker if taken.build is not None else None
            if maker is not None and self._sources.must_be_made(taken):
                maker.make(taken.artefact.version, into, self._environ)
            return made_from

    def _build_toolkit(self, key: StoreKey, toolkit: Toolkit, taken: Sequence[Taken], into: Path) -> Sequence[Artefact]:
        """Everything that the sources give in one tree, which is then seen to work."""
        kind = self._kinds[toolkit.backend]
        by_source = self._by_source(toolkit, taken)

        def fill(label: str, parts: Sequence[tuple[Component, Taken]]) -> Sequence[Artefact]:
            what = str(toolkit) if len(by_source) == 1 else f"{toolkit} ({label})"
            with fetching(self._store, self._reporter, what, key, label) as (scratch, progress):
                tree = ToolkitTree(version=toolkit.version, into=into, scratch=scratch, progress=progress)
                return self._sources.toolkit_named(toolkit.backend, label).fill(parts, tree)

        filled = run_all(
            [partial(fill, label, parts) for label, parts in by_source.items()], transfers=self._sources.network
        )
        kind.complete(toolkit, taken, into, self._environ)
        shutil.rmtree(self._store.root / PARTS / key.name, ignore_errors=True)
        return [artefact for artefacts in filled for artefact in artefacts]


@contextmanager
def fetching(
    store: Store, reporter: Reporter, what: str, key: StoreKey, part: str = ""
) -> Iterator[tuple[Path, Fetch]]:
    """A scratch directory for the entry that is being built, and who hears about bytes.

    The entry's lock is held, so the directory is its alone. It stays when the network fails or the process dies,
    and the next attempt goes on with what is in it; not when what arrived was wrong.
    """
    scratch = store.root / PARTS / key.name / part
    scratch.mkdir(parents=True, exist_ok=True)
    progress = Fetch(what, reporter)
    try:
        yield scratch, progress
    except (IntegrityError, ToolchainError):
        shutil.rmtree(scratch)
        raise
    shutil.rmtree(scratch)
    progress.finish()
