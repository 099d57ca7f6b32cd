"""What glibc offers since when, compared with the C library of this machine."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from kernel_builder.binary.elf import read_elf_file
from kernel_builder.binary.glibc import apart_in, offered_since
from kernel_builder.versions import Version


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_names_have_their_release_and_their_library(machine: str) -> None:
    since = {name: str(offered_since(machine)[name]) for name in ("close_range", "arc4random", "strlcpy", "statx")}
    assert since == {"close_range": "2.34", "arc4random": "2.36", "strlcpy": "2.38", "statx": "2.28"}
    assert "cudaMalloc" not in offered_since(machine)
    old, new = (apart_in(machine, Version.parse(text)) for text in ("2.28", "2.34"))
    assert (old["pthread_create"], old["dlsym"], old["aio_read"]) == (
        "libpthread.so.0",
        "libdl.so.2",
        "librt.so.1",
    )
    assert new == {}
    assert "malloc" not in old
    assert offered_since("s390x") == {}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this machine has another C library")
def test_the_table_has_all_that_the_c_library_here_has() -> None:
    found = subprocess.run(["cc", "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True).stdout
    here, since = Version.parse(platform.libc_ver()[1]), offered_since(platform.machine())
    public = {
        symbol.name
        for symbol in read_elf_file(Path(found.strip())).exports
        if symbol.version is not None and symbol.version.removeprefix("GLIBC_")[0].isdigit()
    }
    assert public - set(since) == set()
    assert {name for name in public if since[name] > here} == set()
