"""RMSNorm for PyTorch in one pass over memory, with a gradient."""

import torch

from . import layers
from ._ops import add_op_namespace_prefix, ops

__all__ = ["layers", "rms_norm"]


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return ``x / sqrt(mean(x * x) + eps) * weight``, where the mean is over the last dimension.

    Args:
        x: float32, float64, float16 or bfloat16; computed in float32 at least.
        weight: one factor for each element of the last dimension, of the dtype of ``x``.
        eps: keeps rows of zeros from a division by zero.
    """
    return ops.rms_norm(x, weight, eps)[0]


# For torch.compile: the shapes and dtypes of the op's results.
@torch.library.register_fake(add_op_namespace_prefix("rms_norm"))
def _(x, weight, eps):
    computed = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=computed)


@torch.library.register_fake(add_op_namespace_prefix("rms_norm_backward"))
def _(grad, x, weight, rstd):
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


# For autograd: what the forward pass saves, and how to compute gradients from it.
def _setup_context(ctx, inputs, output):
    x, weight, _ = inputs
    _, rstd = output
    ctx.save_for_backward(x, weight, rstd)
    ctx.mark_non_differentiable(rstd)


def _backward(ctx, grad, _):
    x, weight, rstd = ctx.saved_tensors
    grad_x, grad_weight = ops.rms_norm_backward(grad, x, weight, rstd)
    return grad_x, grad_weight, None


torch.library.register_autograd(add_op_namespace_prefix("rms_norm"), _backward, setup_context=_setup_context)
