"""Compare the kernel with torch: ``kernel-builder bench --against torch``, or ``kernels benchmark .``."""

import torch
from kernels.benchmark import Benchmark

ROWS, SIZE = 4096, 4096
EPS = 1e-6


class RMSNormBenchmark(Benchmark):
    seed = 42
    # In bfloat16, sums in a different order may differ in the last place.
    rtol, atol = 2e-2, 2e-2

    def _setup(self, dtype: torch.dtype) -> None:
        self.x = torch.randn(ROWS, SIZE, device=self.device, dtype=dtype)
        self.weight = torch.randn(SIZE, device=self.device, dtype=dtype)
        self.bytes_moved = 2 * self.x.nbytes + self.weight.nbytes

    def setup_float32(self) -> None:
        self._setup(torch.float32)

    def benchmark_float32(self) -> None:
        self.out = self.kernel.rms_norm(self.x, self.weight, EPS)

    def verify_float32(self) -> torch.Tensor:
        return torch.nn.functional.rms_norm(self.x, (SIZE,), self.weight, EPS)

    def setup_bfloat16(self) -> None:
        self._setup(torch.bfloat16)

    def benchmark_bfloat16(self) -> None:
        self.out = self.kernel.rms_norm(self.x, self.weight, EPS)

    def verify_bfloat16(self) -> torch.Tensor:
        return torch.nn.functional.rms_norm(self.x, (SIZE,), self.weight, EPS)

    # The gradients of x and of the weight; the latter is a sum over all rows.
    def setup_backward(self) -> None:
        self._setup(torch.bfloat16)
        self.x.requires_grad_()
        self.weight.requires_grad_()
        self.grad = torch.randn_like(self.x)
        self.y = self.kernel.rms_norm(self.x, self.weight, EPS)
        self.expected = torch.nn.functional.rms_norm(self.x, (SIZE,), self.weight, EPS)
        self.bytes_moved = 3 * self.x.nbytes + 2 * self.weight.nbytes

    def _gradients(self, y: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(y, (self.x, self.weight), self.grad, retain_graph=True)[0]

    def benchmark_backward(self) -> None:
        self.out = self._gradients(self.y)

    def verify_backward(self) -> torch.Tensor:
        return self._gradients(self.expected)
