"""What a project accepts: rules that its ``kernel-builder.toml`` names, each with a reason.

An accepted finding is shown with the reason and fails nothing. Only findings that leave the kernel usable for whoever
has what it needs can be accepted; see ``acceptable`` of :class:`~kernel_builder.check.model.Rule`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernel_builder.check.model import (
    Finding,
    Settings,
    Severity,
    checks,
    nearest_rules,
    registered_checkers,
    rule,
    rule_named,
)
from kernel_builder.check.subject import BuildFolder, LibraryFile, PythonTree, SourceTree, VariantDir, join
from kernel_builder.config.settings import FILE_NAME, Acceptance

SETTINGS = rule(
    "KB480",
    "settings-mistake",
    Severity.ERROR,
    summary="[check] in kernel-builder.toml names rules that can be accepted, each with a reason",
    rationale="Otherwise the entry has no effect, or hides a problem that users run into.",
    remedy='Write: accept = { KB302 = "why" }.',
    source="docs/check.md, Accepted findings",
)
UNUSED = rule(
    "KB481",
    "unused-acceptance",
    Severity.WARNING,
    summary="Every rule that kernel-builder.toml accepts finds something",
    rationale="A reason that no longer applies hides the next finding of that rule.",
    remedy="Remove it from [check] in kernel-builder.toml.",
    source="docs/check.md, Accepted findings",
)

_WHY_NOT = "cannot be accepted: it breaks the kernel even for users who have everything that it needs"


@checks(SourceTree, SETTINGS)
def settings_mistakes(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """Mistakes in ``[check]``: what cannot be read, unknown rules, rules that cannot be accepted, repeated ones."""
    place = join(source.shown, FILE_NAME)
    for diagnostic in source.acceptances.diagnostics:
        said = f"{diagnostic.key}: {diagnostic.message}" if diagnostic.key else diagnostic.message
        yield SETTINGS.at(place, said, line=diagnostic.line, symbol=diagnostic.key, hint=diagnostic.hint)
    seen: set[str] = set()
    for entry in source.acceptances.entries:
        known = rule_named(entry.rule)
        if known is None:
            near = nearest_rules(entry.rule)
            hint = f"did you mean {' or '.join(near)}?" if near else "list all rules with: kernel-builder check --list"
            yield SETTINGS.at(place, f"unknown rule {entry.rule!r}", line=entry.line, symbol=entry.rule, hint=hint)
        elif not known.acceptable:
            said = f"{known.code} {known.slug} {_WHY_NOT}"
            yield SETTINGS.at(place, said, line=entry.line, symbol=entry.rule, hint=known.remedy)
        elif known.code in seen:
            said = f"{known.code} {known.slug} is accepted twice"
            yield SETTINGS.at(place, said, line=entry.line, symbol=entry.rule, hint="keep one of the two")
        if known is not None:
            seen.add(known.code)


def _valid(source: SourceTree) -> Mapping[str, Acceptance]:
    """Code of a rule -> what accepts it."""
    found: dict[str, Acceptance] = {}
    for entry in source.acceptances.entries:
        known = rule_named(entry.rule)
        if known is not None and known.acceptable:
            found.setdefault(known.code, entry)
    return found


def _source_of(unit: object) -> SourceTree | None:
    if isinstance(unit, SourceTree):
        return unit
    if isinstance(unit, PythonTree | BuildFolder | VariantDir):
        return unit.source
    return unit.variant.source if isinstance(unit, LibraryFile) and unit.variant is not None else None


def apply_acceptances(found: Sequence[tuple[object, Sequence[Finding]]], codes: frozenset[str]) -> list[Finding]:
    """All findings about the units, those that their projects accept marked so; and acceptances of which nothing came.

    ``codes`` are the rules that were applied. An acceptance is called unused only where its rule was applied to
    something of the project.
    """
    told: list[Finding] = []
    sources: dict[Path, SourceTree] = {}
    kinds: dict[Path, set[type]] = {}
    used: set[tuple[Path, str]] = set()
    for unit, findings in found:
        source = _source_of(unit)
        if source is None:
            told += findings
            continue
        root = source.path.absolute()
        source = sources.setdefault(root, source)
        kinds.setdefault(root, set()).add(type(unit))
        accepted = _valid(source)
        for finding in findings:
            entry = accepted.get(finding.rule.code)
            told.append(finding if entry is None else replace(finding, accepted=entry.reason))
            if entry is not None:
                used.add((root, finding.rule.code))
    if UNUSED.code not in codes:
        return told
    for root, source in sources.items():
        for code, entry in _valid(source).items():
            if code in codes and (root, code) not in used and _was_applied(code, kinds[root]):
                said = f"{entry.rule} is accepted here, but finds nothing"
                told.append(UNUSED.at(join(source.shown, FILE_NAME), said, line=entry.line, symbol=entry.rule))
    return told


def _was_applied(code: str, kinds: set[type]) -> bool:
    """Whether the whole project was looked at, and that rule asked."""
    return SourceTree in kinds and any(
        checker.kind in kinds and any(known.code == code for known in checker.rules)
        for checker in registered_checkers()
    )
