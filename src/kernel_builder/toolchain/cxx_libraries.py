"""What clang compiles and links with where no GCC is installed: libstdc++ and the C library out of Debian's packages.

The packages are unpacked into one tree of the store, which clang takes for the root of a machine. Kernels carry
libstdc++ in themselves and are linked against stubs of an older C library, so where they run makes no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.events import Reporter
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.cache import Store, StoreKey, require_space
from kernel_builder.store.offline import OfflineError
from kernel_builder.store.progress import Fetch
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.debian import MAIN, DebianArchive, DebPackage, DebVersion, debian_version, open_archives
from kernel_builder.toolchain.host import Limits
from kernel_builder.toolchain.model import FetchedPart
from kernel_builder.toolchain.recipe import CxxLibrariesRecipe, default_recipe
from kernel_builder.toolchain.settings import DEBIAN, ToolchainSettings

_STEM = "cxx-libraries"
_WANTED = re.compile(
    r"usr/include/.*"
    r"|usr/lib/gcc/[^/]+/\d+/(include/.*|crt\w+\.o|libgcc(_eh)?\.a|libstdc\+\+\.a)"
    r"|(usr/)?lib/\w+-linux-gnu/(\w*crt\w*\.o|libc_nonshared\.a|lib(c|m|mvec|pthread|dl|rt|gcc_s)\.so\.\d+"
    r"|ld-linux-[\w-]+\.so\.\d)"
)
_RECIPE = 1  # raise when something else is taken


def is_cxx_library(artefact: Artefact) -> bool:
    """Whether ``artefact`` is a package that the libraries are made of."""
    return artefact.kind is ArtefactKind.PACKAGE and default_recipe().cxx_libraries.is_part(artefact.name)


@dataclass(frozen=True, kw_only=True)
class CxxLibraries:
    """The libraries for ``machine``, out of the mirrors that ``settings`` name or apt uses."""

    settings: ToolchainSettings
    store: Store
    reporter: Reporter
    transport: Transport
    downloads: Path
    environ: Mapping[str, str]
    machine: str
    offline: bool = False

    @property
    def _recipe(self) -> CxxLibrariesRecipe:
        return default_recipe().cxx_libraries

    def provide(self, gcc: Limits, *, locked: Sequence[Artefact] = (), fresh: bool = False) -> FetchedPart:
        """The libraries of a GCC within ``gcc``, fetched now if the store has none.

        They are made of those in ``locked``, if there are any; with ``fresh`` the newest packages are asked for.
        Raises :class:`ToolchainError` when no mirror has them, :class:`NetworkError`, :class:`OfflineError`,
        :class:`IntegrityError`, :class:`MachineError` (disk).
        """
        majors = {
            suite: major
            for suite, major in self._recipe.suites.items()
            if gcc.oldest <= major and (gcc.newest is None or major <= gcc.newest)
        }
        wanted = tuple(filter(is_cxx_library, locked))
        kept = None if fresh and not wanted and not self.offline else self._kept(set(majors.values()), wanted)
        return kept or self._fetched(majors, wanted)

    def _key(self, artefacts: Sequence[Artefact]) -> StoreKey:
        stem = f"{_STEM}-{self._recipe.major(artefact.name for artefact in artefacts)}-{self.machine}"
        return StoreKey.of(stem, files=sorted(artefact.identity for artefact in artefacts), recipe=_RECIPE)

    def _part(self, artefacts: Sequence[Artefact]) -> FetchedPart:
        major = self._recipe.major(artefact.name for artefact in artefacts)
        return FetchedPart(
            name=f"Debian's libstdc++ {major}",
            key=self._key(artefacts),
            artefacts=tuple(sorted(artefacts, key=lambda artefact: artefact.name)),
        )

    def _kept(self, majors: set[int], wanted: Sequence[Artefact]) -> FetchedPart | None:
        found = [
            part
            for part in self._stored()
            if not wanted or part.key == self._key(wanted)
            if self._recipe.major(artefact.name for artefact in part.artefacts) in majors and self.store.has(part.key)
        ]

        def version(part: FetchedPart) -> list[DebVersion]:
            return [debian_version(artefact.version) for artefact in part.artefacts]

        return max(found, key=version, default=None)

    def _stored(self) -> Iterator[FetchedPart]:
        for name, artefacts in self.store.made_from(f"{_STEM}-*-{self.machine}-*"):
            if artefacts and self._key(artefacts).name == name:
                yield self._part(artefacts)

    def _fetched(self, majors: Mapping[str, int], wanted: Sequence[Artefact]) -> FetchedPart:
        if self.offline:
            raise OfflineError(
                f"Debian's libstdc++ is not in the store ({self.store.root}), but --offline forbids using the network",
                hint="with network access, run: kernel-builder toolchain fetch --host-compiler zig",
            )
        archive, packages = self._choose(majors)
        artefacts = tuple(package.artefact for package in packages)
        if wanted and self._key(artefacts) != self._key(wanted):
            raise ToolchainError(
                "Debian has other packages of libstdc++ and the C library now than those that are locked",
                hint="run 'kernel-builder lock --upgrade' to choose again; a mirror of snapshots may have the others",
            )
        part = self._part(artefacts)
        self.store.ensure(part.key, lambda into: self._fill(archive, packages, into), self.transport.check)
        return part

    def _choose(self, majors: Mapping[str, int]) -> tuple[DebianArchive, tuple[DebPackage, ...]]:
        """The packages of the first suite that some mirror has."""
        reasons: list[str] = []
        if DEBIAN not in self.settings.order:
            reasons.append(f"{DEBIAN} is not among the sources")
        elif DEBIAN in self.settings.by_project:
            reasons.append(
                "the project names the mirror, but only your own settings can choose where compilers come from"
            )
        else:
            try:
                archives = self._archives()
            except ToolchainError as error:
                archives, reasons = (), [error.message]
            for archive in archives:
                for suite, major in majors.items():
                    try:
                        return archive, archive.find_all(self._recipe.packages(major), suite)
                    except IntegrityError:
                        raise
                    except (ToolchainError, NetworkError) as error:
                        reasons.append(error.message)
        raise ToolchainError(
            f"this machine has no libstdc++ to compile with, and Debian's is not available: {'; '.join(reasons)}",
            hint="install one (apt-get install g++; dnf install gcc-c++ libstdc++-static), or set [debian] mirror and"
            " keyring in your own kernel-builder.toml",
        )

    def _archives(self) -> tuple[DebianArchive, ...]:
        return open_archives(
            self.settings,
            self.transport,
            machine=self.machine,
            component=MAIN,
            downloads=self.downloads,
            environ=self.environ,
        )

    def _fill(self, archive: DebianArchive, packages: Sequence[DebPackage], into: Path) -> Sequence[Artefact]:
        progress = Fetch("Debian's libstdc++ and C library", self.reporter)
        require_space(into.parent, sum(package.size + package.installed_size for package in packages))
        progress.expect(sum(package.size for package in packages))
        for package in packages:
            archive.fetch(package, into, lambda name: name if _WANTED.fullmatch(name) else None, progress.add)
        progress.finish()
        return tuple(package.artefact for package in packages)
