"""ReLU for PyTorch: ``max(x, 0)`` for any floating-point tensor."""

from typing import Optional

import torch

from . import layers
from ._ops import add_op_namespace_prefix, ops

__all__ = ["layers", "relu"]


def relu(x: torch.Tensor, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Return ``max(x, 0)``, elementwise.

    Args:
        x: float32, float64, float16 or bfloat16, of any shape and layout.
        out: where to write the result: a tensor like ``x``, or ``x`` itself. Autograd does not see what is
            written here, so ``x`` must not require a gradient then.

    Returns:
        ``out``, or a new tensor with the shape and layout of ``x``.
    """
    if out is None:
        return ops.relu(x)
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        raise RuntimeError("relu: out= has no gradient; leave it out, or call this under torch.no_grad()")
    ops.relu_out(out, x)
    return out


# For torch.compile: the shape, dtype and layout of the op's result.
@torch.library.register_fake(add_op_namespace_prefix("relu"))
def _(x):
    return torch.empty_like(x)


@torch.library.register_fake(add_op_namespace_prefix("relu_out"))
def _(out, x):
    return None


def _setup_context(ctx, inputs, output):
    ctx.save_for_backward(output)


def _backward(ctx, grad):
    (output,) = ctx.saved_tensors
    return torch.ops.aten.threshold_backward(grad, output, 0)


torch.library.register_autograd(add_op_namespace_prefix("relu"), _backward, setup_context=_setup_context)
