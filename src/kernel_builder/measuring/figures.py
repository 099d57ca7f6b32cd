"""Results -> the curves of a figure: time and bandwidth over size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_builder.measuring.results import BenchResult, Measured, WorkloadResult

_SIZE = re.compile(r"_?[0-9][0-9a-zA-Z]*$")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One workload: its ``size``, the median of its times with their quartiles, in seconds, and bytes a second."""

    size: int
    median: float
    q1: float
    q3: float
    bandwidth: float | None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One side in the workloads that differ in size alone, smallest first. ``theirs`` is whether it is the other
    side's.
    """

    label: str
    theirs: bool
    points: tuple[Point, ...]


def family(title: str) -> str:
    """What the names of workloads have in common that differ in size alone: ``float32`` of ``float32_4096``."""
    name = title.partition(".")[2] or title
    return _SIZE.sub("", name) or name


def curves(result: BenchResult) -> tuple[Curve, ...]:
    """The curves of ``result``, those of one family together."""
    families = list(dict.fromkeys(family(one.title) for one in result.workloads))
    return tuple(curve for name in families for curve in _of_family(name, result))


def _of_family(name: str, result: BenchResult) -> Iterator[Curve]:
    members = [one for one in result.workloads if family(one.title) == name and one.size is not None]
    for side, theirs in ((result.ours, False), (result.theirs, True)):
        if side is None:
            continue
        measured = [(one, one.theirs if theirs else one.ours) for one in members]
        points = sorted((_point(one, it) for one, it in measured if it is not None), key=lambda point: point.size)
        if points:
            yield Curve(label=f"{name}, {side.label}", theirs=theirs, points=tuple(points))


def _point(workload: WorkloadResult, measured: Measured) -> Point:
    summary = measured.summary
    return Point(
        size=workload.size or 0,
        median=summary.median,
        q1=summary.q1,
        q3=summary.q3,
        bandwidth=workload.bandwidth(measured),
    )
