import pytest
import torch

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def make(shape, device, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(device=device, dtype=dtype)


def expected(x, weight, eps=1e-6):
    """The definition, in float64."""
    x, weight = x.double(), weight.double()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


@pytest.mark.kernels_ci
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 0, 3), (2, 3, 1025)], ids=str)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_agrees_with_the_definition(kernel, device, dtype, shape):
    x, weight = make(shape, device, dtype), make(shape[-1:], device, dtype, seed=1)
    result = kernel.rms_norm(x, weight)
    assert result.dtype == dtype
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(result.double(), expected(x, weight), rtol=tolerance, atol=tolerance)


@pytest.mark.kernels_ci
def test_takes_any_layout(kernel, device):
    x, weight = make((6, 4), device).t(), make((12,), device, seed=1)[::2]
    torch.testing.assert_close(kernel.rms_norm(x, weight).double(), expected(x, weight), rtol=1e-5, atol=1e-5)


@pytest.mark.kernels_ci
def test_gradient(kernel, device):
    x, weight = make((3, 5), device, torch.float64), make((5,), device, torch.float64, seed=1)
    assert torch.autograd.gradcheck(kernel.rms_norm, (x.requires_grad_(), weight.requires_grad_()))


@pytest.mark.kernels_ci
def test_gradient_of_no_rows(kernel, device):
    x, weight = make((0, 5), device).requires_grad_(), make((5,), device).requires_grad_()
    kernel.rms_norm(x, weight).sum().backward()
    assert torch.equal(weight.grad, torch.zeros_like(weight))


@pytest.mark.kernels_ci
def test_ops_are_registered_properly(kernel, device):
    ops = kernel._ops.ops
    x, weight = make((3, 5), device).requires_grad_(), make((5,), device).requires_grad_()
    torch.library.opcheck(ops.rms_norm.default, (x, weight, 1e-6))


@pytest.mark.kernels_ci
def test_refuses_what_it_cannot_do(kernel, device):
    x = make((3, 5), device)
    with pytest.raises(RuntimeError, match="expected a weight of 5 elements"):
        kernel.rms_norm(x, make((4,), device))
    with pytest.raises(RuntimeError, match="weight is Double but x is Float"):
        kernel.rms_norm(x, make((5,), device, torch.float64))
    with pytest.raises(RuntimeError, match="expected float32, float64, float16 or bfloat16, got Int"):
        kernel.rms_norm(x.int(), x[0].int())


@pytest.mark.kernels_ci
def test_layer(kernel, device):
    layer = kernel.layers.RMSNorm()
    layer.weight, layer.variance_epsilon = torch.nn.Parameter(make((5,), device)), 1e-5
    x = make((3, 5), device)
    torch.testing.assert_close(layer(x).double(), expected(x, layer.weight, 1e-5), rtol=1e-5, atol=1e-5)


def test_compiles_in_one_graph(kernel, device):
    weight = make((5,), device)
    function = torch.compile(lambda x: kernel.rms_norm(x + 1, weight) * 2, fullgraph=True, backend="aot_eager")
    for rows in (3, 4):
        x = make((rows, 5), device)
        torch.testing.assert_close(function(x).double(), expected(x + 1, weight) * 2, rtol=1e-5, atol=1e-5)
