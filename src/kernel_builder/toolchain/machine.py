"""What is on this machine, for people who want to know why something cannot be built: compilers, tools, GPUs.

Nothing here is chosen or required; choosing is the work of ``host.py`` and its neighbours. Everything that runs a
program bounds its time, and a program that misbehaves counts as absent.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.host import compiler_file, inspect_compiler
from kernel_builder.toolchain.model import HostCompiler
from kernel_builder.toolchain.programs import answer_of

SYSTEM_PROGRAMS = Path("/usr/bin")
"""Where package managers are, whatever PATH says."""
_TRIAL_SECONDS = 120
_COMPILER = re.compile(r"((?P<target>[A-Za-z0-9_]+)(-[A-Za-z0-9_]+)*-)?(g|clang)\+\+(-[0-9]+)?")
_VERSION = re.compile(r"\d+(\.\d+)+")
_TRIAL = """\
#include <cmath>
#include <string>
#include <vector>
extern "C" int trial(int n) { return static_cast<int>(std::sqrt(std::vector<std::string>(n, "x").size())); }
"""
_PACKAGES: Mapping[str, Mapping[str, str]] = {
    "c++": {"apt-get": "g++", "dnf": "gcc-c++ libstdc++-static", "zypper": "gcc-c++", "pacman": "gcc"},
    "binutils": {"apt-get": "binutils", "dnf": "binutils", "zypper": "binutils", "pacman": "binutils"},
    "git": {"apt-get": "git", "dnf": "git", "zypper": "git", "pacman": "git"},
    "bubblewrap": dict.fromkeys(("apt-get", "dnf", "zypper", "pacman"), "bubblewrap"),
    "gpgv": {"apt-get": "gpgv", "dnf": "gnupg2", "zypper": "gpg2", "pacman": "gnupg"},
    "debian keyring": {
        "apt-get": "debian-archive-keyring",
        "dnf": "debian-keyring",
        "pacman": "debian-archive-keyring",
    },
    "python headers": {"apt-get": "python3-dev", "dnf": "python3-devel", "zypper": "python3-devel", "pacman": "python"},
    "aarch64 c++": {
        "apt-get": "g++-aarch64-linux-gnu",
        "dnf": "gcc-c++-aarch64-linux-gnu",
        "zypper": "cross-aarch64-gcc13",
        "pacman": "aarch64-linux-gnu-gcc",
    },
    "x86_64 c++": {
        "apt-get": "g++-x86-64-linux-gnu",
        "dnf": "gcc-c++-x86_64-linux-gnu",
    },
    "qemu": {"apt-get": "qemu-user", "dnf": "qemu-user", "zypper": "qemu-linux-user", "pacman": "qemu-user"},
}
_INSTALL = {
    "apt-get": "apt-get install",
    "dnf": "dnf install",
    "zypper": "zypper install",
    "pacman": "pacman -S",
}


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program on PATH; ``version`` is empty where it does not say."""

    path: Path
    version: str


def install_command(what: str, environ: Mapping[str, str]) -> str:
    """The command that installs ``what`` (a key of the table above) with this machine's package manager."""
    for manager, package in _PACKAGES[what].items():
        if shutil.which(manager, path=environ.get("PATH", "")) or (SYSTEM_PROGRAMS / manager).exists():
            return f"{_INSTALL[manager]} {package}"
    names = dict.fromkeys(_PACKAGES[what].values())
    return f"install the package {' or '.join(names)}"


def find_program(name: str, environ: Mapping[str, str]) -> Program | None:
    """``name`` on PATH, with its version."""
    found = shutil.which(name, path=environ.get("PATH", ""))
    if found is None:
        return None
    lines = (answer_of([found, "--version"], environ) or "").splitlines()
    version = _VERSION.search(lines[0]) if lines else None
    return Program(path=Path(found), version=version[0] if version else "")


def find_compilers(environ: Mapping[str, str]) -> tuple[HostCompiler, ...]:
    """All g++ and clang++ on PATH that can be used, cross compilers included, in the order of PATH; each file once."""
    found: dict[Path, HostCompiler] = {}
    for folder in environ.get("PATH", "").split(os.pathsep):
        try:
            paths = sorted(Path(folder).iterdir()) if folder else []
        except OSError:
            continue
        for path in paths:
            if not _COMPILER.fullmatch(path.name) or not os.access(path, os.X_OK):
                continue
            real = path.resolve()
            if real not in found and isinstance(compiler := inspect_compiler(path, environ), HostCompiler):
                found[real] = compiler
    return tuple(found.values())


def missing_tools(host: HostCompiler, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Which of the assembler, linker and archiver the compiler does not find."""
    missing = []
    for tool in ("as", "ld", "ar"):
        answer = answer_of([host.cxx, f"-print-prog-name={tool}"], environ) or tool
        if shutil.which(answer, path=environ.get("PATH")) is None:
            missing.append(tool)
    return tuple(missing)


def try_compiler(host: HostCompiler, environ: Mapping[str, str]) -> str | None:
    """Why ``host`` cannot make a shared library with its own C++ runtime in it; ``None`` when it can."""
    try:
        compiler_file(host, "libstdc++.a", environ)
    except ToolchainError as error:
        return error.message
    with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
        source = Path(scratch) / "trial.cpp"
        source.write_text(_TRIAL, encoding="utf-8")
        library = Path(scratch) / "trial.so"
        flags = ("-std=c++17", "-shared", "-fPIC", "-static-libstdc++", *host.library_flags)
        try:
            completed = subprocess.run(
                [host.cxx, *flags, source, "-o", library],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TRIAL_SECONDS,
                check=False,
                env=environ,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"{host.cxx} does not run: {error}"
        if completed.returncode != 0:
            words = [line for line in completed.stderr.splitlines() if "error" in line] or completed.stderr.splitlines()
            return f"{host.cxx} cannot make a shared library: {words[0].strip() if words else 'it gave no reason'}"
    return None
