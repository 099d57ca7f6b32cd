from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.host import (
    HostCompilers,
    choose_host_compiler,
    compiler_file,
    find_host_compilers,
    gcc_bounds,
)
from kernel_builder.toolchain.model import HostCompiler


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


def choose(compilers: HostCompilers, *, torch: str = "2.13", cuda: str | None = None) -> HostCompiler:
    return choose_host_compiler(compilers, torch=torch, cuda=cuda)


def test_the_machines_compiler_is_found() -> None:
    host = find_host_compilers().found[0]
    assert host.cxx.is_absolute()
    assert host.target.endswith("linux-gnu")
    assert compiler_file(host, "libstdc++.a").is_file()


def test_the_newest_that_the_toolkit_accepts_is_taken(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="14.2.0")
    fake_compiler(tmp_path, "g++-11", version="11.4.0")
    fake_compiler(tmp_path, "g++-13", version="13.2.0")
    compilers = find_host_compilers({"PATH": str(tmp_path)})
    assert choose(compilers).version == "14.2.0"
    assert choose(compilers, cuda="12.8").version == "14.2.0"
    assert choose(compilers, torch="2.6", cuda="12.4").version == "13.2.0"
    assert choose(compilers, torch="2.6", cuda="11.8").cxx == tmp_path / "g++-11"


def test_of_two_names_of_one_compiler_the_plain_one_is_taken(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++-12", version="12.2.0")
    (tmp_path / "g++").symlink_to("g++-12")
    compilers = find_host_compilers({"PATH": str(tmp_path)})
    assert [host.cxx.name for host in compilers.found] == ["g++"]


def test_too_new_for_the_toolkit_is_told_before_anything_is_compiled(tmp_path: Path) -> None:
    compiler = fake_compiler(tmp_path, "g++", version="12.2.0")
    compilers = find_host_compilers({"PATH": str(tmp_path)})
    with pytest.raises(ToolchainError) as caught:
        choose(compilers, torch="2.6", cuda="11.8")
    assert f"{compiler}: it is version 12.2.0; CUDA 11.8 accepts 11 at most" in caught.value.message
    assert "g++ 9 to 11" in caught.value.message
    assert caught.value.hint is not None
    assert "g++-11" in caught.value.hint


def test_the_headers_of_torch_set_the_oldest(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="10.2.0")
    compilers = find_host_compilers({"PATH": str(tmp_path)})
    assert choose(compilers, torch="2.11").version == "10.2.0"
    with pytest.raises(ToolchainError, match=r"torch 2\.12 need 11 or newer"):
        choose(compilers, torch="2.12")


def test_bounds_hold_from_a_release_on() -> None:
    assert gcc_bounds("2.6", "11.8") == (9, 11)
    assert gcc_bounds("2.6", "12.3") == (9, 12)
    assert gcc_bounds("2.8", "12.9") == (9, 14)
    assert gcc_bounds("2.15", "13.2") == (11, 15)
    assert gcc_bounds("2.13", None) == (11, None)


def test_everything_that_was_tried_is_named_with_its_reason(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="9.4.0")
    fake_compiler(tmp_path, "c++", version="14.0.6", banner="Debian clang version")
    with pytest.raises(ToolchainError) as caught:
        choose(find_host_compilers({"PATH": str(tmp_path)}))
    assert "9.4.0" in caught.value.message
    assert "clang" in caught.value.message
    assert caught.value.hint is not None
    assert "apt-get install g++" in caught.value.hint


def test_another_machines_compiler_does_not_fit(tmp_path: Path) -> None:
    cross = fake_compiler(tmp_path, "aarch64-linux-gnu-g++", version="13.2.0")
    compilers = find_host_compilers({"PATH": str(tmp_path)}, machine="aarch64")
    with pytest.raises(ToolchainError, match="compiles for x86_64-linux-gnu, not for aarch64") as caught:
        choose(compilers)
    assert "apt-get install g++-aarch64-linux-gnu" in (caught.value.hint or "")
    cross.write_text(cross.read_text().replace("x86_64", "aarch64"))
    assert choose(find_host_compilers({"PATH": str(tmp_path)}, machine="aarch64")).cxx == cross


def test_cxx_is_the_users_choice_and_nothing_else_is_tried(tmp_path: Path) -> None:
    old = fake_compiler(tmp_path, "mine", version="8.1.0")
    with pytest.raises(ToolchainError, match=r"8\.1\.0") as caught:
        choose(find_host_compilers({"PATH": os.environ["PATH"], "CXX": str(old)}))
    assert caught.value.hint == "unset CXX, or let it name another g++"
    with pytest.raises(ToolchainError, match="not on PATH"):
        choose(find_host_compilers({"PATH": os.environ["PATH"], "CXX": "no-such-compiler"}))


def test_no_compiler_at_all(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="there is none at all"):
        choose(find_host_compilers({"PATH": str(tmp_path)}))
