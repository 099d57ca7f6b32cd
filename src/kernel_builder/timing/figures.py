"""What a timeline comes to: who ran where and when, what each source cost, who waited for whom, and how fast the same
actions could have been. Pure: the same timeline gives the same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernel_builder.engine.protocol import ActionStatus
from kernel_builder.engine.timeline import Recorded, Span, Stage

_TOUCH = 0.001
"""Seconds by which one action may begin before the end of the one before it in a slot is noted."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A span in the slot that it ran in; ``begin`` and ``end`` are seconds since the build began."""

    span: Span
    slot: int
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took in this build."""
        return self.end - self.begin

    @property
    def is_recalled(self) -> bool:
        """Whether the action cache had what it makes."""
        return self.span.status == ActionStatus.RECALLED.value

    @property
    def saved(self) -> float:
        """What the action cache saved: what it took when it really ran."""
        return max(0.0, self.span.seconds - self.seconds) if self.is_recalled else 0.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What actions of one group took: ``seconds`` of those that ran, ``saved`` by the cache."""

    name: str
    seconds: float
    ran: int
    recalled: int
    saved: float


@dataclass(frozen=True, kw_only=True)
class PathPart:
    """A part of the critical path: the action, and how long it waited for a slot once what it needs was there."""

    bar: Bar
    waited: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All figures of a build, in seconds. ``wall`` is from its begin to its end, ``engine`` that part of it in which
    actions ran; ``busy`` the sum of all actions, ``longest`` the longest chain of actions of which each needs the one
    before. ``critical`` is the chain that ended last, ``costs`` are by what they are grouped by. ``processor`` is what
    processors spent on the programs of actions.
    """

    jobs: int
    began: float
    bars: tuple[Bar, ...]
    stages: tuple[Stage, ...]
    wall: float
    engine: float
    busy: float
    processor: float
    longest: float
    critical: tuple[PathPart, ...]
    costs: Mapping[str, tuple[Cost, ...]]

    @property
    def floor(self) -> float:
        """No order of the same actions on as many slots is faster."""
        return max(self.busy / self.jobs, self.longest)

    @property
    def saved(self) -> float:
        """What the action cache saved."""
        return sum(bar.saved for bar in self.bars)

    @property
    def recalled(self) -> int:
        """How many actions the cache answered."""
        return sum(bar.is_recalled for bar in self.bars)


_GROUPS: Mapping[str, Callable[[Span], str]] = {
    "source": lambda span: span.source,
    "variant": lambda span: span.variant,
    "kind of action": lambda span: span.kind,
    "architecture": lambda span: span.architecture or "(all, or host code)",
}


def figures_of(recorded: Recorded) -> Figures:
    """The figures of ``recorded``, which has spans."""
    spans = sorted(recorded.spans, key=lambda span: (span.begin, span.end, span.id))
    times: list[Span | Stage] = [*spans, *recorded.stages]
    began = min(one.begin for one in times)
    bars = _placed(spans, began)
    return Figures(
        jobs=max(recorded.jobs, 1),
        began=began,
        bars=bars,
        stages=tuple(
            Stage(stage=one.stage, begin=one.begin - began, end=one.end - began)
            for one in sorted(recorded.stages, key=lambda one: one.begin)
        ),
        wall=max(one.end for one in times) - began,
        engine=max(bar.end for bar in bars) - min(bar.begin for bar in bars),
        busy=sum(bar.seconds for bar in bars),
        processor=sum(span.processor for span in spans),
        longest=_longest(bars),
        critical=_critical(bars),
        costs={name: _costs(bars, key) for name, key in _GROUPS.items()},
    )


def _placed(spans: Iterable[Span], began: float) -> tuple[Bar, ...]:
    """Each span in the first slot that is free when it begins."""
    free: list[float] = []
    bars: list[Bar] = []
    for span in spans:
        slot = next((place for place, end in enumerate(free) if end <= span.begin + _TOUCH), len(free))
        free[slot : slot + 1] = [span.end]
        bars.append(Bar(span=span, slot=slot, begin=span.begin - began, end=span.end - began))
    return tuple(bars)


def _costs(bars: Iterable[Bar], key: Callable[[Span], str]) -> tuple[Cost, ...]:
    groups: dict[str, list[Bar]] = {}
    for bar in bars:
        groups.setdefault(key(bar.span), []).append(bar)
    found = [
        Cost(
            name=name,
            seconds=sum(bar.seconds for bar in members if not bar.is_recalled),
            ran=sum(not bar.is_recalled for bar in members),
            recalled=sum(bar.is_recalled for bar in members),
            saved=sum(bar.saved for bar in members),
        )
        for name, members in groups.items()
    ]
    return tuple(sorted(found, key=lambda cost: (-cost.seconds, -cost.saved, cost.name)))


def _longest(bars: Sequence[Bar]) -> float:
    """The longest chain. What an action needs ended before it began, so it stands before it in the order of begins."""
    ends: dict[str, float] = {}
    for bar in bars:
        ends[bar.span.id] = bar.seconds + max((ends.get(need, 0.0) for need in bar.span.needs), default=0.0)
    return max(ends.values())


def _critical(bars: Sequence[Bar]) -> tuple[PathPart, ...]:
    """The chain that ends last, from its begin: of all that an action waited for, what ended last."""
    known = {bar.span.id: bar for bar in bars}
    links: list[PathPart] = []
    bar: Bar | None = max(bars, key=lambda one: (one.end, one.span.id))
    first = min(one.begin for one in bars)
    while bar is not None:
        needed = [known[need] for need in bar.span.needs if need in known]
        before = max(needed, key=lambda one: (one.end, one.span.id), default=None)
        links.append(PathPart(bar=bar, waited=max(0.0, bar.begin - (before.end if before else first))))
        bar = before
    return tuple(reversed(links))
