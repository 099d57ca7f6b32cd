"""Gated activations for language models: the activation of each row's first half, times the second half."""

import torch

from . import layers
from ._ops import add_op_namespace_prefix, ops

__all__ = ["gelu_and_mul", "gelu_tanh_and_mul", "layers", "silu_and_mul"]


def silu_and_mul(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Write ``silu(x[..., :d]) * x[..., d:]`` to ``out`` and return it.

    Args:
        out: contiguous, of the shape of ``x`` but for the last dimension, which is ``d``.
        x: float32, float16 or bfloat16, with ``2 * d`` elements in its last dimension.
    """
    ops.silu_and_mul(out, x)
    return out


def gelu_and_mul(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Like :func:`silu_and_mul`, with the exact GELU."""
    ops.gelu_and_mul(out, x)
    return out


def gelu_tanh_and_mul(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Like :func:`silu_and_mul`, with the ``tanh`` approximation of GELU."""
    ops.gelu_tanh_and_mul(out, x)
    return out


# For torch.compile: these ops return nothing, they write to `out`.
def _fake(out, x):
    return None


for _name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
    torch.library.register_fake(add_op_namespace_prefix(_name))(_fake)
