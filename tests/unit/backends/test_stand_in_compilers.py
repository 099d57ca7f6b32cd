"""What stands in for Intel's and Apple's compilers in tests refuses wrong command lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

PROJECTS = Path(__file__).parent.parent.parent / "projects"
TARGET, SYSROOT = "--target=arm64-apple-macos26.0", "-isysroot={sdk}"
TARGETS = "-fsycl-targets=spir64_gen,spir64"
AHEAD = "-Xsycl-target-backend=spir64_gen", "-device pvc -options -cl-one"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    shutil.copytree(PROJECTS / "oneapi", tmp_path / "oneapi")
    shutil.copytree(PROJECTS / "xcode", tmp_path / "xcode")
    (tmp_path / "oneapi" / "bin" / "VERSION").write_text("2026.0.1", encoding="ascii")
    ocloc = tmp_path / "oneapi" / "bin" / "ocloc"
    ocloc.write_text("#!/bin/sh\n", encoding="ascii")
    ocloc.chmod(0o755)
    for name, text in {
        "a.cpp": "int a() { return 1; }\n",
        "a.metal": "kernel void a() {}\n",
        "b.S": '.incbin "a.metallib"\n',
        "plain.o": "object of nobody\n",
        "both.o": "made for spir64_gen,spir64;",
        "one.o": "made for spir64;",
        "old.o": "object c 15.0\n",
        "new.o": "object c 26.0\n",
        "objective.o": "object objective-c++ 26.0\n",
        "a.air": "AIR of a.metal 00\n",
        "no-sycl.rsp": f"-c a.cpp -fPIC {TARGETS} -o made.o\n",
        "twice.rsp": "-o other.o\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="ascii")
    return tmp_path


def run(work: Path, program: str, words: Sequence[str]) -> tuple[int, str]:
    [path] = work.glob(f"*/bin/{program}")
    given = [word.format(sdk=work / "xcode" / "MacOSX.sdk") for word in words]
    given = [part for word in given for part in (word.split("=", 1) if word.startswith("-isysroot=") else [word])]
    environ = {**os.environ, "PATH": f"{path.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, path, *given], cwd=work, env=environ, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr.strip()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-c", "a.cpp", "-fPIC", TARGETS, "-o", "made.o"), "must be used in conjunction with '-fsycl'"),
        (("-c", "a.cpp", "-fPIC", "-fsycl", "-fsycl-targets=spir65", "-o", "made.o"), "target is invalid: 'spir65'"),
        (("-c", "a.cpp", "-fsycl", TARGETS, "-o", "made.o"), "needs '-fPIC'"),
        (("-c", "a.cpp", "-fPIC", "-fsycl", "-o", "made.o", "-o", "made.o"), "cannot specify '-o' twice"),
        (("-c", "a.cpp", "-fPIC", "-fsycl", "-o", "made.o", "@twice.rsp"), "cannot specify '-o' twice"),
        (("@no-sycl.rsp",), "must be used in conjunction with '-fsycl'"),
        (("@none.rsp",), "no such file or directory: '@none.rsp'"),
        (("-c", "a.cpp", "-fPIC", "-fsycl"), "no output is named"),
        (("-c", "a.cpp", "-fPIC", "-fsycl", "-fno-gnu-unique", "-o", "made.o"), "unknown argument: '-fno-gnu-unique'"),
        (("-fsycl-link", "-fPIC", TARGETS, *AHEAD, "both.o", "-o", "made.o"), "in conjunction with '-fsycl'"),
        (("-fsycl", "-fsycl-link", TARGETS, *AHEAD, "both.o", "-o", "made.o"), "needs '-fPIC'"),
        (("-fsycl", "-fsycl-link", "-fPIC", TARGETS, *AHEAD, "-o", "made.o"), "no input files"),
        (("-fsycl", "-fsycl-link", "-fPIC", TARGETS, *AHEAD, "plain.o", "-o", "made.o"), "plain.o has no device code"),
        (("-fsycl", "-fsycl-link", "-fPIC", TARGETS, *AHEAD, "both.o", "one.o", "-o", "made.o"), "one.o has no device"),
        (("-fsycl", "-fsycl-link", "-fPIC", TARGETS, "both.o", "-o", "made.o"), "ocloc: no device is named"),
        (
            ("-fsycl", "-fsycl-link", "-fPIC", "-fsycl-targets=spir64", *AHEAD, "one.o", "-o", "made.o"),
            "is for a target that is not compiled for",
        ),
        (
            ("-fsycl", "-fsycl-link", "-fPIC", TARGETS, AHEAD[0], "-device pvc -cl-one", "both.o", "-o", "made.o"),
            "ocloc: invalid option -cl-one",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_icpx(work: Path, words: tuple[str, ...], told: str) -> None:
    code, said = run(work, "icpx", words)
    assert (code, told in said, "Traceback" in said) == (1, True, False), said
    assert not (work / "made.o").exists()


LINK = "-bundle", "-Xlinker", "-undefined", "-Xlinker", "dynamic_lookup", "-o", "made.o"


@pytest.mark.parametrize(
    ("program", "words", "told"),
    [
        ("clang++", ("-x", "c++", "-c", "a.cpp", TARGET, "-o", "made.o"), "not told where the SDK is"),
        ("clang++", ("-x", "c++", "-c", "a.cpp", SYSROOT, "-o", "made.o"), "not told which macOS"),
        ("clang++", ("-x", "c++", "-c", "a.cpp", TARGET, "-isysroot=/", "-o", "made.o"), "not told where the SDK is"),
        (
            "clang++",
            ("-x", "c++", "-c", "a.cpp", "--target=x86_64-apple-macos26.0", SYSROOT, "-o", "made.o"),
            "not told which macOS",
        ),
        ("clang++", ("-x", "c++", "-c", "a.cpp", TARGET, SYSROOT, "-o", "made.o", "@twice.rsp"), "'-o' twice"),
        ("clang++", ("-x", "c++", "-c", TARGET, SYSROOT, "-o", "made.o"), "no input files"),
        ("clang++", ("a.cpp", TARGET, SYSROOT, "-o", "made.o"), "undefined symbol: _main"),
        ("clang++", ("-x", "c", "-c", "a.cpp", TARGET, SYSROOT, "-o", "made.o"), "it is not C"),
        ("clang++", (TARGET, SYSROOT, *LINK, "new.o", "old.o"), "old.o is object c 15.0, not an object for macOS 26.0"),
        ("clang++", (TARGET, SYSROOT, *LINK, "plain.o"), "not an object for macOS 26.0"),
        ("clang++", (TARGET, SYSROOT, *LINK, "new.o", "objective.o"), "_MTLCreateSystemDefaultDevice"),
        ("clang++", (TARGET, SYSROOT, "-bundle", "-o", "made.o", "new.o"), "undefined symbols"),
        ("metal", ("-std=metal4.0", "-mmacosx-version-min=15.0", "-c", "a.metal", "-o", "made.o"), "needs macOS 26"),
        ("metal", ("-std=metal3.2", "-c", "a.metal", "-o", "made.o"), "not told which macOS"),
        ("metal", ("-std=metal4.0", "-mmacosx-version-min=26.0", "-c", "a.cpp", "-o", "made.o"), "is no shader"),
        ("metal", ("-fPIC", "-c", "a.metal", "-o", "made.o"), "unknown argument: '-fPIC'"),
        ("metallib", ("new.o", "-o", "made.o"), "links what the Metal compiler makes"),
        ("metallib", ("a.air", "none.air", "-o", "made.o"), "no such file or directory"),
        ("metallib", ("a.air",), "no output is named"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_apples(work: Path, program: str, words: tuple[str, ...], told: str) -> None:
    code, said = run(work, program, words)
    assert (code, told in said, "Traceback" in said) == (1, True, False), said
    assert not (work / "made.o").exists()


def test_a_library_of_shaders_is_for_no_newer_macos_than_what_carries_it(work: Path) -> None:
    assert run(work, "metallib", ("a.air", "-o", "a.metallib")) == (0, "")
    older = ("-x", "assembler", "-c", "b.S", "--target=arm64-apple-macos15.0", SYSROOT, "-I", ".", "-o", "made.o")
    code, said = run(work, "clang++", older)
    assert (code, "is for a newer macOS than 15.0" in said) == (1, True), said
    right = tuple(TARGET if word.startswith("--target=") else word for word in older)
    assert run(work, "clang++", right)[0] == 0
