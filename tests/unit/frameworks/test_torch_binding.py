from __future__ import annotations

import pytest

from kernel_builder.frameworks.torch_binding import early_sources, marks_of


def early(**files: str) -> frozenset[str]:
    names = {name.replace("__", "."): text for name, text in files.items()}
    marks = {name: marks_of(text.encode()) for name, text in names.items()}
    headers = tuple(name for name in names if name.endswith(".h"))
    return early_sources(tuple(name for name in names if name not in headers), headers, marks)


@pytest.mark.parametrize(
    "text",
    [
        "int main;",
        "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { }\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)",
        "TORCH_LIBRARY_IMPL_EXPAND(\n    TORCH_EXTENSION_NAME, CUDA, m) {}",
        "STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m) {}",
        "TORCH_LIBRARY_EXPAND(CONCAT(TORCH_EXTENSION_NAME, _cache), m) {}",
    ],
)
def test_uses_inside_the_generated_macros_are_bound_late(text: str) -> None:
    assert early(a__cpp=text) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "static const char *name = STRINGIFY(TORCH_EXTENSION_NAME);",
        "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}\nint CONCAT(x, TORCH_EXTENSION_NAME);",
        'const char *url = "https://x/" STRINGIFY(TORCH_EXTENSION_NAME);',
        "#define REGISTER_EXTENSION(N) int x;\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)",
    ],
)
def test_other_uses_get_the_final_name(text: str) -> None:
    assert early(a__cpp=text, b__cpp="int b;") == {"a.cpp"}


@pytest.mark.parametrize("macro", ["TORCH_LIBRARY_EXPAND", "STABLE_TORCH_LIBRARY_IMPL_EXPAND"])
def test_a_kernels_own_macros_bind_every_source_that_says_the_name(macro: str) -> None:
    found = early(
        registration__h=f"#define {macro}(N, M) TORCH_LIBRARY(N, M)",
        a__cpp="TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}",
        b__cpp="int b;",
    )
    assert found == {"a.cpp"}


def test_a_header_that_uses_the_name_binds_every_source() -> None:
    found = early(names__h="#define NAME STRINGIFY(TORCH_EXTENSION_NAME)", a__cpp="int a;", b__cpp="int b;")
    assert found == {"a.cpp", "b.cpp"}


def test_a_source_that_is_included_counts_like_a_header() -> None:
    marks = {
        "impl.cpp": marks_of(b"const char *name = STRINGIFY(TORCH_EXTENSION_NAME);"),
        "a.cpp": marks_of(b'#include "impl.cpp"'),
    }
    assert early_sources(("a.cpp",), ("a.cpp", "impl.cpp"), marks) == {"a.cpp"}
