"""Types in schemas that C++ registers: found before a compiler is, with the type to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.check.schema_types import KNOWN
from kernel_trees import findings, source

TOML = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["cpu/op.cpp"]
"""


def project(tmp_path: Path, *schemas: str) -> Path:
    root = source(tmp_path, {}, toml=TOML)
    defined = "".join(f'  ops.def("{text}");\n' for text in schemas)
    binding = f"TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {{\n{defined}}}\n"
    for name, text in {"torch-ext/torch_binding.cpp": binding, "cpu/op.cpp": "int op;\n"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("schema", "name", "hint"),
    [
        ("f(Tensr x) -> Tensor", "Tensr", "write Tensor"),
        ("f(Tensor(a!) x, Tensor[] xs, Int k) -> ()", "Int", None),
        ("f(Tensor x, double k=1.0) -> ()", "double", "write float"),
        ("f(Tensor x, int64_t[2] k) -> ()", "int64_t", "write int"),
        ("f(Tensor x) -> (Tensor, IntArrayRef)", "IntArrayRef", "write int[]"),
        ("f(Optional x) -> string", "Optional", "write T?"),
        ("Scale.out(Tensor x, *, Tenser! out) -> Tenser", "Tenser", "write Tensor"),
    ],
)
def test_a_type_that_torch_does_not_know(tmp_path: Path, schema: str, name: str, hint: str | None) -> None:
    first, *_ = findings(project(tmp_path, "g(Tensor x) -> Tensor", schema), "KB213")
    assert (first.symbol, first.line) == (name, 3)
    assert hint is None or first.hint == hint


GOOD = (
    "f(Tensor(a!) self, Tensor(b -> *)? other=None, *, ScalarType? dtype=None) -> Tensor(a!)",
    "f(str mode='sum, Mean (x)', bool[2] mask=[True, False], float eps=1e-5) -> (Tensor, Tensor[])",
    "f(Dict(str, Tensor) x, Tensor?[] y, t z, SymInt[] n) -> t",
    "f.Overload(__torch__.torch.classes.my.Holder x) -> ()",
    "Capital(Scalar alpha=1) -> Device",
    "name_only",
)


@pytest.mark.parametrize("schema", GOOD)
def test_what_torch_reads_is_let_be(tmp_path: Path, schema: str) -> None:
    assert findings(project(tmp_path, schema), "KB213") == []


def test_the_list_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    refused = {"Dict", "Union", "Future", "Await", "RRef"}  # which go on in brackets
    missing = []
    for name in sorted(KNOWN - refused):
        try:
            torch._C.parse_schema(f"a::f({name} x) -> ()")
        except RuntimeError:
            missing.append(name)
    assert set(missing) <= {"SymFloat", "Dimname"}  # other releases have these
