"""What differs between two files is told where it is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.binary.compare import differences

Library = Callable[..., bytes]
SOURCE = """\
#include "h.h"
extern "C" const char *told() { return "built " WHEN; }
static int hidden(int x) { return x + VALUE; }
extern "C" __attribute__((noinline)) int twice(int x) { return x * VALUE; }
extern "C" int apart(int x) { return hidden(x) - 1; }
"""


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """Compiles a library: ``library(VALUE="3")`` with those macros, ``flags`` and ``more`` text."""

    def make(*flags: str, more: str = "", when: str = '"once"', value: str = "3") -> bytes:
        (tmp_path / "h.h").write_text(f"#define WHEN {when}\n#define VALUE {value}\n", encoding="utf-8")
        (tmp_path / "a.cpp").write_text(SOURCE + more, encoding="utf-8")
        command = ["g++", "-shared", "-fPIC", "-O1", *flags, "a.cpp", "-o", "a.so"]
        subprocess.run(command, cwd=tmp_path, check=True)
        return (tmp_path / "a.so").read_bytes()

    return make


def test_the_same_files_do_not_differ(library: Library) -> None:
    assert differences(library(), library()) == ()


def test_a_changed_header_names_the_functions(library: Library) -> None:
    text = "\n".join(differences(library(), library(value="5 * 7 * x")))
    assert "functions that differ: twice, apart" in text
    assert "told" not in text


def test_a_date_is_told_as_one(library: Library) -> None:
    lines = differences(library(when='"Nov 14 2023"'), library(when='"Jan  1 1970"'))
    (line,) = [line for line in lines if line.startswith("strings in .rodata")]
    assert "'built Nov 14 2023', here 'built Jan  1 1970'" in line
    assert "__DATE__" in line


def test_a_path_is_told_as_one(library: Library) -> None:
    lines = differences(library(when='"/home/me/k/a.cpp"'), library(when='"/tmp/tree/k/a.cpp"'))
    (line,) = [line for line in lines if line.startswith("strings in .rodata")]
    assert "__FILE__" in line
    same = differences(library(when='"3/4"'), library(when='"4/5/6"'))
    assert not any("__FILE__" in line for line in same)


def test_another_order_of_sources_is_told_as_one(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.cpp").write_text(
            f"int call_{name}(int x) {{ return x * {ord(name)}; }}\n", encoding="utf-8"
        )
    made = []
    for order in (("a.cpp", "b.cpp"), ("b.cpp", "a.cpp")):
        subprocess.run(["g++", "-shared", "-fPIC", "-O1", *order, "-o", "x.so"], cwd=tmp_path, check=True)
        made.append((tmp_path / "x.so").read_bytes())
    text = "\n".join(differences(*made))
    assert "another order): call_a, call_b, here call_b, call_a" in text
    assert "functions that differ" not in text


def test_a_source_of_one_alone_and_a_random_name_are_named(library: Library, tmp_path: Path) -> None:
    (tmp_path / "more.cpp").write_text("int more(int x) { return x; }\n", encoding="utf-8")
    assert "compiled file more.cpp is only here" in differences(library(), library("more.cpp"))
    ours, theirs = (
        library(more=f"static volatile int made_{at} = 7; int got() {{ return made_{at}; }}\n") for at in "xy"
    )
    lines = differences(ours, theirs)
    assert "symbol made_x is not here" in lines
    assert "symbol made_y is only here" in lines


def test_a_project_s_own_functions_come_before_those_of_the_library(library: Library) -> None:
    code = """\
#include <string>
static std::string own_{0}(int n) {{ return std::to_string(n); }}
int zz_{0}(int n) {{ return own_{0}(n).size(); }}
"""
    lines = differences(library("-O0", more=code.format("one")), library("-O0"))
    (line,) = [line for line in lines if line.startswith("functions that differ")]
    shown = line.partition(": ")[2].split(", ")
    assert shown[:2] == ["own_one", "zz_one"]


def test_another_compiler_comes_first(library: Library, tmp_path: Path) -> None:
    ours = library()
    (tmp_path / "comment").write_bytes(b"GCC: (Other) 99.1.0\0")
    (tmp_path / "b.so").write_bytes(ours)
    command = ["objcopy", "--update-section", ".comment=comment", "b.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    first = differences(ours, (tmp_path / "b.so").read_bytes())[0]
    assert first.startswith("the compiler: 'GCC: ")
    assert first.endswith("here 'GCC: (Other) 99.1.0'")


def test_names_and_libraries_of_one_alone(library: Library) -> None:
    more = 'extern "C" double cos(double); extern "C" double added(double x) { return cos(x); }\n'
    lines = differences(library(), library(more=more))
    assert "exported name added is only here" in lines
    assert "imported name cos is only here" in lines
    lines = differences(library(more=more), library())
    assert "exported name added is not here" in lines


def test_what_only_tables_tell_is_said(library: Library) -> None:
    lines = differences(library(), library("-Wl,--build-id=0x1234"))
    assert len(lines) == 1
    assert ".note.gnu.build-id" in lines[0]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"a": 1}, {"a": 2}, ("a: 1, here 2",)),
        ({"a": {"b": [1]}, "c": 0}, {"a": {"b": [2]}}, ("a.b: [1], here [2]", "c: 0, not here")),
        ({}, {"x": "y"}, ("x: 'y' is only here",)),
    ],
)
def test_documents_differ_by_keys(one: object, other: object, said: tuple[str, ...]) -> None:
    assert differences(json.dumps(one).encode(), json.dumps(other).encode()) == said


def test_texts_differ_by_lines() -> None:
    assert differences(b"a\nb\nc\n", b"a\nB\nc\n") == ("line 2: 'b', here 'B'",)
    assert differences(b"a\n", b"a\nb\n") == ("1 lines, here 2",)


def test_a_damaged_library_is_compared_as_bytes(library: Library) -> None:
    whole = library()
    assert differences(whole, whole[:5000]) == (f"{len(whole)} bytes, here 5000",)
    assert differences(b"\x7fELF\0\1", b"\x7fELF\0\2") == ("6 bytes, with different content",)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_whatever_they_hold_is_compared(one: bytes, other: bytes) -> None:
    assert (differences(one, other) == ()) == (one == other)


@given(flips=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 7)), min_size=1, max_size=4))
def test_damage_anywhere_in_a_library_is_told(flips: list[tuple[int, int]], damaged_at: bytes) -> None:
    changed = bytearray(damaged_at)
    for place, bit in flips:
        changed[place % len(changed)] ^= 1 << bit
    assert (differences(damaged_at, bytes(changed)) == ()) == (bytes(changed) == damaged_at)


@pytest.fixture(scope="session")
def damaged_at(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library to be damaged."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "a.c").write_text("int twice(int x) { return 2 * x; }\n", encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "a.c", "-o", "a.so"], cwd=folder, check=True)
    return (folder / "a.so").read_bytes()
