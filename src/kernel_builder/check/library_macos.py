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
_OLDEST = (15, 0)
_OLDEST_METAL = (26, 0)


@checks(LibraryFile, MACOS_VERSION)
def minimum(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Compares the deployment target of every part of a Mach-O file with the limit."""
    backend = library.variant.backend if library.variant else None
    limit = settings.macos or (_OLDEST_METAL if backend == "metal" else _OLDEST)
    allowed = ".".join(map(str, limit))
    for part in library.macho:
        if part.minimum_macos is None:
            yield MACOS_VERSION.at(library, f"its {part.machine} part does not declare which macOS it needs")
        elif part.minimum_macos > limit + (0,) * (3 - len(limit)):
            needs = ".".join(map(str, part.minimum_macos[:2]))
            yield MACOS_VERSION.at(
                library, f"its {part.machine} part needs macOS {needs}; at most {allowed} is allowed"
            )
