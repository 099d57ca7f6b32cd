"""Layers with which ``kernelize`` can replace a model's own layers."""

import torch

from ._ops import ops


class SiluAndMul(torch.nn.Module):
    """Replaces a layer that returns ``silu(x[..., :d]) * x[..., d:]``."""

    can_torch_compile = True
    has_backward = False  # for inference; examples/rmsnorm has a gradient

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty((*x.shape[:-1], x.shape[-1] // 2))
        ops.silu_and_mul(out, x)
        return out


class GeluAndMul(torch.nn.Module):
    """Replaces a layer that returns ``gelu(x[..., :d]) * x[..., d:]``."""

    can_torch_compile = True
    has_backward = False  # for inference; examples/rmsnorm has a gradient

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty((*x.shape[:-1], x.shape[-1] // 2))
        ops.gelu_and_mul(out, x)
        return out
