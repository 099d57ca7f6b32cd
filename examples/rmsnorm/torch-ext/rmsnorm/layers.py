"""Layers with which ``kernelize`` can replace a model's own layers."""

import torch

from ._ops import ops


class RMSNorm(torch.nn.Module):
    """Replaces a layer with a ``weight`` and a ``variance_epsilon``, as in language models."""

    can_torch_compile = True

    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(hidden_states, self.weight, self.variance_epsilon)[0]
