"""What loading showed, judged."""

from __future__ import annotations

import pytest

from kernel_builder.check.loaded import judge
from kernel_builder.config.backends import Backend
from kernel_builder.load.evidence import Foreign, LoadedOp, LoadResult, LoadStatus


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
