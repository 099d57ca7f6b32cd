"""Libraries that define names alone, as the dynamic linker and other people's tools see them."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.binary.elf import read_elf
from kernel_builder.load.probe.stub_library import (
    AARCH64,
    OBJECT,
    PROCESSORS,
    QUIET,
    THREAD_LOCAL,
    Name,
    Processor,
    library,
)

NAMES = [
    Name("plain"),
    Name("_ZN3c104cuda6streamEv"),
    Name("versioned", version="LIB_12"),
    Name("newer", version="LIB_13"),
    Name("table", OBJECT),
    Name("other", OBJECT, "LIB_12"),
    Name("per_thread", THREAD_LOCAL),
    Name("registers", QUIET),
    *(Name(f"more_{number}") for number in range(300)),
]
HERE = PROCESSORS.get({"arm64": "aarch64"}.get(platform.machine(), platform.machine()))


@pytest.mark.parametrize("machine", PROCESSORS)
def test_readers_see_what_was_asked_for(machine: str, tmp_path: Path) -> None:
    content = library("libmade.so.7", NAMES, PROCESSORS[machine])
    elf = read_elf(content)
    assert (elf.machine, elf.soname, elf.needed, elf.undefined) == (machine, "libmade.so.7", (), ())
    assert not elf.executable_stack
    found = {(symbol.name, symbol.version, symbol.kind) for symbol in elf.exports}
    kinds = {OBJECT: "object", THREAD_LOCAL: "tls"}
    assert found == {(name.name, name.version or None, kinds.get(name.kind, "func")) for name in NAMES}
    path = tmp_path / "libmade.so.7"
    path.write_bytes(content)
    told = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True)
    assert "Library soname: [libmade.so.7]" in told.stdout
    assert told.stderr == ""


def test_a_library_of_nothing(tmp_path: Path) -> None:
    assert HERE is not None
    path = tmp_path / "libempty.so"
    path.write_bytes(library("libempty.so", [], HERE))
    ctypes.CDLL(str(path))


REAL = """\
void plain(void) {} void versioned(void) {} void *registers(int x) { return 0; } int table[4]; __thread int per_thread;
"""
USER = """\
extern void plain(void), *registers(int);
extern int table[4];
extern __thread int per_thread;
extern void versioned(void);
int sum(void) { return table[0] + table[3] + per_thread + (registers(1) != 0) + *(int *)registers(2); }
void call(int which) { which ? versioned() : plain(); }
"""


def linked(tmp_path: Path, machine: Processor, compiler: str) -> Path:
    """A library that uses the names, compiled and linked against them."""
    for name, text in (("user.c", USER), ("real.c", REAL), ("map", "LIB_12 { global: versioned; };\n")):
        (tmp_path / name).write_text(text, encoding="ascii")
    for command in (
        ["real.c", "-o", "libmade.so", "-Wl,-soname,libmade.so", "-Wl,--version-script=map"],
        ["user.c", "-o", "libuser.so", "-L.", "-lmade", "-Wl,-z,now"],
    ):
        subprocess.run([compiler, "-shared", "-fPIC", *command], cwd=tmp_path, check=True)
    (tmp_path / "libmade.so").write_bytes(library("libmade.so", NAMES, machine))
    return tmp_path / "libuser.so"


def test_users_of_the_names_are_loaded_and_stopped(tmp_path: Path) -> None:
    assert HERE is not None
    user = linked(tmp_path, HERE, "gcc")
    code = (
        f"import ctypes, sys; ctypes.CDLL({str(tmp_path / 'libmade.so')!r}); user = ctypes.CDLL({str(user)!r})\n"
        "print(user.sum(), flush=True); user.call(int(sys.argv[1]))"
    )
    for which, name in enumerate(("plain", "versioned")):
        ended = subprocess.run([sys.executable, "-c", code, str(which)], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout) == (-6, "1\n")
        assert ended.stderr == f"kernel-builder: the stand-in of {name} was called\n"


MAIN = """\
#include <stdio.h>
int sum(void);
void call(int);
int main(void) { printf("%d\\n", sum()); fflush(stdout); call(0); }
"""


def test_they_work_on_aarch64_as_well(tmp_path: Path) -> None:
    compiler = shutil.which("aarch64-linux-gnu-gcc")
    runner = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if compiler is None or runner is None:
        pytest.skip("needs a cross compiler and qemu-aarch64")
    linked(tmp_path, AARCH64, compiler)
    (tmp_path / "main.c").write_text(MAIN, encoding="ascii")
    subprocess.run(
        [
            "aarch64-linux-gnu-gcc",
            "main.c",
            "-o",
            "main",
            "-L.",
            "-luser",
            "-Wl,--unresolved-symbols=ignore-in-shared-libs",
            "-Wl,--disable-new-dtags,-rpath,$ORIGIN",
        ],
        cwd=tmp_path,
        check=True,
    )
    ended = subprocess.run(
        [runner, "-L", "/usr/aarch64-linux-gnu", tmp_path / "main"], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "1\n"
    assert "kernel-builder: the stand-in of plain was called" in ended.stderr
