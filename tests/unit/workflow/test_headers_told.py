"""Metadata name the sources for which slim headers did not do, and people are told why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine_actions import action, plan_of
from kernel_builder.actions.model import SLIM, Tree
from kernel_builder.engine.protocol import ActionResult, ActionStatus
from kernel_builder.events import Notice, Recorder
from kernel_builder.workflow.finish import with_headers_told


def test_what_fell_back_is_told_once_for_each_reason(tmp_path: Path) -> None:
    tree = (Tree(name=SLIM, identity="1"),)
    entries = [
        action("b.cu", "", id="1", architecture="compute_80", trees=tree),
        action("b.cu", "", id="2", architecture="compute_90", trees=tree),
        action("a.cu", "", id="3", architecture="compute_80", trees=tree),
        action("fine.cu", "", id="4", architecture="compute_80", trees=tree),
        action("c.cu", "", id="6", trees=tree),
        action("other.cpp", "", id="5"),
    ]
    reasons = ("x.h:1: error: x", "x.h:1: error: x", "y", None, "z", "something else")
    results = [
        ActionResult(action=entry, status=ActionStatus.DONE, fell_back=reason)
        for entry, reason in zip(entries, reasons, strict=True)
    ]
    variant = replace(plan_of(tmp_path, *entries).variants[0], metadata={"name": "k", "provenance": {"sources": 1}})
    recorder = Recorder()
    told = with_headers_told(variant, tuple(results), recorder)
    assert told.metadata == {"name": "k", "provenance": {"sources": 1, "full-headers": ["a.cu", "b.cu", "c.cu"]}}
    messages = [event.message for event in recorder.events if isinstance(event, Notice)]
    assert [message.partition(": ")[2] for message in messages] == [
        "b.cu (compute_80, compute_90) is compiled with all of torch's headers: x.h:1: error: x",
        "a.cu (compute_80) is compiled with all of torch's headers: y",
        "c.cu (host code) is compiled with all of torch's headers: z",
    ]
    assert with_headers_told(variant, (results[3], results[5]), recorder) is variant
