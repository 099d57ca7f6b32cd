"""x * sigmoid(x), in Triton."""

import torch
import triton
import triton.language as tl

from ._ops import add_op_namespace_prefix

__all__ = ["swish"]


@triton.jit
def _swish_kernel(out, x, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, mask=at < count).to(tl.float32)
    tl.store(out + at, value * tl.sigmoid(value), mask=at < count)


@torch.library.triton_op(add_op_namespace_prefix("swish"), mutates_args=())
def swish(x: torch.Tensor) -> torch.Tensor:
    """Return ``x * sigmoid(x)``."""
    x = x.contiguous()
    out = torch.empty_like(x)
    torch.library.wrap_triton(_swish_kernel)[(triton.cdiv(x.numel(), 1024),)](out, x, x.numel(), block=1024)
    return out
