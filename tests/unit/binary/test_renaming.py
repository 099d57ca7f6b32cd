"""A library under another name: the one that the linker would have made, found by whoever looks for its names."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from pathlib import Path

import pytest

from kernel_builder.binary.elf import ElfError, read_elf
from kernel_builder.binary.renaming import gnu_hash, renamed

OLD = "_kernel_cpu_abcdef0_dirty_12345678"
SOURCE = """
#include <string.h>
const char *volatile name = "{name}";
{functions}
const char *ops_id(void) {{ return name; }}
int all(void) {{ return 0{sum}; }}
int (*table[])(void) = {{ {table} }};
int by_table(void) {{
  int sum = 0;
  for (unsigned i = 0; i < sizeof table / sizeof *table; i++) sum += table[i]();
  return sum;
}}
int PyInit_{name}(void) {{ return 42 + (int)strlen(name); }}
"""
COUNT = 60


def link(folder: Path, name: str, *more: str) -> bytes:
    """A library whose functions call each other by way of the dynamic symbol table."""
    functions = "\n".join(f"int function_{i}(void) {{ return {i}; }}" for i in range(COUNT))
    calls = "".join(f" + function_{i}()" for i in range(COUNT))
    table = ", ".join(f"function_{i}" for i in range(COUNT))
    source = folder / "library.c"
    source.write_text(SOURCE.format(name=name, functions=functions, sum=calls, table=table), encoding="ascii")
    target = folder / f"{name}.abi3.so"
    flags = ["-shared", "-fPIC", "-O1", f"-Wl,-soname,{target.name}", "-Wl,--hash-style=gnu", *more]
    subprocess.run(["gcc", *flags, str(source), "-o", str(target)], check=True, capture_output=True)
    return target.read_bytes()


def names() -> list[str]:
    """Names of kernels of one project as time goes by; their hashes fall anywhere."""
    return [f"_kernel_cpu_abcdef0_dirty_{hashlib.sha256(bytes([i])).hexdigest()[:8]}" for i in range(24)]


def build_id(path: Path) -> str:
    listing = subprocess.run(["readelf", "-n", path], check=True, capture_output=True, text=True).stdout
    return next(line.split()[-1] for line in listing.splitlines() if "Build ID" in line)


@pytest.mark.parametrize("linker", [(), ("-fuse-ld=gold",), ("-Wl,-z,now", "-Wl,--version-script={map}")])
def test_a_renamed_library_is_found_and_works_under_its_name(tmp_path: Path, linker: tuple[str, ...]) -> None:
    script = tmp_path / "exports.map"
    script.write_text("{ global: *; local: _Z*; };", encoding="ascii")
    flags = [flag.replace("{map}", str(script)) for flag in linker]
    try:
        data = link(tmp_path, OLD, *flags, "-Wl,--build-id=sha1")
    except subprocess.CalledProcessError:
        pytest.skip(f"this machine has no {linker[0]}")
    ids = {build_id(tmp_path / f"{OLD}.abi3.so")}
    for name in names():
        target = tmp_path / f"{name}.abi3.so"
        target.write_bytes(renamed(data, OLD, name))
        assert OLD.encode() not in target.read_bytes()
        assert read_elf(target.read_bytes()).soname == target.name
        library = ctypes.CDLL(str(target))
        library.ops_id.restype = ctypes.c_char_p
        assert library.ops_id() == name.encode()
        assert getattr(library, f"PyInit_{name}")() == 42 + len(name)
        assert [getattr(library, f"function_{i}")() for i in range(COUNT)] == list(range(COUNT))
        assert library.all() == library.by_table() == sum(range(COUNT))
        assert not hasattr(library, f"PyInit_{OLD}")
        ids.add(build_id(target))
    assert len(ids) == len(names()) + 1


def test_renaming_gives_what_linking_gives(tmp_path: Path) -> None:
    """But for the order of symbols within a bucket, which is the linker's own affair."""
    data = link(tmp_path, OLD, "-Wl,--build-id=none", "-s")
    for name in names():
        linked = tmp_path / "linked" / name
        linked.mkdir(parents=True)
        expected, found = link(linked, name, "-Wl,--build-id=none", "-s"), renamed(data, OLD, name)
        assert len(found) == len(expected)
        one, other = read_elf(found), read_elf(expected)
        assert (sorted(one.exports), one.undefined, one.soname) == (
            sorted(other.exports),
            other.undefined,
            other.soname,
        )
        assert renamed(found, name, OLD) == renamed(renamed(data, OLD, OLD[:-1] + "0"), OLD[:-1] + "0", OLD)


@pytest.mark.parametrize("linker", [(), ("-fuse-ld=gold",), ("-fuse-ld=lld",)])
def test_a_library_that_exports_nothing_is_renamed(tmp_path: Path, linker: tuple[str, ...]) -> None:
    script = tmp_path / "exports.map"
    script.write_text("{ local: *; };", encoding="ascii")
    try:
        data = link(tmp_path, OLD, *linker, f"-Wl,--version-script={script}", "-Wl,--build-id=sha1")
    except subprocess.CalledProcessError:
        pytest.skip(f"this machine has no {linker[0]}")
    found, before = read_elf(renamed(data, OLD, names()[0])), read_elf(data)
    assert (found.exports, found.soname, found.undefined) == ((), f"{names()[0]}.abi3.so", before.undefined)
    assert before.undefined


def test_the_same_name_changes_nothing(tmp_path: Path) -> None:
    data = link(tmp_path, OLD)
    assert renamed(data, OLD, OLD) == data


@pytest.mark.parametrize("size", [0, 4, 63, 100, 2000, 4095])
def test_what_is_cut_short_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(ElfError):
        renamed(link(tmp_path, OLD)[:size], OLD, names()[0])


def test_what_cannot_be_renamed_is_refused(tmp_path: Path) -> None:
    data = link(tmp_path, OLD)
    with pytest.raises(ValueError, match="not as long"):
        renamed(data, OLD, OLD + "x")
    with pytest.raises(ElfError, match="soname"):
        renamed(data, "_another_cpu_abcdef0_dirty_1234567", "_another_cpu_abcdef0_dirty_7654321")
    with pytest.raises(ElfError, match="GNU hash table"):
        renamed(link(tmp_path, OLD, "-Wl,--hash-style=sysv"), OLD, names()[0])


def test_the_hash_is_the_one_of_the_dynamic_linker() -> None:
    assert [gnu_hash(name) for name in (b"", b"printf", b"exit")] == [0x1505, 0x156B2BB8, 0x7C967E3F]
