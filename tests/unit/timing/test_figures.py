"""What a timeline comes to."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.engine.timeline import Recorded, Timeline, add_stages, read_timeline
from kernel_builder.timing.figures import Cost, figures_of
from timelines import TWO_SLOTS, span


def test_the_sums_and_the_floor() -> None:
    figures = figures_of(TWO_SLOTS)
    assert (figures.wall, figures.engine, figures.busy) == (15, 12, 16.5)
    assert figures.longest == 10  # device, assemble, link; or the compile and the link
    assert figures.floor == 10
    assert figures_of(replace(TWO_SLOTS, jobs=1)).floor == 16.5


def test_what_processors_spent_is_summed_up() -> None:
    spans = (replace(span("compile:a", 0, 4), processor=1.5), replace(span("compile:b", 0, 4), processor=2.0))
    assert figures_of(Recorded(jobs=2, spans=spans)).processor == 3.5


def test_what_the_cache_saved_is_what_it_took_when_it_ran() -> None:
    figures = figures_of(TWO_SLOTS)
    assert (figures.recalled, figures.saved) == (1, 19.5)
    costs = {cost.name: cost for cost in figures.costs["source"]}
    assert costs["c.cpp"] == Cost(name="c.cpp", seconds=0, ran=0, recalled=1, saved=19.5)
    assert [cost.name for cost in figures.costs["source"]] == ["a.x", "b.cpp", "lib.so", "c.cpp"]
    assert {cost.name: cost.seconds for cost in figures.costs["architecture"]} == {
        "9.0": 6,
        "(all, or host code)": 10,
    }


def test_the_critical_path_is_who_waited_for_whom() -> None:
    chain = [(link.bar.span.id, link.waited) for link in figures_of(TWO_SLOTS).critical]
    assert chain == [("device:a.x:9.0", 0), ("assemble:a.x:9.0", 2), ("link:lib.so", 0)]


def test_slots_do_not_overlap() -> None:
    figures = figures_of(TWO_SLOTS)
    assert {bar.slot for bar in figures.bars} == {0, 1}
    for slot in (0, 1):
        bars = [bar for bar in figures.bars if bar.slot == slot]
        assert all(one.end <= other.begin for one, other in itertools.pairwise(bars))


def test_the_longest_chain_needs_no_order_of_names() -> None:
    spans = (span("compile:z", 0, 1), span("compile:a", 1, 3, needs=("compile:z",)), span("compile:m", 0, 2.5))
    assert figures_of(Recorded(jobs=2, spans=spans)).longest == 3


def test_a_timeline_is_read_as_it_was_written(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path, jobs=2)
    for one in TWO_SLOTS.spans:
        timeline.add(one)
    add_stages(tmp_path, TWO_SLOTS.stages)
    assert read_timeline(tmp_path) == TWO_SLOTS
    Timeline(tmp_path, jobs=3).add(TWO_SLOTS.spans[0])  # the next build
    assert read_timeline(tmp_path) == Recorded(jobs=3, spans=TWO_SLOTS.spans[:1])


@pytest.mark.parametrize("text", ["", "[]\n", "{\n", '{"id": 1}\n', '{"jobs": "x"}\n{"jobs": 2}\n', "7\n"])
def test_a_damaged_timeline_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "timeline.jsonl").write_text(text, encoding="utf-8")
    assert read_timeline(tmp_path).spans == ()
