"""Frameworks of the active environment (torch, tvm-ffi), used where they lie.

The store holds only what is made from one (tables of names), under a key that follows the identity of its files, so
that an update in place is noticed.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from kernel_builder.config.backends import Backend
from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.progress import Progress
from kernel_builder.toolchain.choice import FrameworkCandidate, FrameworkFacts, Refused, Taken, ToolchainRequest
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.identity import tree_identity
from kernel_builder.toolchain.link_tables import read_local_symbols, write_table
from kernel_builder.toolchain.recipe import FrameworkRecipe
from kernel_builder.toolchain.settings import LOCAL
from kernel_builder.toolchain.torch_abi import prove_abi
from kernel_builder.variants.names import System


class LocalFramework:
    """A framework of the active environment. A :class:`~kernel_builder.toolchain.choice.FrameworkSource`.

    ``folders`` are ``site-packages`` directories; see :func:`site_packages`.
    """

    label = LOCAL

    def __init__(self, folders: Sequence[Path], recipe: FrameworkRecipe) -> None:
        self._folders = folders
        self._recipe = recipe

    def candidates(self, request: ToolchainRequest) -> tuple[Sequence[FrameworkCandidate], Sequence[Refused]]:
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`."""
        candidates: list[FrameworkCandidate] = []
        refused: list[Refused] = []
        build = self._recipe.own_build(request.toolkit.backend) if request.toolkit is not None else None
        for folder in self._folders:
            root = folder / self._recipe.package
            version = _version_in(folder / self._recipe.version_file)
            if version is None:
                continue
            reason = self._unfit(root, version, request, build)
            if reason is not None:
                refused.append(Refused(part=request.part, source=LOCAL, candidate=str(root), reason=reason))
                continue
            artefact = Artefact(
                name=self._recipe.project,
                version=str(version),
                filename=f"site-packages/{self._recipe.package}",
                kind=ArtefactKind.LOCAL,
                sha256=self._identity(folder, version),
                source=LOCAL,
            )
            candidates.append(FrameworkCandidate(version=version, artefact=artefact, root=root, build=build))
        if not candidates and not refused:
            reason = f"no environment here has {self._recipe.project}"
            wanted = f"{self._recipe.kind.value} {request.release}"
            refused.append(Refused(part=request.part, source=LOCAL, candidate=wanted, reason=reason))
        return candidates, refused

    def _unfit(self, root: Path, version: Version, request: ToolchainRequest, build: Backend | None) -> str | None:
        recipe = self._recipe.of(build)
        lacking = [
            library.member
            for library in recipe.libraries
            if library.backend is None and not (root.parent / library.member).is_file()
        ]
        if f"{version.major}.{version.minor}" != request.release:
            return f"it is {self._recipe.kind.value} {version}"
        if request.machine != build_machine():
            return f"it is for {build_machine()}"
        if request.system is System.DARWIN:
            return "kernels for macOS are compiled with the headers of a wheel"
        if not recipe.serves(version.local, *request.compute):
            return f"{version.local or 'these'} builds have different headers"
        if not self._has_headers(root):
            return "it has no C++ headers"
        return f"it lacks {', '.join(lacking)}" if lacking else None

    def _has_headers(self, root: Path) -> bool:
        return any((root / self._recipe.include_directories[0]).rglob("*.h"))

    def _identity(self, folder: Path, version: Version) -> str:
        """A digest that changes when the package is replaced, or one of its headers or libraries changes in its
        place.
        """
        root = folder / self._recipe.package
        files = [*sorted((root / "lib").glob("*.so*")), folder / self._recipe.version_file]
        files += sorted(folder.glob(f"{self._recipe.project.replace('-', '_')}-*.dist-info/RECORD"))
        digest = hashlib.sha256(f"{root} {version}\n".encode())
        digest.update(tree_identity(files, [root / "include"]).encode())
        return digest.hexdigest()

    def facts(self, candidate: FrameworkCandidate) -> FrameworkFacts:
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`."""
        root = _root_of(candidate.root)
        abi = None
        library = root / "lib" / (self._recipe.abi_library or "")
        if library.is_file():
            abi = prove_abi(symbol.name for symbol in read_local_symbols(library, leading=False)[1])
        return FrameworkFacts(
            abi=abi,
            backends=self._recipe.of(candidate.build).backends_with(
                lambda library: (root / "lib" / library.soname).is_file()
            ),
            has_headers=self._has_headers(root),
        )

    def weigh(self, taken: Taken) -> int:  # noqa: ARG002
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`: nothing."""
        return 0

    def fill(self, taken: Taken, *, scratch: Path, progress: Progress, into: Path) -> Sequence[Artefact]:  # noqa: ARG002
        """See :class:`~kernel_builder.toolchain.choice.FrameworkSource`: tables alone."""
        root = _root_of(taken.root)
        progress.expect(0)
        for library in self._recipe.of(taken.build).libraries:
            path = root / "lib" / library.soname
            if library.backend is None or path.is_file():
                write_table(into, *read_local_symbols(path, leading=library.leading))
        return (taken.artefact,)


def _root_of(root: Path | None) -> Path:
    if root is None:
        raise ToolchainError("a framework of this machine without its place")
    return root


def _version_in(file: Path) -> Version | None:
    try:
        match = re.search(r"^__version__ = .*?['\"]([^'\"]+)['\"]", file.read_text(encoding="utf-8"), re.MULTILINE)
        return Version(match[1]) if match else None
    except (OSError, InvalidVersion, UnicodeDecodeError):
        return None


def site_packages(environ: Mapping[str, str], prefix: Path | None = None) -> tuple[Path, ...]:
    """``site-packages`` of the active environment (``VIRTUAL_ENV``, ``CONDA_PREFIX``) and of this Python."""
    prefixes = [Path(environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    prefixes.append(Path(sys.prefix) if prefix is None else prefix)
    found = [folder for place in prefixes for folder in sorted(place.glob("lib/python3*/site-packages"))]
    return tuple(dict.fromkeys(found))
