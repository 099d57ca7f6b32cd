"""Compare the kernel with torch: ``kernels benchmark .`` in the project's directory."""

import torch
from kernels.benchmark import Benchmark


class ReluBenchmark(Benchmark):
    seed = 42

    def _setup(self, dtype: torch.dtype) -> None:
        self.x = torch.randn(2**24, device=self.device, dtype=dtype)
        self.out, self.expected = torch.empty_like(self.x), torch.empty_like(self.x)

    def setup_float32(self) -> None:
        self._setup(torch.float32)

    def benchmark_float32(self) -> None:
        self.kernel.relu(self.x, out=self.out)

    def verify_float32(self) -> torch.Tensor:
        return torch.clamp_min(self.x, 0.0, out=self.expected)

    def setup_bfloat16(self) -> None:
        self._setup(torch.bfloat16)

    def benchmark_bfloat16(self) -> None:
        self.kernel.relu(self.x, out=self.out)

    def verify_bfloat16(self) -> torch.Tensor:
        return torch.clamp_min(self.x, 0.0, out=self.expected)
