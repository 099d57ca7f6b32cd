"""What a source reads: line markers of preprocessed text, and families of headers."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from engine_actions import action
from kernel_builder.actions.model import Step, Tool, Tree
from kernel_builder.actions.places import Places
from kernel_builder.engine.read_headers import count_text, preprocess_command, read_headers
from kernel_builder.timing.texts import Share, SourceText, family_of, source_text

MARKED = b"""\
# 0 "a.cpp"
# 0 "<built-in>"
# 0 "<command-line>"
# 1 "/usr/include/stdc-predef.h" 1 3 4
# 0 "<command-line>" 2
# 1 "a.cpp"
# 1 "big.h" 1
int big;
# 1 "part \\"x\\".h" 1 3

int part;
# 2 "big.h" 2
int more;
# 2 "a.cpp" 2
#pragma once
own();
# 1 "small.h" 1
s;
# 5 "a.cpp" 2
"""


def test_text_is_counted_by_file_and_by_include() -> None:
    found = count_text(MARKED.splitlines(keepends=True))
    assert {name: size for name, size in found.files.items() if size} == {
        "big.h": 19,
        'part \\"x\\".h': 10,
        "a.cpp": 20,
        "small.h": 3,
    }
    assert {line: size for line, size in found.included.items() if size} == {1: 29, 4: 3}


def places(tmp_path: Path) -> Places:
    return Places(
        root=tmp_path / "k", work=tmp_path / "k/.kernel-builder", output=tmp_path / "k/build", store=tmp_path / "s"
    )


def test_the_families_of_files(tmp_path: Path) -> None:
    trees = (
        Tree(name="project", identity="1", root=tmp_path / "k"),
        Tree(name="torch", identity="torch-2.13-x"),
        Tree(name="toolkit", identity="m", root=Path("/opt/kit")),
        Tree(name="cutlass", identity="dependencies/cutlass-4"),
    )
    reader, where = action("a.cpp", "true", trees=trees), places(tmp_path)
    families = {
        "<built-in>": "predefined macros",
        f"{tmp_path}/k/.kernel-builder/v/g.h": "generated",
        f"{tmp_path}/k/a.cpp": "the project",
        f"{tmp_path}/s/store/torch-2.13-x/torch/include/ATen/ATen.h": "torch: ATen",
        f"{tmp_path}/s/store/torch-2.13-x/torch/include/torch/csrc/api/include/torch/all.h": "torch: torch",
        f"{tmp_path}/s/dependencies/cutlass-4/c.h": "cutlass",
        "/opt/kit/include/k.h": "toolkit",
        "/usr/include/c++/12/vector": "libstdc++",
        "/usr/include/stdio.h": "C library and compiler",
    }
    assert {path: family_of(path, reader, where) for path in families} == families


def test_a_compile_becomes_the_run_of_its_preprocessor() -> None:
    words = ("{tool:sh}", "-c", "{project}/a.cpp", "-o", "{work}/a.o", "-MMD", "-MF", "{work}/a.d", "-O3")
    compiles = action("a.cpp", "", steps=(Step(command=words),))
    assert preprocess_command(compiles, "T") == ("{tool:sh}", "-E", "{project}/a.cpp", "-o", "T", "-O3")
    assert preprocess_command(replace(compiles, inputs=("{project}/other",)), "T") is None


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_real_preprocessor_is_asked(tmp_path: Path) -> None:
    where = places(tmp_path)
    where.root.mkdir()
    (where.root / "part.h").write_text("int part;\n", encoding="ascii")
    (where.root / "a.cpp").write_text('// first\n#include "part.h"\nint own;\n', encoding="ascii")
    gxx = Tool(name="sh", path=Path(str(shutil.which("g++"))), digest="1")
    words = ("{tool:sh}", "-c", "{project}/a.cpp", "-o", "{work}/a.o", "-MMD", "-MF", "{work}/a.d")
    compiles = action("a.cpp", "", steps=(Step(command=words),), tools=(gxx,))
    found = read_headers(compiles, where, os.environ, tmp_path / "scratch")
    assert found is not None
    lines = (where.root / "a.cpp").read_text(encoding="ascii").splitlines()
    text = source_text(compiles, where, *found, lines)
    assert text.families == (Share(name="the project", size=19),)
    assert text.includes == (Share(name='#include "part.h"', size=10),)
    assert SourceText.from_json(text.to_json()) == text
    assert not (tmp_path / "scratch").exists()
    (where.root / "a.cpp").write_text('#include "missing.h"\n', encoding="ascii")
    assert read_headers(compiles, where, os.environ, tmp_path / "scratch") is None
