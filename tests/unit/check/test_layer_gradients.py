"""Layers that claim a backward in sources where nothing has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_trees import codes, compiled_toml, source

HEAD = "from torch import nn\nfrom ._ops import ops\n\nclass Layer(nn.Module):\n"
LAYER = HEAD + "    {flag}\n    def forward(self, x):\n{body}"
CLAIM = "has_backward = True"
CALL = "        return ops.relu(x)\n"
FUNCTION = "import torch\n\nclass Relu(torch.autograd.Function):\n    pass\n"


@pytest.mark.parametrize(
    ("flag", "body", "more", "expected"),
    [
        (CLAIM, CALL, "", ["KB341"]),
        ("has_backward: bool = True", CALL, "", ["KB341"]),
        (CLAIM, "        out = x.new_empty(3)\n        ops.relu(out, x)\n        return out\n", "", ["KB341"]),
        ("has_backward = False", CALL, "", []),
        ("can_torch_compile = True", CALL, "", []),
        (CLAIM, "        return x.relu()\n", "", []),
        (CLAIM, CALL, FUNCTION, []),
        (CLAIM, CALL, "import torch\n\ntorch.library.register_autograd('x::y', print)\n", []),
        (CLAIM, CALL, "def broken(:\n", []),
        (CLAIM, "        return x.relu() if self.training else ops.relu(x)\n", "", []),
        (CLAIM, "        return (\n", "", []),
    ],
)
def test_layers_that_claim_a_backward(tmp_path: Path, flag: str, body: str, more: str, expected: list[str]) -> None:
    files = {
        "layers.py": LAYER.format(flag=flag, body=body),
        "functions.py": more,
    }
    assert codes(source(tmp_path, files), "KB341") == expected


NATIVE = compiled_toml("torch-ext/binding.cpp", "k.cpp")


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        ('ops.def("relu(Tensor x) -> Tensor");', ["KB341"]),
        ('ops.def("relu(Tensor x) -> Tensor", &relu);', []),
        ("TORCH_LIBRARY_IMPL_EXPAND(NAME, Autograd, ops) {}", []),
        ("struct Relu : torch::autograd::Function<Relu> {};", []),
    ],
)
def test_native_sources_may_have_the_gradient(tmp_path: Path, binding: str, expected: list[str]) -> None:
    root = source(tmp_path, {"layers.py": LAYER.format(flag=CLAIM, body=CALL)}, toml=NATIVE)
    (root / "torch-ext" / "binding.cpp").write_text(binding, encoding="ascii")
    (root / "k.cpp").write_text("", encoding="ascii")
    assert codes(root, "KB341") == expected
