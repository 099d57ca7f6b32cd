import pytest
import torch


@pytest.mark.kernels_ci
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5)], ids=str)
def test_agrees_with_torch(kernel, device, shape):
    x = torch.randn(shape, device=device)
    torch.testing.assert_close(kernel.double(x), 2 * x, rtol=0, atol=0)


@pytest.mark.kernels_ci
def test_takes_any_layout(kernel, device):
    x = torch.randn(3, 5, device=device).t()
    torch.testing.assert_close(kernel.double(x), 2 * x, rtol=0, atol=0)


@pytest.mark.kernels_ci
def test_refuses_other_dtypes(kernel, device):
    with pytest.raises(RuntimeError, match="expected float32"):
        kernel.double(torch.ones(3, dtype=torch.float64, device=device))


def test_compiles_in_one_graph(kernel, device):
    function = torch.compile(lambda x: kernel.double(x) + 1, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(function(torch.ones(3, device=device)), torch.full((3,), 3.0, device=device))
