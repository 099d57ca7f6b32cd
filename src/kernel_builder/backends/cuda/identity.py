"""What tells whether an installed CUDA compiler has changed: nvcc and everything that it runs and reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernel_builder.toolchain.identity import tree_identity

_SYSTEM_BIN = Path("/usr/bin")
_PROGRAMS = ("nvcc", "nvcc.profile", "cudafe++", "cicc", "ptxas", "fatbinary", "nvlink", "bin2c")


def compiler_identity(nvcc: Path, include: Iterable[Path], *, private: Iterable[Path]) -> str:
    """A digest over the compiler behind ``nvcc`` and the headers in ``include``.

    A toolkit of its own has its parts in ``bin`` and ``nvvm`` beside: programs, ``nvcc.profile``, ``libnvvm``,
    ``libdevice``. A distribution's is spread over the system, where ``bin`` holds everybody's programs: then the known
    names count, and the ``private`` folders and files.
    """
    folder = nvcc.parent
    if folder.resolve() == _SYSTEM_BIN.resolve():
        files = [folder / name for name in _PROGRAMS]
        own = [path for path in private if path.is_dir()]
        files += [path for path in private if not path.is_dir()]
        return tree_identity(files, [*own, *include])
    return tree_identity([nvcc], [folder, folder.parent / "nvvm", *include])
