"""A build as a trace of events, which Perfetto and Chrome's tracing open.

The format is that of Chrome's trace viewer ("Trace Event Format"): complete events (``X``) with microseconds, threads
with names (``M``), and flows (``s``, ``f``) from an action to the one that waited for it.
"""

from __future__ import annotations

from kernel_builder.timing.figures import Bar, Figures

_PROCESS = 1
_STAGES = 0
"""The thread of the stages; slots follow."""


def trace_of(figures: Figures) -> dict[str, object]:
    """The trace, as JSON values."""
    slots = max((bar.slot for bar in figures.bars), default=0) + 1
    names = [(_STAGES, "stages"), *((slot + 1, f"slot {slot + 1}") for slot in range(slots))]
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": _PROCESS, "tid": _STAGES, "args": {"name": "kernel-builder build"}}
    ]
    for thread, name in names:
        events.append(
            {"ph": "M", "name": "thread_name", "pid": _PROCESS, "tid": thread, "args": {"name": name}},
        )
    for stage in figures.stages:
        events.append(_complete(stage.stage, "stage", _STAGES, stage.begin, stage.end, {}))
    for bar in figures.bars:
        events.append(_complete(_title(bar), bar.span.kind, bar.slot + 1, bar.begin, bar.end, _arguments(bar)))
    events += _flows(figures)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"jobs": figures.jobs}}


def _title(bar: Bar) -> str:
    architecture = f" ({bar.span.architecture})" if bar.span.architecture else ""
    return f"{bar.span.kind} {bar.span.source}{architecture}"


def _arguments(bar: Bar) -> dict[str, object]:
    span = bar.span
    return {
        "id": span.id,
        "variant": span.variant,
        "status": span.status,
        "memory": span.memory,
        "processor": span.processor,
        "saved": round(bar.saved, 3),
        **({"fell back": span.fell_back} if span.fell_back else {}),
    }


def _complete(
    name: str, category: str, thread: int, begin: float, end: float, arguments: dict[str, object]
) -> dict[str, object]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": _PROCESS,
        "tid": thread,
        "ts": _micro(begin),
        "dur": _micro(end) - _micro(begin),
        "args": arguments,
    }


def _flows(figures: Figures) -> list[dict[str, object]]:
    known = {bar.span.id: bar for bar in figures.bars}
    events: list[dict[str, object]] = []
    for bar in figures.bars:
        for need in bar.span.needs:
            if need not in known:
                continue
            before = known[need]
            flow = {"name": "needs", "cat": "needs", "pid": _PROCESS, "id": f"{need} -> {bar.span.id}"}
            # A flow starts inside of the event that it leaves.
            leaves = max(_micro(before.begin), _micro(before.end) - 1)
            events.append({**flow, "ph": "s", "tid": before.slot + 1, "ts": leaves})
            events.append({**flow, "ph": "f", "bp": "e", "tid": bar.slot + 1, "ts": _micro(bar.begin)})
    return events


def _micro(seconds: float) -> int:
    return round(seconds * 1_000_000)
