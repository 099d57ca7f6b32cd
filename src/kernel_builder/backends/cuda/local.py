"""CUDA toolkits that are installed on this machine: where they are, and what they have."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_builder.backends.cuda.identity import compiler_identity
from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.choice import Refused, Taken
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.local_toolkits import FindLibrary, LocalComponents
from kernel_builder.toolchain.programs import ask
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.settings import LOCAL
from kernel_builder.variants.names import Machine

_PROBE_SECONDS = 30
_PROGRAMS = ("nvcc", "cudafe++", "fatbinary", "ptxas", "cicc")
_HEADERS = {
    "crt": "crt/host_defines.h",
    "cudart": "cuda_runtime_api.h",
    "cccl": "thrust/version.h",
    "nvrtc": "nvrtc.h",
    "profiler-api": "cuda_profiler_api.h",
    "nvtx": "nvtx3/nvToolsExt.h",
    "nvjitlink": "nvJitLink.h",
    "cublas": "cublas_v2.h",
    "cusparse": "cusparse.h",
    "cusolver": "cusolverDn.h",
    "cufft": "cufft.h",
    "curand": "curand.h",
}
"""A header by which each component is recognised in a toolkit."""
_SYSTEM = Path("/usr")
_SYSTEM_INCLUDE = _SYSTEM / "include"
_PRIVATE = (Path("/usr/lib/nvidia-cuda-toolkit"), Path("/etc/nvcc.profile"))
"""Where Debian keeps what stands in ``nvvm`` and ``bin`` elsewhere."""


def _places(root: Path, kind: str) -> tuple[Path, ...]:
    return (root / "targets" / f"{build_machine()}-linux" / kind, root / kind)


def header_directories(root: Path) -> tuple[Path, ...]:
    """The include directories of the toolkit in ``root``.

    Empty for one of a distribution, whose headers lie in ``/usr/include``, where compilers look by themselves.
    """
    base = next((path for path in _places(root, "include") if path.is_dir()), None)
    if base is None or base == _SYSTEM_INCLUDE:
        return ()
    return tuple(path for path in (base, base / "cccl") if path.is_dir())


@dataclass(frozen=True)
class LocalToolkit:
    """A CUDA toolkit on this machine. ``release`` is major.minor, ``version`` what nvcc says (``13.0.88``)."""

    root: Path
    nvcc: Path
    release: str
    version: str

    def has_header(self, name: str) -> bool:
        """Whether one of its include directories holds ``name``."""
        return any((folder / name).is_file() for folder in header_directories(self.root) or (_SYSTEM_INCLUDE,))

    def has_program(self, name: str) -> bool:
        """Whether it has a program; a distribution keeps all of them in ``bin``."""
        return any((self.root / place / name).is_file() for place in ("bin", "nvvm/bin"))

    @property
    def lacking(self) -> tuple[str, ...]:
        """Programs of the compiler that it does not have."""
        return tuple(name for name in _PROGRAMS if not self.has_program(name))

    def library(self, soname: str) -> Path | None:
        """A library by its file name."""
        return next((folder / soname for folder in self._libraries if (folder / soname).is_file()), None)

    @property
    def _libraries(self) -> list[Path]:
        return [*_places(self.root, "lib"), self.root / "lib64", Path(f"/usr/lib/{build_machine()}-linux-gnu")]

    @cached_property
    def identity(self) -> str:
        """A digest that changes with every file that nvcc runs or reads, wherever a distribution puts it."""
        headers = header_directories(self.root)[:1]
        return compiler_identity(self.nvcc, headers, self._libraries, private=_PRIVATE, system=_SYSTEM_INCLUDE)


def find_toolkits(
    environ: Mapping[str, str], folders: Sequence[Path] = (), *, standard: Path = Path("/usr/local")
) -> tuple[tuple[LocalToolkit, ...], tuple[Refused, ...]]:
    """Toolkits in ``folders``, ``$CUDA_HOME``, ``$CUDA_PATH``, ``<standard>/cuda*`` and behind ``nvcc`` on PATH; of
    several with one version the first that is complete, and why others are none.
    """
    places: list[Path] = [folder / "bin" / "nvcc" for folder in folders]
    places += [Path(environ[name]) / "bin" / "nvcc" for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    places += [folder / "bin" / "nvcc" for folder in sorted(standard.glob("cuda*"))]
    on_path = shutil.which("nvcc", path=environ.get("PATH"))
    if on_path:
        places.append(Path(on_path))
    found: dict[str, LocalToolkit] = {}
    refused: list[Refused] = []
    seen: set[Path] = set()
    for nvcc in places:
        if nvcc.resolve() in seen:
            continue
        seen.add(nvcc.resolve())
        answer = _inspect(nvcc, environ)
        if isinstance(answer, str):
            refused.append(Refused(part="nvcc", source=LOCAL, candidate=str(nvcc), reason=answer))
        elif answer.release not in found:
            found[answer.release] = answer
        elif found[answer.release].lacking and not answer.lacking:
            partial = found[answer.release]
            reason = f"it has no {', '.join(partial.lacking)}"
            refused.append(Refused(part="nvcc", source=LOCAL, candidate=str(partial.nvcc), reason=reason))
            found[answer.release] = answer
        elif answer.root != found[answer.release].root:
            reason = f"{found[answer.release].root} also has CUDA {answer.release} and comes first"
            refused.append(Refused(part="nvcc", source=LOCAL, candidate=str(nvcc), reason=reason))
    return tuple(found.values()), tuple(refused)


def _inspect(nvcc: Path, environ: Mapping[str, str]) -> LocalToolkit | str:
    """The toolkit behind ``nvcc``, which may be a link or a script, or why there is none."""
    if not nvcc.is_file():
        return "it does not exist"
    try:
        banner = _ask(nvcc, environ, "--version")
        words = _ask(nvcc, environ, "--dryrun", "-x", "cu", "-c", "-o", os.devnull, os.devnull)
    except subprocess.CalledProcessError as error:
        return f"it does not run: it ends with code {error.returncode}"
    except OSError as error:
        return f"it does not run: {error.strerror}"
    except subprocess.SubprocessError as error:
        return f"it does not run: {error}"
    release = re.search(r"release (\d+\.\d+), V(\d+\.\d+\.\d+)", banner)
    top = re.search(r"^#\$ TOP=(.+)$", words, re.MULTILINE)
    if release is None or top is None:
        return "it does not respond like nvcc"
    root = Path(os.path.normpath(nvcc.parent / top[1]))
    if root.is_dir():
        root = root.resolve()
    program = next((path for path in (root / "bin" / "nvcc", nvcc) if path.is_file()), nvcc)
    return LocalToolkit(root=root, nvcc=program, release=release[1], version=release[2])


def _ask(nvcc: Path, environ: Mapping[str, str], *arguments: str) -> str:
    answer = ask([nvcc, *arguments], environ, seconds=_PROBE_SECONDS)
    return answer.stdout + answer.stderr


class LocalCuda(LocalComponents):
    """CUDA toolkits on this machine. A :class:`~kernel_builder.toolchain.choice.ComponentSource`."""

    def __init__(self, environ: Mapping[str, str], folders: Sequence[Path] = ()) -> None:
        self._environ = environ
        self._folders = folders

    @cached_property
    def _toolkits(self) -> tuple[Mapping[str, LocalToolkit], tuple[Refused, ...]]:
        found, refused = find_toolkits(self._environ, self._folders)
        return {toolkit.release: toolkit for toolkit in found}, refused

    def toolkit(self, cuda: str) -> LocalToolkit | None:
        """The toolkit of that version."""
        return self._toolkits[0].get(cuda)

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        toolkits, refused = self._toolkits
        toolkit = toolkits.get(version)
        if toolkit is None:
            others = ", ".join(f"{found.root} is CUDA {found.release}" for found in toolkits.values())
            wrong = "; ".join(f"{entry.candidate}: {entry.reason}" for entry in refused)
            reason = (
                "; ".join(text for text in (others, wrong) if text) or "no nvcc in CUDA_HOME, /usr/local or on PATH"
            )
            return {c.name: self._refuse(c, f"CUDA {version}", reason) for c in components}
        if machine != build_machine():
            reason = f"it is for {build_machine()}"
            return {c.name: self._refuse(c, str(toolkit.root), reason) for c in components}
        return {component.name: self._offer(component, toolkit) for component in components}

    def _offer(self, component: Component, toolkit: LocalToolkit) -> Taken | Refused:
        if component.compiler:
            if toolkit.lacking:
                return self._refuse(component, str(toolkit.root), f"it has no {', '.join(toolkit.lacking)}")
        else:
            header = _HEADERS.get(component.name)
            if header and not toolkit.has_header(header):
                return self._refuse(component, str(toolkit.root), f"it has no {header}")
            for library in component.libraries:
                if toolkit.library(library.soname) is None:
                    return self._refuse(component, str(toolkit.root), f"it has no {library.soname}")
        return self._take(component, toolkit.version, f"cuda-{toolkit.release}", toolkit.identity, toolkit.root)

    def _libraries(self, version: str) -> FindLibrary:
        toolkit = self.toolkit(version)
        if toolkit is None:
            raise ToolchainError(f"CUDA {version} was on this machine, but no longer is")
        return lambda library, _: toolkit.library(library.soname)
