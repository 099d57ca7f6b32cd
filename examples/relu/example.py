"""Load the kernel from this directory and compare it with torch: ``python example.py``."""

from pathlib import Path

import torch
from kernels import get_local_kernel

device = "cuda" if torch.cuda.is_available() else "cpu"
kernel = get_local_kernel(Path(__file__).resolve().parent, backend=device)

x = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], device=device)
result = kernel.relu(x)
expected = torch.relu(x)

print(f"kernel: {result.tolist()}  ({kernel.__name__} on {device})")
print(f"torch:  {expected.tolist()}")
if not torch.equal(result, expected):
    raise SystemExit("the kernel and torch disagree")
