"""What was measured, as values and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from kernel_builder.measuring.statistics import CONFIDENCE, Ratio, Summary, compare, summarize


@dataclass(frozen=True, kw_only=True)
class BenchSide:
    """One of the things that are measured: ``label`` is for people, ``facts`` say of which build, where it is one."""

    label: str
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A workload of one side: the samples of each round, in seconds, ``calls`` calls each; ``right`` says whether its
    result was compared with the reference (``None``: there is none), ``difference`` how far it was off at most.
    """

    rounds: tuple[tuple[float, ...], ...]
    calls: int
    right: bool | None
    difference: float | None = None

    @property
    def summary(self) -> Summary:
        """What the samples come to."""
        return summarize(self.rounds)


@dataclass(frozen=True, kw_only=True)
class WorkloadResult:
    """A workload: ``title`` is that of its class and its own, ``size`` what it works on, ``bytes_moved`` what it must
    read and write, as far as the benchmark says so. ``ours`` and ``theirs`` are ``None`` where that side could not
    run it; ``problem`` says why.
    """

    title: str
    size: int | None
    bytes_moved: int | None
    ours: Measured | None
    theirs: Measured | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        """Without its class."""
        return self.title.partition(".")[2]

    @property
    def ratio(self) -> Ratio | None:
        """How the sides compare; ``None`` for one alone."""
        if self.ours is None or self.theirs is None:
            return None
        return compare(self.ours.rounds, self.theirs.rounds)

    def bandwidth(self, measured: Measured) -> float | None:
        """Bytes a second, by the median; ``None`` where the benchmark does not say how many there are."""
        median = measured.summary.median
        return self.bytes_moved / median if self.bytes_moved is not None and median else None


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """All workloads of a variant. ``machine`` is what they ran on; ``readings`` what the device said of itself before
    and after; ``remarks`` is what people must know of how it was measured.
    """

    variant: str
    ours: BenchSide
    theirs: BenchSide | None
    machine: Mapping[str, object]
    workloads: tuple[WorkloadResult, ...]
    readings: tuple[Mapping[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """As JSON values; times in seconds."""
        return {
            "variant": self.variant,
            "sides": [_side_json(side) for side in self._sides],
            "machine": dict(self.machine),
            "readings": [dict(one) for one in self.readings],
            "remarks": list(self.remarks),
            "scripts": list(self.scripts),
            "confidence": CONFIDENCE,
            "workloads": [self._workload_json(one) for one in self.workloads],
        }

    @property
    def _sides(self) -> Sequence[BenchSide]:
        return [self.ours, *([self.theirs] if self.theirs is not None else [])]

    def _workload_json(self, one: WorkloadResult) -> dict[str, object]:
        ratio, measured = one.ratio, [one.ours, one.theirs][: len(self._sides)]
        return {
            "workload": one.title,
            "size": one.size,
            "bytes-moved": one.bytes_moved,
            "sides": [None if side is None else _measured_json(one, side) for side in measured],
            "ratio": {**asdict(ratio), "verdict": ratio.verdict} if ratio is not None else None,
            "problem": one.problem or None,
        }


def _side_json(side: BenchSide) -> dict[str, object]:
    return {"label": side.label, **side.facts}


def _measured_json(workload: WorkloadResult, measured: Measured) -> dict[str, object]:
    return {
        **asdict(measured.summary),
        "bytes-per-second": workload.bandwidth(measured),
        "verified": measured.right,
        "difference": measured.difference,
        "calls-per-sample": measured.calls,
        "rounds": [list(one) for one in measured.rounds],
    }
