import pytest
import torch


# Rows of 65,536 elements and more are added up by clusters, on GPUs that have them.
@pytest.mark.kernels_ci
@pytest.mark.parametrize(
    "shape", [(0, 3), (3, 0), (1, 1), (5, 1000), (2, 65_535), (3, 65_536), (2, 1_000_003)], ids=str
)
def test_agrees_with_torch(kernel, device, shape):
    x = torch.rand(shape, device=device)
    torch.testing.assert_close(kernel.row_sum(x), x.double().sum(dim=1).float())


@pytest.mark.kernels_ci
def test_takes_any_layout(kernel, device):
    x = torch.rand(7, 5, device=device).t()
    torch.testing.assert_close(kernel.row_sum(x), x.sum(dim=1))


@pytest.mark.kernels_ci
def test_refuses_what_it_cannot_do(kernel, device):
    with pytest.raises(RuntimeError, match="expected float32"):
        kernel.row_sum(torch.ones(2, 2, dtype=torch.float64, device=device))
    with pytest.raises(RuntimeError, match="expected a matrix"):
        kernel.row_sum(torch.ones(2, device=device))


def test_compiles_in_one_graph(kernel, device):
    function = torch.compile(lambda x: kernel.row_sum(x) + 1, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(function(torch.ones(3, 4, device=device)), torch.full((3,), 5.0, device=device))
