"""Layers with which ``kernelize`` can replace a model's own layers."""

import torch

from ._ops import ops


class ReLU(torch.nn.Module):
    """Replaces ``torch.nn.ReLU``."""

    can_torch_compile = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.relu(x)
