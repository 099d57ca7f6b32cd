"""What sources of toolkits on this machine have in common.

They are used where they lie. The store holds only what is made from them (tables of names), under a key that follows
the identity of their files, so that an update in place is noticed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.toolchain.choice import Refused, Taken, ToolkitTree, whole_files
from kernel_builder.toolchain.link_tables import read_local_symbols, write_table
from kernel_builder.toolchain.recipe import Component, LibraryRecipe
from kernel_builder.toolchain.settings import LOCAL

FindLibrary = Callable[[LibraryRecipe, Taken], Path | None]
"""Where a library of a part that was taken lies; ``None`` where it does not."""


class LocalComponents(ABC):
    """Toolkits on this machine. All of a :class:`~kernel_builder.toolchain.choice.ComponentSource` but its offers."""

    label = LOCAL
    whole = True

    @abstractmethod
    def _libraries(self, version: str) -> FindLibrary:
        """What finds libraries of the toolkit of ``version``. Raises :class:`ToolchainError` where it is gone."""

    @staticmethod
    def _take(component: Component, version: str, filename: str, identity: str, root: Path) -> Taken:
        artefact = Artefact(
            name=component.name,
            version=version,
            filename=filename,
            kind=ArtefactKind.LOCAL,
            sha256=identity,
            source=LOCAL,
        )
        return Taken(part=component.name, source=LOCAL, artefact=artefact, root=root)

    @staticmethod
    def _refuse(component: Component, candidate: str, reason: str) -> Refused:
        return Refused(part=component.name, source=LOCAL, candidate=candidate, reason=reason)

    def weigh(self, parts: Sequence[tuple[Component, Taken]], scratch: Path) -> Mapping[str, int]:  # noqa: ARG002
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        return whole_files(parts)

    def fill(self, parts: Sequence[tuple[Component, Taken]], tree: ToolkitTree) -> Sequence[Artefact]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`: tables alone."""
        find = self._libraries(tree.version)
        tree.progress.expect(0)
        for component, taken in parts:
            for library in component.libraries:
                path = find(library, taken)
                if path is not None:
                    write_table(tree.into, library.soname, read_local_symbols(path, leading=library.leading)[1])
        return [taken.artefact for _, taken in parts]
