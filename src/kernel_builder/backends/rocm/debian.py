"""ROCm out of Debian's archive: a real compiler for AMD's GPUs where nothing of AMD's is installed.

Debian packages the parts one by one, from several releases of ROCm: what they compile is a proof that a kernel
compiles, links and loads, and no build for a release of ROCm. So nothing of it is published. The programs bring their
own C library, since those of Debian's development suite need a newer one than most machines have.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.backends.rocm.layout import LIBRARIES
from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.cache import require_space
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.choice import Refused, Taken, ToolkitTree
from kernel_builder.toolchain.debian import MAIN, DebianArchive, DebPackage
from kernel_builder.toolchain.debian_components import DebianComponents
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.link_tables import read_local_symbols, write_table
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.settings import DEBIAN, ToolchainSettings
from kernel_builder.variants.names import Machine

NOT_A_RELEASE = (
    "its compiler and headers are Debian's, from several releases of ROCm, none of which is the one in its name"
)
"""Why what it compiles must not be published."""

SUITES = ("sid",)
"""The suites that have all packages, in the order to try."""
_LLVM = "21"
_RUN_TIME = (
    *(f"libclang-cpp{_LLVM}", f"libllvm{_LLVM}", "libc6", "libstdc++6", "libgcc-s1", "libedit2", "libffi8"),
    *("libxml2-16", "libz3-4", "libzstd1", "zlib1g", "libtinfo6", "libbsd0", "libmd0", "liblzma5"),
)
"""What the programs need to run."""
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "compiler": (f"clang-{_LLVM}", f"lld-{_LLVM}", f"clang-tools-{_LLVM}", f"libclang-common-{_LLVM}-dev", *_RUN_TIME),
    "device-libs": (f"rocm-device-libs-{_LLVM}",),
    "hip": ("libamdhip64-dev",),
    "runtime": ("libamdhip64-6",),
    "hsa": ("libhsa-runtime-dev",),
    "comgr": ("libamd-comgr-dev",),
    "rocprim": ("librocprim-dev",),
    "hipcub": ("libhipcub-dev",),
    "rocthrust": ("librocthrust-dev",),
    "hipblas-common": ("libhipblas-common-dev",),
    "hipblas": ("libhipblas-dev",),
    "hipblaslt": ("libhipblaslt-dev",),
    "rocblas": ("librocblas-dev",),
    "hipsparse": ("libhipsparse-dev",),
    "rocsparse": ("librocsparse-dev",),
    "hipsolver": ("libhipsolver-dev",),
    "rocsolver": ("librocsolver-dev",),
    "hiprand": ("libhiprand-dev",),
    "rocrand": ("librocrand-dev",),
    "hipfft": ("libhipfft-dev",),
}
"""Component -> the packages that make it up."""
_MAJORS = ("6", "7")
_LIBRARY = re.compile(r"(?:usr/)?lib/x86_64-linux-gnu/(?P<name>[^/]+\.so[^/]*)")
_LINKER = re.compile(r"(?:usr/)?lib(?:64|/x86_64-linux-gnu)/(?P<name>ld-linux-x86-64\.so\.2)")
_PROGRAM = re.compile(rf"usr/lib/llvm-{_LLVM}/(?P<path>bin/(?:clang|lld|clang-offload-bundler)|lib/clang/.+)")
_HEADER = re.compile(r"usr/(?P<path>include/.+)")


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """The packages of one component, as one suite of one mirror has them."""

    archive: DebianArchive
    packages: tuple[DebPackage, ...]

    def artefact(self, component: Component) -> Artefact:
        """All of them as one: its digest is over theirs."""
        first = self.packages[0]
        digest = hashlib.sha256("\n".join(f"{one.name} {one.sha256}" for one in self.packages).encode())
        more = f" and {len(self.packages) - 1} others" if len(self.packages) > 1 else ""
        return Artefact(
            name=component.name,
            version=first.version,
            filename=f"{first.artefact.filename}{more}",
            kind=ArtefactKind.PACKAGE,
            size=sum(one.size for one in self.packages),
            sha256=digest.hexdigest(),
            source=DEBIAN,
        )


class RocmDebian(DebianComponents):
    """Debian's packages of ROCm. A :class:`~kernel_builder.toolchain.choice.ComponentSource`.

    They are used only where the settings ask for this source by name.
    """

    component = MAIN
    whole = True

    def __init__(
        self, settings: ToolchainSettings, transport: Transport, downloads: Path, environ: Mapping[str, str]
    ) -> None:
        super().__init__(settings, transport, downloads, environ)
        self._found: dict[str, _Parts | str] = {}

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        reason = self._why_not(version, machine)
        answers: dict[str, Taken | Refused] = {}
        for component in components:
            found = reason or self._parts(component.name)
            if isinstance(found, str):
                candidate = PACKAGES.get(component.name, (component.name,))[0]
                answers[component.name] = Refused(part=component.name, source=DEBIAN, candidate=candidate, reason=found)
            else:
                answers[component.name] = Taken(part=component.name, source=DEBIAN, artefact=found.artefact(component))
        return answers

    def _why_not(self, version: str, machine: Machine) -> str | None:
        if self._settings.usual:
            return (
                "builds with Debian's packages are for trying out and cannot be published: list 'debian' in sources "
                "(kernel-builder.toml, or --source) to use them"
            )
        if version.partition(".")[0] not in _MAJORS:
            return f"they are near ROCm {' and '.join(_MAJORS)} only"
        if machine is not Machine.X86_64 or build_machine() != machine:
            return f"they are for {Machine.X86_64.value}"
        return None

    def _parts(self, component: str) -> _Parts | str:
        """The packages of a component, or why they are not to be had. All components are looked for at once."""
        if not self._found:
            self._found = dict(self._search())
        return self._found.get(component, "Debian has no package of it")

    def _search(self) -> Mapping[str, _Parts | str]:
        names = list(dict.fromkeys(name for names in PACKAGES.values() for name in names))
        reasons: list[str] = []
        try:
            archives = self._archives
        except ToolchainError as error:
            return dict.fromkeys(PACKAGES, error.message)
        for suite in self._settings.debian_suites or SUITES:
            for archive in archives:
                try:
                    found = {package.name: package for package in archive.find_all(names, suite)}
                except ToolchainError as error:
                    reasons.append(error.message)
                    continue
                return {
                    component: _Parts(archive=archive, packages=tuple(found[name] for name in wanted))
                    for component, wanted in PACKAGES.items()
                }
        return dict.fromkeys(PACKAGES, "; ".join(dict.fromkeys(reasons)))

    def fill(self, parts: Sequence[tuple[Component, Taken]], tree: ToolkitTree) -> Sequence[Artefact]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`.

        Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` (disk).
        """
        located = [self._locate(component, taken) for component, taken in parts]
        packages = [package for found in located for package in found.packages]
        require_space(tree.into.parent, sum(package.size + package.installed_size for package in packages))
        tree.progress.expect(sum(package.size for package in packages))
        for (component, _), found in zip(parts, located, strict=True):
            for package in found.packages:
                self._fetch(found.archive, package, component, tree)
        return [taken.artefact for _, taken in parts]

    def _locate(self, component: Component, taken: Taken) -> _Parts:
        found = self._parts(component.name)
        if isinstance(found, str):
            raise ToolchainError(f"Debian's packages of ROCm are no longer available: {found}")
        now = found.artefact(component)
        if now.sha256 != taken.artefact.sha256:
            raise ToolchainError(
                f"Debian has other packages of {component.name} now ({now.version}) than were chosen earlier"
                f" ({taken.artefact.version})",
                hint="run 'kernel-builder lock --upgrade' to choose again; a mirror of snapshots may have the earlier"
                " ones",
            )
        return found

    def _fetch(self, archive: DebianArchive, package: DebPackage, component: Component, tree: ToolkitTree) -> None:
        if component.libraries:
            scratch = tree.scratch / "libraries"
            scratch.mkdir(exist_ok=True)
            archive.fetch(package, scratch, lambda name: _named(_LIBRARY, name), tree.progress.add)
            for library in component.libraries:
                found = next(iter(sorted(scratch.glob(f"{library.soname.partition('.so')[0]}.so.*"))), None)
                if found is None:
                    raise ToolchainError(f"{package.name} {package.version} has no {library.soname}")
                # The names of another major, under the soname of the release that is linked for.
                write_table(tree.into, library.soname, read_local_symbols(found, leading=False)[1])
            return
        archive.fetch(package, tree.into, _run_time if package.name in _RUN_TIME else _member, tree.progress.add)


def _named(pattern: re.Pattern[str], name: str) -> str | None:
    match = pattern.fullmatch(name)
    return match["name"] if match is not None else None


def _run_time(name: str) -> str | None:
    """Where a member of a package of libraries goes."""
    found = _named(_LINKER, name) or _named(_LIBRARY, name)
    return None if found is None else f"{LIBRARIES}/{found}"


def _member(name: str) -> str | None:
    """Where any other member goes: laid out as AMD lays out a toolkit."""
    program = _PROGRAM.fullmatch(name)
    if program is not None:
        return f"lib/llvm/{program['path']}"
    header = _HEADER.fullmatch(name)
    return None if header is None else header["path"]
