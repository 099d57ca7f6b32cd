"""Looking at a machine: programs that are there, pretend, lie or hang are told apart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernel_builder.backends.cuda.kind import CudaToolkit
from kernel_builder.config.model import Capability
from kernel_builder.toolchain.host import find_host_compiler
from kernel_builder.toolchain.machine import (
    find_compilers,
    find_program,
    install_command,
    missing_tools,
    try_compiler,
)
from kernel_builder.toolchain.model import HostCompiler

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def script(path: Path, body: str) -> Path:
    """A program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def compiler(path: Path, banner: str, version: str, target: str) -> Path:
    """A program that answers like a compiler, for clang with the libstdc++ of GCC 12."""
    cases = f'--version) echo "{banner}";; -dumpmachine) echo {target};; -dump*) echo {version};;'
    cases += " -stdlib=*) echo '#define _GLIBCXX_RELEASE 12';;"
    cases = f'case "$1" in {cases} esac'
    return script(path, cases)


def path_of(*folders: Path) -> Mapping[str, str]:
    return {"PATH": os.pathsep.join(map(str, folders))}


def test_compilers_are_found_with_what_they_compile_for(tmp_path: Path) -> None:
    real = compiler(tmp_path / "g++-12", "g++ (Distribution) 12.2.0", "12.2.0", "x86_64-linux-gnu")
    (tmp_path / "g++").symlink_to(real)
    compiler(tmp_path / "clang++-15", "Distribution clang version 15.0.6", "15.0.6", "x86_64-pc-linux-gnu")
    compiler(
        tmp_path / "other" / "aarch64-linux-gnu-g++", "aarch64-linux-gnu-g++ 13.1.0", "13.1.0", "aarch64-linux-gnu"
    )
    script(tmp_path / "g++-9", "exit 1")
    script(tmp_path / "notg++", "exit 1")
    (tmp_path / "g++-8").write_text("no program")
    found = find_compilers(path_of(tmp_path, tmp_path / "other", tmp_path / "nowhere"))
    assert [(one.cxx.name, str(one), one.machine) for one in found] == [
        ("clang++-15", "clang++ 15.0.6", "x86_64"),
        ("g++", "g++ 12.2.0", "x86_64"),
        ("aarch64-linux-gnu-g++", "g++ 13.1.0", "aarch64"),
    ]
    assert find_compilers({}) == ()


@needs_gcc
def test_the_compiler_of_this_machine_passes_its_trial() -> None:
    host = find_host_compiler(os.environ)
    assert missing_tools(host, os.environ) == ()
    assert try_compiler(host, os.environ) is None


@needs_gcc
def test_a_compiler_without_its_parts_is_caught(tmp_path: Path) -> None:
    gcc = shutil.which("g++")
    hollow = script(
        tmp_path / "g++",
        f'case "$1" in -print-prog-name=as) echo as-that-is-not-there;; -print-prog-name=*) exec {gcc} "$1";;\n'
        f'-print-file-name=*) exec {gcc} "$1";; *) echo "fatal error: string: No such file" >&2; exit 1;; esac',
    )
    host = HostCompiler(cxx=hollow, version="12.0.0", target="x86_64-linux-gnu", library=12)
    assert missing_tools(host, os.environ) == ("as",)
    assert "fatal error: string: No such file" in (try_compiler(host, os.environ) or "")
    without_library = script(tmp_path / "bare" / "g++", 'echo "${1#-print-file-name=}"')
    bare = HostCompiler(cxx=without_library, version="12.0.0", target="x86_64-linux-gnu", library=12)
    assert "has no libstdc++.a" in (try_compiler(bare, os.environ) or "")


def test_gpus_are_what_the_driver_says(tmp_path: Path) -> None:
    script(tmp_path / "nvidia-smi", 'echo "NVIDIA H100 80GB HBM3, 9.0, 550.163.01"; echo "odd line"')
    find_gpus = CudaToolkit().devices
    (gpu,) = find_gpus(path_of(tmp_path))
    assert gpu.label == "NVIDIA H100 80GB HBM3, compute capability 9.0, driver 550.163.01"
    assert gpu.architecture == Capability(9, 0)
    script(tmp_path / "nvidia-smi", 'echo "Some GPU, [N/A], 390.1"')
    assert [device.architecture for device in find_gpus(path_of(tmp_path))] == [None]
    script(tmp_path / "nvidia-smi", 'echo "NVIDIA-SMI has failed"; exit 9')
    assert find_gpus(path_of(tmp_path)) == ()
    assert find_gpus({}) == ()


def test_programs_have_a_version_where_they_say_one(tmp_path: Path) -> None:
    script(tmp_path / "git", "echo git version 2.39.5")
    script(tmp_path / "gpgv", "exit 3")
    assert [
        (p.version if p else None) for p in (find_program(n, path_of(tmp_path)) for n in ("git", "gpgv", "no"))
    ] == [
        "2.39.5",
        "",
        None,
    ]


def test_the_remedy_is_the_command_of_the_package_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_builder.toolchain.machine.SYSTEM_PROGRAMS", tmp_path / "none")
    script(tmp_path / "dnf", "exit 0")
    assert install_command("c++", path_of(tmp_path)) == "dnf install gcc-c++ libstdc++-static"
    assert install_command("c++", {}) == "install the package g++ or gcc-c++ libstdc++-static or gcc-c++ or gcc"
