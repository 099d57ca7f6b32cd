"""The trace has the form that trace viewers read."""

from __future__ import annotations

import itertools
import json
from typing import Any

from kernel_builder.timing.figures import figures_of
from kernel_builder.timing.trace import trace_of
from timelines import TWO_SLOTS


def validate(trace: dict[str, Any]) -> None:
    """Raise unless ``trace`` follows the Trace Event Format in what it uses of it."""
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    flows: dict[str, list[dict[str, Any]]] = {}
    complete: dict[int, list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        assert event["ph"] in ("X", "M", "s", "f")
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            continue
        assert isinstance(event["ts"], int)
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            complete.setdefault(event["tid"], []).append(event)
        else:
            flows.setdefault(event["id"], []).append(event)
    for events in complete.values():
        ordered = sorted(events, key=lambda one: one["ts"])
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1000 for a, b in itertools.pairwise(ordered))
    for pair in flows.values():
        assert [event["ph"] for event in pair] == ["s", "f"]
        for event in pair:  # each end is inside of an event
            assert any(one["ts"] <= event["ts"] <= one["ts"] + one["dur"] for one in complete[event["tid"]])


def test_the_trace_is_valid_and_has_every_action_and_flow() -> None:
    trace: Any = json.loads(json.dumps(trace_of(figures_of(TWO_SLOTS))))
    validate(trace)
    events = trace["traceEvents"]
    assert {event["args"]["id"] for event in events if event["ph"] == "X" and event["cat"] != "stage"} == {
        one.id for one in TWO_SLOTS.spans
    }
    assert [event["name"] for event in events if event.get("cat") == "stage"] == ["prepare", "install and load"]
    assert {event["id"] for event in events if event["ph"] == "s"} == {
        f"{need} -> link:lib.so" for need in TWO_SLOTS.spans[-1].needs if need != "compile:gone"
    } | {"device:a.x:9.0 -> assemble:a.x:9.0"}
    (device,) = [event for event in events if event["name"] == "device a.x (9.0)"]
    assert (device["ts"], device["dur"]) == (1_000_000, 4_000_000)
