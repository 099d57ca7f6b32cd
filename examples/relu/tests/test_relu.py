import pytest
import torch

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SHAPES = [(), (0,), (1,), (7,), (64,), (1023,), (3, 5), (2, 0, 3), (4, 1, 129), (100_003,)]

# Views that are not contiguous, or do not start on a 16-byte boundary.
LAYOUTS = {
    "unaligned": lambda x: x.flatten()[1:],
    "transposed": lambda x: x.transpose(0, 1),
    "channels last": lambda x: x.unsqueeze(0).contiguous(memory_format=torch.channels_last),
    "every second": lambda x: x[..., ::2],
    "expanded": lambda x: x[:, :1, :].expand(-1, 5, -1),
}


def make(shape, device, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(device=device, dtype=dtype)


def assert_same(result, expected):
    """The results are identical, because a comparison does not round."""
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True, check_stride=True)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_agrees_with_torch(kernel, device, dtype, shape):
    x = make(shape, device, dtype)
    assert_same(kernel.relu(x), torch.relu(x))


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values(kernel, device, dtype):
    inf, nan, tiny = float("inf"), float("nan"), torch.finfo(dtype).smallest_normal / 2
    x = torch.tensor([inf, -inf, nan, 0.0, -0.0, tiny, -tiny], device=device, dtype=dtype)
    assert_same(kernel.relu(x), torch.relu(x))


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(kernel, device, dtype, layout):
    x = LAYOUTS[layout](make((3, 5, 67), device, dtype))
    expected = torch.relu(x)
    assert_same(kernel.relu(x), expected)

    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    assert kernel.relu(x, out=out) is out
    assert_same(out, expected.contiguous())


@pytest.mark.kernels_ci
@pytest.mark.parametrize("offset", [0, 1])
def test_in_place(kernel, device, offset):
    x = make((1031,), device)[offset:]
    expected = torch.relu(x)
    kernel.relu(x, out=x)
    assert_same(x, expected)


@pytest.mark.kernels_ci
def test_refuses_what_it_cannot_do(kernel, device):
    x = make((4, 6), device)
    with pytest.raises(RuntimeError, match="expected float32, float64, float16 or bfloat16, got Int"):
        kernel.relu(x.int())
    with pytest.raises(RuntimeError, match="out is Double but input is Float"):
        kernel.relu(x, out=x.double())
    with pytest.raises(RuntimeError, match="out has shape"):
        kernel.relu(x, out=x[:2].clone())
    with pytest.raises(RuntimeError, match="without gaps"):
        kernel.relu(x[:, ::2], out=torch.empty_like(x)[:, ::2])
    with pytest.raises(RuntimeError, match="single memory location"):
        kernel.relu(x.flatten()[1:], out=x.flatten()[:-1])
    with pytest.raises(RuntimeError, match="out= has no gradient"):
        kernel.relu(x.requires_grad_(), out=torch.empty_like(x))


@pytest.mark.kernels_ci
def test_gradient(kernel, device):
    x = make((33,), device, torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(kernel.relu, (x,))


@pytest.mark.kernels_ci
def test_ops_are_registered_properly(kernel, device):
    ops = kernel._ops.ops
    x = make((5, 7), device)
    torch.library.opcheck(ops.relu.default, (x.clone().requires_grad_(),))
    torch.library.opcheck(ops.relu.default, (x[:, ::2],))
    torch.library.opcheck(ops.relu_out.default, (torch.empty_like(x), x))


def test_compiles_in_one_graph(kernel, device):
    @torch.compile(fullgraph=True)
    def function(x):
        y = kernel.relu(x - 0.5)
        return kernel.relu(y - 0.5, out=torch.empty_like(y)) * 2

    for shape in [(5, 7), (6, 9)]:
        x = make(shape, device)
        torch.testing.assert_close(function(x), torch.relu(torch.relu(x - 0.5) - 0.5) * 2)


@pytest.mark.kernels_ci
def test_layer(kernel, device):
    x = make((5, 7), device)
    assert_same(kernel.layers.ReLU()(x), torch.relu(x))


@pytest.mark.kernels_ci
def test_runs_on_the_current_stream(kernel, device):
    if device != "cuda":
        pytest.skip("only GPUs have streams")
    x = make((1 << 20,), device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # code that does not wait for this stream reads y too early
        y = x - 1
        result = kernel.relu(y)
    stream.synchronize()
    assert_same(result, torch.relu(x - 1))
