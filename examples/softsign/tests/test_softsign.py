import numpy as np
import pytest
import torch


@pytest.mark.kernels_ci
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (100_003,)], ids=str)
def test_agrees_with_torch(kernel, device, shape):
    x = torch.randn(shape, device=device)
    torch.testing.assert_close(kernel.softsign(torch.empty_like(x), x), torch.nn.functional.softsign(x))


@pytest.mark.kernels_ci
def test_takes_arrays_of_numpy(kernel, device):
    if device != "cpu":
        pytest.skip("NumPy's arrays are in the CPU's memory")
    x = np.linspace(-3, 3, 101, dtype=np.float32)
    np.testing.assert_allclose(kernel.softsign(np.empty_like(x), x), x / (1 + np.abs(x)), rtol=1e-6)


@pytest.mark.kernels_ci
def test_works_in_place(kernel, device):
    x = torch.randn(1031, device=device)
    expected = torch.nn.functional.softsign(x)
    torch.testing.assert_close(kernel.softsign(x, x), expected)


@pytest.mark.kernels_ci
def test_refuses_what_it_cannot_do(kernel, device):
    x = torch.randn(4, 6, device=device)
    with pytest.raises(TypeError, match="expected float32"):
        kernel.softsign(x.double(), x.double())
    with pytest.raises(ValueError, match="different shapes"):
        kernel.softsign(x.t().contiguous(), x)
    with pytest.raises(ValueError, match="contiguous"):
        kernel.softsign(torch.empty(6, 4, device=device).t(), x)
