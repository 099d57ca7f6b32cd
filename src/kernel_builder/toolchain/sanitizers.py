"""The runtimes of sanitizers, which a compiler brings, and what a program needs to run code that uses them.

A kernel is loaded by a Python that was built without them. So a runtime is preloaded: it must be there before the first
memory is allocated.
Reference: GCC manual, "Program Instrumentation Options"; Clang documentation, "AddressSanitizer"; sanitizers' wiki,
"AddressSanitizerAsDso" and "SanitizerCommonFlags".
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.answers import Answers
from kernel_builder.toolchain.model import Family, HostCompiler
from kernel_builder.toolchain.programs import ask
from kernel_builder.variants.build_type import Sanitizer

PRELOAD = "LD_PRELOAD"
_GCC = {Sanitizer.ADDRESS: "libasan.so", Sanitizer.UNDEFINED: "libubsan.so", Sanitizer.THREAD: "libtsan.so"}
_CLANG = {Sanitizer.ADDRESS: "asan", Sanitizer.UNDEFINED: "ubsan_standalone", Sanitizer.THREAD: "tsan"}
_CXX_RUNTIME = "libstdc++.so.6"
_SCRIPT = re.compile(r"(?:INPUT|GROUP)\s*\(\s*(\S+)")

_OPTIONS: Mapping[Sanitizer, tuple[str, Mapping[str, int]]] = {
    Sanitizer.ADDRESS: (
        "ASAN_OPTIONS",
        {
            # Python keeps what it allocated until its end, and torch what it needs for the whole process.
            "detect_leaks": 0,
            # A kernel carries its own C++ runtime: what its `new` allocates, torch's `delete` may free.
            "alloc_dealloc_mismatch": 0,
            # Drivers of GPUs map memory at addresses of their own choice.
            "protect_shadow_gap": 0,
            "abort_on_error": 1,
        },
    ),
    Sanitizer.UNDEFINED: ("UBSAN_OPTIONS", {"print_stacktrace": 1, "abort_on_error": 1}),
    Sanitizer.THREAD: (
        "TSAN_OPTIONS",
        # Python, torch and its OpenMP are not instrumented: how they hand data on is not seen.
        {"ignore_noninstrumented_modules": 1, "halt_on_error": 1, "abort_on_error": 1},
    ),
}


def sanitizer_runtimes(
    host: HostCompiler, sanitizers: Iterable[Sanitizer], environ: Mapping[str, str], answers: Answers | None = None
) -> tuple[Path, ...]:
    """The shared runtimes of ``sanitizers`` that ``host`` brings, and the C++ runtime that they look into.

    Raises :class:`ToolchainError` for those that it does not have.
    """
    wanted = tuple(sanitizers)
    found, missing = [], []
    for one in wanted:
        path = next(filter(None, (_file(host, name, environ, answers) for name in _names(host, one))), None)
        if path is None:
            missing.append(one)
        else:
            found.append(path)
    if missing:
        names = " and ".join(_names(host, one)[0] for one in missing)
        raise ToolchainError(
            f"{host} ({host.cxx}) has no {names}, so it cannot build with {_options_of(missing)}",
            hint=_how_to_get(host),
        )
    runtime = _file(host, _CXX_RUNTIME, environ, answers) if wanted else None
    return (*found, *([runtime] if runtime else []))


def _options_of(sanitizers: Iterable[Sanitizer]) -> str:
    return " ".join(f"--sanitize {one.value}" for one in sanitizers)


def _names(host: HostCompiler, sanitizer: Sanitizer) -> tuple[str, ...]:
    """What the file may be called. clang has one folder for each target, or the machine in the file's name."""
    if host.family is Family.GCC:
        return (_GCC[sanitizer],)
    stem = f"libclang_rt.{_CLANG[sanitizer]}"
    return (f"{stem}-{host.machine}.so", f"{stem}.so")


def _file(host: HostCompiler, name: str, environ: Mapping[str, str], answers: Answers | None) -> Path | None:
    question = f"-print-file-name={name}"
    try:
        told = answers.ask(host.cxx, question)[0] if answers else ask([host.cxx, question], environ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    path = Path(told.strip())
    if not path.is_absolute() or not path.is_file():
        return None
    with path.open("rb") as file:
        if file.read(4) == b"\x7fELF":
            return path.resolve()
    # Fedora's is a linker script that names the library.
    named = _SCRIPT.search(path.read_text(encoding="utf-8", errors="replace"))
    return Path(named[1]) if named is not None and Path(named[1]).is_file() else None


def _how_to_get(host: HostCompiler) -> str:
    if host.packages:
        return "install g++ (apt-get install g++), and build with --host-compiler gcc: fetched compilers have none"
    if host.family is Family.GCC:
        return "install them (dnf install libasan libubsan libtsan; Debian's g++ includes them)"
    return f"install compiler-rt (apt-get install libclang-rt-{host.major}-dev), or build with --host-compiler gcc"


def sanitizer_variables(
    runtimes: Iterable[Path],
    sanitizers: Iterable[Sanitizer],
    environ: Mapping[str, str],
    *,
    python: Path | None = None,
) -> dict[str, str]:
    """The variables with which a program runs what was built with ``sanitizers``, on top of ``environ``: what is
    preloaded, and what the runtimes are told. What ``environ`` tells them already counts more. ``python`` is the
    interpreter, where that is known: one of conda's brings a C++ runtime of its own, which its libraries need.
    """
    own = python.parent.parent / "lib" / _CXX_RUNTIME if python is not None else None
    replaced = own if own is not None and own.is_file() else None
    paths = [replaced if replaced and path.name.startswith(_CXX_RUNTIME) else path for path in runtimes]
    preloaded = dict.fromkeys([*map(str, paths), *re.split("[: ]+", environ.get(PRELOAD, ""))])
    found = {PRELOAD: os.pathsep.join(filter(None, preloaded))}
    for one in sanitizers:
        name, options = _OPTIONS[one]
        words = [f"{key}={value}" for key, value in options.items()]
        found[name] = ":".join(filter(None, [*words, environ.get(name, "")]))
    return found if len(found) > 1 else {}
