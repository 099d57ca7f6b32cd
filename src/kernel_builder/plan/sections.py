"""What can be told of a section before any toolkit is chosen."""

from __future__ import annotations

from kernel_builder.backends import rules_for
from kernel_builder.config.model import Section
from kernel_builder.variants.matrix import Matrix
from kernel_builder.variants.support import load_support


def unreachable_section(section: Section, matrix: Matrix) -> str | None:
    """Why ``section`` cannot be compiled for a variant of ``matrix``: none of its architectures is one that the
    variant's toolkit builds for, by the support table. ``None`` where each has one.
    """
    if section.architectures is None or not section.backend.has_module:
        return None
    for entry in matrix.kept:
        toolkit = entry.row.toolkit if entry.row is not None else None
        if entry.backend is not section.backend or toolkit is None:
            continue
        if section.toolkit_minver is not None and not toolkit.is_at_least(section.toolkit_minver):
            continue
        try:
            supported = load_support().default_architectures(section.backend, toolkit)
        except LookupError:
            continue
        if not rules_for(section.backend).select(section.architectures, supported).effective:
            requested, known = (", ".join(map(str, some)) for some in (section.architectures, supported))
            label = f"{section.backend.label} {toolkit}"
            return f"lists {requested}, but {label} ({entry.name}) builds for {known}: nothing is left"
    return None
