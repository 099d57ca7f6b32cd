"""Ops that do not do what their schemas and fakes say, called with made-up arguments."""

# ruff: noqa: ARG005 (the arguments are those of the schema)
from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed in this environment")

from kernel_builder.load.probe import behaviour  # noqa: E402
from kernel_builder.load.probe.search import words_of  # noqa: E402

pytestmark = pytest.mark.torch

Implementation = Callable[..., Any]
_NUMBER = itertools.count()


def op(
    schema: str, implementation: Implementation, fake: Implementation | None = None, key: str = "CPU"
) -> tuple[Any, Any]:
    """An op in a namespace of its own; the library must be kept."""
    library = torch.library.Library(f"behaviour_{next(_NUMBER)}", "DEF")
    library.define(schema)
    name = schema.partition("(")[0]
    library.impl(name, implementation, key)
    if fake is not None:
        library.impl(name, fake, "Meta")
    base, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, library.ns), base), overload or "default"), library


def judged(schema: str, implementation: Implementation, fake: Implementation | None = None) -> list[dict[str, str]]:
    overload, _library = op(schema, implementation, fake)
    return behaviour.judge(overload, "cpu")


def fill(*tensors: Any) -> Any:
    """Write all of them."""
    for tensor in tensors:
        tensor.fill_(7)


def nothing(*_: Any) -> None:
    """Take what an expression gives, for ops without a result."""


def gated(out: Any, x: Any) -> None:
    assert out.shape[-1] * 2 == x.shape[-1], "half of it"
    out.fill_(7)


@pytest.mark.parametrize(
    ("schema", "implementation", "name", "wanted"),
    [
        ("f(Tensor out, Tensor x) -> ()", lambda out, x: fill(out), "out", "f(Tensor! out, Tensor x) -> ()"),
        ("f(Tensor x, *, Tensor out) -> ()", lambda x, out: fill(out), "out", "f(Tensor x, *, Tensor! out) -> ()"),
        (
            "f.out(Tensor x, int n=2, Tensor? out=None) -> Tensor",
            lambda x, n=2, out=None: (fill(out) if out is not None else None, x + 1)[1],
            "out",
            "f.out(Tensor x, int n=2, Tensor!? out=None) -> Tensor",
        ),
        ("f(Tensor[] outs, Tensor x) -> ()", lambda outs, x: fill(*outs), "outs", "f(Tensor![] outs, Tensor x) -> ()"),
        ("f(Tensor?[] a) -> ()", lambda a: fill(a[1]), "a", "f(Tensor!?[] a) -> ()"),
        (
            "f(Tensor! out, Tensor state, int[2] sizes=[1, 2]) -> ()",
            lambda out, state, sizes=(1, 2): fill(out, state.view(-1)[-1:]),
            "state",
            "f(Tensor! out, Tensor! state, int[2] sizes=[1, 2]) -> ()",
        ),
        # Values that are written may be those that were there.
        ("f(Tensor x) -> ()", lambda x: nothing(x.mul_(1)), "x", "f(Tensor! x) -> ()"),
        ("f(Tensor x) -> ()", lambda x: nothing(x.t_()), "x", "f(Tensor! x) -> ()"),
        ("f(Tensor x) -> ()", lambda x: nothing(x.resize_(3)), "x", "f(Tensor! x) -> ()"),
        # Only some arguments are taken.
        (
            "f(Tensor out, Tensor x) -> ()",
            gated,
            "out",
            "f(Tensor! out, Tensor x) -> ()",
        ),
        (
            "norm(Tensor out, Tensor x, Tensor weight, float epsilon) -> ()",
            lambda out, x, weight, epsilon: nothing(out.copy_(torch.rms_norm(x, weight.shape, weight, epsilon))),
            "out",
            "norm(Tensor! out, Tensor x, Tensor weight, float epsilon) -> ()",
        ),
        (
            "rows(Tensor x, Tensor index) -> ()",
            lambda x, index: nothing(x.index_fill_(0, index, 1.0)),
            "x",
            "rows(Tensor! x, Tensor index) -> ()",
        ),
        (
            "half_only(Tensor x) -> ()",
            lambda x: nothing({torch.float16: x.fill_}[x.dtype](1)),
            "x",
            "half_only(Tensor! x) -> ()",
        ),
        (
            "attention(Tensor q) -> ()",
            lambda q: (q[:, :, :, 0].fill_(1), None)[1] if q.dim() == 4 else q.unknown(),
            "q",
            "attention(Tensor! q) -> ()",
        ),
    ],
)
def test_what_is_written_without_being_declared(
    schema: str, implementation: Implementation, name: str, wanted: str
) -> None:
    assert judged(schema, implementation) == [{"kind": "writes", "name": name, "schema": wanted}]
    torch._C.parse_schema(wanted)


@pytest.mark.parametrize(
    ("schema", "implementation", "expected"),
    [
        ("f(Tensor x) -> Tensor", lambda x: x, [("returns", "x")]),
        ("f(Tensor x) -> Tensor", lambda x: x.contiguous(), [("returns", "x")]),
        ("f(Tensor x) -> Tensor", lambda x: x.detach(), [("returns", "x")]),
        ("f(Tensor x, Tensor y) -> (Tensor, Tensor)", lambda x, y: (x + 1, y.view(-1)[1:]), [("shares", "y")]),
        ("f(Tensor x) -> Tensor[]", lambda x: [x + 1, x.t() if x.dim() == 2 else x], [("shares", "x")]),
        ("f(Tensor! x) -> Tensor", lambda x: (fill(x), x)[1], [("returns", "x")]),
        ("f(Tensor x, Tensor? y=None) -> Tensor", lambda x, y=None: x + 1 if y is None else y, [("returns", "y")]),
        ("f(Tensor(a) x) -> Tensor(a)", lambda x: x.view(-1), []),
        ("f(Tensor(a!) x) -> Tensor(a!)", lambda x: x.add_(1), []),
        ("f(Tensor(a) x, Tensor y) -> Tensor(a)", lambda x, y: y, [("returns", "y")]),
    ],
)
def test_results_that_share_memory_with_arguments(
    schema: str, implementation: Implementation, expected: list[tuple[str, str]]
) -> None:
    found = judged(schema, implementation)
    assert [(one["kind"], one["name"]) for one in found] == expected


@pytest.mark.parametrize(
    ("implementation", "fake", "words"),
    [
        (lambda x: x * 2, lambda x: x.new_empty(x.shape[0]), "shape (4,), but the op returns (4, 8)"),
        (lambda x: x * 2, lambda x: torch.empty_like(x).t(), "shape (8, 4), but the op returns (4, 8)"),
        (lambda x: x > 0, torch.empty_like, "dtype torch.float32, but the op returns torch.bool"),
        (lambda x: (x * 2).t(), lambda x: x.new_empty(x.shape[::-1]), "strides (4, 1), but the op returns (1, 8)"),
        (lambda x: x * 2, lambda x: torch.empty(x.shape, device="cpu"), "device cpu, but the op returns cpu"),
    ],
)
def test_fakes_that_differ(implementation: Implementation, fake: Implementation, words: str) -> None:
    (found,) = judged("f(Tensor x) -> Tensor", implementation, fake)
    if "device" not in words:  # a fake that makes a real tensor raises
        assert (found["kind"], found["words"]) == ("fake differs", words)


def test_other_faults_of_fakes() -> None:
    (found,) = judged("f(Tensor x) -> Tensor", lambda x: x * 2, lambda x: x)
    assert (found["kind"], found["name"]) == ("fake returns", "x")
    (found,) = judged("f(Tensor x) -> Tensor", lambda x: x * 2, lambda x: x.view(-1).view(x.shape))
    assert (found["kind"], found["name"]) == ("fake returns", "x")
    (found,) = judged("f(Tensor x) -> Tensor", lambda x: x * 2, lambda x: x.new_empty(x.nothing))
    assert found["kind"] == "fake raises"
    assert "nothing" in found["words"]
    (found,) = judged("f(Tensor x) -> Tensor[]", lambda x: [x * 2], lambda x: [x * 2, x * 3])
    assert found["words"] == "2 results, but the op returns 1"


def gather(x: Any, index: Any) -> Any:
    return x.index_select(0, index)


@pytest.mark.parametrize(
    ("schema", "implementation", "fake"),
    [
        ("f(Tensor! out, Tensor x) -> ()", lambda out, x: fill(out), lambda out, x: None),
        ("f(Tensor(a!)? out, Tensor x) -> ()", lambda out, x: fill(out) if out is not None else None, None),
        ("f(Tensor(a!)[] outs) -> ()", lambda outs: fill(*outs), None),
        ("f(Tensor! never) -> ()", lambda never: None, None),
        ("f(Tensor x) -> Tensor", lambda x: x * 2, torch.empty_like),
        ("f(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 2, x.sum()), lambda x: (x * 2, x.sum())),
        ("f(Tensor x, Tensor ids) -> Tensor", gather, lambda x, ids: x.new_empty((ids.shape[0], *x.shape[1:]))),
        ("f(Tensor x) -> Tensor", lambda x: x[:, :0], lambda x: x.new_empty((x.shape[0], 0)).t().t()),
        ("f(Tensor x) -> int", lambda x: x.dim(), None),
        ("f(Tensor x, ScalarType dtype) -> Tensor", lambda x, dtype: x.to(dtype, copy=True), None),
        ("f(Tensor x) -> Tensor", lambda x: torch.full_like(x, float("nan")), None),
    ],
)
def test_ops_that_do_what_they_say(schema: str, implementation: Implementation, fake: Implementation | None) -> None:
    assert judged(schema, implementation, fake) == []


def test_a_fake_that_cannot_know_the_size_is_right() -> None:
    library = torch.library.Library("behaviour_dynamic", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x[x > 0], "CPU")

    def fake(x: Any) -> Any:
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    torch.library.register_fake("behaviour_dynamic::f", fake, lib=library)
    assert behaviour.judge(torch.ops.behaviour_dynamic.f.default, "cpu") == []


def write_if(condition: bool, x: Any) -> Any:
    if condition:
        x.fill_(7)


def wants(condition: bool, words: str) -> Any:
    if not condition:
        raise RuntimeError(words)


@pytest.mark.parametrize(
    ("schema", "implementation", "name", "words"),
    [
        ("f(Tensor x, bool inplace=False) -> ()", lambda x, inplace=False: write_if(inplace, x), "x", "inplace=True"),
        ("f(Tensor x, bool keep=True) -> ()", lambda x, keep=True: write_if(not keep, x), "x", "keep=False"),
        ("f(Tensor x, *, bool? b=None) -> ()", lambda x, b=None: write_if(b is True, x), "x", "b=True"),
        ("f(Tensor x, int in_place=0) -> ()", lambda x, in_place=0: write_if(in_place == 1, x), "x", "in_place=1"),
        (
            "f(Tensor x, Tensor? y=None, bool b=False) -> ()",
            lambda x, y=None, b=False: write_if(b and y is not None, y),
            "y",
            "b=True",
        ),
        (
            "f(Tensor x, str mode) -> ()",
            lambda x, mode: (wants(mode in {"new", "same"}, "not 'new' or 'same'"), write_if(mode == "same", x))[1],
            "x",
            'mode="same"',
        ),
    ],
)
def test_what_is_written_in_one_mode_only(schema: str, implementation: Implementation, name: str, words: str) -> None:
    (found,) = judged(schema, implementation)
    assert (found["kind"], found["name"], found["words"]) == ("writes", name, words)


@pytest.mark.parametrize(
    ("schema", "implementation", "name"),
    [
        ("f(Tensor x) -> (Tensor, Tensor)", lambda x: (x + 1,) * 2, "result 1 and result 2"),
        (
            "f(Tensor x) -> (Tensor out, Tensor, Tensor last)",
            lambda x: ((y := x + 1), x * 2, y.t()),
            "'out' and 'last'",
        ),
        ("f(Tensor x) -> Tensor[]", lambda x: list((x + 1).chunk(2)), "result 1[0] and result 1[1]"),
        (
            "f(Tensor x) -> (Tensor a, Tensor[] b)",
            lambda x: ((y := x + 1), [x * 2, y.view(-1)]),
            "'a' and 'b'[1]",
        ),
    ],
)
def test_results_that_share_memory_with_each_other(schema: str, implementation: Implementation, name: str) -> None:
    assert judged(schema, implementation) == [{"kind": "results share", "name": name}]


def tiles(x: Any) -> Any:
    wants(x.dim() == 2 and x.shape[1] % 64 == 0, "Expected x.size(1) % 64 == 0 to be true, but got false.")
    return x * 2


def silent_tiles(x: Any) -> Any:
    wants(x.dim() == 2 and x.shape[1] % 128 == 0 and x.dtype == torch.bfloat16, "unsupported input")
    return x * 2


def many_tiles(x: Any) -> Any:
    wants(x.dim() == 3, "x must have 3 dimensions")
    wants(x.shape[-1] == 192, "head size must be 192")
    wants(x.dtype == torch.float16, "expected scalar type Half but found Float")
    return x * 2


def one_of(*words: str, text: str) -> Implementation:
    def chosen(x: Any, mode: str) -> Any:
        wants(mode in words, text.format(mode=mode))
        return x * 2

    return chosen


def two_words(x: Any, first: str, second: str) -> Any:
    wants(first in {"row", "column"}, f"first is neither row nor column: {first}")
    wants(second in {"upper", "lower"}, f"second: `upper` or `lower`, not {second}")
    wants(x.dim() == 1, "must be 1-D")
    return x * 2


@pytest.mark.parametrize(
    ("schema", "implementation"),
    [
        ("f(Tensor x) -> Tensor", tiles),
        ("f(Tensor x) -> Tensor", silent_tiles),
        ("f(Tensor x) -> Tensor", many_tiles),
        ("f(Tensor x, int n) -> Tensor", lambda x, n: (wants(n in {16, 32}, "block size 16 or 32"), x * 2)[1]),
        ("f(Tensor x, bool b) -> Tensor", lambda x, b: (wants(b, "only with b"), x * 2)[1]),
        ("f(Tensor x, Tensor? y=None) -> Tensor", lambda x, y=None: (wants(y is not None, "needs y"), x * 2)[1]),
        ("f(Tensor x, str mode) -> Tensor", one_of("tight", "loose", text="mode must be 'tight' or 'loose'")),
        (
            "f(Tensor x, str mode) -> Tensor",
            one_of("tight", "loose", text='Expected mode == "tight" || mode == "loose"'),
        ),
        ("f(Tensor x, str mode) -> Tensor", one_of("tight", "loose", text="got {mode}; known modes: tight, loose")),
        ("f(Tensor x, str mode) -> Tensor", one_of("gelu", text="no such activation: {mode}")),
        ("f(Tensor x, str mode) -> Tensor", one_of("from_python", text="no")),
        ("f(Tensor x, str first, str second) -> Tensor", two_words),
    ],
)
def test_arguments_are_made_up_as_errors_ask_for(schema: str, implementation: Implementation) -> None:
    overload, _library = op(schema, implementation)
    assert behaviour.judge(overload, "cpu", ["other", "from_python"]) == []


def test_the_strings_of_a_kernel_are_tried(tmp_path: Path) -> None:
    package = (
        '"""A kernel."""\n__all__ = ["f", "g"]\n\ndef f(x, mode="by_default"):\n'
        '    if mode in ("in_list", "two words"):\n        return ops.f(x, "given", how="named")\n'
        '    return {"key": "value"}[mode]\n'
    )
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.py").write_text(package, encoding="ascii")
    (tmp_path / "broken.py").write_text("def f(:\n", encoding="ascii")
    assert set(words_of(str(tmp_path))) == {"by_default", "in_list", "given", "named", "key", "value"}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("f(Tensor x) -> ()", "never right"),
        ("f(int data_ptr) -> ()", "data_ptr is an address"),
        ("f(__torch__.torch.classes.no.Such x) -> ()", ""),
    ],
)
def test_ops_that_cannot_be_called(schema: str, words: str) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("never right")

    if "classes" in schema:
        pytest.skip("torch does not know such a class without its library")
    with pytest.raises(behaviour.UnusableError, match=words):
        judged(schema, refuse)


def test_an_op_that_writes_out_of_bounds_is_not_judged() -> None:
    def beyond(out: Any, x: Any) -> None:
        torch.as_strided(out, (out.numel() + 5,), (1,)).fill_(3)

    with pytest.raises(behaviour.UnusableError, match="past their end"):
        judged("f(Tensor out, Tensor x) -> ()", beyond)


def test_ops_of_the_decorator_have_a_fake_once_it_is_registered() -> None:
    def copy(x):  # type: ignore[no-untyped-def]
        return x.clone()

    copy.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    made = torch.library.custom_op("behaviour_decorated::f", copy, mutates_args=())
    overload = torch.ops.behaviour_decorated.f.default
    assert behaviour.judge(overload, "cpu") == []
    made.register_fake(lambda x: x.new_empty(3))
    (found,) = behaviour.judge(overload, "cpu")
    assert found["kind"] == "fake differs"


def test_torchs_compiler_is_imported_for_those_alone_that_ask_for_it() -> None:
    """It takes as long as all the rest of torch, and where it is loaded nobody can tell what of a kernel ran."""
    script = """
import sys
import torch
from kernel_builder.load.probe import behaviour

library = torch.library.Library("fakes", "DEF")

def judged(name, fake):
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: 2 * x, "CPU")
    torch.library.register_fake(f"fakes::{name}", fake)
    return behaviour.judge(getattr(torch.ops.fakes, name).default, "cpu")

assert judged("right", torch.empty_like) == []
(found,) = judged("wrong", lambda x: x.new_empty(3))
assert found["kind"] == behaviour.FAKE_DIFFERS, found
assert not [name for name in sys.modules if name.startswith("torch._dynamo")]
assert "_dynamo" not in vars(torch)
asks = lambda x: torch.empty_like(x) if not torch._dynamo.external_utils.is_compiling() else None
assert judged("asks", asks) == []
assert "torch._dynamo.eval_frame" in sys.modules
assert torch.compile(lambda x: torch.ops.fakes.right(x) + 1, backend="eager", fullgraph=True)(torch.ones(1)) == 3
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
