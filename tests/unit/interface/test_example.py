"""The call that a card shows has the real signature, and runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernel_builder.config.backends import Backend, device_expression
from kernel_builder.interface.dtypes import demanded_dtypes
from kernel_builder.interface.example import example_call, guessed_dtypes
from kernel_builder.interface.native import ReadFile, read_native
from kernel_builder.interface.read import read_interface

MADE = "torch.randn(1024, 1024, device=device)"


def shown(tmp_path: Path, source: str, ops: dict[str, str] | None = None, dtypes: dict[str, str] | None = None) -> str:
    (tmp_path / "__init__.py").write_text(source, encoding="utf-8")
    interface = read_interface(tmp_path, ops=ops)
    text = example_call(interface.functions[0], interface.ops, dtypes or {})
    ast.parse(text)
    return text


@pytest.mark.parametrize(
    ("signature", "call"),
    [
        ("x: torch.Tensor, factor: float = 2.0", f"x = {MADE}\nresult = kernel.f(x)"),
        ("x, n: int", f"x = {MADE}\nresult = kernel.f(x, n=1)"),
        ("x: 'Tensor', /, on: bool", f"x = {MADE}\nresult = kernel.f(x, on=True)"),
        ("n: int, x: Tensor", f"x = {MADE}\nresult = kernel.f(n=1, x=x)"),
        ("xs: list[torch.Tensor]", f"result = kernel.f([{MADE}])"),
        (
            "*, dtype: torch.dtype, mask: Optional[Tensor]",
            "dtype = torch.float32\nresult = kernel.f(dtype=dtype, mask=None)",
        ),
        ("kernel: Tensor", f"kernel_ = {MADE}\nresult = kernel.f(kernel=kernel_)"),
        ("size: tuple[int, int]", "result = kernel.f(size=[1])"),
        ("*args, **options", "result = kernel.f()"),
    ],
)
def test_arguments_are_made_up_by_their_types(tmp_path: Path, signature: str, call: str) -> None:
    text = shown(tmp_path, f'__all__ = ["f"]\ndef f({signature}): ...\n')
    if "[torch.randn" in call:
        assert text == f"xs = [{MADE}]\nresult = kernel.f(xs)"
    else:
        assert text == call


def test_what_python_does_not_annotate_is_in_the_schema(tmp_path: Path) -> None:
    ops = {"f": "f(Tensor! out, Tensor x, float eps, int[] shape=[1, 2]) -> ()"}
    text = shown(tmp_path, '__all__ = ["f"]\ndef f(out, x, eps) -> None: ...\n', ops)
    assert text == f"out = torch.empty(1024, 1024, device=device)\nx = {MADE}\nkernel.f(out, x, eps=1.0)"
    assert shown(tmp_path, 'from ._ops import ops\n__all__ = ["f"]\nf = ops.f\n', ops) == text
    assert shown(tmp_path, 'from ._ops import ops\n__all__ = ["f"]\nf = ops.f\n') == "help(kernel.f)"


def test_the_device_is_the_hosts_only_where_there_is_no_other() -> None:
    assert device_expression([Backend("cpu")]) == '"cpu"'
    both = '"cuda" if torch.cuda.is_available() else "cpu"'
    assert device_expression([Backend("cpu"), Backend("cuda"), Backend("rocm")]) == both


NATIVE = """\
template <typename T> void typed(at::Tensor x) { x.data_ptr<T>(); }
void f(at::Tensor &out, at::Tensor const &half, at::Tensor index, at::Tensor mask, at::Tensor either, at::Tensor x) {
  TORCH_CHECK(half.scalar_type() == at::kHalf && index.dtype() == torch::kInt32);
  TORCH_CHECK(mask.scalar_type() == c10::ScalarType::Bool);
  TORCH_CHECK(either.scalar_type() == at::kFloat || either.scalar_type() == at::kHalf);
  launch(out.mutable_data_ptr<c10::BFloat16>(), half.const_data_ptr<at::Half>(), index.data_ptr<int>());
  // x.scalar_type() == at::kLong
}
"""


def test_tensors_have_the_dtypes_that_the_sources_demand(tmp_path: Path) -> None:
    file = ReadFile(path="f.cpp", native=read_native(NATIVE), certain=True)
    dtypes = dict(demanded_dtypes([file]))
    assert dtypes == {
        "half": "torch.float16",
        "index": "torch.int32",
        "mask": "torch.bool",
        "out": "torch.bfloat16",
    }
    source = '__all__ = ["f"]\ndef f(out: Tensor, half: Tensor, index: Tensor, either: Tensor): ...\n'
    assert shown(tmp_path, source, None, dtypes).splitlines()[:4] == [
        "out = torch.empty(1024, 1024, dtype=torch.bfloat16, device=device)",
        "half = torch.randn(1024, 1024, dtype=torch.float16, device=device)",
        "index = torch.ones(1024, 1024, dtype=torch.int32, device=device)",
        f"either = {MADE}",
    ]
    assert guessed_dtypes(read_interface(tmp_path).functions[0], {}, dtypes) == ("either",)
