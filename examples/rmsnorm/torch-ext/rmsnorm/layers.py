"""Layers that ``kernelize`` can put in the place of a model's own."""

import torch

from ._ops import ops


class RMSNorm(torch.nn.Module):
    """Takes the place of a layer with a ``weight`` and a ``variance_epsilon``, as language models have them."""

    can_torch_compile = True

    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(hidden_states, self.weight, self.variance_epsilon)[0]
