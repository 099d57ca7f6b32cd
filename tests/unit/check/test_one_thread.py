"""Work that is meant for many threads, and that one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_trees import compiled_toml, findings, source, write

LOOP = """\
#include <ATen/Parallel.h>

void op() {
  at::parallel_for(0, 9, 1, [](long, long) {});
}
"""
PRAGMA = """\
void op() {
#pragma omp parallel \\
    for
  for (int i = 0; i < 9; ++i) {}
}
"""


def found(root: Path, code: str, flags: str = "", backend: str = "cpu") -> list[tuple[str, int | None, str]]:
    toml = compiled_toml("torch-ext/bind.cpp", "op.cpp", section="rows").replace('"cpu"', f'"{backend}"') + flags
    source(root, {"__init__.py": "__all__ = []\n"}, toml=toml)
    write(root, {"op.cpp": code, "torch-ext/bind.cpp": ""})
    return [(one.path, one.line, one.message) for one in findings(root, "KB214")]


@pytest.mark.parametrize(
    ("code", "line", "what"),
    [
        (LOOP, 4, "at::parallel_for runs on one thread"),
        (LOOP.replace("at::parallel_for", "at :: parallel_reduce"), 4, "at::parallel_reduce runs on one thread"),
        (PRAGMA, 2, "'#pragma omp parallel for' has no effect"),
        (f"{PRAGMA}{LOOP}", 2, "'#pragma omp parallel for' has no effect"),
    ],
)
@pytest.mark.parametrize("flags", ["", 'cxx-flags = ["-O3", "-fno-openmp"]'])
def test_it_is_told_with_the_section(tmp_path: Path, code: str, line: int, what: str, flags: str) -> None:
    said = f"{what}, but [kernel.rows] is compiled without -fopenmp"
    assert found(tmp_path, code, flags) == [(f"{tmp_path}/op.cpp", line, said)]


@pytest.mark.parametrize("code", [LOOP, PRAGMA])
@pytest.mark.parametrize("flag", ["-fopenmp", "-fopenmp=libomp"])
def test_with_the_flag_all_is_well(tmp_path: Path, code: str, flag: str) -> None:
    assert found(tmp_path, code, f'cxx-flags = ["{flag}"]') == []


@pytest.mark.parametrize(
    "code",
    [
        f"#ifdef _OPENMP\n{LOOP}{PRAGMA}#endif\n",
        "// at::parallel_for(0, 9, 1, f);\n/*\n#pragma omp parallel\n*/\n",
        'char const *text = "at::parallel_for";\n',
        "void op() {\n#pragma omp simd\n  for (int i = 0; i < 9; ++i) {}\n}\n",
        "#pragma omp declare simd\nfloat op(float);\n#pragma once\n",
        "void parallel_for();\nvoid op() { mine::parallel_for(); }\n",
    ],
)
def test_what_starts_no_threads_needs_no_flag(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code) == []


def test_code_for_a_device_is_left_to_its_compiler(tmp_path: Path) -> None:
    assert found(tmp_path, LOOP, backend="cuda") == []
