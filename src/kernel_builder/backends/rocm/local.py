"""ROCm toolkits that are installed on this machine: where they are, and what they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_builder.backends.rocm.layout import RocmLayout, find_layout, hip_version
from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.choice import Refused, Taken
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.identity import tree_identity
from kernel_builder.toolchain.local_toolkits import FindLibrary, LocalComponents
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.settings import LOCAL
from kernel_builder.variants.names import Machine

_HEADERS = {
    "hip": "hip/hip_runtime.h",
    "hsa": "hsa/hsa.h",
    "comgr": "amd_comgr/amd_comgr.h",
    "rocprim": "rocprim/rocprim.hpp",
    "hipcub": "hipcub/hipcub.hpp",
    "rocthrust": "thrust/version.h",
    "hipblas-common": "hipblas-common/hipblas-common.h",
    "hipblas": "hipblas/hipblas.h",
    "hipblaslt": "hipblaslt/hipblaslt.h",
    "rocblas": "rocblas/rocblas.h",
    "hipsparse": "hipsparse/hipsparse.h",
    "rocsparse": "rocsparse/rocsparse.h",
    "hipsolver": "hipsolver/hipsolver.h",
    "rocsolver": "rocsolver/rocsolver.h",
    "hiprand": "hiprand/hiprand.h",
    "rocrand": "rocrand/rocrand.h",
    "hipfft": "hipfft/hipfft.h",
}
"""A header by which each component is recognised in a toolkit."""
VARIABLES = ("ROCM_PATH", "ROCM_HOME", "HIP_PATH")


@dataclass(frozen=True)
class LocalRocm:
    """A toolkit on this machine. ``release`` is major.minor, ``version`` what it says of itself (``7.1.0``)."""

    layout: RocmLayout
    release: str
    version: str

    @property
    def root(self) -> Path:
        """Where it is."""
        return self.layout.root

    def library(self, soname: str) -> Path | None:
        """A library by its file name."""
        return next((path for name in ("lib", "lib64") if (path := self.root / name / soname).is_file()), None)

    @cached_property
    def identity(self) -> str:
        """A digest that changes with every file that a compile may run or read."""
        layout = self.layout
        libraries = [path for name in ("lib", "lib64") for path in (self.root / name).glob("lib*.so*")]
        llvm = [path for path in (layout.clang.parent.parent / "lib").glob("lib*.so*") if path.is_file()]
        files = [layout.clang, layout.bundler, layout.lld, *libraries, *llvm]
        clang_headers = sorted((layout.clang.parent.parent / "lib" / "clang").glob("*/include"))
        return tree_identity(files, [self.root / "include", layout.bitcode, *clang_headers])


def find_toolkits(
    environ: Mapping[str, str], folders: Sequence[Path] = (), *, standard: Path = Path("/opt")
) -> tuple[tuple[LocalRocm, ...], tuple[Refused, ...]]:
    """Toolkits in ``folders``, in what :data:`VARIABLES` name, and ``<standard>/rocm*``; of several with one version
    the first, and why others are none.
    """
    places = [*folders, *(Path(environ[name]) for name in VARIABLES if environ.get(name))]
    places += sorted(path for path in standard.glob("rocm*") if path.is_dir())
    found: dict[str, LocalRocm] = {}
    refused: list[Refused] = []
    seen: set[Path] = set()
    for place in places:
        root = place.resolve()
        if root in seen:
            continue
        seen.add(root)
        answer = _inspect(root)
        if isinstance(answer, str):
            refused.append(Refused(part="compiler", source=LOCAL, candidate=str(place), reason=answer))
        elif answer.release in found:
            reason = f"{found[answer.release].root} also has ROCm {answer.release} and comes first"
            refused.append(Refused(part="compiler", source=LOCAL, candidate=str(place), reason=reason))
        else:
            found[answer.release] = answer
    return tuple(found.values()), tuple(refused)


def _inspect(root: Path) -> LocalRocm | str:
    if not root.is_dir():
        return "it does not exist"
    layout = find_layout(root)
    if isinstance(layout, str):
        return layout
    version = _release_file(root) or hip_version(root)
    if version is None:
        return "it does not say its version, neither in .info/version nor in hip/hip_version.h"
    return LocalRocm(layout=layout, release=".".join(version.split(".")[:2]), version=version)


def _release_file(root: Path) -> str | None:
    """The release in ``.info/version`` (``7.1.0-20``)."""
    try:
        text = (root / ".info" / "version").read_text(encoding="ascii").strip().partition("-")[0]
    except (OSError, UnicodeDecodeError):
        return None
    numbers = text.split(".")
    return text if len(numbers) >= 2 and all(number.isdecimal() for number in numbers) else None


class RocmLocal(LocalComponents):
    """ROCm on this machine. A :class:`~kernel_builder.toolchain.choice.ComponentSource`."""

    def __init__(self, environ: Mapping[str, str], folders: Sequence[Path] = ()) -> None:
        self._environ = environ
        self._folders = folders

    @cached_property
    def _toolkits(self) -> tuple[Mapping[str, LocalRocm], tuple[Refused, ...]]:
        found, refused = find_toolkits(self._environ, self._folders)
        return {toolkit.release: toolkit for toolkit in found}, refused

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        toolkits, refused = self._toolkits
        toolkit = toolkits.get(version)
        if toolkit is None or machine != build_machine():
            others = ", ".join(f"{found.root} is ROCm {found.release}" for found in toolkits.values())
            wrong = "; ".join(f"{entry.candidate}: {entry.reason}" for entry in refused)
            reason = "; ".join(text for text in (others, wrong) if text) or (
                "there is none in ROCM_PATH, HIP_PATH or /opt/rocm"
            )
            if toolkit is not None:
                reason = f"{toolkit.root} is for {build_machine()}"
            return {one.name: self._refuse(one, f"ROCm {version}", reason) for one in components}
        return {component.name: self._offer(component, toolkit) for component in components}

    def _offer(self, component: Component, toolkit: LocalRocm) -> Taken | Refused:
        header = _HEADERS.get(component.name)
        if header is not None and not (toolkit.root / "include" / header).is_file():
            return self._refuse(component, str(toolkit.root), f"it has no {header}")
        for library in component.libraries:
            if toolkit.library(library.soname) is None:
                return self._refuse(component, str(toolkit.root), f"it has no {library.soname}")
        return self._take(component, toolkit.version, f"rocm-{toolkit.release}", toolkit.identity, toolkit.root)

    def _libraries(self, version: str) -> FindLibrary:
        toolkit = self._toolkits[0].get(version)
        if toolkit is None:
            raise ToolchainError(f"ROCm {version} was on this machine, but no longer is")
        return lambda library, _: toolkit.library(library.soname)
