"""The host compiler: finding every g++ on this machine, asking each what it is, and choosing one for a variant.

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
from dataclasses import dataclass, field
from pathlib import Path

from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.model import HostCompiler
from kernel_builder.toolchain.recipe import Recipe, bound_for, default_recipe

_OLDEST, _NEWEST = 9, 20
"""The versioned names that are looked for: ``g++-9`` to ``g++-20``."""

_PROBE_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A compiler that was looked at and not taken."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class HostCompilers:
    """All compilers on this machine that answer like one for ``machine``, newest first, and those that do not.

    ``chosen`` is whether the user named the only one.
    """

    found: tuple[HostCompiler, ...]
    machine: str = field(default_factory=platform.machine)
    rejected: tuple[Rejected, ...] = ()
    chosen: bool = False


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


def inspect_compiler(cxx: Path) -> HostCompiler | Rejected:
    """Ask ``cxx`` for its version and target; say why it cannot be used otherwise."""
    try:
        version = _ask(cxx, "-dumpfullversion", "-dumpversion")
        target = _ask(cxx, "-dumpmachine")
        banner = _ask(cxx, "--version")
    except (OSError, subprocess.SubprocessError) as error:
        return Rejected(path=cxx, reason=f"it does not run: {error}")
    if "clang" in banner.lower():
        return Rejected(
            path=cxx,
            reason="it is clang; kernels are compiled and linked with g++, whose own C++ runtime goes into them",
        )
    major = version.split(".")[0]
    if not major.isdigit() or not target:
        return Rejected(path=cxx, reason="it does not answer like a compiler")
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
    names = [f"{prefix}g++", *(f"{prefix}g++-{major}" for major in range(_NEWEST, _OLDEST - 1, -1))]
    if not prefix:
        names.insert(1, "c++")
    return [Path(name) for name in names]


def find_host_compilers(environ: Mapping[str, str] | None = None, *, machine: str | None = None) -> HostCompilers:
    """The compilers for ``machine`` (default: this one): the one that :func:`variable_for` names alone if it is set,
    else ``g++``, ``c++`` and the versioned ones, for another machine with its triplet in front.
    """
    environ = os.environ if environ is None else environ
    machine = machine or build_machine()
    variable = variable_for(machine)
    found: dict[Path, HostCompiler] = {}
    rejected: dict[Path, Rejected] = {}
    for candidate in _candidates(environ, machine):
        resolved = shutil.which(str(candidate), path=environ.get("PATH"))
        if resolved is None:
            if environ.get(variable):
                reason = f"{variable} names it, but it is not on PATH"
                rejected[candidate] = Rejected(path=candidate, reason=reason)
            continue
        real = Path(resolved).resolve()
        if real in found or real in rejected:
            continue
        answer = inspect_compiler(Path(resolved))
        if isinstance(answer, HostCompiler):
            found[real] = answer
        else:
            rejected[real] = answer
    return HostCompilers(
        # Stable: of two with the same version the first, which is plain g++, stays in front.
        found=tuple(sorted(found.values(), key=lambda host: _numbers(host.version), reverse=True)),
        rejected=tuple(rejected.values()),
        chosen=bool(environ.get(variable, "").strip()),
        machine=machine,
    )


def find_host_compiler(environ: Mapping[str, str] | None = None, *, machine: str | None = None) -> HostCompiler:
    """The compiler for ``machine`` (default: this one) that the newest torch is compiled with.

    Raises :class:`ToolchainError` naming everything that was tried and how to install one.
    """
    newest = default_recipe().torch.gcc[0].since
    return choose_host_compiler(find_host_compilers(environ, machine=machine), torch=str(newest), cuda=None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def gcc_bounds(torch: str, cuda: str | None, recipe: Recipe | None = None) -> tuple[int, int | None]:
    """The oldest and the newest major of GCC for torch ``2.13`` and CUDA ``13.0``; ``None``: no newest."""
    recipe = recipe or default_recipe()
    minimum = bound_for(recipe.torch.gcc, torch) or _OLDEST
    return minimum, bound_for(recipe.cuda.gcc, cuda) if cuda is not None else None


def choose_host_compiler(
    compilers: HostCompilers,
    *,
    torch: str,
    cuda: str | None,
    recipe: Recipe | None = None,
) -> HostCompiler:
    """The newest compiler that torch's headers and the CUDA toolkit accept.

    Raises :class:`ToolchainError` naming everything that was tried, why, and how to get one that fits.
    """
    host, refused = judge_host_compilers(compilers, torch=torch, cuda=cuda, recipe=recipe)
    if host is not None:
        return host
    minimum, maximum = gcc_bounds(torch, cuda, recipe)
    tried = "".join(f"\n    {entry}" for entry in refused)
    wanted = f"g++ {minimum} or newer" if maximum is None else f"g++ {minimum} to {maximum}"
    purpose = f"torch {torch}" + (f" with CUDA {cuda}" if cuda else "")
    raise ToolchainError(
        f"no C++ compiler for {compilers.machine} fits {purpose}, which needs {wanted}"
        f"{tried or ': there is none at all'}",
        hint=_how_to_get_one(minimum, maximum, compilers),
    )


def judge_host_compilers(
    compilers: HostCompilers, *, torch: str, cuda: str | None, recipe: Recipe | None = None
) -> tuple[HostCompiler | None, tuple[Rejected, ...]]:
    """The newest compiler that fits, if there is one, and why the others do not."""
    minimum, maximum = gcc_bounds(torch, cuda, recipe)
    refused = list(compilers.rejected)
    chosen: HostCompiler | None = None
    for host in compilers.found:
        reason = _unfit(host, compilers.machine, torch, cuda, minimum, maximum)
        if reason is not None:
            refused.append(Rejected(path=host.cxx, reason=reason))
        elif chosen is None:
            chosen = host
    return chosen, tuple(refused)


def _unfit(
    host: HostCompiler, machine: str, torch: str, cuda: str | None, minimum: int, maximum: int | None
) -> str | None:
    if host.target.partition("-")[0] != machine:
        return f"it compiles for {host.target}, not for {machine}"
    major = _numbers(host.version)[0]
    if major < minimum:
        return f"it is version {host.version}; the headers of torch {torch} need {minimum} or newer"
    if maximum is not None and major > maximum:
        return f"it is version {host.version}; CUDA {cuda} accepts {maximum} at most"
    return None


def _how_to_get_one(minimum: int, maximum: int | None, compilers: HostCompilers) -> str:
    variable = variable_for(compilers.machine)
    if compilers.chosen:
        return f"unset {variable}, or let it name another g++"
    cross = "" if compilers.machine == build_machine() else f"-{compilers.machine.replace('_', '-')}-linux-gnu"
    if maximum is None and cross:
        return (
            f"install a cross compiler with its C library (apt-get install g++{cross}), g++ {minimum} or newer, or name"
            f" one with {variable}"
        )
    if maximum is None:
        return (
            f"install g++ {minimum} or newer (apt-get install g++; dnf install gcc-c++ libstdc++-static), or name one"
            f" with {variable}"
        )
    apt = shutil.which("apt-cache")
    for major in range(maximum, minimum - 1, -1):
        package = f"g++-{major}{cross}"
        if apt is not None and _apt_has(apt, package):
            return f"install one: apt-get install {package} (it stands beside the one that is there)"
    return f"install g++ {maximum} beside the one that is there, or name one with {variable}"


def _apt_has(apt: str, package: str) -> bool:
    try:
        completed = subprocess.run(
            [apt, "policy", package],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return any(line.strip().startswith("Candidate:") and "(none)" not in line for line in completed.stdout.splitlines())


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
