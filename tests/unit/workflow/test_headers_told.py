"""Metadata name the sources for which slim headers did not do, and people are told why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine_actions import action, plan_of
from kernel_builder.actions.model import SLIM, Tree
from kernel_builder.engine.protocol import ActionResult, ActionStatus
from kernel_builder.events import Notice, Recorder
from kernel_builder.workflow.slim import FILE, known_to_differ, with_headers_told

METADATA = {"name": "k", "provenance": {"headers": "slim"}}


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
    variant = replace(
        plan_of(tmp_path, *entries).variants[0], metadata={"name": "k", "provenance": {"headers": "slim"}}
    )
    recorder = Recorder()
    told = with_headers_told(variant, results[::-1], tmp_path, recorder)  # in whatever order they ended
    assert told.metadata == {"name": "k", "provenance": {"headers": "slim", "full-headers": ["a.cu", "b.cu", "c.cu"]}}
    messages = [event.message for event in recorder.events if isinstance(event, Notice)]
    assert [message.partition(": ")[2] for message in messages] == [
        "b.cu (compute_80, compute_90) is compiled with torch's full headers: x.h:1: error: x",
        "a.cu (compute_80) is compiled with torch's full headers: y",
        "c.cu (host code) is compiled with torch's full headers: z",
    ]
    assert with_headers_told(variant, (results[3], results[5]), tmp_path, recorder) is variant


def test_what_a_proof_found_is_known_until_the_next_one(tmp_path: Path) -> None:
    tree = (Tree(name=SLIM, identity="1"),)
    entries = [action(f"{name}.cu", "", id=name, trees=tree) for name in "ab"]

    def told(headers: str | None, *reasons: str | None) -> object:
        results = [
            ActionResult(action=entry, status=ActionStatus.DONE, fell_back=reason)
            for entry, reason in zip(entries, reasons, strict=True)
        ]
        provenance = {} if headers is None else {"headers": headers}
        variant = replace(plan_of(tmp_path, *entries).variants[0], metadata={"provenance": provenance})
        return with_headers_told(variant, results, tmp_path, Recorder()).metadata["provenance"]

    assert told("verify", "differs", None) == {"headers": "verify", "full-headers": ["a.cu"]}
    name = plan_of(tmp_path, *entries).variants[0].name
    assert known_to_differ(tmp_path) == {name: frozenset({"a.cu"})}
    # Builds without a proof have them from the plan, and say so; they find out nothing about the others.
    assert told("slim", None, None) == {"headers": "slim", "full-headers": ["a.cu"]}
    assert told("slim", None, "y") == {"headers": "slim", "full-headers": ["a.cu", "b.cu"]}
    assert told(None, None, None) == {}
    assert known_to_differ(tmp_path) == {name: frozenset({"a.cu"})}
    assert told("verify", None, None) == {"headers": "verify"}
    assert known_to_differ(tmp_path) == {}


def test_a_damaged_file_is_no_knowledge(tmp_path: Path) -> None:
    for text in ("", "[1]", '{"v": 3}', "\x00"):
        (tmp_path / FILE).write_text(text)
        assert known_to_differ(tmp_path) == {}
