"""The rule about ``build.toml`` itself: whatever a build refuses in it, or in the tree that it describes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import SourceTree, join
from kernel_builder.config.reader import FILE_NAME
from kernel_builder.errors import ConfigError, Diagnostic, Level

BUILD_TOML = rule(
    "KB400",
    "build-toml",
    Severity.ERROR,
    summary="build.toml can be read, and what it lists exists inside the project",
    rationale="The kernel cannot be built, and rules that need build.toml were not checked.",
    remedy="Fix build.toml; 'kernel-builder check-config' also shows its warnings.",
    source="docs/build-toml.md",
)


@checks(SourceTree, BUILD_TOML)
def mistakes(source: SourceTree, settings: Settings) -> Iterator[Finding]:
    """Mistakes in ``build.toml``, missing files, and links that lead out of the project."""
    for diagnostic in source.diagnostics:
        if diagnostic.severity is Level.ERROR:
            yield _told(source, diagnostic)
    if source.project is None or settings.follow_links is None:
        return
    try:
        settings.follow_links(source.project)
    except ConfigError as error:
        whole = Diagnostic(severity=Level.ERROR, message=error.message, hint=error.hint)
        for diagnostic in error.diagnostics or (whole,):
            yield _told(source, diagnostic)


def _told(source: SourceTree, diagnostic: Diagnostic) -> Finding:
    root = source.path.absolute()
    file = FILE_NAME if diagnostic.file is None else os.path.relpath(Path(diagnostic.file), root)
    return BUILD_TOML.at(
        join(source.shown, file),
        f"{diagnostic.key}: {diagnostic.message}" if diagnostic.key else diagnostic.message,
        line=diagnostic.line,
        symbol=diagnostic.key,
        hint=diagnostic.hint,
    )
