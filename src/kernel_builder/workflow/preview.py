"""Variants as they will be packed, seen before they are built: the files of the package and the metadata."""

from __future__ import annotations

import json
import os
import stat
from functools import cached_property
from pathlib import PurePosixPath

from kernel_builder.check.subject import EntryKind, Listing, PythonTree, SourceTree, TreeEntry, VariantDir
from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Project
from kernel_builder.plan.metadata import describe
from kernel_builder.project.identity import Identity
from kernel_builder.project.tree import package_files
from kernel_builder.variants.matrix import Kept, all_variants
from kernel_builder.variants.support import load_support

_NOBODY = Identity(unique="0000000", commit=None, dirty=False)
"""Who the kernel is does not matter to what is looked at here."""


class Preview(VariantDir):
    """A variant without its library and what is generated. Its paths are those of the sources."""

    def __init__(self, project: Project, kept: Kept, files: tuple[str, ...], source: SourceTree) -> None:
        """``files`` of the package are packed; ``source`` is the project as rules see it."""
        super().__init__(project.package, project.package.relative_to(project.root).as_posix(), source=source)
        self._project, self._kept, self._files = project, kept, files

    @property
    def name(self) -> str:
        """The name that the directory will have."""
        return self._kept.name

    @cached_property
    def listing(self) -> Listing:
        """What is copied. Links count as what they lead to."""
        folders = {str(parent) for file in self._files for parent in PurePosixPath(file).parents} - {"."}
        entries = [TreeEntry(relative=folder, kind=EntryKind.DIRECTORY) for folder in folders]
        entries += [self._entry(file) for file in self._files]
        return Listing(entries=tuple(sorted(entries, key=lambda entry: os.fsencode(entry.relative))), complete=True)

    def _entry(self, file: str) -> TreeEntry:
        try:
            status = (self.path / file).stat()
        except OSError:
            return TreeEntry(relative=file, kind=EntryKind.OTHER)
        kind = EntryKind.FILE if stat.S_ISREG(status.st_mode) else EntryKind.OTHER
        return TreeEntry(relative=file, kind=kind, size=status.st_size, mode=status.st_mode)

    @cached_property
    def metadata_bytes(self) -> bytes:
        """What ``metadata.json`` will say, but for digests and identity."""
        return json.dumps(describe(self._project, self._kept.backend, _NOBODY, archs=self._architectures())).encode()

    def _architectures(self) -> tuple[str, ...]:
        listed = self._project.framework.architectures.get(self._kept.backend, ())
        return tuple(map(str, listed))

    @cached_property
    def python(self) -> PythonTree:
        """The package's Python files."""
        return PythonTree(root=self.path, shown=self.shown, name=self._project.python_name, depends=None, variant=self)


def previews(source: SourceTree) -> tuple[Preview, ...]:
    """One variant for each backend: the others of a backend have the same files and metadata.

    Raises :class:`ConfigError` for a file that cannot be packed.
    """
    project = source.project
    if project is None:
        return ()
    files = package_files(project).kept
    first: dict[Backend, Kept] = {}
    for kept in all_variants(project, load_support(), None).kept:
        first.setdefault(kept.backend, kept)
    return tuple(Preview(project, kept, files, source) for kept in first.values())
