"""What linkers and assemblers of device code complain of is explained. The linkers are real."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_builder.binary.causes import NamedCause
from kernel_builder.engine.complaints import explained
from kernel_builder.engine.own_names import OwnNames

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="this machine has no g++")

TWICE = {
    "in a header": (
        {
            "h.h": "\nnamespace k { int f(int n) { return n; } }",
            "a.cpp": '#include "h.h"\n',
            "b.cpp": '#include "h.h"\n',
        },
        "h.h:2 defines k::f(int), and so does every file that includes it: a.cpp and b.cpp",
        "write 'inline' before that definition in h.h",
    ),
    "in two sources": (
        {"a.cpp": "int f(int n) { return n; }", "b.cpp": "int f(int n) { return -n; }"},
        "a.cpp and b.cpp define f(int), each for itself",
        "define it in one of them, or make it static",
    ),
    "in a source that is included": (
        {"a.cpp": "int f(int n) { return n; }", "b.cpp": '#include "a.cpp"\n'},
        "a.cpp:1 defines f(int), which is compiled and also included by b.cpp",
        "remove the #include of a.cpp from b.cpp",
    ),
    "with C linkage": (
        {"h.h": 'extern "C" int f(int n) { return n; }', "a.cpp": '#include "h.h"\n', "b.cpp": '#include "h.h"\n'},
        "h.h:1 defines f, and so does every file that includes it: a.cpp and b.cpp",
        "write 'inline' before that definition in h.h",
    ),
}


def link(root: Path, files: dict[str, str], linker: str | None) -> tuple[list[str], OwnNames]:
    """What a linker says of the sources among ``files``, and the project."""
    objects: dict[Path, str] = {}
    for name, text in files.items():
        (root / name).write_text(text, encoding="ascii")
    for name in files:
        if name.endswith(".cpp"):
            target = root / f"{name}.o"
            subprocess.run(["g++", "-c", "-fPIC", str(root / name), "-o", str(target)], check=True)
            objects[target] = name
    flags = [f"-fuse-ld={linker}"] if linker else []
    command = ["g++", "-shared", *flags, *map(str, objects), "-o", str(root / "x.so")]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode != 0
    return completed.stderr.splitlines(), OwnNames.of(root, objects)


@pytest.mark.parametrize("linker", [None, "gold", "lld", "mold"])
@pytest.mark.parametrize("kind", TWICE)
def test_a_function_that_is_defined_twice(kind: str, linker: str | None, tmp_path: Path) -> None:
    if linker is not None and shutil.which({"gold": "ld.gold", "lld": "ld.lld"}.get(linker, linker)) is None:
        pytest.skip(f"this machine has no {linker}")
    files, why, instead = TWICE[kind]
    lines, own = link(tmp_path, files, linker)
    assert explained(lines, "x.so", own) == (NamedCause(why=why, instead=instead),)


@pytest.mark.parametrize(
    ("file", "text", "why", "instead"),
    [
        (
            "b.cu",
            "__device__ __forceinline__ float helper(float x) { return x; }",
            "which b.cu:1 defines, but each file's device code must be complete by itself",
            "move that definition to a header, and include it in a.cu",
        ),
        (
            "inc/b.cuh",
            "static __device__ float helper(float x)\n{ return x; }",
            "which inc/b.cuh:1 defines",
            "include inc/b.cuh in a.cu",
        ),
        ("c.cu", "float other();", "and no file of the project defines it", "define it in a.cu, or in a header"),
    ],
)
def test_a_device_function_of_another_file(file: str, text: str, why: str, instead: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text, encoding="ascii")
    said = "ptxas fatal   : Unresolved extern function '_Z6helperf'"
    (cause,) = explained(["note", said, said], "a.cu", OwnNames.of(tmp_path, {}))
    assert cause.why.startswith("a.cu uses helper(float) in device code")
    assert why in cause.why
    assert cause.instead.startswith(instead)


def test_other_words_are_not_explained(tmp_path: Path) -> None:
    lines = ["a.cpp:1:1: error: 'f' was not declared in this scope", "ld: cannot find -lfoo"]
    assert explained(lines, "a.cpp", OwnNames.of(tmp_path, {})) == ()
