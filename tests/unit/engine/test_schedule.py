"""What runs first and what may run beside it: by processors, by memory, and by what things cost before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.actions.model import Action, ActionKind, Step
from kernel_builder.engine.records import Record, Records
from kernel_builder.engine.resources import Resources
from kernel_builder.engine.schedule import Bounds, Costs, Running, fits, may_pass, ranks

GIB = 1 << 30


def action(name: str, kind: ActionKind = ActionKind.COMPILE, *, variant: str = "v", memory: int = 3 * GIB) -> Action:
    return Action(
        id=f"{variant}:{name}",
        kind=kind,
        variant=variant,
        source=name,
        steps=(Step(command=("true",)),),
        inputs=(),
        outputs=(f"{{work}}/{variant}/{name}",),
        log=f"{{work}}/{name}.log",
        memory=memory,
    )


def record(seconds: float, memory: int) -> Record:
    return Record(digest="", reads={}, makes={}, seconds=seconds, memory=memory)


def test_costs_are_learnt_from_the_same_action_else_from_the_like(tmp_path: Path) -> None:
    known, other, small = action("known"), action("other"), action("small", memory=GIB)
    assert Costs.of([known], Records(tmp_path)).memory == {known.id: 3 * GIB}
    records = Records(tmp_path)
    records.add(known.id, record(8.0, GIB))
    costs = Costs.of([known, other, small], Records(tmp_path))
    assert costs.seconds[known.id] == costs.seconds[other.id] == 8.0
    assert GIB < costs.memory[known.id] == costs.memory[other.id] < 2 * GIB
    assert (costs.seconds[small.id], costs.memory[small.id]) == (4.0, GIB)


def test_the_longest_chain_goes_first_in_each_variant_and_what_ends_one_before_all(tmp_path: Path) -> None:
    long, short = action("long"), action("short")
    after = replace(action("after", ActionKind.DEVICE), inputs=short.outputs)
    link = replace(action("link", ActionKind.LINK), inputs=(*long.outputs, *after.outputs))
    second = action("x", variant="w")
    actions = [long, short, after, link, second]
    records = Records(tmp_path)
    for one, seconds in ((long, 30.0), (short, 10.0), (after, 25.0), (link, 1.0), (second, 99.0)):
        records.add(one.id, record(seconds, GIB))
    order = ranks(actions, Costs.of(actions, records), ["v", "w"])
    assert [name.split(":")[1] for name in sorted(order, key=order.__getitem__)] == [
        "link",
        "short",
        "long",
        "after",
        "x",
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"jobs": None, "cores": None, "variants": None}, Bounds(jobs=8, memory=10 * GIB)),
        ({"jobs": 6, "cores": None, "variants": None}, Bounds(jobs=6, memory=None)),
        ({"jobs": None, "cores": 2, "variants": 3}, Bounds(jobs=6, memory=None, variants=3, cores=2)),
        ({"jobs": None, "cores": 2, "variants": None}, Bounds(jobs=3, memory=None, cores=2)),
        ({"jobs": None, "cores": None, "variants": 1}, Bounds(jobs=8, memory=10 * GIB, variants=1)),
    ],
)
def test_limits(given: dict[str, int | None], expected: Bounds) -> None:
    resources = Resources(processors=8, memory=10 * GIB)
    assert Bounds.of(resources, hungriest=3 * GIB, **given) == expected


def test_what_runs_fits_into_memory_and_something_always_runs() -> None:
    limits = Bounds(jobs=8, memory=10 * GIB)
    heavy, light = Running(variant="v", threads=1, memory=4 * GIB), Running(variant="v", threads=1, memory=GIB)
    assert fits(heavy, [heavy], limits)
    assert not fits(heavy, [heavy, heavy], limits)
    assert fits(light, [heavy, heavy], limits)
    assert fits(replace(heavy, memory=99 * GIB), [], limits)
    assert not fits(replace(light, threads=8), [light], limits)
    assert not fits(light, [light], Bounds(jobs=8, memory=None, cores=1))
    assert fits(replace(light, variant="w"), [light], Bounds(jobs=8, memory=None, cores=1))


def test_a_hungry_action_does_not_wait_for_ever() -> None:
    """Small ones go before it only while one runs that leaves as much room as it needs."""
    heavy, light = Running(variant="v", threads=1, memory=4 * GIB), Running(variant="v", threads=1, memory=GIB)
    assert may_pass(heavy, [heavy, light])
    assert not may_pass(heavy, [light, light])
