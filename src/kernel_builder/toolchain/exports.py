"""What releases of torch export, from the tables that building for them left in the store."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kernel_builder.toolchain.link_tables import EXPORTS
from kernel_builder.variants.names import ArchVariant, TorchTag, Variant

_LIBRARIES = ("libtorch.so", "libtorch_cpu.so", "libc10.so")
_OF_BACKEND = {"cpu": (), "cuda": ("libtorch_cuda.so", "libc10_cuda.so")}


def stored_exports(root: Path, variant: Variant) -> frozenset[str] | None:
    """Names that the torch of ``variant`` exports, by the tables in the store below ``root``.

    ``None`` when no toolchain of that release was fetched, or its tables lack the variant's backend.
    """
    if not isinstance(variant, ArchVariant) or not isinstance(variant.tag, TorchTag):
        return None
    libraries = _OF_BACKEND.get(variant.backend.value)
    if libraries is None:
        return None
    major, minor = variant.tag.version
    return _names(root, f"torch-{major}.{minor}.*", _LIBRARIES + libraries)


@cache
def _names(root: Path, pattern: str, libraries: tuple[str, ...]) -> frozenset[str] | None:
    for entry in sorted((root / "store").glob(f"{pattern}/{EXPORTS}"), reverse=True):
        try:
            texts = [(entry / f"{name}.txt").read_bytes() for name in libraries]
        except OSError:
            continue
        return frozenset(
            line.decode("utf-8", "surrogateescape") for text in texts for line in text.split(b"\n") if line
        )
    return None
