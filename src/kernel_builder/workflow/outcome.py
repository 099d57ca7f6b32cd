"""What a build comes to, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernel_builder.load.evidence import LoadResult
from kernel_builder.plan.model import BuildPlan, VariantPlan
from kernel_builder.workflow.select import Unavailable


class VariantStatus(StrEnum):
    """How a variant ended."""

    BUILT = "built"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    NOT_BUILT = "not built"


@dataclass(frozen=True, kw_only=True)
class VariantOutcome:
    """One variant: where it is, what ran for it, and whether it loads. ``problems`` say why it was not made."""

    plan: VariantPlan
    status: VariantStatus
    path: Path | None = None
    compiled: tuple[str, ...] = ()
    load: LoadResult | None = None
    problems: tuple[str, ...] = ()

    @property
    def problem(self) -> str | None:
        """All problems in one text; ``None`` when there are none."""
        return "\n".join(self.problems) or None


@dataclass(frozen=True, kw_only=True)
class BuildOutcome:
    """All variants in plan order. ``fetched`` is in bytes over the network.

    ``confinement`` says how a kernel's code was confined while variants were loaded, or why none was loaded.
    ``unavailable`` are the variants that were asked for and left out, because they cannot be built here. ``remarks``
    say how the variants that were chosen are loaded.
    """

    plan: BuildPlan
    variants: tuple[VariantOutcome, ...]
    fetched: int
    confinement: str = ""
    unavailable: tuple[Unavailable, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every variant of the plan was made."""
        return all(outcome.status in {VariantStatus.BUILT, VariantStatus.UNCHANGED} for outcome in self.variants)
