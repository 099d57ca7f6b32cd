"""What the torch that is installed here exports, read from its libraries without importing or running it."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from kernel_builder.binary.elf import ElfError, read_elf_file
from kernel_builder.config.backends import HOST
from kernel_builder.variants.names import ArchVariant, TorchTag, Variant

_LIBRARIES = (*HOST.torch.libraries, "libtorch.so", "libtorch_python.so", "libc10.so")
_VERSION = re.compile(r"""^__version__ *= *['"](\d+)\.(\d+)""", re.MULTILINE)


@cache
def _installed() -> tuple[Path, tuple[int, int]] | None:
    """The installed torch's directory and version."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(next(iter(spec.submodule_search_locations)))
    try:
        match = _VERSION.search((root / "version.py").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return None if match is None else (root, (int(match[1]), int(match[2])))


@cache
def _exports(libraries: tuple[Path, ...]) -> frozenset[str] | None:
    names: set[str] = set()
    try:
        for library in libraries:
            names.update(symbol.name for symbol in read_elf_file(library).exports)
    except (OSError, ElfError):
        return None
    return frozenset(names)


def installed_exports(variant: Variant) -> frozenset[str] | None:
    """Names exported by the installed torch; ``None`` unless it is the release and has the backend of ``variant``."""
    found = _installed()
    if found is None or not isinstance(variant, ArchVariant) or not isinstance(variant.tag, TorchTag):
        return None
    root, version = found
    if variant.tag.version != version:
        return None
    wanted = dict.fromkeys(_LIBRARIES + variant.backend.torch.libraries)
    libraries = tuple(root / "lib" / name for name in wanted)
    if not all(library.is_file() for library in libraries):
        return None
    return _exports(libraries)
