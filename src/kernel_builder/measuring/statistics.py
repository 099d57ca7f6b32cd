"""Samples -> what is told of them.

Times of programs have a long tail on one side, so the middle is told by the median and the spread by quartiles. Two
builds are measured in turns; what disturbs a machine for a while disturbs both in the same round, so it is the rounds
that are compared, and drawn again for the uncertainty (a bootstrap over rounds, not over samples, which depend on each
other).
Reference: Tukey, "Exploratory Data Analysis" (fences at 1.5 interquartile ranges); Efron and Tibshirani, "An
Introduction to the Bootstrap", chapters 13 and 14 (percentile intervals).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

CONFIDENCE = 0.95
_FENCE = 1.5
_DRAWS = 2000
_SEED = 20
"""The same samples give the same interval."""
SMALLEST = 0.02
"""Two processes that run the very same build differ by up to about one percent, for as long as they live: their memory
lies elsewhere. No number of rounds takes that away."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What samples, in seconds, come to. ``outliers`` are those beyond the fences, which count for everything else."""

    median: float
    q1: float
    q3: float
    least: float
    most: float
    count: int
    outliers: int

    @property
    def spread(self) -> float:
        """Half of the distance between the quartiles, relative to the median."""
        return (self.q3 - self.q1) / 2 / self.median if self.median else 0.0


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The time of one build relative to that of another: below 1, it is faster. It lies between ``low`` and ``high``
    with a confidence of 95 %.
    """

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What that means for people."""
        if self.high < 1 / (1 + SMALLEST):
            return "faster"
        return "slower" if self.low > 1 + SMALLEST else "no difference seen"


def quantile(ordered: Sequence[float], at: float) -> float:
    """The value below which the part ``at`` of ``ordered`` lies, interpolated. Raises ``IndexError`` for nothing."""
    place = at * (len(ordered) - 1)
    lower = math.floor(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (place - lower)


def summarize(rounds: Sequence[Sequence[float]]) -> Summary:
    """All samples of all ``rounds``. Raises ``ValueError`` where there are none."""
    ordered = sorted(chain.from_iterable(rounds))
    if not ordered:
        raise ValueError("no samples")
    q1, q3 = quantile(ordered, 0.25), quantile(ordered, 0.75)
    reach = _FENCE * (q3 - q1)
    return Summary(
        median=quantile(ordered, 0.5),
        q1=q1,
        q3=q3,
        least=ordered[0],
        most=ordered[-1],
        count=len(ordered),
        outliers=sum(not q1 - reach <= one <= q3 + reach for one in ordered),
    )


def compare(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Ratio:
    """How two builds compare that were measured in turns, round by round.

    The ratio is the median of those of the rounds' medians. Raises ``ValueError`` for rounds that do not pair.
    """
    pairs = list(zip(ours, theirs, strict=True))
    if not pairs:
        raise ValueError("no rounds")
    ratios = [median(one) / median(other) for one, other in pairs]
    source = random.Random(_SEED)  # noqa: S311 (no secret)
    drawn = sorted(median(source.choices(ratios, k=len(ratios))) for _ in range(_DRAWS))
    tail = (1 - CONFIDENCE) / 2
    return Ratio(value=median(ratios), low=quantile(drawn, tail), high=quantile(drawn, 1 - tail))
