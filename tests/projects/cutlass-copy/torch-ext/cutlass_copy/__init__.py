"""A copy through CuTe tiles."""

import torch

from ._ops import ops

__all__ = ["copy", "elder_release"]


def copy(x: torch.Tensor) -> torch.Tensor:
    """A copy of the matrix ``x``."""
    return ops.copy(x)


def elder_release() -> int:
    """The older release of CUTLASS that a part of this kernel was compiled with."""
    return ops.elder_release()
