"""Intel's oneAPI compilers that are installed on this machine: where they are, and what they have."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.choice import Refused, Taken
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.identity import tree_identity
from kernel_builder.toolchain.local_toolkits import FindLibrary, LocalComponents
from kernel_builder.toolchain.programs import ask
from kernel_builder.toolchain.recipe import Component, LibraryRecipe
from kernel_builder.toolchain.settings import LOCAL
from kernel_builder.variants.names import Machine

COMPILER = "icpx"
OFFLINE_COMPILER = "ocloc"
"""It compiles ahead of time. Intel's GPU driver brings it, not oneAPI."""
ONEDNN = "onednn"

_STANDARD = Path("/opt/intel/oneapi")
_BANNER = re.compile(r"oneAPI DPC\+\+/C\+\+ Compiler (\d+)\.(\d+)\.(\d+)")
_HEADER = {"sycl": "sycl/sycl.hpp", ONEDNN: "oneapi/dnnl/dnnl.hpp"}
"""A header by which a component is recognised."""


@dataclass(frozen=True)
class LocalOneapi:
    """A compiler on this machine. ``release`` is major.minor, ``version`` what it says (``2026.0.1``)."""

    root: Path
    compiler: Path
    release: str
    version: str

    @cached_property
    def identity(self) -> str:
        """A digest that changes with every file that the compiler runs or reads."""
        return tree_identity([self.compiler], [self.root / name for name in ("bin", "include", "lib", "opt")])


def _compilers(environ: Mapping[str, str], folders: Sequence[Path], standard: Path) -> Iterator[Path]:
    """Where a compiler may be, the user's own folders first."""
    yield from (folder / "bin" / COMPILER for folder in folders)
    if environ.get("CMPLR_ROOT"):
        yield Path(environ["CMPLR_ROOT"]) / "bin" / COMPILER
    roots = [Path(environ["ONEAPI_ROOT"])] if environ.get("ONEAPI_ROOT") else []
    for root in (*roots, standard):
        # A directory for each component, or one for each release of all of them.
        yield from sorted(root.glob(f"compiler/[0-9]*/bin/{COMPILER}"), reverse=True)
        yield from sorted(root.glob(f"[0-9]*/bin/{COMPILER}"), reverse=True)
        yield root / "compiler" / "latest" / "bin" / COMPILER
    on_path = shutil.which(COMPILER, path=environ.get("PATH"))
    if on_path:
        yield Path(on_path)


def find_compilers(
    environ: Mapping[str, str], folders: Sequence[Path] = (), *, standard: Path = _STANDARD
) -> tuple[tuple[LocalOneapi, ...], tuple[Refused, ...]]:
    """Compilers in ``folders``, ``$CMPLR_ROOT``, ``$ONEAPI_ROOT``, ``standard`` and on PATH; of several of one release
    the first, and why others are none.
    """
    found: dict[str, LocalOneapi] = {}
    refused: list[Refused] = []
    seen: set[Path] = set()
    for compiler in _compilers(environ, folders, standard):
        if not compiler.is_file() or compiler.resolve() in seen:
            continue
        seen.add(compiler.resolve())
        answer = _inspect(compiler, environ)
        if isinstance(answer, LocalOneapi) and answer.release in found:
            answer = f"{found[answer.release].root} also is oneAPI {answer.release} and comes first"
        if isinstance(answer, str):
            refused.append(Refused(part="dpcpp", source=LOCAL, candidate=str(compiler), reason=answer))
        else:
            found[answer.release] = answer
    return tuple(found.values()), tuple(refused)


def _inspect(compiler: Path, environ: Mapping[str, str]) -> LocalOneapi | str:
    """The toolkit of ``compiler``, which may be a link, or why it is none."""
    try:
        banner = ask([compiler, "--version"], environ).stdout
    except subprocess.CalledProcessError as error:
        return f"it does not run: it ends with code {error.returncode}"
    except OSError as error:
        return f"it does not run: {error.strerror}"
    except subprocess.SubprocessError as error:
        return f"it does not run: {error}"
    words = _BANNER.search(banner)
    if words is None:
        return f"it does not respond like {COMPILER}"
    root, version = compiler.resolve().parent.parent, ".".join(words.groups())
    release = version.rpartition(".")[0]
    return LocalOneapi(root=root, compiler=root / "bin" / COMPILER, release=release, version=version)


class LocalOneapiComponents(LocalComponents):
    """Compilers on this machine. A :class:`~kernel_builder.toolchain.choice.ComponentSource`."""

    def __init__(self, environ: Mapping[str, str], folders: Sequence[Path] = (), *, standard: Path = _STANDARD) -> None:
        self._environ = environ
        self._folders = folders
        self._standard = standard

    @cached_property
    def _found(self) -> tuple[Mapping[str, LocalOneapi], tuple[Refused, ...]]:
        found, refused = find_compilers(self._environ, self._folders, standard=self._standard)
        return {one.release: one for one in found}, refused

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        return {component.name: self._offer(component, version, machine) for component in components}

    def _offer(self, component: Component, version: str, machine: Machine) -> Taken | Refused:
        if machine != build_machine():
            return self._refuse(component, f"oneAPI {version}", f"what this machine has is for {build_machine()}")
        if component.name == OFFLINE_COMPILER:
            return self._offline_compiler(component)
        toolkits, refused = self._found
        toolkit = toolkits.get(version)
        if toolkit is None:
            others = [f"{found.root} is oneAPI {found.version}" for found in toolkits.values()]
            others += [f"{entry.candidate}: {entry.reason}" for entry in refused]
            reason = "; ".join(others) or f"no {COMPILER} in CMPLR_ROOT, ONEAPI_ROOT, {self._standard} or on PATH"
            return self._refuse(component, f"oneAPI {version}", reason)
        root = self._root_of(component, toolkit)
        if root is None:
            return self._refuse(component, str(toolkit.root), f"it has no {_HEADER[component.name]}")
        for library in component.libraries:
            if not (root / library.member).is_file():
                return self._refuse(component, str(root), f"it has no {library.member}")
        identity = toolkit.identity if root == toolkit.root else tree_identity([], [root / "include", root / "lib"])
        return self._take(component, toolkit.version, f"oneapi-{toolkit.release}", identity, root)

    def _root_of(self, component: Component, toolkit: LocalOneapi) -> Path | None:
        """Where a component lies: with the compiler, or in a directory of its own beside it."""
        header = _HEADER.get(component.name)
        if header is None:
            return toolkit.root
        roots = [toolkit.root]
        if component.name == ONEDNN:
            named = self._environ.get("DNNLROOT")
            beside = toolkit.root.parent.parent / "dnnl"
            roots += [Path(named)] if named else []
            roots += [beside / toolkit.release, beside / "latest"]
        return next((root for root in roots if (root / "include" / header).is_file()), None)

    def _offline_compiler(self, component: Component) -> Taken | Refused:
        program = shutil.which(OFFLINE_COMPILER, path=self._environ.get("PATH"))
        if program is None:
            return self._refuse(component, OFFLINE_COMPILER, f"it is not on PATH: {component.lacking}")
        path = Path(program)
        return self._take(component, "0", OFFLINE_COMPILER, tree_identity([path.resolve()], []), path.parent)

    def _libraries(self, version: str) -> FindLibrary:  # noqa: ARG002  (each part says where it lies)
        return _library_of


def _library_of(library: LibraryRecipe, taken: Taken) -> Path:
    path = (taken.root or Path()) / library.member
    if not path.is_file():
        raise ToolchainError(f"{path} was on this machine, but no longer is")
    return path
