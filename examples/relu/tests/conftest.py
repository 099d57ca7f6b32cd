"""Load the kernel as its users do, through the ``kernels`` client.

Tests run once for each device that can run it.
"""

from pathlib import Path

import pytest
import torch
from kernels import get_local_kernel

ROOT = Path(__file__).resolve().parent.parent


def _load():
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    loaded, reasons = {}, []
    for device in devices:
        try:
            loaded[device] = get_local_kernel(ROOT, backend=device)
        except FileNotFoundError as error:
            reasons.append(f"{device}: {error}")
    if not loaded:
        hint = "run `kernel-builder build --local` first"
        why = "\n".join(["no variant in build/ runs here", *reasons, hint])
        pytest.exit(why, returncode=1)
    return loaded


KERNELS = _load()


@pytest.fixture(params=KERNELS)
def device(request):
    return request.param


@pytest.fixture
def kernel(device):
    return KERNELS[device]
