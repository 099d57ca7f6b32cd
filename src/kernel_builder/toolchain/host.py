"""The host compiler: finding a g++ on this machine and asking it what it is.

For another machine than this one it is a cross compiler, such as Debian's ``aarch64-linux-gnu-g++``.

Discovery yields candidates, a pure rule picks one, and a refused candidate keeps its reason, so that the error can
name everything that was tried.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.model import HostCompiler

MINIMUM_GCC = 11
"""torch 2.12 and later need C++20 with the library parts that came with GCC 11."""

_PROBE_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A compiler that was looked at and not taken."""

    path: Path
    reason: str


def _ask(cxx: Path, *arguments: str) -> str:
    completed = subprocess.run(
        [cxx, *arguments],
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
    )
    return completed.stdout.strip()


def build_machine() -> str:
    """The processor family of this machine: ``x86_64``, ``aarch64``."""
    return platform.machine()


def inspect_compiler(cxx: Path, machine: str | None = None) -> HostCompiler | Rejected:
    """Ask ``cxx`` for its version and target; say why it cannot be used for ``machine`` (default: this one)."""
    wanted = machine or build_machine()
    try:
        version = _ask(cxx, "-dumpfullversion", "-dumpversion")
        target = _ask(cxx, "-dumpmachine")
        banner = _ask(cxx, "--version")
    except (OSError, subprocess.SubprocessError) as error:
        return Rejected(path=cxx, reason=f"it does not run: {error}")
    if "clang" in banner.lower():
        return Rejected(path=cxx, reason="it is clang; kernels are linked with g++'s own runtime")
    major = version.split(".")[0]
    if not major.isdigit() or not target:
        return Rejected(path=cxx, reason="it does not answer like a compiler")
    if target.split("-")[0] != wanted:
        other = "this machine" if wanted == build_machine() else wanted
        return Rejected(path=cxx, reason=f"it compiles for {target}, not for {other}")
    if int(major) < MINIMUM_GCC:
        return Rejected(path=cxx, reason=f"it is version {version}; torch's headers need {MINIMUM_GCC} or newer")
    return HostCompiler(cxx=cxx, version=version, target=target, fingerprint=_fingerprint(cxx, banner))


def _fingerprint(cxx: Path, banner: str) -> str:
    """What the compiler is made of, by size and time: a distribution may update it without a new version."""
    parts = [banner.splitlines()[0] if banner else ""]
    for question in ("-print-prog-name=cc1plus", "-print-file-name=libstdc++.a", "-print-prog-name=ld"):
        answer = shutil.which(_ask(cxx, question))
        path = Path(answer or _ask(cxx, question))
        if path.is_file():
            status = path.stat()
            parts.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
    return "; ".join(parts)


def variable_for(machine: str) -> str:
    """The variable that names the compiler for ``machine``: ``CXX`` for this one, else e.g. ``CXX_AARCH64_LINUX``."""
    return "CXX" if machine == build_machine() else f"CXX_{machine.upper()}_LINUX"


def _candidates(environ: Mapping[str, str], machine: str) -> list[Path]:
    """What the variable names alone (the user has chosen), else g++ and the versioned names, newest first."""
    chosen = environ.get(variable_for(machine), "").strip()
    if chosen:
        return [Path(chosen)]
    prefix = "" if machine == build_machine() else f"{machine}-linux-gnu-"
    names = [f"{prefix}g++", *(f"{prefix}g++-{major}" for major in range(20, MINIMUM_GCC - 1, -1))]
    if not prefix:
        names.insert(1, "c++")
    return [Path(name) for name in names]


def find_host_compiler(environ: Mapping[str, str] | None = None, *, machine: str | None = None) -> HostCompiler:
    """The compiler for ``machine`` (default: this one): the one that :func:`variable_for` names if it is set, else
    ``g++`` or a versioned one that is new enough, for another machine with its triplet in front.

    Raises :class:`ToolchainError` naming everything that was tried and how to install one.
    """
    environ = os.environ if environ is None else environ
    machine = machine or build_machine()
    variable = variable_for(machine)
    refused: list[Rejected] = []
    for candidate in _candidates(environ, machine):
        resolved = shutil.which(str(candidate), path=environ.get("PATH"))
        if resolved is None:
            if environ.get(variable):
                refused.append(Rejected(path=candidate, reason=f"{variable} names it, but it is not on PATH"))
            continue
        found = inspect_compiler(Path(resolved), machine)
        if isinstance(found, HostCompiler):
            return found
        refused.append(found)
    tried = "; ".join(f"{entry.path}: {entry.reason}" for entry in refused)
    if machine != build_machine():
        raise ToolchainError(
            f"no C++ compiler for {machine}-linux was found{f' ({tried})' if tried else ''}",
            hint=f"install a cross compiler with its C library (Debian, Ubuntu: apt-get install"
            f" g++-{machine.replace('_', '-')}-linux-gnu), g++ {MINIMUM_GCC} or newer, or name one with {variable}",
        )
    raise ToolchainError(
        f"no usable C++ compiler was found{f' ({tried})' if tried else ''}",
        hint=f"install g++ {MINIMUM_GCC} or newer (apt-get install g++; dnf install gcc-c++ libstdc++-static)"
        " or name one with the variable CXX",
    )


def compiler_file(host: HostCompiler, name: str) -> Path:
    """Where the compiler keeps ``name`` (``libstdc++.a``, ``crti.o``).

    Raises :class:`ToolchainError` when it has no such file.
    """
    answer = _ask(host.cxx, f"-print-file-name={name}")
    path = Path(answer)
    if not path.is_absolute() or not path.exists():
        package = "libstdc++-static" if name == "libstdc++.a" else "glibc-devel (Debian: libc6-dev)"
        raise ToolchainError(
            f"{host.cxx} has no {name}",
            hint=f"install the package that holds it: {package}",
        )
    return path.resolve()
