"""What a rule is, what a finding is, and the register of both rules and the functions that apply them.

A rule is declared beside the function that checks it::

    RUN_PATH = rule("KB107", "run-path", Severity.ERROR, summary="...", rationale="...", remedy="...", source="...")

    @checks(LibraryFile, RUN_PATH)
    def run_paths(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
        for entry in library.elf.run_paths:
            yield RUN_PATH.at(library, f"the library looks for others in {entry}")

One code means one thing for ever: codes of rules that are dropped are not given to others. Groups: KB0xx the thing
cannot be looked at, KB1xx libraries, KB2xx op namespace, KB3xx Python, KB4xx layout, names and metadata, KB5xx load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kernel_builder.config.model import Project
from kernel_builder.load.evidence import LoadResult
from kernel_builder.variants.names import Variant


def few(names: Sequence[str], most: int = 5) -> str:
    """The first ``most`` of some names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class Severity(StrEnum):
    """How bad a finding is. Errors make ``check`` fail; a note says what was not or could not be looked at."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Placed(Protocol):
    """Whatever a finding can be about: something with a path to show."""

    @property
    def shown(self) -> str:
        """The path as the user would write it. Bytes that are no UTF-8 are lone surrogates, as ``os.fsdecode`` makes
        them.
        """


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A conformance rule.

    ``summary`` is one line that says what is required; ``rationale`` why; ``remedy`` how to fix it; ``source``
    where the rule comes from. ``acceptable`` marks errors that a project can accept, because whoever has what the
    kernel needs can use it all the same; warnings and notes always can be.
    """

    code: str
    slug: str
    severity: Severity
    summary: str
    rationale: str
    remedy: str
    source: str
    acceptable: bool

    def at(
        self,
        place: Placed | str,
        message: str,
        *,
        line: int | None = None,
        symbol: str | None = None,
        hint: str | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """A finding of this rule at ``place``: an object with a path to show, or such a path. ``severity`` is that of
        this finding where it is not the rule's.
        """
        path = place if isinstance(place, str) else place.shown
        return Finding(
            rule=self, path=path, line=line, symbol=symbol, message=message, hint=hint, judged=severity or self.severity
        )


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is not as a rule wants it.

    ``line`` counts from 1. ``symbol`` is what inside the file it is about (a linker symbol, a Python name, a metadata
    key). ``hint`` is said instead of the rule's remedy when there is something more to the point to say. ``judged`` is
    how bad it is here, ``accepted`` why the project accepts it (``None``: it does not).
    """

    rule: Rule
    path: str
    line: int | None
    symbol: str | None
    message: str
    hint: str | None
    judged: Severity
    accepted: str | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is; what the project accepts is a note."""
        return self.judged if self.accepted is None else Severity.NOTE

    @property
    def order(self) -> tuple[bytes, int, str, str, str]:
        """Sort key: by file, line, rule."""
        path = self.path.encode("utf-8", "surrogateescape")
        return path, self.line or 0, self.rule.code, self.symbol or "", self.message


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to judge by. ``policy`` names one of :mod:`kernel_builder.check.policies`.

    ``torch_stable_abi`` is the release whose stable ABI libraries must keep to; ``None`` judges only libraries whose
    variant claims it. ``torch_exports`` gives the names that the torch of a variant exports, ``None`` where they are
    not known. ``hash_files`` says that digests are compared with the files, ``required`` that all required variants
    must be there. ``load`` says that variants are loaded, too, by the interpreter ``python`` (``None``: the first that
    has torch and the client of those that the variables ``environ`` lead to). ``logs`` is the directory for
    what failures said, ``proofs`` that for what loading showed: the very same is not loaded again. ``evidence`` is what
    it showed already, by the name of the variant; these are not loaded at all. ``sources_of`` gives what a build of a
    project as it is now, with its variants in a directory, would record of its sources; ``None`` compares nothing.
    ``follow_links`` raises ``ConfigError`` for links that a project's sources are read through and that lead out of it.
    """

    policy: str = "glibc-2.27-static"
    macos: tuple[int, ...] | None = None
    python_floor: tuple[int, int] = (3, 9)
    built_for: tuple[tuple[str, tuple[int, int]], ...] = ()
    torch_stable_abi: tuple[int, int] | None = None
    torch_exports: Callable[[Variant], frozenset[str] | None] | None = None
    required: bool = True
    hash_files: bool = True
    load: bool = False
    python: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict, hash=False)
    logs: Path | None = None
    proofs: Path | None = None
    evidence: Mapping[str, LoadResult] = field(default_factory=dict, hash=False)
    sources_of: Callable[[Project, Path], Mapping[str, str] | None] | None = None
    follow_links: Callable[[Project], None] | None = None


_CODE = re.compile(r"KB[0-9]{3}")
_RULES: dict[str, Rule] = {}

Subject = TypeVar("Subject")
Check = Callable[[Subject, Settings], Iterable[Finding]]


@dataclass(frozen=True)
class Checker:
    """A function that applies rules to one kind of thing."""

    kind: type[Any]
    rules: tuple[Rule, ...]
    function: Callable[[Any, Settings], Iterable[Finding]]


_CHECKERS: list[Checker] = []


def rule(
    code: str,
    slug: str,
    severity: Severity,
    *,
    summary: str,
    rationale: str,
    remedy: str,
    source: str,
    acceptable: bool = False,
) -> Rule:
    """Declare a rule. Raises ``ValueError`` when its code or slug is malformed or taken."""
    if _CODE.fullmatch(code) is None or re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", slug) is None:
        raise ValueError(f"{code} {slug}: a code looks like KB101, a slug like run-path")
    if code in _RULES or any(other.slug == slug for other in _RULES.values()):
        raise ValueError(f"{code} {slug}: the code or the slug is taken")
    made = Rule(
        code=code,
        slug=slug,
        severity=severity,
        summary=summary,
        rationale=rationale,
        remedy=remedy,
        source=source,
        acceptable=acceptable or severity is not Severity.ERROR,
    )
    _RULES[code] = made
    return made


def checks(kind: type[Subject], *rules: Rule) -> Callable[[Check[Subject]], Check[Subject]]:
    """Register a function that applies ``rules`` to every ``kind`` of thing that is looked at.

    It is not called when none of its rules is selected; findings of rules that are not selected are dropped.
    """

    def register(function: Check[Subject]) -> Check[Subject]:
        _CHECKERS.append(Checker(kind, rules, function))
        return function

    return register


def registered_rules() -> tuple[Rule, ...]:
    """All rules declared so far, by code. Call :func:`kernel_builder.check.engine.all_rules` to have all of them."""
    return tuple(_RULES[code] for code in sorted(_RULES))


def registered_checkers() -> tuple[Checker, ...]:
    """All checkers declared so far, in order of declaration."""
    return tuple(_CHECKERS)


def rule_named(name: str) -> Rule | None:
    """The declared rule of a code (``KB101``, any case) or slug."""
    return next((known for known in _RULES.values() if name.upper() == known.code or name.lower() == known.slug), None)


def nearest_rules(name: str) -> list[str]:
    """Codes or slugs of declared rules that ``name`` may have been meant to be, the likeliest first."""
    names = [text for known in _RULES.values() for text in (known.code, known.slug)]
    return get_close_matches(name.upper(), names, n=3, cutoff=0.5) or get_close_matches(name.lower(), names, n=3)
