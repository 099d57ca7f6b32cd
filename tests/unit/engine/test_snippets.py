"""Wide lines of sources are cut around what compilers mark in them, and the marks stay below what they marked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.engine.complaints import excerpt
from kernel_builder.engine.snippets import fitted

WIDE = "int " + ", ".join(f"name_{number} = {number}" for number in range(40))


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"{WIDE}, last = wrong;", id="at the end"),
        pytest.param(f"int first = wrong; {WIDE};", id="at the beginning"),
        pytest.param(f"\t{WIDE}; int middle = wrong; {WIDE.replace('name', 'other')};", id="in the middle"),
        pytest.param(f"/* {'字' * 150} */ int k = wrong; /* {'é' * 200} */", id="not ASCII"),
    ],
)
def test_what_a_compiler_marks_is_shown_with_the_mark_below_it(tmp_path: Path, compiler: str, line: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    (tmp_path / "k.cpp").write_text(f"{line}\n", encoding="utf-8")
    command = [compiler, "-c", "-fno-diagnostics-color", "k.cpp"]
    environ = {"LC_ALL": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ, check=False)
    assert said.returncode
    shown = excerpt(said.stderr.splitlines())
    at = next(number for number, text in enumerate(shown) if "^" in text)
    assert len(shown[at - 1]) <= 200
    before = shown[at - 1][: shown[at - 1].index("wrong")]
    assert len(before) + before.count("字") == shown[at].index("^")
    assert ("..." in shown[at - 1]) == (len(line) > 200)


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        pytest.param(
            ["k.cu(3): error: bad", f"{'x' * 60}bad{'y' * 60}", f"{' ' * 60}^", "", "1 error detected"],
            ["k.cu(3): error: bad", f"... {'x' * 16}bad{'y' * 13} ...", f"{' ' * 20}^", "", "1 error detected"],
            id="nvcc",
        ),
        pytest.param(
            [f"  3 | f({'a' * 70});", f"    |   {'~' * 70}^", f"    |   {' ' * 70}|", f"    |   {' ' * 70}int"],
            [f"  3 | ... {'a' * 23});", f"    |     {'~' * 23}^", f"    |     {' ' * 23}|", f"    |     {' ' * 23}int"],
            id="labels",
        ),
        pytest.param(
            [f"k.cpp:1:1: error: {'w' * 60}", "  short", "  ^"],
            [f"k.cpp:1:1: error: {'w' * 18} ...", "  short", "  ^"],
            id="message",
        ),
        pytest.param(
            ["undefined " * 8, f"  in {'z' * 50}"],
            [f"{('undefined ' * 8)[:36]} ...", f"  in {'z' * 31} ..."],
            id="no source",
        ),
    ],
)
def test_lines_are_cut(lines: list[str], shown: list[str]) -> None:
    assert list(fitted(lines, 40)) == shown


@given(st.integers(0, 400), st.integers(1, 60), st.integers(0, 400), st.sampled_from(["", "  7 | ", "12345 | "]))
def test_a_mark_stays_below_its_word_wherever_that_is(before: int, length: int, after: int, gutter: str) -> None:
    text = "a" * before + "W" + "w" * (length - 1) + "b" * after
    below = f"{' ' * (len(gutter) - 2)}| " if gutter else ""
    marks = " " * before + "^" + "~" * (length - 1)
    shown, marked = fitted([gutter + text, below + marks], 100)
    assert len(shown) <= 100
    assert len(marked) <= 100
    assert shown[marked.index("^")] == "W"
    assert shown.startswith(gutter)
    assert marked.startswith(below.rstrip())
