import pytest
import torch
from torch.nn.functional import gelu, silu

GATES = {
    "silu_and_mul": silu,
    "gelu_and_mul": gelu,
    "gelu_tanh_and_mul": lambda x: gelu(x, approximate="tanh"),
}


def expected(function, x):
    gate, up = x.float().chunk(2, dim=-1)
    return (function(gate) * up).to(x.dtype)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("shape", [(2,), (0, 4), (3, 0), (10, 20), (7, 3, 258)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", GATES)
def test_agrees_with_torch(kernel, device, name, dtype, shape):
    x = torch.randn(shape, device=device).to(dtype)
    out = torch.empty((*shape[:-1], shape[-1] // 2), device=device, dtype=dtype)
    assert getattr(kernel, name)(out, x) is out
    torch.testing.assert_close(out, expected(GATES[name], x))


@pytest.mark.kernels_ci
def test_takes_any_layout(kernel, device):
    x = torch.randn(6, 5, device=device).t()
    torch.testing.assert_close(kernel.silu_and_mul(torch.empty(5, 3, device=device), x), expected(silu, x))


@pytest.mark.kernels_ci
def test_refuses_what_it_cannot_do(kernel, device):
    x, out = torch.randn(4, 6, device=device), torch.empty(4, 3, device=device)
    with pytest.raises(RuntimeError, match="even last dimension"):
        kernel.silu_and_mul(out, x[:, :5])
    with pytest.raises(RuntimeError, match="out of shape"):
        kernel.silu_and_mul(out[:2], x)
    with pytest.raises(RuntimeError, match="got Double"):
        kernel.silu_and_mul(out.double(), x.double())
    with pytest.raises(RuntimeError, match="contiguous out"):
        kernel.silu_and_mul(torch.empty(3, 4, device=device).t(), x)
    with pytest.raises(RuntimeError, match="memory location"):
        kernel.silu_and_mul(x.view(-1)[:12].view(4, 3), x)


@pytest.mark.kernels_ci
def test_ops_are_registered_properly(kernel, device):
    x = torch.randn(4, 6, device=device)
    for name in GATES:
        torch.library.opcheck(getattr(kernel._ops.ops, name).default, (torch.empty(4, 3, device=device), x))


def test_layers_compile_in_one_graph(kernel, device):
    x = torch.randn(4, 6, device=device)
    for layer, function in ((kernel.layers.SiluAndMul(), silu), (kernel.layers.GeluAndMul(), gelu)):
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), expected(function, x))
