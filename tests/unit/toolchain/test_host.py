from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.host import compiler_file, find_host_compiler


def fake_compiler(directory: Path, name: str, *, version: str, banner: str = "g++ (GCC)") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(
        "#!/bin/sh\n"
        f'case "$1" in -dumpfullversion) echo {version};; -dumpmachine) echo x86_64-linux-gnu;;'
        f" --version) echo '{banner} {version}';; esac\n",
        encoding="ascii",
    )
    path.chmod(0o755)
    return path


def test_the_machines_compiler_is_found() -> None:
    host = find_host_compiler()
    assert host.cxx.is_absolute()
    assert host.target.endswith("linux-gnu")
    assert compiler_file(host, "libstdc++.a").is_file()


def test_an_old_default_gives_way_to_a_newer_versioned_one(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="9.4.0")
    newer = fake_compiler(tmp_path, "g++-13", version="13.2.0")
    host = find_host_compiler({"PATH": str(tmp_path)})
    assert (host.cxx, host.version) == (newer, "13.2.0")


def test_everything_that_was_tried_is_named_with_its_reason(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="9.4.0")
    fake_compiler(tmp_path, "c++", version="14.0.6", banner="Debian clang version")
    with pytest.raises(ToolchainError) as caught:
        find_host_compiler({"PATH": str(tmp_path)})
    assert "9.4.0" in caught.value.message
    assert "clang" in caught.value.message
    assert caught.value.hint is not None
    assert "install g++ 11" in caught.value.hint


def test_cxx_is_the_users_choice_and_nothing_else_is_tried(tmp_path: Path) -> None:
    old = fake_compiler(tmp_path, "mine", version="8.1.0")
    with pytest.raises(ToolchainError, match=r"8\.1\.0"):
        find_host_compiler({"PATH": os.environ["PATH"], "CXX": str(old)})
    with pytest.raises(ToolchainError, match="not on PATH"):
        find_host_compiler({"PATH": os.environ["PATH"], "CXX": "no-such-compiler"})


def test_no_compiler_at_all(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no usable C"):
        find_host_compiler({"PATH": str(tmp_path)})
