"""Whether tests, benchmarks and the package of a tvm-ffi kernel need torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.config.model import Project
from kernel_builder.config.reader import read_project
from kernel_builder.environments.mentions import wants_torch
from kernel_builder.environments.wanted import wanted_for
from kernel_builder.variants.matrix import all_variants
from kernel_builder.variants.support import load_support

TOML = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]

[{framework}]
src = []

[kernel.a]
backend = "cpu"
depends = []
src = ["a.cpp"]

[kernel.b]
backend = "cuda"
depends = []
src = ["b.cu"]
"""


def read(root: Path, framework: str = "tvm-ffi") -> Project:
    text = TOML.format(framework=framework)
    return read_project(text.encode(), file=root / "build.toml", root=root, tree=False)[0]


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("tests/test_a.py", "import torch\n", True),
        ("tests/deep/conftest.py", "from torch.nn import functional\n", True),
        ("benchmarks/benchmark.py", "def f():\n    import torch.nn as nn\n", True),
        ("tvm-ffi-ext/my_kernel/__init__.py", "class A:\n    if True:\n        import torch\n", True),
        ("tests/test_a.py", "try:\n    import torch\nexcept KeyError:\n    pass\n", True),
        ("tests/test_a.py", "with a:\n    pass\nfor i in b:\n    import torch\n", True),
        ("tests/test_a.py", "import torchvision_like\nimport numpy\n", False),
        ("tests/test_a.py", "torch = pytest.importorskip('torch')\n", False),
        ("tests/test_a.py", "try:\n    import torch\nexcept (ImportError, OSError):\n    torch = None\n", False),
        ("tests/test_a.py", "if TYPE_CHECKING:\n    import torch\n", False),
        ("tests/test_a.py", "from . import torch\n", False),
        ("tests/test_a.py", "import torch (\n", False),
        ("example.py", "import torch\n", False),
    ],
)
def test_torch_is_wanted_where_an_import_of_it_must_not_fail(
    tmp_path: Path, file: str, text: str, expected: bool
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text, encoding="utf-8")
    assert wants_torch(read(tmp_path)) is expected
    assert wants_torch(read(tmp_path, "torch"))


def test_a_tvm_ffi_kernel_gets_torch_for_devices_and_where_it_is_named(tmp_path: Path) -> None:
    project, table = read(tmp_path), load_support()
    kept = {entry.name: entry for entry in all_variants(project, table, None).kept}
    host, device = kept["tvm-ffi01-cpu-x86_64-linux"], kept["tvm-ffi01-cu130-x86_64-linux"]
    alone = wanted_for(project, host, table, ["einops"], torch=False)
    assert alone is not None
    assert (alone.label, alone.torch) == ("tvm-ffi 0.1", ())
    assert alone.installed == ("kernels", "pytest", "apache-tvm-ffi==0.1.*", "einops", "numpy")
    for wanted in (
        wanted_for(project, host, table, [], torch=True),
        wanted_for(project, host, table, ["Torch >=2.12"], torch=False),
    ):
        assert wanted is not None
        assert (wanted.label, wanted.torch[0][:7]) == ("tvm-ffi 0.1 and torch 2.12 for CPU", "torch==")
    held = wanted_for(project, device, table, [], torch=False)
    assert held is not None
    assert held.torch[0].endswith("+cu130")
    assert "apache-tvm-ffi==0.1.*" in held.requirements
