"""Layers that claim a backward."""

# ruff: noqa: ARG005 (the arguments are those of the schema)

import itertools
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed in this environment")

from kernel_builder.load.probe import gradients  # noqa: E402
from kernel_builder.load.probe.behaviour import UnusableError  # noqa: E402

pytestmark = pytest.mark.torch
_NUMBER = itertools.count()

OPS = {
    "plain(Tensor x) -> Tensor": lambda x: x * 2,
    "out(Tensor! out, Tensor x) -> ()": lambda out, x: nothing(out.copy_(x * 2)),
    "fused(Tensor x, Tensor weight, float epsilon) -> Tensor": lambda x, weight, epsilon: x * weight,
    "trained(Tensor x) -> Tensor": lambda x: x * 2,
    "untrained(Tensor x) -> Tensor": lambda x: x * 2,
    "half_trained(Tensor x, Tensor y) -> Tensor": lambda x, y: x * y,
    "ids(Tensor x) -> Tensor": lambda x: x.long(),
    "half(Tensor x) -> Tensor": lambda x: {torch.bfloat16: x * 2}[x.dtype],
}


def nothing(*_: Any) -> None:
    """Take what an expression gives."""


@pytest.fixture
def kernel() -> Iterator[types.ModuleType]:
    """A kernel, as the client makes it, with ops in its namespace."""
    name = f"_gradients_{next(_NUMBER)}"
    library = torch.library.Library(name, "DEF")
    for schema, implementation in OPS.items():
        library.define(schema)
        library.impl(schema.partition("(")[0], implementation, "CPU")
    torch.library.register_autograd(f"{name}::trained", lambda context, grad: grad * 2, lib=library)
    torch.library.register_autograd(f"{name}::half_trained", lambda context, grad: (grad, None), lib=library)
    torch.library.register_autograd(f"{name}::untrained", lambda context, grad: None, lib=library)
    module = types.ModuleType(name)
    module.ops = getattr(torch.ops, name)  # type: ignore[attr-defined]
    module.layers = types.ModuleType(f"{name}.layers")  # type: ignore[attr-defined]
    sys.modules[name] = module
    yield module
    del sys.modules[name]
    library._destroy()


HEAD = """
import torch
from torch import nn

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return ops.plain(x)

    @staticmethod
    def backward(context, grad):
        return grad * 2

class Layer(nn.Module):
"""
FORWARD = "    def forward(self, x: torch.Tensor):\n        "
FUSED = "    weight: torch.Tensor\n    variance_epsilon: float\n" + FORWARD
IN_PLACE = FORWARD + "y = x.clone(); ops.out(y[..., :2], x[..., :2]); return y"


def judged(kernel: types.ModuleType, body: str, kind: str = "no gradient") -> list[tuple[str, str]]:
    facts = vars(kernel.layers) | {"ops": kernel.ops, "__name__": kernel.__name__ + ".layers"}
    exec(HEAD + body, facts)  # noqa: S102 (a kernel is code)
    kernel.layers.Layer = facts["Layer"]
    found = gradients.layers_of(kernel)
    return [
        (one["name"], one["words"])
        for layer in found.values()
        for one in gradients.judge_layer(layer, kernel.__name__, "cpu")
        if one["kind"] == kind
    ]


@pytest.mark.parametrize(
    ("body", "ops"),
    [
        (FORWARD + "return ops.plain(x)", "plain"),
        (FORWARD + "out = torch.empty_like(x); ops.out(out, x); return out", "out"),
        (FUSED + "return ops.fused(x, self.weight, self.variance_epsilon)", "fused"),
        (FORWARD + "return (ops.plain(x), ops.ids(x))", "plain"),
        (FORWARD + "return ops.half(x)", "half"),
        (FORWARD + "return ops.plain(x.detach())", "plain"),
        (FORWARD.replace(": torch.Tensor", ""), ""),
        (IN_PLACE, "out"),
    ],
)
def test_layers_without_a_gradient(kernel: types.ModuleType, body: str, ops: str) -> None:
    if not ops:
        body, ops = body + "return ops.plain(x)", "plain"
    assert judged(kernel, body) == [(ops, "")]
    assert judged(kernel, "    has_backward = True\n" + body) == [(ops, "explicit")]
    assert judged(kernel, "    has_backward: bool = False\n" + body) == []


def test_a_backward_that_gives_none(kernel: types.ModuleType) -> None:
    """It is registered; that is not what is wrong."""
    body = FORWARD + "return ops.untrained(x)"
    assert judged(kernel, body, "backward gives none") == [("untrained", "")]
    explicit = "    has_backward = True\n" + body
    assert judged(kernel, explicit, "backward gives none") == [("untrained", "explicit")]


@pytest.mark.parametrize(
    "body",
    [
        FORWARD + "return ops.trained(x)",
        FORWARD + "return ops.half_trained(x, x.detach())",
        FORWARD + "return Doubled.apply(x)",
        FORWARD + "return torch.relu(x)",
        FORWARD + "return ops.ids(x)",
        FORWARD + "return ops.trained(x) if x.requires_grad else ops.plain(x)",
        FUSED + "return ops.trained(x) * self.weight",
    ],
)
def test_layers_with_a_gradient_and_those_without_any_use_for_one(kernel: types.ModuleType, body: str) -> None:
    assert judged(kernel, "    has_backward = True\n" + body) == []


@pytest.mark.parametrize(
    "body",
    [
        FORWARD + "return self.experts(x)",
        FORWARD.replace("x: torch.Tensor", "x: torch.Tensor, config: dict") + "return ops.plain(x)",
        FORWARD + "raise ValueError('never right')",
    ],
)
def test_layers_that_cannot_be_called(kernel: types.ModuleType, body: str) -> None:
    with pytest.raises(UnusableError):
        judged(kernel, body)


def test_an_op_of_the_decorator_needs_a_formula(kernel: types.ModuleType) -> None:
    def decorated(x):  # type: ignore[no-untyped-def]
        return x * 2

    decorated.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    made = torch.library.custom_op(f"{kernel.__name__}::decorated", decorated, mutates_args=())
    assert judged(kernel, FORWARD + "return ops.decorated(x)") == [("decorated", "")]
    made.register_autograd(lambda context, grad: grad * 2)
    assert judged(kernel, FORWARD + "return ops.decorated(x)") == []


def test_a_kernel_without_layers(kernel: types.ModuleType) -> None:
    del kernel.layers
    assert gradients.layers_of(kernel) == {}
    assert gradients.layers_of(None) == {}


def test_torchs_compiler_is_not_imported_for_it() -> None:
    """It takes as long as all the rest of torch, and where it is loaded nobody can tell what of a kernel ran."""
    script = """
import sys, types
import torch
from kernel_builder.load.probe import gradients

library = torch.library.Library("_apart", "DEF")
library.define("plain(Tensor x) -> Tensor")
library.impl("plain", lambda x: x * 2, "CPU")

class Layer(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        return torch.ops._apart.plain(x)

(found,) = gradients.judge_layer(Layer, "_apart", "cpu")
assert found["kind"] == gradients.NO_GRADIENT, found
print([name for name in sys.modules if name.startswith("torch._dynamo")])
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "[]\n"), ended.stderr
