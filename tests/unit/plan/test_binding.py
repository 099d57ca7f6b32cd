from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.plan.binding import decide_binding


def early(root: Path, **files: str) -> frozenset[str]:
    names = {name.replace("__", "."): text for name, text in files.items()}
    for name, text in names.items():
        (root / name).write_text(text, encoding="utf-8")
    headers = tuple(name for name in names if name.endswith(".h"))
    return decide_binding(root, tuple(name for name in names if name not in headers), headers).early


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
def test_uses_inside_the_generated_macros_are_bound_late(tmp_path: Path, text: str) -> None:
    assert early(tmp_path, a__cpp=text) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "static const char *name = STRINGIFY(TORCH_EXTENSION_NAME);",
        "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}\nint CONCAT(x, TORCH_EXTENSION_NAME);",
        'const char *url = "https://x/" STRINGIFY(TORCH_EXTENSION_NAME);',
        "#define REGISTER_EXTENSION(N) int x;\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)",
    ],
)
def test_other_uses_get_the_final_name(tmp_path: Path, text: str) -> None:
    assert early(tmp_path, a__cpp=text, b__cpp="int b;") == {"a.cpp"}


@pytest.mark.parametrize("macro", ["TORCH_LIBRARY_EXPAND", "STABLE_TORCH_LIBRARY_IMPL_EXPAND"])
def test_a_kernels_own_macros_bind_every_source_that_says_the_name(tmp_path: Path, macro: str) -> None:
    found = early(
        tmp_path,
        registration__h=f"#define {macro}(N, M) TORCH_LIBRARY(N, M)",
        a__cpp="TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}",
        b__cpp="int b;",
    )
    assert found == {"a.cpp"}


def test_a_header_that_uses_the_name_binds_every_source(tmp_path: Path) -> None:
    found = early(tmp_path, names__h="#define NAME STRINGIFY(TORCH_EXTENSION_NAME)", a__cpp="int a;", b__cpp="int b;")
    assert found == {"a.cpp", "b.cpp"}


def test_a_source_that_is_included_counts_like_a_header(tmp_path: Path) -> None:
    (tmp_path / "impl.cpp").write_text("const char *name = STRINGIFY(TORCH_EXTENSION_NAME);", encoding="ascii")
    (tmp_path / "a.cpp").write_text('#include "impl.cpp"', encoding="ascii")
    assert decide_binding(tmp_path, ("a.cpp",), ("a.cpp", "impl.cpp")).early == {"a.cpp"}
