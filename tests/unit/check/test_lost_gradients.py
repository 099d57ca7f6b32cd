"""Gradients that are written in C++ and that nothing asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_trees import findings, source, write

TOML = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]

[torch]
src = ["torch-ext/bind.cpp"]

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["op.cpp"]
"""
OP = """\
class Sum : public torch::autograd::Function<Sum> {};
at::Tensor sum(at::Tensor x) { return Sum::apply(x)[0]; }
at::Tensor plain(at::Tensor x) { return x + 1; }
"""
DEVICE = """\
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("sum", &sum);
  ops.impl("plain", TORCH_FN(plain));
}
"""


def kernel(root: Path, binding: str, package: str = "") -> Path:
    source(root, {"__init__.py": f"__all__ = []\n{package}"}, toml=TOML)
    return write(root, {"op.cpp": OP, "torch-ext/bind.cpp": binding})


@pytest.mark.parametrize("binding", [DEVICE, DEVICE.replace("&sum", "TORCH_FN(mine::sum)").replace("CPU", "CUDA")])
def test_gradients_below_autograd_are_lost(tmp_path: Path, binding: str) -> None:
    (one,) = findings(kernel(tmp_path, binding), "KB212")
    assert (one.path, one.line, one.symbol) == (f"{tmp_path}/torch-ext/bind.cpp", 2, "sum")
    assert "below autograd, so the gradients that it records are lost" in one.message


@pytest.mark.parametrize(
    ("binding", "package"),
    [
        (DEVICE + 'TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, Autograd, m) { m.impl("sum", &sum); }\n', ""),
        (DEVICE.replace("CPU", "AutogradCPU"), ""),
        (DEVICE.replace("CPU", "CompositeImplicitAutograd"), ""),
        (DEVICE.replace("&sum", "&plain"), ""),
        (DEVICE, "import torch\n\ntorch.library.register_autograd('sum', None)\n"),
        ('TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("sum", &sum); }\n', ""),
    ],
)
def test_gradients_that_are_asked_for(tmp_path: Path, binding: str, package: str) -> None:
    assert not findings(kernel(tmp_path, binding, package), "KB212")
