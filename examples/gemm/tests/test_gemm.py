import pytest
import torch


@pytest.mark.kernels_ci
@pytest.mark.parametrize("shape", [(0, 8, 8), (1, 8, 8), (100, 72, 264), (512, 256, 1024)], ids=str)
def test_agrees_with_torch(kernel, device, shape):
    m, n, k = shape
    a = torch.randn(m, k, device=device, dtype=torch.float16)
    b = torch.randn(k, n, device=device, dtype=torch.float16)
    torch.testing.assert_close(kernel.gemm(a, b).float(), a.float() @ b.float(), rtol=1e-2, atol=1e-1)


@pytest.mark.kernels_ci
def test_takes_any_layout(kernel, device):
    a = torch.randn(64, 32, device=device, dtype=torch.float16).t()
    torch.testing.assert_close(kernel.gemm(a, a.t()).float(), a.float() @ a.t().float(), rtol=1e-2, atol=1e-1)


@pytest.mark.kernels_ci
def test_refuses_what_it_cannot_do(kernel, device):
    a = torch.ones(8, 8, device=device, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="expected float16"):
        kernel.gemm(a.float(), a)
    with pytest.raises(RuntimeError, match="m x k and k x n"):
        kernel.gemm(a, a[:4])
    with pytest.raises(RuntimeError, match="multiples of 8"):
        kernel.gemm(a[:, :4], a[:4])
