"""Runs the rules: discovers what a path is, applies every selected checker to every unit, sorts what they found."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernel_builder import check
from kernel_builder.check.accepted import apply_acceptances
from kernel_builder.check.model import (
    Finding,
    Rule,
    Settings,
    Severity,
    nearest_rules,
    registered_checkers,
    registered_rules,
    rule,
    rule_named,
)
from kernel_builder.check.subject import (
    BuildFolder,
    Discovery,
    LibraryFile,
    PythonTree,
    SourceTree,
    VariantDir,
    discover,
)
from kernel_builder.errors import UsageError

UNREADABLE = rule(
    "KB001",
    "unreadable",
    Severity.ERROR,
    summary="Every file can be read",
    rationale="A file that cannot be read is not checked, and the client cannot load it either.",
    remedy="Restore the file, or fix its permissions.",
    source="kernel-builder",
)


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What a check found. ``findings`` are in order of file, line and rule; ``checked`` are the paths asked for.

    ``libraries``, ``python_files`` and ``variants`` say how much was looked at.
    """

    checked: tuple[str, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    variants: int
    libraries: int
    python_files: int

    def count(self, severity: Severity) -> int:
        """Number of findings of one severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def accepted(self) -> tuple[Finding, ...]:
        """What the project accepts; these are notes."""
        return tuple(finding for finding in self.findings if finding.accepted is not None)

    @property
    def ok(self) -> bool:
        """Whether there is no error among the findings."""
        return not self.count(Severity.ERROR)


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of this version, by code. Every module of the package that declares rules is imported."""
    for module in pkgutil.iter_modules(check.__path__):
        importlib.import_module(f"{check.__name__}.{module.name}")
    return registered_rules()


def find_rule(name: str) -> Rule:
    """The rule of a code (``KB101``, any case) or slug. Raises :class:`UsageError` with the nearest ones."""
    all_rules()
    known = rule_named(name)
    if known is None:
        raise _unknown(name)
    return known


def _unknown(name: str) -> UsageError:
    near = nearest_rules(name)
    hint = f"did you mean {' or '.join(near)}?" if near else "list all rules with: kernel-builder check --list"
    return UsageError(f"unknown rule {name!r}", hint=hint)


def _matching(names: Iterable[str]) -> set[str]:
    """Codes of the rules meant by codes, beginnings of codes (``KB1``) and slugs."""
    codes: set[str] = set()
    for name in names:
        meant = {
            known.code for known in all_rules() if known.code.startswith(name.upper()) or known.slug == name.lower()
        }
        if not meant or not name:
            raise _unknown(name)
        codes |= meant
    return codes


def select_rules(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> frozenset[str]:
    """Codes of the rules to apply: those of ``select`` (all, when it is empty) less those of ``ignore``.

    Both take codes, beginnings of codes (``KB1``) and slugs. Raises :class:`UsageError` for one that means no rule.
    """
    chosen = _matching(select) if select else {known.code for known in all_rules()}
    return frozenset(chosen - _matching(ignore))


def check_paths(
    paths: Sequence[Path],
    settings: Settings | None = None,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    jobs: int = 4,
) -> CheckReport:
    """Check everything below ``paths``: see :func:`kernel_builder.check.subject.discover` for what they can be.

    Raises :class:`UsageError` when a path holds nothing to check or a rule does not exist.
    """
    chosen = select_rules(select, ignore)
    return check_found([discover(path) for path in paths], settings or Settings(), chosen=chosen, jobs=jobs)


def check_found(
    found: Sequence[Discovery], settings: Settings, *, chosen: frozenset[str] | None = None, jobs: int = 4
) -> CheckReport:
    """Apply the rules of ``chosen`` (all, when ``None``) to what was discovered."""
    codes = select_rules() if chosen is None else chosen
    units = list(dict.fromkeys(unit for one in found for unit in one.units()))
    findings = _apply_all(units, settings, codes, jobs)
    kinds = [type(unit) for unit in units]
    notes = [note for one in found for note in one.notes]
    if settings.load and VariantDir in kinds:
        from kernel_builder.check.load import confinement  # noqa: PLC0415  (start-up time)

        notes.append(confinement(settings))
    return CheckReport(
        checked=tuple(one.shown for one in found),
        findings=tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.order)),
        notes=tuple(notes),
        variants=kinds.count(VariantDir),
        libraries=kinds.count(LibraryFile),
        python_files=sum(len(unit.files) for unit in units if isinstance(unit, PythonTree)),
    )


def _apply_all(units: Sequence[object], settings: Settings, codes: frozenset[str], jobs: int) -> list[Finding]:
    """Findings about all units; with one job in this very thread."""
    if jobs <= 1:
        found = [_apply(unit, settings, codes) for unit in units]
    else:
        with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="check") as pool:
            found = list(pool.map(lambda unit: _apply(unit, settings, codes), units))
    # What only loading shows was not asked where nothing was loaded.
    asked = codes if settings.load else frozenset(code for code in codes if not code.startswith("KB5"))
    return apply_acceptances(list(zip(units, found, strict=True)), asked)


def _apply(unit: object, settings: Settings, codes: frozenset[str]) -> list[Finding]:
    """All findings about one unit."""
    found: list[Finding] = []
    for checker in registered_checkers():
        if not isinstance(unit, checker.kind) or not any(known.code in codes for known in checker.rules):
            continue
        try:
            found += [finding for finding in checker.function(unit, settings) if finding.rule.code in codes]
        except OSError as error:
            name = error.filename if isinstance(error.filename, str) else _shown(unit)
            found.append(UNREADABLE.at(_shown(unit), f"cannot read {name}: {error.strerror or error}"))
        except (RecursionError, MemoryError) as error:
            rules = ", ".join(known.code for known in checker.rules)
            found.append(UNREADABLE.at(_shown(unit), f"too deeply nested or too large for {rules}: {error}"))
    return found


def _shown(unit: object) -> str:
    if isinstance(unit, SourceTree | BuildFolder | VariantDir | PythonTree | LibraryFile):
        return unit.shown
    raise TypeError(type(unit))
