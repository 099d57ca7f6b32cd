"""Row sums, with separate code for GPUs that have thread block clusters."""

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["row_sum"]


def row_sum(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of each row of ``x``, a float32 matrix."""
    return ops.row_sum(x)


@torch.library.register_fake(add_op_namespace_prefix("row_sum"))
def _(x):
    return x.new_empty(x.shape[:1])
