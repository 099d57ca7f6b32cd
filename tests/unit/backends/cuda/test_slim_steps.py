"""Sources are compiled with slim headers first; they can be proved, and what fails is compiled with all headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver_answers import CXX, lines_of, nvcc
from kernel_builder.actions.model import SLIM, Action, ActionKind
from kernel_builder.actions.slim import PLAINLY
from kernel_builder.actions.units import Unit
from kernel_builder.backends.cuda.passes import split_actions
from kernel_builder.binary import device_proof
from kernel_builder.config.backends import Backend
from kernel_builder.toolchain.model import Toolkit, ToolkitSdk
from slim_contexts import DEFINITIONS, STORE, slim_context


def actions(folder: Path, *, slim: bool = True, verify: bool = False) -> tuple[Action, ...]:
    toolkit = ToolkitSdk(
        toolkit=Toolkit(backend=Backend("cuda"), version="13.0"),
        compiler=nvcc(folder, *lines_of()),
        include=(STORE / "cuda" / "include",),
        libraries=STORE / "cuda-stubs",
        exports=(),
        identity="cuda-13.0-1",
    )
    context = slim_context(folder, "k.cu", CXX, toolkit, slim=slim, verify=verify)
    unit = Unit(source="k.cu", language="cuda", include=(), cxx_flags=(), flags=(), architectures=(), sections=())
    return split_actions(context, toolkit, unit, ()).actions


def device(found: tuple[Action, ...]) -> Action:
    return of_kind(found, ActionKind.DEVICE)


def of_kind(found: tuple[Action, ...], kind: ActionKind) -> Action:
    (one,) = (action for action in found if action.kind is kind)
    return one


SEES_SLIM = ["-isystem", "{store}/store/torch-2.13.0-slim-1", *(f"-D{name}" for name in DEFINITIONS)]
STEPS = "{work}/v/obj/k.cu.o.steps"


@pytest.mark.parametrize("kind", [ActionKind.DEVICE, ActionKind.SPLIT])
def test_slim_headers_come_first_and_all_headers_are_the_fallback(tmp_path: Path, kind: ActionKind) -> None:
    plain, slim = of_kind(actions(tmp_path, slim=False), kind), of_kind(actions(tmp_path), kind)
    assert slim.fallback == plain.steps
    first, *rest = slim.steps
    assert list(first.command[1:5]) == SEES_SLIM
    assert (first.command[0], *first.command[5:]) == plain.steps[0].command
    assert tuple(rest) == plain.steps[1:]
    assert (slim.outputs, slim.inputs, slim.depfile) == (plain.outputs, plain.inputs, plain.depfile)
    assert [tree.identity for tree in slim.trees if tree.name == SLIM] == ["torch-2.13.0-slim-1"]


def test_device_code_that_does_not_wait_is_made_again_with_all_headers(tmp_path: Path) -> None:
    waits = device(actions(tmp_path, slim=False))
    (tmp_path / "k.cu").write_text("void launch() {}\n")
    found = actions(tmp_path)
    split, early, last = (of_kind(found, kind) for kind in (ActionKind.SPLIT, ActionKind.DEVICE, ActionKind.ASSEMBLE))
    assert not set(split.outputs) & set(early.inputs)
    assert list(early.steps[0].command[1:5]) == SEES_SLIM
    assert early.fallback[0].command[:7] == waits.steps[0].command[:7]
    assert set(last.inputs) == {f"{STEPS}/x.id", *early.outputs}
    assert last.outputs == waits.outputs
    assert SLIM not in {tree.name for tree in last.trees}
    assert last.depfile is not None
    assert [step.writes for step in last.fallback] == [step.writes for step in waits.steps]
    assert last.fallback[1:] == waits.steps[1:]
    assert {tool.name for tool in last.tools} == {"c++", "cicc", "ptxas"}
    assert device(actions(tmp_path, verify=True)).inputs == waits.inputs


def test_a_half_that_the_host_compiler_refuses_is_made_again_with_all_headers(tmp_path: Path) -> None:
    plain, slim = (of_kind(actions(tmp_path, slim=one), ActionKind.COMPILE) for one in (False, True))
    assert (slim.steps, slim.outputs) == (plain.steps, plain.outputs)
    preprocess, split, bundle, compiled = slim.fallback
    assert slim.depfile is not None
    assert slim.depfile in preprocess.command
    assert not set(SEES_SLIM) & set(preprocess.command)
    # The id of the first half is in the names that device code has already: the second half takes it.
    assert f"{STEPS}/x.id" in split.command
    assert f"{STEPS}/x.id" in slim.inputs
    assert split.writes == (f"{STEPS}/full-x.cpp",)
    assert bundle == plain.steps[0]
    assert [word.replace("full-", "") for word in compiled.command] == list(plain.command)
    assert {"cudafe++", "fatbinary", "c++"} <= {tool.name for tool in slim.tools}


def test_a_proof_makes_everything_twice_and_compares_what_is_passed_on(tmp_path: Path) -> None:
    plain, both = device(actions(tmp_path, slim=False)), device(actions(tmp_path, verify=True))
    assert both.outputs == plain.outputs
    assert both.fallback == plain.steps
    slim, full, proof = both.steps[:3], both.steps[3:6], both.steps[6]
    assert full == plain.steps
    made = {name for step in slim for name in step.writes}
    assert made.isdisjoint(name for step in full for name in step.writes)
    assert made <= set(both.scratch)
    # What slim steps hand on to each other has the other names, too; what others made has not.
    assert slim[1].reads == ("{project}/work/v/obj/k.cu.o.steps/slim-y.ii",) or set(slim[1].reads or ()) & made
    assert any("slim-y.ptx" in word for word in slim[2].command)
    compared = proof.command[3:]
    assert compared[1::2] == both.outputs
    assert [name.replace("slim-", "") for name in compared[::2]] == list(both.outputs)
    assert {tool.name: tool.path for tool in both.tools}["proof"] == Path(device_proof.__file__)


def test_a_proof_of_the_host_code_compiles_both_halves_without_optimization(tmp_path: Path) -> None:
    plain, found = actions(tmp_path, slim=False), actions(tmp_path, verify=True)
    split, last = of_kind(found, ActionKind.SPLIT), of_kind(found, ActionKind.COMPILE)
    half, other, number = f"{STEPS}/x.cpp", f"{STEPS}/full-x.cpp", f"{STEPS}/x.id"
    assert [step.writes for step in split.steps] == [
        (f"{STEPS}/x.ii",),
        (half, number),
        (f"{STEPS}/full-x.ii",),
        (other,),
    ]
    assert [all(word in step.command for word in SEES_SLIM) for step in split.steps] == [True, False, False, False]
    assert set(split.outputs) == {half, other, number}
    # Where slim headers do not do, both halves are the same one.
    assert split.fallback[:2] == of_kind(plain, ActionKind.SPLIT).steps
    assert split.fallback[2].command == ("cp", half, other)
    bundle, whole, part, proof, compiled = last.steps
    assert (bundle, compiled) == of_kind(plain, ActionKind.COMPILE).steps
    assert other in whole.command
    assert half in part.command
    assert other in last.inputs
    for step in (whole, part):
        assert step.command[-len(PLAINLY) :] == PLAINLY
    assert proof.command[3:] == (*whole.writes, *part.writes)
    assert [word.replace("full-", "") for word in last.fallback[1].command] == list(compiled.command)
    assert [tree.identity for tree in last.trees if tree.name == SLIM] == ["torch-2.13.0-slim-1"]


@pytest.mark.parametrize("verify", [False, True])
def test_a_source_without_definitions_is_compiled_as_ever(tmp_path: Path, verify: bool) -> None:
    found = actions(tmp_path, slim=False, verify=verify)
    assert [action.fallback for action in found] == [()] * 3
    assert found == actions(tmp_path, slim=False)
