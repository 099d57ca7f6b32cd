"""What the makers of actions know about the variant that they work for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_builder.actions.model import Tool, Tree
from kernel_builder.actions.places import Places
from kernel_builder.actions.units import Unit
from kernel_builder.config.model import FrameworkKind
from kernel_builder.toolchain.model import HostCompiler, Toolchain, ToolkitSdk
from kernel_builder.variants.build_type import RELEASE, BuildType


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Directories of one variant's build, all absolute.

    ``registration`` is the directory whose ``registration.h`` counts; its last part is that of the framework's
    directory, so that ``../torch-ext/registration.h`` finds the same file. ``refused`` holds stand-ins for headers that
    cannot be used. ``csrc`` is the project's directory of that name, if there is one.
    """

    root: Path
    work: Path
    variant: Path
    registration: Path
    refused: Path
    exports_map: Path
    csrc: Path | None

    def object_for(self, source: str) -> Path:
        """``a/util.cpp`` -> ``<variant>/obj/a/util.cpp.o``: the whole relative path, so equal names never meet."""
        return self.variant / "obj" / f"{source}.o"

    def log_for(self, name: str) -> Path:
        """Where the output of an action goes."""
        return self.variant / "log" / f"{name}.log"


@dataclass(frozen=True, kw_only=True)
class Context:
    """Everything that is needed to make the actions of one variant.

    ``ops_name`` is its ops id but for the unique part.
    ``define`` gives the framework's definitions (``NAME=value``) for a source. ``heavy`` are the sources that include
    all of the framework's headers, for which a compiler needs two to three times as much memory (DESIGN.md F10).
    ``precompiled`` are the sources whose first headers of the framework are precompiled, with the names of these.
    ``slim`` are the sources that are compiled with slim headers of the framework, with what is defined for
    these; where ``verify`` is set, that must make the same code as the whole headers.
    ``sources`` is the tree of the project's own files: its identity says which names can be included. ``included`` are
    these files: those that compilers may read. ``units`` are all that the library is made of. ``environ`` is the user's
    environment. ``macos`` is the oldest macOS that a variant for it runs on, ``frameworks`` are Apple's that it is
    linked with. ``build_type`` is what it is built for.
    """

    variant: str
    places: Places
    layout: Layout
    toolchain: Toolchain
    cxx_standard: int
    cxx11_abi: bool
    define: Callable[[str], tuple[str, ...]]
    heavy: frozenset[str]
    precompiled: Mapping[str, tuple[str, ...]]
    sources: Tree
    included: tuple[str, ...] = ()
    units: tuple[Unit, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    slim: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    verify: bool = False
    ops_name: str = ""
    macos: str = ""
    frameworks: tuple[str, ...] = ()
    build_type: BuildType = RELEASE

    @property
    def host(self) -> HostCompiler:
        """The host compiler."""
        return self.toolchain.host

    @property
    def cxx(self) -> Tool:
        """The host compiler as a tool."""
        host = self.host
        return Tool(name="c++", path=host.cxx, digest=host.digest, headers=host.headers, shared=host.shared)

    def clang_of(self, name: str, toolkit: ToolkitSdk) -> Tool:
        """The compiler of ``toolkit``, a clang, as the tool ``name``: it compiles with the headers of a g++ here."""
        host = self.host
        return Tool(name=name, path=toolkit.compiler, digest=toolkit.identity, headers=host.headers, shared=host.shared)

    @property
    def is_for_torch(self) -> bool:
        """Whether the kernel is one of torch's, which gets definitions that others do not (contract 3.5)."""
        return self.toolchain.framework.kind is FrameworkKind.TORCH

    @property
    def toolkit(self) -> ToolkitSdk | None:
        """The toolkit of the variant's backend, if it has one."""
        return self.toolchain.toolkit

    def trees(self, *libraries: str) -> tuple[Tree, ...]:
        """What a compile may read: the project, the framework, the toolkit, and the named libraries."""
        if libraries not in self._known_trees:
            self._known_trees[libraries] = self._trees(libraries)
        return self._known_trees[libraries]

    def _trees(self, libraries: tuple[str, ...]) -> tuple[Tree, ...]:
        toolchain = self.toolchain
        trees = [
            self.sources,
            _tree(
                toolchain.framework.kind.value, toolchain.framework.identity, toolchain.framework.include, self.places
            ),
        ]
        if toolchain.toolkit is not None:
            toolkit = toolchain.toolkit
            trees.append(_tree("toolkit", toolkit.identity, toolkit.include, self.places, toolkit.own_folders))
        trees += [
            _tree(library.name, str(library.include[0].relative_to(self.places.store)), library.include, self.places)
            for library in toolchain.libraries
            if library.name in libraries
        ]
        if toolchain.sdk is not None:
            sdk = toolchain.sdk
            trees.append(Tree(name="sdk", identity=sdk.identity, root=sdk.root, folders=(sdk.root,)))
        if toolchain.python is not None:
            python = toolchain.python
            trees.append(Tree(name="python", identity=python.identity, root=python.include, folders=python.folders))
        return tuple(trees)

    def trees_named(self, *names: str) -> tuple[Tree, ...]:
        """Those of :meth:`trees` that have one of these names."""
        return tuple(tree for tree in self.trees() if tree.name in names)

    def word(self, path: Path) -> str:
        """The word for ``path``, wherever it lies."""
        if path not in self._known_words:
            names = (library.name for library in self.toolchain.libraries)
            self._known_words[path] = self.places.word(path, self.trees(*names))
        return self._known_words[path]

    # Every source of a variant asks for the same: a project can have thousands of them.
    @functools.cached_property
    def _known_trees(self) -> dict[tuple[str, ...], tuple[Tree, ...]]:
        return {}

    @functools.cached_property
    def _known_words(self) -> dict[Path, str]:
        return {}


def _tree(name: str, identity: str, include: tuple[Path, ...], places: Places, others: tuple[Path, ...] = ()) -> Tree:
    """A tree of headers, some of them in ``others``; outside of the store it has a place of its own."""
    outside = include and not include[0].is_relative_to(places.store)
    return Tree(name=name, identity=identity, root=include[0] if outside else None, folders=(*include, *others))
