"""What is tried in place of headers that bring everything."""

from __future__ import annotations

import pytest

from kernel_builder.timing.smaller import proposals, umbrellas_in

KERNEL = """\
#include <torch/all.h>
#include <vector>
#include <ATen/cuda/CUDAContext.h>
// std::optional, torch::kHalf and at::relu( in a comment count for nothing
void f(at::Tensor& x, std::vector<int> v) { TORCH_CHECK(x.dim() == 1, "std::tuple"); at::sum_out(x, x, 0); }
"""


def everything(_: str) -> bool:
    return True


def test_headers_follow_from_the_names_that_a_source_uses() -> None:
    first, *more = proposals(KERNEL, everything)
    assert first.replaced == ("torch/all.h", "ATen/cuda/CUDAContext.h")
    assert first.headers == ("ATen/core/Tensor.h", "c10/util/Exception.h", "vector", "ATen/ops/sum_out.h")
    assert first.text.splitlines()[:5] == [
        "#include <ATen/core/Tensor.h>",
        "#include <c10/util/Exception.h>",
        "#include <ATen/ops/sum_out.h>",
        "#include <vector>",
        "// std::optional, torch::kHalf and at::relu( in a comment count for nothing",
    ]
    assert [one.headers[-1] for one in more] == ["ATen/ATen.h", "torch/types.h"]
    assert "namespace torch" not in first.text


def test_headers_that_do_not_exist_are_not_proposed() -> None:
    first = next(proposals(KERNEL, lambda name: name in ("ATen/core/Tensor.h", "vector")))
    assert first.headers == ("ATen/core/Tensor.h", "vector")


def test_what_a_source_has_already_is_not_tried_again() -> None:
    found = list(proposals("#include <ATen/ATen.h>\nat::Tensor f();\n", everything))
    assert [one.headers for one in found] == [("ATen/core/Tensor.h",)]


def test_a_source_without_umbrellas_has_no_proposals() -> None:
    text = '#include <torch/library.h>\n#include "torch_all.h"\n'
    assert umbrellas_in(text) == ()
    assert list(proposals(text, everything)) == []


@pytest.mark.parametrize(
    ("code", "declared"),
    [
        ("torch::Tensor f();", True),
        ("auto x = torch::kCUDA;", True),
        ("torch::Tensor f() { return torch::empty({1}); }", False),
        ("at::Tensor f();", False),
    ],
)
def test_the_names_of_torch_itself(code: str, declared: bool) -> None:
    first = next(proposals(f"#include <torch/all.h>\n{code}\n", everything))
    assert ("namespace torch { using namespace at; }" in first.text) == declared


def test_under_a_condition_every_umbrella_is_replaced_where_it_is() -> None:
    text = "#ifdef A\n#include <torch/all.h>\n#else\n#  include <ATen/ATen.h>\n#endif\nat::Tensor f();\n"
    first = next(proposals(text, everything))
    tensor = "#include <ATen/core/Tensor.h>"
    assert first.text.splitlines() == ["#ifdef A", tensor, "#else", tensor, "#endif", "at::Tensor f();"]


def test_a_patch_keeps_lines_as_they_end() -> None:
    text = "#include <torch/all.h>\r\nat::Tensor f();\r\nint last;"
    first = next(proposals(text, everything))
    assert first.text == "#include <ATen/core/Tensor.h>\r\nat::Tensor f();\r\nint last;"
    assert first.patch("src/a.cpp", text).splitlines()[:2] == ["--- a/src/a.cpp", "+++ b/src/a.cpp"]
    assert "\n\\ No newline at end of file\n" in first.patch("src/a.cpp", text)
