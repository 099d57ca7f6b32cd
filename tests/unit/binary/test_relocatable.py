"""Object files are compared function by function: what nobody uses does not count, and everything else does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernel_builder.binary.relocatable import ObjectError, compare_objects

FLAGS = ("-O0", "-fmerge-constants", "-fno-jump-tables", "-ffunction-sections", "-fdata-sections")
UNUSED = """\
static const char *const names[] = {"one", "two"};
static double unused() { return 3.25; }
inline const char *also() { return "also unused"; }
static int before = 7;
"""
USED = """\
static int count = 3;
inline const char *text() { return "used"; }
struct Shape { virtual int corners() { return 4; } virtual ~Shape() {} };
int call(int value) {
  Shape shape;
  switch (value) { case 1: return text()[0]; case 2: return count; case 3: return shape.corners(); }
  return (int)(value * 0.5) + (int)sizeof("longer text");
}
"""


def compiled(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.o"
    command = ["g++", "-x", "c++", "-c", *FLAGS, "-o", str(path), "-"]
    subprocess.run(command, input=text, text=True, check=True, capture_output=True)
    return path


def verdict(folder: Path, whole: str, part: str) -> str | None:
    return compare_objects(compiled(folder, "whole", whole), compiled(folder, "part", part)).verdict


def test_what_is_not_used_does_not_count(tmp_path: Path) -> None:
    whole, part = compiled(tmp_path, "whole", UNUSED + USED), compiled(tmp_path, "part", USED)
    found = compare_objects(whole, part)
    assert found.verdict is None
    assert found.common >= 6
    # Strings, constants and variables lie elsewhere, but are the same.
    assert verdict(tmp_path, 'const char *first() { return "first"; }\n' + USED, USED) == "_Z5firstv is missing"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"used"', '"else"', "_Z4textv differs"),
        ("count = 3", "count = 4", "_ZL5count differs"),
        ("value * 0.5", "value * 0.75", "_Z4calli differs"),
        ("return count;", "return -count;", "_Z4calli differs"),
        ("return 4;", "return 5;", "_ZN5Shape7cornersEv differs"),
        ("static int count", "extern int other; static int count", None),
        ("text()[0]", "text()[1]", "_Z4calli differs"),
        ("int call(int value) {", "int more();\nint call(int value) { more();", "_Z4calli differs (and 1 more)"),
        ("static int count = 3;", "static int count = 3; int extra;", "extra is new"),
        ("inline const char", "const char", "_Z4textv differs"),
    ],
)
def test_every_difference_counts(tmp_path: Path, old: str, new: str, said: str | None) -> None:
    assert USED.count(old) == 1
    assert verdict(tmp_path, USED, USED.replace(old, new)) == said


def test_what_is_no_object_file_is_refused(tmp_path: Path) -> None:
    fine = compiled(tmp_path, "fine", USED)
    damaged = tmp_path / "damaged.o"
    for data in (b"", b"\x7fELF", fine.read_bytes()[:2000], b"#!/bin/sh\n" * 20):
        damaged.write_bytes(data)
        with pytest.raises(ObjectError):
            compare_objects(fine, damaged)
