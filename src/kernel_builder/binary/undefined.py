"""Decides what a library may leave undefined for others to supply: one judgement, for the build and for the check.

Two families of names stay undefined on purpose (DESIGN.md F2): Python's limited API, which the interpreter supplies,
and GNU's OpenMP runtime, which torch brings. The names of LLVM's OpenMP runtime are not among them: torch does not have
them, and a library that brings that runtime loads a second one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from kernel_builder.binary.causes import NamedCause, cause_of
from kernel_builder.binary.elf import ElfFile, Symbol
from kernel_builder.binary.glibc import offered_since
from kernel_builder.binary.mangled import namespace
from kernel_builder.binary.python_api import is_python, limited_api
from kernel_builder.binary.stable_abi import looks_like_torch
from kernel_builder.binary.tvm_ffi import looks_like_tvm_ffi
from kernel_builder.config.model import FrameworkKind
from kernel_builder.versions import Version

_GNU_OPENMP = re.compile(r"(GOMP|omp)_\w+")
_LLVM_OPENMP = re.compile(r"(__)?kmpc_\w+")
_CXX_RUNTIME = "libstdc++"
_SANITIZERS = re.compile(r"__(asan|ubsan|tsan|sanitizer)_\w+")


NOBODY = "no library that the kernel may use defines it"
"""The reason where nothing more is known."""


class Cause(Enum):
    """Why a name may not stay undefined, or, ``UNCOMPARED``, why nobody can tell."""

    ABSENT = auto()
    LLVM_OPENMP = auto()
    NEWER_PYTHON = auto()
    NOT_LIMITED_API = auto()
    UNSTABLE = auto()
    UNCOMPARED = auto()
    NEWER_C_LIBRARY = auto()


@dataclass(frozen=True, kw_only=True)
class Unsupplied:
    """An undefined name that nothing is known to supply; ``reason`` says why, for people, and ``remedy`` what to do,
    where the name tells.
    """

    symbol: str
    cause: Cause
    reason: str
    remedy: str | None = None


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What is there when a library is loaded.

    ``exports`` tells which names the framework of the variant has. It is ``None`` where that release is not at hand;
    then ``looks`` tells what is named like them. ``others`` tells the names of the libraries that come with the
    framework. ``python`` is the version of the limited API; ``None``: it must not need Python. ``why_not_stable``,
    where the library keeps to a stable ABI, says why a name of the framework is not part of it; ``None`` when it is.
    ``c_library`` is the oldest glibc that the library must run on. ``openmp``: the framework brings GNU's OpenMP
    runtime. ``sanitizers``: the runtimes of sanitizers are preloaded.
    """

    exports: Callable[[str], bool] | None
    looks: Callable[[str], bool]
    others: Callable[[str], bool]
    python: tuple[int, int] | None
    why_not_stable: Callable[[str], NamedCause | None] | None = None
    c_library: Version | None = None
    openmp: bool = True
    sanitizers: bool = False


def looks_like(framework: FrameworkKind) -> Callable[[str], bool]:
    """What tells names that are like those of a framework's libraries."""
    return looks_like_tvm_ffi if framework is FrameworkKind.TVM_FFI else looks_like_torch


def unsupplied(elf: ElfFile, supply: Supply) -> tuple[Unsupplied, ...]:
    """Undefined names of ``elf`` that ``supply`` lacks, sorted.

    A weak name may stay undefined, and one with a version was found by the linker in a library that is needed. Names of
    Python and of the framework must be part of the API that the library keeps to all the same.
    """
    needs_cxx = any(name.startswith(_CXX_RUNTIME) for name in elf.needed)
    return unsupplied_names(elf.undefined, supply, needs_cxx=needs_cxx, machine=elf.machine)


def has_unbound(elf: ElfFile) -> bool:
    """Whether ``elf`` lacks names that glibc has, without saying from which version on."""
    since = offered_since(elf.machine)
    return any(symbol.version is None and symbol.binding != "weak" and symbol.name in since for symbol in elf.undefined)


def unsupplied_names(
    symbols: Iterable[Symbol], supply: Supply, *, needs_cxx: bool = False, machine: str | None = None
) -> tuple[Unsupplied, ...]:
    """:func:`unsupplied` for the names of a library of any format. ``needs_cxx``: it needs libstdc++. ``machine``: it
    runs with glibc on that processor.
    """
    since = offered_since(machine) if machine is not None else {}
    found: dict[str, Unsupplied] = {}
    for symbol in symbols:
        verdict = _limits(symbol.name, supply) or _absence(symbol, supply, since, needs_cxx=needs_cxx)
        if verdict is not None:
            cause, reason, remedy = verdict
            found[symbol.name] = Unsupplied(symbol=symbol.name, cause=cause, reason=reason, remedy=remedy)
    return tuple(found[name] for name in sorted(found))


_Verdict = tuple[Cause, str, str | None] | None
_NO_PYTHON = (
    "register the ops with TORCH_LIBRARY_EXPAND (see registration.h), and remove pybind11 and Python.h from the sources"
)
_NO_MODULE = "it is Python's, but a tvm-ffi kernel must load into any program"
_TVM_FFI_EXPORTS = (
    "export the functions with TVM_FFI_DLL_EXPORT_TYPED_FUNC, and remove pybind11 and Python.h from the sources"
)
_NO_OPENMP = "it is from GNU's OpenMP runtime, which torch ships, but a tvm-ffi kernel must load without torch"


def _limits(name: str, supply: Supply) -> _Verdict:
    """Whether ``name`` is outside of the API that the library keeps to, whoever may have it."""
    if is_python(name):
        if supply.python is None:
            return Cause.NOT_LIMITED_API, _NO_MODULE, _TVM_FFI_EXPORTS
        added = limited_api().get(name)
        wanted = f"{supply.python[0]}.{supply.python[1]}"
        if added is None:
            reason = f"it is not part of Python's limited API, which kernels are built for (version {wanted})"
            return Cause.NOT_LIMITED_API, reason, _NO_PYTHON
        if added > supply.python:
            reason = f"it is in Python's limited API since {added[0]}.{added[1]}, but kernels are built for {wanted}"
            return Cause.NEWER_PYTHON, reason, _NO_PYTHON
    elif supply.why_not_stable is not None and _is_framework(name, supply) and not supply.others(name):
        unstable = supply.why_not_stable(name)
        if unstable is not None:
            return Cause.UNSTABLE, unstable.why, unstable.instead
    return None


def _is_framework(name: str, supply: Supply) -> bool:
    return supply.looks(name) if supply.exports is None else supply.exports(name)


def _absence(symbol: Symbol, supply: Supply, since: Mapping[str, Version], *, needs_cxx: bool) -> _Verdict:
    """Whether nobody has the name of ``symbol``. ``since``: releases of glibc, by name."""
    name = symbol.name
    if supply.sanitizers and _SANITIZERS.fullmatch(name):
        return None
    if symbol.binding == "weak" or symbol.version is not None or is_python(name):
        return None
    if _GNU_OPENMP.fullmatch(name):
        return None if supply.openmp else (Cause.ABSENT, _NO_OPENMP, "use std::thread, or compile without -fopenmp")
    if _LLVM_OPENMP.fullmatch(name):
        return Cause.LLVM_OPENMP, "it is from LLVM's OpenMP runtime, but torch ships GNU's", "compile with g++"
    if supply.c_library is not None and name in since and not (supply.exports is not None and supply.exports(name)):
        if since[name] <= supply.c_library:
            return None
        reason = f"glibc has it since {since[name]}, but kernels must run with {supply.c_library}"
        return Cause.NEWER_C_LIBRARY, reason, "avoid the function, or write it in the kernel's sources"
    # Some names of libstdc++ have no version.
    if supply.others(name) or (needs_cxx and namespace(name) == "std"):
        return None
    if _is_framework(name, supply):
        reason = "the release that should have it is not available here"
        return (Cause.UNCOMPARED, reason, None) if supply.exports is None else None
    named = cause_of(name)
    if named is not None:
        return Cause.ABSENT, named.why, named.instead
    return Cause.ABSENT, NOBODY, None
