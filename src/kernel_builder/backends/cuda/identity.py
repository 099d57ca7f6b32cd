"""What tells whether an installed CUDA compiler has changed: nvcc and everything that it runs and reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernel_builder.toolchain.identity import tree_identity

_SYSTEM_BIN = Path("/usr/bin")
_PROGRAMS = ("nvcc", "nvcc.profile", "cudafe++", "cicc", "ptxas", "fatbinary", "nvlink", "bin2c")
_LIBRARIES = ("libcu*.so*", "libnv*.so*", "libnp*.so*")
_SYSTEM_HEADERS = (
    *("crt", "cub", "thrust", "cuda", "nv", "nvtx3", "cooperative_groups*", "fatbinary_section.h"),
    *("cu*.h*", "nv*.h*", "sm_*.h*", "device_*.h*", "host_*.h", "math_*.h*", "vector_*.h*", "surface_*.h*"),
    *("texture_*.h*", "driver_*.h", "channel_descriptor.h", "builtin_types.h", "common_functions.h", "library_types.h"),
)
"""Patterns of a toolkit's headers among all others in the system's include directory."""


def compiler_identity(
    nvcc: Path, include: Iterable[Path], libraries: Iterable[Path], *, private: Iterable[Path], system: Path
) -> str:
    """A digest over the compiler behind ``nvcc``, the headers in ``include``, and NVIDIA's among the ``libraries``.

    A toolkit of its own has its parts in ``bin`` and ``nvvm`` beside: programs, ``nvcc.profile``, ``libnvvm``,
    ``libdevice``. In ``bin`` the known names count, for it may be that of an environment, with everybody's programs. A
    distribution's toolkit is spread over the system: it has ``private`` folders and files, and its headers are among
    all others in the folder ``system``.
    """
    folder = nvcc.parent
    files = [nvcc, *(folder / name for name in _PROGRAMS)]
    files += [path for place in libraries for name in _LIBRARIES for path in place.glob(name)]
    if folder.resolve() != _SYSTEM_BIN.resolve():
        return tree_identity(files, [folder / "crt", folder.parent / "nvvm", *include])
    found = [*private, *(path for name in _SYSTEM_HEADERS for path in system.glob(name))]
    files += [path for path in found if not path.is_dir()]
    return tree_identity(files, [*(path for path in found if path.is_dir()), *include])
