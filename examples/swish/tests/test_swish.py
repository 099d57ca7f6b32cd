"""Triton compiles for the GPU when the kernel is called, so these tests need one."""

from pathlib import Path

import pytest
import torch
from kernels import get_local_kernel

if not torch.cuda.is_available():
    pytest.skip("a GPU is needed", allow_module_level=True)

kernel = get_local_kernel(Path(__file__).resolve().parent.parent)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("shape", [(1,), (1023,), (3, 5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_agrees_with_torch(dtype, shape):
    x = torch.randn(shape, device="cuda", dtype=dtype)
    torch.testing.assert_close(kernel.swish(x), torch.nn.functional.silu(x))


def test_compiles_in_one_graph():
    function = torch.compile(lambda x: kernel.swish(x) + 1, fullgraph=True)
    x = torch.randn(5, device="cuda")
    torch.testing.assert_close(function(x), torch.nn.functional.silu(x) + 1)
