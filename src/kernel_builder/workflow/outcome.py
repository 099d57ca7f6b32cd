"""What a build comes to, as values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from kernel_builder.config.backends import Backend
from kernel_builder.errors import ExitCode
from kernel_builder.load.evidence import LoadResult


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """A variant that was asked for and cannot be built here, why, and what would help. ``exit_code`` is that of the
    error that says so.
    """

    name: str
    reason: str
    remedy: str | None = None
    exit_code: ExitCode = ExitCode.TOOLCHAIN

    @property
    def summary(self) -> str:
        """The reason in one line."""
        return self.reason.partition("\n")[0].rstrip(":")

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        return {"name": self.name, "reason": self.reason, "remedy": self.remedy}


_OWN = re.compile(r"\S+\.whl(?: and \d+ more)?|\d+(?:\.\d+)+|(?<=[a-z])\d+")
"""What differs from variant to variant: wheels, versions, and the numbers in names such as torch213 and cu130."""
_QUOTED = re.compile(r"'[^'\s]+'")
_LIKEWISE = "(for the last one; the others lack the same in their own versions)"


def grouped(unavailable: Iterable[Unavailable]) -> Mapping[tuple[str, str | None], Sequence[str]]:
    """The names of variants by the reason that they share and what would help. Where reasons differ in versions and
    wheels alone, that of the last variant stands for all, and says so; a command that names it names all of them.
    """
    groups: dict[tuple[str, str], list[Unavailable]] = {}
    for entry in unavailable:
        groups.setdefault((_OWN.sub("#", entry.reason), _OWN.sub("#", entry.remedy or "")), []).append(entry)
    found: dict[tuple[str, str | None], list[str]] = {}
    for group in groups.values():
        last = group[-1]
        is_same = all(entry.reason == last.reason for entry in group)
        reason = last.reason if is_same else f"{last.reason}\n{_LIKEWISE}"
        found[reason, _for_all([entry.remedy for entry in group])] = [entry.name for entry in group]
    return found


def _for_all(remedies: Sequence[str | None]) -> str | None:
    """The last of ``remedies`` that differ in versions alone, with all words that any of them quotes in a place."""
    texts = [remedy for remedy in remedies if remedy]
    if not texts:
        return remedies[-1]
    places = zip(*map(_QUOTED.findall, texts), strict=False)  # a wheel's name may hold a quote
    words = iter([" ".join(dict.fromkeys(place)) for place in places])
    return _QUOTED.sub(lambda word: next(words, word[0]), texts[-1])


class VariantStatus(StrEnum):
    """How a variant ended."""

    BUILT = "built"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    NOT_BUILT = "not built"


@dataclass(frozen=True, kw_only=True)
class VariantOutcome:
    """One variant: where it is, what ran for it, and whether it loads. ``problems`` say why it was not made.

    ``name``, ``backend`` and ``ops_id`` are those of its plan; ``is_compiled`` is whether it has a library.
    ``compiled`` are sources that were compiled, ``recalled`` those whose objects came from the action cache.
    """

    name: str
    backend: Backend
    ops_id: str
    is_compiled: bool
    status: VariantStatus
    path: Path | None = None
    compiled: tuple[str, ...] = ()
    recalled: tuple[str, ...] = ()
    load: LoadResult | None = None
    problems: tuple[str, ...] = ()

    @property
    def problem(self) -> str | None:
        """All problems in one text; ``None`` when there are none."""
        return "\n".join(self.problems) or None

    @classmethod
    def unchanged(cls, value: Mapping[str, Any]) -> Self:
        """A variant of which :meth:`to_json` gave ``value``, and which is as it was then.

        Raises ``KeyError``, ``TypeError``, ``ValueError`` for anything else.
        """
        return cls(
            name=str(value["name"]),
            backend=Backend(value["backend"]),
            ops_id=str(value["ops-id"]),
            is_compiled=bool(value["is-compiled"]),
            status=VariantStatus.UNCHANGED,
            path=Path(value["path"]),
            load=LoadResult.from_json(value["load"]) if value["load"] is not None else None,
        )

    def to_json(self) -> dict[str, object]:
        """As plain JSON values; of one that is there."""
        return {
            "name": self.name,
            "backend": self.backend.value,
            "ops-id": self.ops_id,
            "is-compiled": self.is_compiled,
            "path": str(self.path),
            "load": self.load.to_json() if self.load is not None else None,
        }


@dataclass(frozen=True, kw_only=True)
class BuildOutcome:
    """All variants in plan order, which are in the directory ``output``. ``fetched`` is in bytes over the network.

    ``warnings`` and ``notes`` are those of the plan. ``confinement`` says how a kernel's code was confined while
    variants were loaded, or why none was loaded. ``unavailable`` are the variants that were asked for and left out,
    because they cannot be built here. ``remarks`` say how the variants that were chosen are loaded; ``variables`` must
    be set for whatever loads them.
    """

    output: Path
    variants: tuple[VariantOutcome, ...]
    fetched: int
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    confinement: str = ""
    unavailable: tuple[Unavailable, ...] = ()
    remarks: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every variant of the plan was made."""
        return all(outcome.status in {VariantStatus.BUILT, VariantStatus.UNCHANGED} for outcome in self.variants)

    @classmethod
    def unchanged(cls, value: Mapping[str, Any]) -> Self:
        """A build of which :meth:`to_json` gave ``value``, and which there is nothing to do for.

        Raises ``KeyError``, ``TypeError``, ``ValueError`` for anything else.
        """
        texts = {key: tuple(map(str, value[key])) for key in ("warnings", "notes", "remarks")}
        return cls(
            output=Path(value["output"]),
            variants=tuple(VariantOutcome.unchanged(one) for one in value["variants"]),
            fetched=0,
            confinement=str(value["confinement"]),
            unavailable=tuple(
                Unavailable(**one["said"], exit_code=ExitCode(one["exit-code"])) for one in value["unavailable"]
            ),
            variables={str(name): str(text) for name, text in value["variables"].items()},
            **texts,
        )

    def to_json(self) -> dict[str, object]:
        """As plain JSON values; of a build that made all variants."""
        return {
            "output": str(self.output),
            "variants": [one.to_json() for one in self.variants],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "confinement": self.confinement,
            "unavailable": [{"said": one.to_json(), "exit-code": int(one.exit_code)} for one in self.unavailable],
            "remarks": list(self.remarks),
            "variables": dict(self.variables),
        }
