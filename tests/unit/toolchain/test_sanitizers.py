"""Where the runtimes of sanitizers are, and what a program is told to load them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_builder.errors import ToolchainError
from kernel_builder.store.cache import StoreKey
from kernel_builder.toolchain.host import find_host_compilers
from kernel_builder.toolchain.model import Family, FetchedPart, HostCompiler
from kernel_builder.toolchain.sanitizers import sanitizer_runtimes, sanitizer_variables
from kernel_builder.variants.build_type import Sanitizer

ELF = b"\x7fELF and more"
ADDRESS, THREAD, UNDEFINED = Sanitizer.ADDRESS, Sanitizer.THREAD, Sanitizer.UNDEFINED


def compiler(folder: Path, family: Family = Family.GCC, *, fetched: bool = False) -> HostCompiler:
    """One that finds what is in ``folder``, and says the bare name of what is not, as compilers do."""
    cxx = folder / "c++"
    cxx.write_text(
        f'#!/bin/sh\ncd "{folder}"\nname="${{1#-print-file-name=}}"\n'
        '[ -f "$name" ] && name="$PWD/$name"\necho "$name"\n',
        encoding="ascii",
    )
    cxx.chmod(0o755)
    parts = (FetchedPart(name="ziglang 0.1", key=StoreKey.of("zig"), artefacts=()),) if fetched else ()
    return HostCompiler(cxx=cxx, version="17.0.1", target="x86_64-linux-gnu", library=12, family=family, packages=parts)


def test_the_machines_compiler_brings_them() -> None:
    host = next(one for one in find_host_compilers(os.environ).found if one.family is Family.GCC)
    found = sanitizer_runtimes(host, (ADDRESS, UNDEFINED), os.environ)
    assert [path.name.split(".so")[0] for path in found] == ["libasan", "libubsan", "libstdc++"]
    assert all(path.read_bytes()[:4] == ELF[:4] for path in found)
    assert sanitizer_runtimes(host, (), os.environ) == ()


@pytest.mark.parametrize("name", ["libclang_rt.asan-x86_64.so", "libclang_rt.asan.so"])
def test_clang_has_two_ways_to_name_them(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(ELF)
    (found,) = sanitizer_runtimes(compiler(tmp_path, Family.CLANG), (ADDRESS,), os.environ)
    assert found == tmp_path / name


def test_a_linker_script_names_the_library(tmp_path: Path) -> None:
    """As Fedora's does."""
    (tmp_path / "libasan.so.8").write_bytes(ELF)
    (tmp_path / "libasan.so").write_text(f"/* GNU ld script */\nINPUT ( {tmp_path}/libasan.so.8 )\n", encoding="ascii")
    assert sanitizer_runtimes(compiler(tmp_path), (ADDRESS,), os.environ) == (tmp_path / "libasan.so.8",)


@pytest.mark.parametrize(
    ("family", "fetched", "hint"),
    [
        (Family.GCC, False, "dnf install libasan"),
        (Family.CLANG, False, "libclang-rt-17-dev"),
        (Family.CLANG, True, "--host-compiler gcc"),
    ],
)
def test_all_that_are_missing_are_named_with_a_way_to_get_them(
    family: Family, fetched: bool, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(ToolchainError) as caught:
        sanitizer_runtimes(compiler(tmp_path, family, fetched=fetched), (THREAD, UNDEFINED), os.environ)
    assert "cannot build with --sanitize thread --sanitize undefined" in caught.value.message
    assert hint in str(caught.value.hint)


def test_what_the_user_says_counts_more(tmp_path: Path) -> None:
    environ = {"LD_PRELOAD": "/lib/mine.so", "ASAN_OPTIONS": "detect_leaks=1"}
    found = sanitizer_variables([tmp_path / "libasan.so"], (ADDRESS,), environ)
    assert found["LD_PRELOAD"] == f"{tmp_path}/libasan.so:/lib/mine.so"
    assert "detect_leaks=0" in found["ASAN_OPTIONS"]
    assert found["ASAN_OPTIONS"].endswith(":detect_leaks=1")  # the last one holds
    assert sanitizer_variables([], (), {}) == {}


def test_an_environment_with_a_cxx_runtime_of_its_own_keeps_it(tmp_path: Path) -> None:
    """conda's libraries need the newer one that it brings."""
    own = tmp_path / "env" / "lib" / "libstdc++.so.6"
    own.parent.mkdir(parents=True)
    own.write_bytes(ELF)
    runtimes = [tmp_path / "libubsan.so", tmp_path / "libstdc++.so.6.0.30"]
    found = sanitizer_variables(runtimes, (UNDEFINED,), {}, python=tmp_path / "env" / "bin" / "python")
    assert found["LD_PRELOAD"] == f"{tmp_path}/libubsan.so:{own}"
