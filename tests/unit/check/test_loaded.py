"""What loading showed, judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.check.behaviour import judge_behaviour
from kernel_builder.check.loaded import judge
from kernel_builder.config.backends import Backend
from kernel_builder.load.evidence import (
    Behaviour,
    Deviation,
    Fault,
    Foreign,
    LoadedOp,
    LoadResult,
    LoadStatus,
    Undefined,
)
from kernel_builder.load.proofs import Proofs


def found(result: LoadResult, backend: str = "cuda") -> list[tuple[str, str, str]]:
    findings = judge("place", result, ops_id="_own", backend=Backend(backend))
    return [(finding.rule.code, finding.message, finding.hint or "") for finding in findings]


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (Foreign(kind="op", namespace="ns", name="ns::f", place="a.cpp:3"), 'ops.impl("f", '),
        (Foreign(kind="op", namespace="ns", name="ns::f"), "ops.f(...), not torch.ops.ns.f(...)"),
        (Foreign(kind="op", namespace="ns", name="ns::f", place="part/a.py:3"), 'add_op_namespace_prefix("f")'),
        (Foreign(kind="op", namespace="ns", name="", place="a.py:3"), 'add_op_namespace_prefix("NAME")'),
        (Foreign(kind="class", namespace="ns", name="ns.Kept"), 'ops.class_<Kept>("Kept")'),
        (Foreign(kind="kernel", namespace="aten", name="aten::add (CPU)", place="a.cpp:3"), "op of the kernel's own"),
        (Foreign(kind="fallback", namespace="_", name="CUDA"), "op of the kernel's own"),
    ],
)
def test_what_to_write_instead_is_said(one: Foreign, words: str) -> None:
    ((code, message, hint),) = found(LoadResult(status=LoadStatus.LOADED, foreign=(one,)))
    assert code == "KB503"
    assert one.name in message
    assert words in hint


@pytest.mark.parametrize(
    ("keys", "tensors", "backend", "codes"),
    [
        ("CUDA", True, "cuda", []),
        ("CUDA", True, "rocm", []),
        ("CUDA", True, "xpu", ["KB504"]),
        ("XPU", True, "xpu", []),
        ("CPU", True, "cuda", ["KB504"]),
        ("Meta", True, "cuda", ["KB504"]),
        ("", True, "cpu", ["KB504"]),
        ("CompositeImplicitAutograd", True, "metal", []),
        ("CompositeExplicitAutograd Meta", True, "cuda", []),
        ("CompositeImplicitAutograd", False, "cuda", []),
        ("CUDA", False, "cuda", ["KB504"]),
        ("CUDA BackendSelect", False, "cuda", []),
        ("SparseCUDA", True, "cuda", []),
        ("QuantizedCPU", True, "cuda", ["KB504"]),
        ("AutogradCUDA", True, "cuda", ["KB509"]),
        ("Autograd", True, "cpu", ["KB509"]),
        ("AutogradCPU", True, "cuda", ["KB504"]),
        ("Autograd CPU ADInplaceOrView", True, "cuda", ["KB504"]),
        ("AutocastCUDA", True, "cuda", ["KB504"]),
        ("PrivateUse1", True, "cann", []),
    ],
)
def test_an_op_serves_the_device_of_its_variant(keys: str, tensors: bool, backend: str, codes: list[str]) -> None:
    op = LoadedOp(name="_own::f", keys=tuple(keys.split()), tensors=tensors)
    assert [code for code, *_ in found(LoadResult(status=LoadStatus.LOADED, ops=(op,)), backend)] == codes


def test_the_device_that_it_is_implemented_for_is_named() -> None:
    op = LoadedOp(name="_own::f", keys=("CPU", "Meta", "Autograd"))
    ((_, message, _),) = found(LoadResult(status=LoadStatus.STOOD_IN, ops=(op,)))[1:]
    assert message == "_own::f is implemented for CPU only, but the variant is for CUDA"


def test_how_far_the_proof_goes_is_a_note() -> None:
    ops = (LoadedOp(name="_own::f", keys=("CUDA",)), LoadedOp(name="_own::g", keys=("CompositeImplicitAutograd",)))
    result = LoadResult(status=LoadStatus.STOOD_IN, ops=ops, reason="its Python needs a device")
    assert found(result) == [
        (
            "KB510",
            "loaded with stand-ins: 2 ops, implemented for CUDA and all devices; its Python needs a device",
            "",
        )
    ]


def test_a_kernel_that_fails_after_registering_elsewhere_is_told_both() -> None:
    """Its Python looks for its ops where they are not, so the error alone leads astray."""
    foreign = (Foreign(kind="op", namespace="ns", name="ns::f", place="a.cpp:3"),)
    result = LoadResult(status=LoadStatus.FAILED, reason="AttributeError: no attribute 'f'", foreign=foreign)
    failed, elsewhere = found(result)
    assert failed[0] == "KB501"
    assert "outside its own namespace: ns::f (a.cpp:3)" in failed[1]
    assert elsewhere[0] == "KB503"


CUDA_OP = LoadedOp(name="_own::relu", keys=("CUDA",))


@pytest.mark.parametrize(
    ("name", "ops", "words"),
    [
        ("_own::rleu", (CUDA_OP,), "the nearest op that is defined: _own::relu"),
        ("_own::far_away", (CUDA_OP,), "the nearest op that is defined: _own::relu"),
        ("_own::f", (), "the kernel defines no op"),
    ],
)
def test_what_is_implemented_and_not_defined_is_no_op(name: str, ops: tuple[LoadedOp, ...], words: str) -> None:
    result = LoadResult(status=LoadStatus.LOADED, ops=ops, undefined=(Undefined(name=name, place="a.cpp:3"),))
    ((code, message, _),) = found(result)
    assert (code, message) == ("KB515", f"{name} is implemented (a.cpp:3), but nothing defines it; {words}")
    assert result.told == ("loaded, 1 op" if ops else "loaded")


@pytest.mark.parametrize(
    ("op", "called", "codes"),
    [
        (LoadedOp(name="_own::f", keys=("CUDA",), idle=True), None, ["KB516"]),
        (LoadedOp(name="_own::f", keys=("CUDA",), idle=True), "it refuses", ["KB516", "KB508"]),
        (LoadedOp(name="_own::f", keys=("CUDA",), idle=True), "", []),
        (LoadedOp(name="_own::f", keys=("CompositeImplicitAutograd",), idle=True), None, []),
        (LoadedOp(name="_own::f", keys=("CUDA",)), "it refuses", ["KB508"]),
    ],
)
def test_an_op_without_effect_that_was_not_called_is_suspect(
    op: LoadedOp, called: str | None, codes: list[str]
) -> None:
    behaviour = () if called is None else (Behaviour(op=op.name, problem=called),)
    result = LoadResult(status=LoadStatus.LOADED, ops=(op,), behaviour=behaviour)
    assert [code for code, *_ in found(result)] == codes


@pytest.mark.parametrize(
    ("deviation", "message"),
    [
        (
            Deviation(fault=Fault.WRITES, name="x", words="f=True", schema="f(T!)"),
            "{0} writes its argument 'x' when called with f=True, but its schema does not say so; write the schema{1}",
        ),
        (
            Deviation(fault=Fault.RESULTS_SHARE, name="'out' and 'lse'"),
            "_own::relu returns results that share memory: 'out' and 'lse'",
        ),
        (
            Deviation(fault=Fault.GIVES_NONE, name="relu", words="explicit"),
            "_own::relu claims has_backward, but the backward of its ops gives None for every input: relu",
        ),
    ],
)
def test_what_a_fault_is_called(deviation: Deviation, message: str) -> None:
    result = LoadResult(
        status=LoadStatus.LOADED, ops=(CUDA_OP,), behaviour=(Behaviour(op="_own::relu", deviations=(deviation,)),)
    )
    assert [words for _, words, _ in found(result)] == [message.format("_own::relu", " as f(T!)")]


def test_an_argument_that_is_written_and_returned_is_one_fault() -> None:
    written = Deviation(fault=Fault.WRITES, name="out", schema="f(Tensor!? out) -> Tensor")
    returned, other = Deviation(fault=Fault.RETURNS, name="out"), Deviation(fault=Fault.RETURNS, name="x")
    behaviour = Behaviour(op="_own::relu", deviations=(written, returned, other))
    result = LoadResult(status=LoadStatus.LOADED, ops=(CUDA_OP,), behaviour=(behaviour,))
    findings = list(judge_behaviour("variant", result))
    assert [(one.rule.code, one.message) for one in findings] == [
        ("KB511", "_own::relu writes its argument 'out', but its schema does not say so, and returns it"),
        ("KB512", "_own::relu returns its argument 'x'"),
    ]
    assert findings[0].hint is not None
    assert "out.copy_(result)" in findings[0].hint


def test_how_many_ops_could_not_be_called_is_told(tmp_path: Path) -> None:
    ops = tuple(LoadedOp(name=f"_own::f{number}", keys=("CPU",)) for number in range(5))
    behaviour = tuple(Behaviour(op=op.name, problem="no" if op in ops[:2] else "") for op in ops)
    behaviour += (Behaviour(op="layers.Layer", problem="no"),)
    result = LoadResult(status=LoadStatus.LOADED, ops=ops, behaviour=behaviour)
    assert result.told == "loaded, 5 ops (3 of 5 called, the others reject made-up arguments)"
    full = replace(result, undefined=(Undefined(name="_own::g"),))
    Proofs(tmp_path).keep(["key"], full)
    assert Proofs(tmp_path).recall(["key"]) == full
