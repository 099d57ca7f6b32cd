from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from kernel_builder.binary.elf import Symbol, read_elf
from kernel_builder.errors import MachineError
from kernel_builder.toolchain.host import find_host_compiler
from kernel_builder.toolchain.model import HostCompiler
from kernel_builder.toolchain.stubs import write_stub
from kernel_builder.toolchain.sysroot import GLIBC_FLOOR, select_floor, sysroot_at, write_sysroot


def versioned(name: str, *versions: str) -> list[Symbol]:
    return [Symbol(name=name, version=version, default=version == versions[-1]) for version in versions]


def test_the_newest_version_below_the_floor_is_taken_and_newer_names_are_left_out() -> None:
    symbols = [
        *versioned("memcpy", "GLIBC_2.2.5", "GLIBC_2.14"),
        *versioned("exp", "GLIBC_2.2.5", "GLIBC_2.29"),
        *versioned("arc4random", "GLIBC_2.36"),
        *versioned("secret", "GLIBC_PRIVATE"),
        *versioned("many", "GLIBC_2.3", "GLIBC_2.27", "GLIBC_2.28", "GLIBC_2.4"),
        *versioned("__udivti3", "GCC_3.0"),
        *versioned("__truncdfbf2", "GCC_13.0.0"),
        Symbol(name="without"),
    ]
    found = {symbol.name: (symbol.version, symbol.default) for symbol in select_floor(symbols)}
    assert found == {
        "memcpy": ("GLIBC_2.14", True),
        "exp": ("GLIBC_2.2.5", True),
        "many": ("GLIBC_2.27", True),
        "__udivti3": ("GCC_3.0", True),
    }


@pytest.fixture(scope="module")
def sysroot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sysroot")
    write_sysroot(directory, find_host_compiler(os.environ), os.environ)
    return directory


def test_no_stub_offers_anything_above_the_floor(sysroot: Path) -> None:
    floor = tuple(int(part) for part in GLIBC_FLOOR.split("."))
    seen = 0
    for path in sysroot_at(sysroot).libraries.iterdir():
        for symbol in read_elf(path.read_bytes()).exports:
            assert symbol.version is not None
            family, _, number = symbol.version.partition("_")
            assert tuple(map(int, number.split("."))) <= {"GLIBC": floor, "GCC": (7, 0, 0)}[family]
            seen += 1
    assert seen > 2000


def test_names_are_in_the_libraries_that_the_floor_has_them_in(sysroot: Path, tmp_path: Path) -> None:
    """glibc 2.34 moved them into libc.so.6; whoever links there needs a library too few on older systems."""
    homes = {
        "pthread_create": "libpthread.so.0",
        "sem_init": "libpthread.so.0",
        "dlopen": "libdl.so.2",
        "timer_create": "librt.so.1",
        "shm_open": "librt.so.1",
        "openpty": "libutil.so.1",
        "getaddrinfo_a": "libanl.so.1",
        "malloc": "libc.so.6",
        "pthread_mutex_lock": "libc.so.6",  # there in both: one to call before threads are there
    }
    libraries = sysroot_at(sysroot).libraries
    for name, soname in homes.items():
        exported = {symbol.name for symbol in read_elf((libraries / soname).read_bytes()).exports}
        assert name in exported, f"{name} in {soname}"
    in_libc = {symbol.name for symbol in read_elf((libraries / "libc.so.6").read_bytes()).exports}
    assert not in_libc & {name for name, soname in homes.items() if soname != "libc.so.6"}

    (tmp_path / "a.cpp").write_text("#include <thread>\nvoid run() { std::thread([] {}).join(); }\n", encoding="ascii")
    library = tmp_path / "a.so"
    others = [f"-l:{name}" for name in sysroot_at(sysroot).others]
    command = ["g++", "-shared", "-fPIC", "-nodefaultlibs", str(tmp_path / "a.cpp"), "-o", str(library)]
    command += [f"-L{libraries}", "-Wl,-Bstatic", "-lstdc++", "-Wl,-Bdynamic", str(sysroot_at(sysroot).shim)]
    command += ["-Wl,--as-needed", "-l:libc.so.6", "-l:libm.so.6", "-l:libgcc_s.so.1", *others]
    subprocess.run(command, check=True)
    assert "libpthread.so.0" in read_elf(library.read_bytes()).needed


def test_making_it_twice_gives_the_same_bytes(sysroot: Path, tmp_path: Path) -> None:
    write_sysroot(tmp_path, find_host_compiler(os.environ), os.environ)
    for path in sorted(sysroot.rglob("*")):
        if path.is_file():
            assert (tmp_path / path.relative_to(sysroot)).read_bytes() == path.read_bytes(), path.name


SHIM_USER = r"""
typedef unsigned long size;
extern "C" {
extern char __libc_single_threaded;
unsigned arc4random(void);
unsigned arc4random_uniform(unsigned);
long __isoc23_strtol(const char *, char **, int);
int __isoc23_sscanf(const char *, const char *, ...);
size strlcpy(char *, const char *, size);
size strlcat(char *, const char *, size);
int gettid(void);
int fstat(int, void *);
int pthread_cond_clockwait(void *, void *, int, const void *);
int clock_gettime(int, void *);

int single_threaded(void) { return __libc_single_threaded; }
int random_is_bounded(void) { for (int i = 0; i < 1000; ++i) if (arc4random_uniform(7) >= 7) return 0; return 1; }
int random_varies(void) {
  unsigned first = arc4random();
  for (int i = 0; i < 9; ++i) if (arc4random() != first) return 1;
  return 0;
}
long parse(const char *text) { return __isoc23_strtol(text, nullptr, 10); }
int scan(const char *text) { int a = 0, b = 0; __isoc23_sscanf(text, "%d-%d", &a, &b); return a * 100 + b; }
size copy(char *out, size room) { size n = strlcpy(out, "hello", room); return n * 100 + strlcat(out, " world", room); }
int thread_id(void) { return gettid(); }
int stat_works(int file) { char buffer[512]; return fstat(file, buffer) == 0; }
int wait_for_20_ms(void) {
  static char condition[64], mutex[64];
  struct { long seconds, nanoseconds; } until;
  clock_gettime(1, &until);
  until.nanoseconds += 20000000;
  if (until.nanoseconds >= 1000000000) { until.nanoseconds -= 1000000000; until.seconds += 1; }
  return pthread_cond_clockwait(condition, mutex, 1, &until);
}
}
"""


def test_shims_answer_as_the_newer_c_library_would(sysroot: Path, tmp_path: Path) -> None:
    source, library = tmp_path / "user.cpp", tmp_path / "user.so"
    source.write_text(SHIM_USER, encoding="ascii")
    where = sysroot_at(sysroot)
    others = [f"-l:{name}" for name in where.others]
    linked = [f"-L{where.libraries}", "-Wl,-z,defs", str(where.shim), "-l:libc.so.6", "-l:libgcc_s.so.1", *others]
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-nodefaultlibs", "-o", library, source, *linked],
        check=True,
        capture_output=True,
    )
    elf = read_elf(library.read_bytes())
    newest = max(tuple(map(int, version.split("_")[1].split("."))) for _, version in elf.required_versions())
    assert newest <= (2, 27)
    loaded = ctypes.CDLL(str(library))
    assert loaded.single_threaded() == 0
    assert loaded.random_is_bounded() == 1
    assert loaded.random_varies() == 1
    assert loaded.parse(b"42x") == 42
    assert loaded.scan(b"12-34") == 1234
    buffer = ctypes.create_string_buffer(9)
    assert loaded.copy(buffer, 9) == 511
    assert buffer.value == b"hello wo"
    assert loaded.thread_id() > 0
    with source.open() as file:
        assert loaded.stat_works(file.fileno()) == 1
    assert loaded.stat_works(-1) == 0
    assert loaded.wait_for_20_ms() == 110  # ETIMEDOUT


def test_shims_are_hidden(sysroot: Path) -> None:
    listing = subprocess.run(
        ["readelf", "-sW", sysroot_at(sysroot).shim], check=True, capture_output=True, text=True
    ).stdout
    defined = [line for line in listing.splitlines() if " GLOBAL " in line and " UND " not in line]
    assert len(defined) > 30
    assert all(" HIDDEN " in line for line in defined)


def test_a_full_disk_is_not_blamed_on_the_compiler(tmp_path: Path) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho 'fatal error: cannot write: No space left on device' >&2\nexit 1\n")
    compiler.chmod(0o755)
    host = HostCompiler(cxx=compiler, version="12.2.0", target="x86_64-linux-gnu", library=12)
    with pytest.raises(MachineError, match=r"no space left for the link stub of libthing\.so\.1"):
        write_stub(tmp_path / "libthing.so", soname="libthing.so.1", symbols=[], host=host, environ=os.environ)
