"""Rules about libraries for macOS alone."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import LibraryFile

MACOS_VERSION = rule(
    "KB161",
    "macos-version",
    Severity.ERROR,
    summary="A library declares the macOS it needs, no newer than 15.0, or 26.0 for Metal",
    rationale="The loader of an older macOS rejects the library.",
    remedy="Compile with -mmacosx-version-min=15.0 (26.0 for Metal).",
    source="docs/requirements.md, 'Libraries'",
    acceptable=True,
)
METAL_LIBRARY = rule(
    "KB162",
    "metal-library",
    Severity.ERROR,
    summary="Embedded Metal libraries are complete, for macOS, and need no newer macOS than the kernel's library",
    rationale="The kernel loads, but Metal rejects the shaders when it is first called.",
    remedy="Compile the shaders with -mmacosx-version-min=26.0, as kernel-builder does.",
    source="docs/requirements.md, 'Libraries'",
    acceptable=True,
)
_OLDEST = (15, 0)
_OLDEST_METAL = (26, 0)


@checks(LibraryFile, MACOS_VERSION)
def minimum(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Compares the deployment target of every part of a Mach-O file with the limit."""
    limit = _limit(library, settings)
    allowed = ".".join(map(str, limit))
    for part in library.macho:
        if part.minimum_macos is None:
            yield MACOS_VERSION.at(library, f"its {part.machine} part does not declare which macOS it needs")
        elif part.minimum_macos > limit + (0,) * (3 - len(limit)):
            needs = ".".join(map(str, part.minimum_macos[:2]))
            yield MACOS_VERSION.at(
                library, f"its {part.machine} part needs macOS {needs}; at most {allowed} is allowed"
            )


def _limit(library: LibraryFile, settings: Settings) -> tuple[int, ...]:
    """The newest macOS that a library may need."""
    backend = library.variant.backend if library.variant else None
    return settings.macos or (_OLDEST_METAL if backend == "metal" else _OLDEST)


@checks(LibraryFile, METAL_LIBRARY)
def shaders(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Compares what the libraries of shaders in a Mach-O file are for with what it is for itself."""
    limit = _limit(library, settings)
    for number, found in enumerate(library.metal, 1):
        which = "its Metal library" if len(library.metal) == 1 else f"its Metal library number {number}"
        if not found.whole:
            yield METAL_LIBRARY.at(library, f"{which} is truncated: it should have {found.size} bytes")
        if found.system not in {None, "macOS"}:
            yield METAL_LIBRARY.at(library, f"{which} is for {found.system}")
        elif found.minimum is not None and found.minimum > (*limit, 0):
            needs, allowed = (".".join(map(str, version[:2])) for version in (found.minimum, limit))
            yield METAL_LIBRARY.at(library, f"{which} needs macOS {needs}; at most {allowed} is allowed")
