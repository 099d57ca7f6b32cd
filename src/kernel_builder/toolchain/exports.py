"""What releases of torch export, from the tables that building for them left in the store."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kernel_builder.toolchain.link_tables import EXPORTS
from kernel_builder.toolchain.recipe import default_recipe
from kernel_builder.variants.names import ArchVariant, TorchTag, Variant


def stored_exports(root: Path, variant: Variant) -> frozenset[str] | None:
    """Names that the torch of ``variant`` exports, by the tables in the store below ``root``.

    ``None`` when no toolchain of that release was fetched, or its tables lack the variant's backend.
    """
    if not isinstance(variant, ArchVariant) or not isinstance(variant.tag, TorchTag):
        return None
    wanted = [library for library in default_recipe().torch.libraries if library.backend in {None, variant.backend}]
    if not variant.backend.is_host and not any(library.backend is variant.backend for library in wanted):
        return None
    major, minor = variant.tag.version
    return _names(root, f"torch-{major}.{minor}.*", tuple(library.soname for library in wanted))


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
