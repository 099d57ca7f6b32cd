"""Two ways to compile are told apart by what counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.actions.slim import PLAINLY
from kernel_builder.binary import device_proof, relocatable

STUB = '# 1 "/one/k.stub.c"\nvoid stub(float *a) { float *__T26; int __T27; __T26 = a; use(__T26, __T27); }\n'
RENUMBERED = '# 1 "/other/k.stub.c"\nvoid stub(float *a) { float *__T16; int __T17; __T16 = a; use(__T16, __T17); }\n'
SWAPPED = RENUMBERED.replace("use(__T16, __T17)", "use(__T17, __T16)")


@pytest.mark.parametrize(
    ("name", "one", "other", "equal"),
    [
        ("k.cubin", "\x7fELF 1", "\x7fELF 1", True),
        ("k.cubin", "\x7fELF 1", "\x7fELF 2", False),
        ("k.ptx", "# 1 a", "# 1 b", False),
        ("k.stub.c", STUB, RENUMBERED, True),
        ("k.stub.c", STUB, SWAPPED, False),
        ("k.stub.c", STUB, RENUMBERED.replace("float *a", "float *b"), False),
    ],
)
def test_what_counts_is_compared(tmp_path: Path, name: str, one: str, other: str, equal: bool) -> None:
    paths = [tmp_path / f"slim-{name}", tmp_path / name]
    for path, text in zip(paths, (one, other), strict=True):
        path.write_text(text, encoding="utf-8")
    same = [sys.executable, "-P", device_proof.__file__, str(paths[0]), str(paths[0]), *map(str, paths)]
    done = subprocess.run(same, capture_output=True, text=True, check=False)
    expected = (0, "") if equal else (1, f"error: slim headers produce a different {name}\n")
    assert (done.returncode, done.stderr) == expected


USER = """\
template <class T> int leaf(T);
template <class T> int used(T value) { return value + leaf(value); }
template <class T> int user(T value) { try { return used(value); } catch (...) { return 2; } }
template <class T> int leaf(T) { return 1; }
int call() { return user(1); }
"""
BEFORE = f"template <class T> int used(T);\ninline int early() {{ return used(1); }}\n{USER}"


def proved(folder: Path, whole: str, part: str, *options: str) -> tuple[int, str]:
    objects = []
    for name, text in (("whole", whole), ("part", part)):
        objects.append(str(folder / f"{name}.o"))
        command = ["g++", "-x", "c++", "-fPIC", "-O3", "-c", *options, "-o", objects[-1], "-"]
        subprocess.run(command, input=text, text=True, check=True, capture_output=True)
    command = [sys.executable, "-P", relocatable.__file__, *objects]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_what_the_compiler_saw_first_makes_no_difference(tmp_path: Path) -> None:
    assert proved(tmp_path, BEFORE, USER, *PLAINLY) == (0, "")
    # If g++ instantiates used() before user(), it knows that nothing is thrown, and leaves out the handler.
    optimistic = (word for word in PLAINLY if word != "-fnon-call-exceptions")
    differs = "error: slim headers produce different host code: _Z4userIiEiT_ differs"
    assert proved(tmp_path, BEFORE, USER, *optimistic) == (1, f"{differs} (and 3 more)\n")
    assert proved(tmp_path, BEFORE, USER.replace("return 2", "return 3"), *PLAINLY) == (1, f"{differs}\n")


def test_what_cannot_be_compared_is_no_proof(tmp_path: Path) -> None:
    (tmp_path / "x.o").write_bytes(b"no object")
    command = [sys.executable, "-P", relocatable.__file__, str(tmp_path / "x.o"), str(tmp_path / "y.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: objects cannot be compared: ")
