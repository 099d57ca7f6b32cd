"""C++ sources are compiled with slim headers, which can be proved; what fails is compiled with all headers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernel_builder.actions.host import host_action
from kernel_builder.actions.model import SLIM, Action
from kernel_builder.actions.precompile import without_launcher
from kernel_builder.actions.slim import PLAINLY
from kernel_builder.actions.units import CXX, Unit
from slim_contexts import DEFINITIONS, slim_context

SEES_SLIM = ("-isystem", "{store}/store/torch-2.13.0-slim-1", *(f"-D{name}" for name in DEFINITIONS))
OBJECT = "{work}/v/obj/bind.cpp.o"


def compiled(*, slim: bool = True, verify: bool = False, precompiled: bool = False) -> Action:
    context = slim_context(Path("/k"), "bind.cpp", Path("/usr/bin/g++"), slim=slim, verify=verify)
    context = replace(context, precompiled={"bind.cpp": ("torch/all.h",)} if precompiled else {})
    unit = Unit(source="bind.cpp", language=CXX, include=(), cxx_flags=(), flags=(), architectures=(), sections=())
    return host_action(context, unit, ("SOME_KERNEL",), ("-DOWN",))


def without(words: tuple[str, ...], part: tuple[str, ...]) -> tuple[str, ...]:
    at = next(place for place in range(len(words)) if words[place : place + len(part)] == part)
    return words[:at] + words[at + len(part) :]


def test_slim_headers_come_before_all_others_and_all_headers_are_the_fallback() -> None:
    full, slim = compiled(slim=False), compiled()
    assert not full.fallback
    assert slim.fallback == full.steps
    (step,) = slim.steps
    assert without(step.command, SEES_SLIM) == full.command
    assert step.command.index(SEES_SLIM[1]) < step.command.index("{store}/store/torch")
    assert (slim.outputs, slim.depfile) == (full.outputs, full.depfile)
    assert [tree.identity for tree in slim.trees if tree.name == SLIM] == ["torch-2.13.0-slim-1"]
    assert slim.identity != full.identity


def test_slim_headers_are_precompiled_with_all_that_decides_them_and_all_headers_are_not() -> None:
    plain, made = compiled(), compiled(precompiled=True)
    (command,) = (step.command for step in made.steps)
    assert without_launcher(command) == plain.steps[0].command
    assert made.fallback == plain.fallback
    at = command.index("--words") + 2
    precompile = command[at : at + int(command[at - 1])]
    begin = precompile.index(SEES_SLIM[1]) - 1
    assert precompile[begin : begin + len(SEES_SLIM)] == SEES_SLIM
    assert begin < precompile.index("{store}/store/torch")
    assert command[command.index("--after") + 1] == "2"
    assert {"launcher", "python"} <= {tool.name for tool in made.tools}


def test_a_proof_compares_both_without_optimization_and_then_compiles_as_always() -> None:
    full, slim, proved = compiled(slim=False), compiled(), compiled(verify=True)
    whole, part, proof, last = proved.steps
    assert last == slim.steps[0]
    assert proved.fallback == full.steps
    for step, origin, name in ((whole, full, "plain"), (part, slim, "plain-slim")):
        target = f"{{work}}/v/obj/{name}-bind.cpp.o"
        assert step.command == (*(target if word == OBJECT else word for word in origin.command), *PLAINLY)
        assert step.writes == (target,)
    assert proof.command[-2:] == (*whole.writes, *part.writes)
    assert proof.reads == proof.command[-2:]
    assert proved.outputs == (OBJECT,)
    assert set(proved.scratch) == {*whole.writes, *part.writes}
    assert {"python", "host proof"} <= {tool.name for tool in proved.tools}
