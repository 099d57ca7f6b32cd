"""The host compiler: finding every g++ and clang++ on this machine, asking each what it is, choosing one for a variant.

For another machine than this one it is a cross compiler, such as Debian's ``aarch64-linux-gnu-g++``.

torch is built with g++, so a g++ that fits goes before every clang. clang compiles and links with the libstdc++ of a
GCC on the machine: kernels carry that runtime whichever compiler made them.

Discovery yields candidates, a pure rule picks one, and a refused candidate keeps its reason, so that the error can
name everything that was tried.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.answers import Answers
from kernel_builder.toolchain.identity import tree_identity
from kernel_builder.toolchain.model import Family, HostChoice, HostCompiler, Toolkit
from kernel_builder.toolchain.programs import answer_of, ask
from kernel_builder.toolchain.recipe import Bound, bound_for, default_recipe
from kernel_builder.variants.names import this_machine

_VERSIONED = {Family.GCC: range(20, 8, -1), Family.CLANG: range(26, 12, -1)}
"""The versioned names that are looked for, newest first: ``g++-20`` to ``g++-9``, ``clang++-26`` to ``clang++-13``."""

_LINKED = ("libstdc++.a", "libgcc.a", "libc_nonshared.a", "crti.o", "crtn.o", "crtbeginS.o", "crtendS.o")
"""What the linker adds to a library, of the compiler's and of the C library's."""
_BINUTILS = ("as", "ld")
_TOLD = frozenset({"cc1plus", "libstdc++.a", "libgcc.a", *_BINUTILS})
"""Of all parts of a compiler, those that make most of a library."""
_LIBC_FOLDERS = ("asm", "asm-generic", "bits", "gnu", "linux", "sys")
"""Where the C library and the kernel have headers, in a directory that other packages put theirs into too."""

_NAMING = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH")
"""Variables with directories of headers."""
_FOLDER_OPTION = re.compile(r"(?:^|\s)-(?:I|isystem|iquote|idirafter)\s*=?([^\s'\"]+)")

_LIBRARY = re.compile(r"^#define _GLIBCXX_RELEASE (\d+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A compiler that was looked at and not taken."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class HostCompilers:
    """All compilers on this machine that answer like one for ``machine``, and those that do not.

    Those of GCC come first, then clang's, of each family the newest first. ``chosen`` is whether the user named the
    only one. ``environ`` are the variables that they were found with, and run with.
    """

    found: tuple[HostCompiler, ...]
    machine: str = field(default_factory=this_machine)
    rejected: tuple[Rejected, ...] = ()
    chosen: bool = False
    environ: Mapping[str, str] = field(repr=False, compare=False)

    @property
    def right(self) -> tuple[HostCompiler, ...]:
        """Those of ``found`` that do compile for ``machine``."""
        return tuple(host for host in self.found if host.machine == self.machine)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The majors of one family's compilers that serve: ``oldest`` to ``newest``; ``None``: no newest."""

    family: Family
    oldest: int
    newest: int | None

    @property
    def specifier(self) -> str:
        """As the lock has it: ``>=11,<16``."""
        return f">={self.oldest}" if self.newest is None else f">={self.oldest},<{self.newest + 1}"

    def __str__(self) -> str:
        """For people: ``g++ 11 to 15``."""
        upper = " or newer" if self.newest is None else f" to {self.newest}"
        return f"{self.family.program} {self.oldest}{upper}"


def _ask(cxx: Path, environ: Mapping[str, str], *arguments: str, answers: Answers | None) -> str:
    if answers is not None:
        return answers.ask(cxx, *arguments)[0].strip()
    return ask([cxx, *arguments], environ).stdout.strip()


def build_machine() -> str:
    """The processor family of this machine: ``x86_64``, ``aarch64``."""
    return this_machine()


def inspect_compiler(cxx: Path, environ: Mapping[str, str], answers: Answers | None = None) -> HostCompiler | Rejected:
    """Ask ``cxx`` for its version and target, or ``answers``; say why it cannot be used otherwise."""
    try:
        banner = _ask(cxx, environ, "--version", answers=answers)
        family = Family.CLANG if "clang" in banner.lower() else Family.GCC
        # clang knows the first question alone, and old ones of GCC answer the second with the major alone.
        asked = [*(["-dumpfullversion"] if family is Family.GCC else []), "-dumpversion"]
        version = _ask(cxx, environ, *asked, answers=answers)
        target = _ask(cxx, environ, "-dumpmachine", answers=answers)
    except (OSError, subprocess.SubprocessError) as error:
        return Rejected(path=cxx, reason=f"it does not run: {error}")
    major = version.split(".")[0]
    if not major.isdigit() or not target:
        return Rejected(path=cxx, reason="it does not respond like a compiler")
    library = int(major) if family is Family.GCC else _library(cxx, environ, answers)
    if library is None:
        return Rejected(path=cxx, reason="it is clang, but finds no libstdc++ to compile with")
    return HostCompiler(cxx=cxx, version=version, target=target, library=library, family=family)


def _library(cxx: Path, environ: Mapping[str, str], answers: Answers | None) -> int | None:
    """The major release of the libstdc++ whose headers clang takes; ``None`` when it finds none."""
    try:
        words = ("-stdlib=libstdc++", "-x", "c++", "-E", "-dM", "-include", "cstddef", os.devnull)
        macros = _ask(cxx, environ, *words, answers=answers)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _LIBRARY.search(macros)
    return int(found[1]) if found is not None else None


@dataclass(frozen=True, kw_only=True)
class MadeOf:
    """What a compiler is made of: ``files``, everything below ``folders``, and, by its digest, a small ``driver``.
    ``listed`` are directories whose files, but for what is below, are among ``files``; ``own`` are those of headers
    that nothing else has.
    """

    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    listed: tuple[Path, ...]
    driver: str
    own: tuple[Path, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Changes whenever anything of it does."""
        return f"{self.driver}{tree_identity(self.files, self.folders)}"


def measured(host: HostCompiler, environ: Mapping[str, str], answers: Answers | None = None) -> HostCompiler:
    """``host`` with the fingerprint of what it is made of: a distribution, or somebody, may change that without a new
    version. It takes some hundredths of a second, so it is done for a compiler that is used.
    """
    parts = parts_of(host, environ, answers)
    return replace(
        host, fingerprint=parts.fingerprint, headers=parts.own, shared=parts.listed, parts=_told_parts(host, parts)
    )


def _told_parts(host: HostCompiler, parts: MadeOf) -> tuple[tuple[str, str], ...]:
    """What metadata tell of ``host``: the same on every machine that has the very same compiler, wherever it lies."""
    files = {host.cxx.name if host.packages else host.family.program: host.cxx}
    files |= {path.name: path for path in parts.files if path.name in _TOLD}
    files |= {name: path for name in _BINUTILS for path in parts.files if path.name.endswith(f"-{name}")}
    found = {}
    for name, path in sorted(files.items()):
        with suppress(OSError), path.open("rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return tuple(found.items())


def parts_of(host: HostCompiler, environ: Mapping[str, str], answers: Answers | None = None) -> MadeOf:
    """What ``host`` is made of, as it says itself, or ``answers`` do."""
    cxx, family = host.cxx, host.family
    # g++ only drives the compilers proper; clang++ is one.
    programs = ["cc1plus", "cc1", "collect2", "as", "ld"] if family is Family.GCC else ["as", "ld"]
    questions = [f"-print-prog-name={name}" for name in programs] + [f"-print-file-name={name}" for name in _LINKED]
    places = [_ask(cxx, environ, question, answers=answers) for question in questions]
    found = [Path(shutil.which(place, path=environ.get("PATH")) or place) for place in places]
    files = [path for path in found if path.is_file()]
    driver = ""
    if family is Family.CLANG:
        files.append(cxx)
    else:  # small, and often a wrapper that somebody writes again as it was
        driver = hashlib.sha256(cxx.read_bytes()).hexdigest()
    own, shared = header_folders(cxx, environ, family, answers)
    files += [path for folder in shared for path in _files(folder)]
    folders = [*own, *(folder / name for folder in shared for name in _LIBC_FOLDERS)]
    return MadeOf(files=tuple(files), folders=tuple(folders), listed=tuple(shared), driver=driver, own=tuple(own))


def header_folders(
    cxx: Path, environ: Mapping[str, str], family: Family, answers: Answers | None = None
) -> tuple[list[Path], list[Path]]:
    """The directories of system headers: the compiler's own, and those that it shares with other programs."""
    library = ["-stdlib=libstdc++"] if family is Family.CLANG else []
    question = [*library, "-E", "-v", "-x", "c++", os.devnull]
    try:
        words = answers.ask(cxx, *question)[1] if answers else ask([cxx, *question], environ).stderr
    except (OSError, subprocess.SubprocessError):
        return [], []
    listed = words.partition("#include <...> search starts here:\n")[2].partition("End of search list.")[0]
    folders = [Path(os.path.normpath(line.strip())) for line in listed.splitlines() if line.startswith(" ")]
    # Compiles do not see these variables: what they name is neither the compiler's nor the system's.
    named = {Path(os.path.normpath(text)) for name in _NAMING for text in environ.get(name, "").split(os.pathsep)}
    folders = [folder for folder in folders if folder not in named]
    own = [folder for folder in folders if not {"c++", "gcc", "gcc-cross", "clang"}.isdisjoint(folder.parts)]
    return own, [folder for folder in folders if folder not in own]


def variable_with(header: str, environ: Mapping[str, str]) -> tuple[str, Path] | None:
    """The variable of ``environ`` that names, to compilers that see it, a directory in which ``header`` is, and the
    file. Builds pass neither these variables nor options by variables on.
    """
    for name, value in environ.items():
        if name in _NAMING:
            folders = value.split(os.pathsep)
        elif name.endswith("FLAGS"):
            folders = [match[1] for match in _FOLDER_OPTION.finditer(value)]
        else:
            continue
        for folder in filter(None, folders):
            if (Path(folder) / header).is_file():
                return name, Path(folder) / header
    return None


def _files(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if entry.is_file()]
    except OSError:
        return []


def variable_for(machine: str) -> str:
    """The variable that names the compiler for ``machine``: ``CXX`` for this one, else e.g. ``CXX_AARCH64_LINUX``."""
    return "CXX" if machine == build_machine() else f"CXX_{machine.upper()}_LINUX"


def _candidates(environ: Mapping[str, str], machine: str) -> list[Path]:
    """What the variable names alone (the user has chosen), else g++, clang++ and the versioned names, newest first."""
    chosen = environ.get(variable_for(machine), "").strip()
    if chosen:
        return [Path(chosen)]
    prefix = "" if machine == build_machine() else f"{machine}-linux-gnu-"
    names = [f"{prefix}{Family.GCC.program}", *([] if prefix else ["c++"]), f"{prefix}{Family.CLANG.program}"]
    for family, majors in _VERSIONED.items():
        names += [f"{prefix}{family.program}-{major}" for major in majors]
    return [Path(name) for name in names]


def find_host_compilers(
    environ: Mapping[str, str],
    *,
    machine: str | None = None,
    choice: HostChoice = HostChoice.AUTO,
    answers: Answers | None = None,
) -> HostCompilers:
    """The compilers for ``machine`` (default: this one): the one that :func:`variable_for` names alone if it is set,
    else ``g++``, ``c++`` and the versioned ones, for another machine with its triplet in front. Of those, the ones
    that ``choice`` means. What ``answers`` know is not asked again.
    """
    machine = machine or build_machine()
    variable = variable_for(machine)
    found: dict[tuple[Path, str, str], HostCompiler] = {}
    rejected: dict[Path, Rejected] = {}
    for candidate in _candidates(environ, machine):
        resolved = shutil.which(str(candidate), path=environ.get("PATH"))
        if resolved is None:
            if environ.get(variable):
                reason = f"{variable} names it, but it is not on PATH"
                rejected[candidate] = Rejected(path=candidate, reason=reason)
            continue
        answer = inspect_compiler(Path(resolved), environ, answers)
        if isinstance(answer, HostCompiler) and choice not in {HostChoice.AUTO, answer.family.value}:
            answer = Rejected(path=answer.cxx, reason=f"it is {answer}, but the host compiler is set to {choice.value}")
        if isinstance(answer, HostCompiler):
            found.setdefault(_identity(answer), answer)
        else:
            rejected.setdefault(Path(resolved).resolve(), answer)
    return HostCompilers(
        # Stable: of two with the same version the first, which is plain g++, stays in front.
        found=tuple(sorted(found.values(), key=_order, reverse=True)),
        rejected=tuple(rejected.values()),
        chosen=bool(environ.get(variable, "").strip()),
        machine=machine,
        environ=environ,
    )


def _identity(host: HostCompiler) -> tuple[Path, str, str]:
    """What tells compilers apart: one file is many, behind a wrapper such as ccache's or a clang that knows all
    machines, and one compiler has many names.
    """
    return host.cxx.resolve(), str(host), host.target


def find_host_compiler(environ: Mapping[str, str], *, machine: str | None = None) -> HostCompiler:
    """The compiler for ``machine`` (default: this one) that the newest torch is compiled with.

    Raises :class:`ToolchainError` naming everything that was tried and how to install one.
    """
    newest = default_recipe().torch.host_compilers[0].since
    return choose_host_compiler(find_host_compilers(environ, machine=machine), Purpose(release=str(newest)))


def _order(host: HostCompiler) -> tuple[bool, tuple[int, ...]]:
    return host.family is Family.GCC, tuple(int(part) for part in host.version.split(".") if part.isdigit())


@dataclass(frozen=True, kw_only=True)
class Purpose:
    """What a compiler is for: a release of a framework (torch ``2.13``) and a toolkit; ``bound`` are the newest
    compilers that the toolkit accepts, as far as that is known.
    """

    release: str
    toolkit: Toolkit | None = None
    bound: Bound | None = None
    framework: FrameworkKind = FrameworkKind.TORCH

    @property
    def headers(self) -> str:
        """What the compiler must read, for people: ``torch 2.13``."""
        return f"{self.framework.value} {self.release}"

    def __str__(self) -> str:
        return self.headers + (f" with {self.toolkit}" if self.toolkit else "")


def host_limits(purpose: Purpose) -> Mapping[Family, Limits]:
    """Which compilers of each family serve for ``purpose``."""
    bounds = default_recipe().frameworks[purpose.framework].host_compilers
    oldest = bound_for(bounds, purpose.release) or bounds[-1]
    newest = purpose.bound
    gcc = Limits(family=Family.GCC, oldest=oldest.gcc, newest=newest.gcc if newest else None)
    clang = Limits(family=Family.CLANG, oldest=oldest.clang, newest=newest.clang if newest else None)
    # Where a toolkit is older than every clang that torch takes, none serves.
    return {limits.family: limits for limits in (gcc, clang) if limits.newest is None or limits.newest >= limits.oldest}


def choose_host_compiler(compilers: HostCompilers, purpose: Purpose) -> HostCompiler:
    """The newest g++ that torch's headers and the toolkit accept; where none does, the newest such clang.

    Raises :class:`ToolchainError` naming everything that was tried, why, and how to get one that fits.
    """
    host, refused = judge_host_compilers(compilers, purpose)
    if host is not None:
        return host
    limits = host_limits(purpose)
    tried = "".join(f"\n    {entry}" for entry in refused)
    raise ToolchainError(
        f"no C++ compiler for {compilers.machine} fits {purpose}, which needs {' or '.join(map(str, limits.values()))}"
        f"{tried or ': none was found'}",
        hint=_how_to_get_one(limits[Family.GCC], compilers),
    )


def judge_host_compilers(
    compilers: HostCompilers, purpose: Purpose
) -> tuple[HostCompiler | None, tuple[Rejected, ...]]:
    """The compiler that is taken, if one fits, and why the others are not."""
    refused = list(compilers.rejected)
    chosen: HostCompiler | None = None
    for host in compilers.found:
        reason: str | None = f"it compiles for {host.target}, not for {compilers.machine}"
        if host.machine == compilers.machine:
            reason = why_unfit(host, purpose)
        if reason is None and chosen is None:
            chosen = host
            continue
        refused.append(
            Rejected(path=host.cxx, reason=reason or f"it is {host}, which also fits; {chosen} is preferred")
        )
    return chosen, tuple(refused)


def why_unfit(host: HostCompiler, purpose: Purpose) -> str | None:
    """Why ``host`` does not serve for ``purpose``; ``None`` when it does."""
    limits = host_limits(purpose)
    own, gcc = limits.get(host.family), limits[Family.GCC]
    headers, toolkit = purpose.headers, purpose.toolkit
    if own is None:
        return f"it is {host}; {toolkit} accepts no {host.family.value} that {headers} accepts"
    if host.major < own.oldest:
        return f"it is {host}; the headers of {headers} need {own.oldest} or newer"
    if own.newest is not None and host.major > own.newest:
        return f"it is {host}; {toolkit} accepts {own.newest} at most"
    if host.library < gcc.oldest:
        return f"it compiles with libstdc++ {host.library}; the headers of {headers} need {gcc.oldest} or newer"
    if gcc.newest is not None and host.library > gcc.newest:
        return f"it compiles with libstdc++ {host.library}; {toolkit} accepts {gcc.newest} at most"
    return None


def _how_to_get_one(gcc: Limits, compilers: HostCompilers) -> str:
    variable = variable_for(compilers.machine)
    if compilers.chosen:
        return f"unset {variable}, or set it to another compiler"
    cross = "" if compilers.machine == build_machine() else f"-{compilers.machine.replace('_', '-')}-linux-gnu"
    if gcc.newest is None and cross:
        package = f"apt-get install g++{cross}"
        return f"install a cross compiler with its C library ({package}), {gcc}, or set {variable} to one"
    if gcc.newest is None:
        return f"install {gcc} (apt-get install g++; dnf install gcc-c++ libstdc++-static), or set {variable} to one"
    # A program of the system, whatever PATH says.
    apt = shutil.which("apt-cache", path=f"{compilers.environ.get('PATH', '')}{os.pathsep}/usr/bin")
    beside = " alongside the existing one" if compilers.right else ""
    for major in range(gcc.newest, gcc.oldest - 1, -1):
        package = f"g++-{major}{cross}"
        if apt is not None and _apt_has(apt, package, compilers.environ):
            return f"install one: apt-get install {package}{f' (it installs{beside})' if beside else ''}"
    return f"install g++ {gcc.newest}{beside}, or set {variable} to one"


def _apt_has(apt: str, package: str, environ: Mapping[str, str]) -> bool:
    lines = (answer_of([apt, "policy", package], environ) or "").splitlines()
    return any(line.strip().startswith("Candidate:") and "(none)" not in line for line in lines)


def compiler_file(host: HostCompiler, name: str, environ: Mapping[str, str], answers: Answers | None = None) -> Path:
    """Where the compiler keeps ``name`` (``libstdc++.a``, ``crti.o``).

    Raises :class:`ToolchainError` when it has no such file.
    """
    answer = _ask(host.cxx, environ, f"-print-file-name={name}", answers=answers)
    path = Path(answer)
    if not path.is_absolute() or not path.exists():
        package = "libstdc++-static" if name == "libstdc++.a" else "glibc-devel (Debian: libc6-dev)"
        raise ToolchainError(
            f"{host.cxx} has no {name}",
            hint=f"install the package that contains it: {package}",
        )
    return path.resolve()
