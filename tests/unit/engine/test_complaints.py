"""What linkers and assemblers of device code complain of is explained. The linkers are real."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_builder.binary.causes import NamedCause
from kernel_builder.engine.complaints import excerpt, explained
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
        "a.cpp and b.cpp each define f(int)",
        "define it in one of them, or make it static",
    ),
    "in a source that is included": (
        {"a.cpp": "int f(int n) { return n; }", "b.cpp": '#include "a.cpp"\n'},
        "a.cpp:1 defines f(int), which is compiled and also included by b.cpp",
        "remove the #include of a.cpp from b.cpp",
    ),
    "exported to tvm-ffi": (
        {
            "a.cpp": 'extern "C" int __tvm_ffi_f(void *) { return 0; }',
            "b.cpp": 'extern "C" int __tvm_ffi_f(void *) { return 1; }',
        },
        "a.cpp and b.cpp each export the function f to tvm-ffi",
        "export f in one source, and not in a header that several include",
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


NOTE = """\
cuda_bf16.hpp(355): note #3326-D: function "operator==(const __nv_bfloat162 &, const __nv_bfloat162 &)" does not match
  __attribute__((host)) bool operator==(const __nv_bfloat162 &lh, const __nv_bfloat162 &rh) { return __hbeq2(lh, rh); }
                                 ^"""
SEVERAL = f"""\
a.cu(4): error: more than one operator "==" matches these operands:
            built-in operator "arithmetic == arithmetic"
            function "operator==(const __half &, const __half &)" (declared at line 255 of cuda_fp16.hpp)
            operand types are: c10::Half == c10::Half
  if (a[0] == a[1]) a[0] = 1.0f;
           ^
{NOTE}
          detected during instantiation of "void k(T *) [with T=c10::Half]" at line 5
"""
NONE = """\
b.cu(3): error: no operator "+" matches these operands
            operand types are: <first> + <second>
  a[0] = a[1] + a[2];
              ^
"""


def none(first: str, second: str) -> str:
    return NONE.replace("<first>", first).replace("<second>", second)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        (SEVERAL, "add to the section: cuda-flags = ["),
        (SEVERAL.replace("__half", "__nv_bfloat16").replace("==", "<"), "add to the section: cuda-flags = ["),
        (none("__half", "__half"), "remove those flags"),
        (none("const __nv_bfloat16", "float").replace('"+"', '"+="'), "remove those flags"),
        ('b.cu(3): error: no suitable conversion function from "__half" to "float" exists', "remove those flags"),
        (none("Mine", "int"), None),
        ('b.cu(3): error: more than one operator "==" matches these operands:\n  built-in operator', None),
    ],
)
def test_operators_of_half_numbers(text: str, instead: str | None, tmp_path: Path) -> None:
    causes = explained(text.splitlines(), "a.cu", OwnNames.of(tmp_path, {}))
    assert [cause.instead.startswith(instead or "") for cause in causes] == ([] if instead is None else [True])


def test_notes_of_a_long_complaint_are_left_to_the_log() -> None:
    short = SEVERAL.splitlines()
    assert excerpt(short) == tuple(short)
    long = [line for _ in range(40) for line in SEVERAL.splitlines()]
    shown = excerpt(long)
    assert len(shown) == 46
    assert shown[:7] == tuple(short[:6] + short[9:10])
    assert not any("note #3326" in line or "__hbeq2" in line for line in shown)
    assert "... (355 lines)" in shown
    assert excerpt(["x" * 1000]) == (f"{'x' * 196} ...",)


def test_errors_between_notes_are_kept() -> None:
    note = ["a.h:3:5: note: candidate: 'f(int)'", "    3 |  int f(int);", "      |  ^~~"]
    error = ["In file included from a.cpp:1:", "b.h:9:1: error: no matching function", "    9 | f();"]
    shown = excerpt([*error, *note * 20, *error, *note * 20])
    assert shown == (*error, *error, "... (120 lines of notes)")
