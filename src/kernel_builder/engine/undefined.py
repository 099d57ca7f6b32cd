"""Refuses a library that needs names which torch, CUDA or the C library of its variant do not have (DESIGN.md F2).

The linker is told to allow undefined names, because two families of them are right: Python's limited API, which the
interpreter supplies, and the OpenMP runtime, which torch's own libgomp supplies when the library is loaded. So the
names are compared here, with the export tables of the very release that the variant is for.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from abi3info import DATAS, FUNCTIONS
from abi3info.models import PyVersion
from abi3info.models import Symbol as PythonSymbol

from kernel_builder.binary.elf import ElfFile
from kernel_builder.frameworks.stable_abi import why_not_stable
from kernel_builder.versions import Version

_OPENMP = re.compile(r"GOMP_\w+|omp_\w+")
_PYTHON = re.compile(r"_?Py[A-Z_]\w*")


@dataclass(frozen=True, kw_only=True)
class UndefinedPolicy:
    """What a library may leave undefined: names of these tables (one a line) and Python's limited API.

    ``python`` is the limited API's version. ``torch`` are torch's own tables. With ``stable``, a release of torch, only
    those of their names may be left undefined that belong to the stable ABI of that release.
    """

    tables: tuple[Path, ...]
    torch: tuple[Path, ...]
    python: tuple[int, int]
    stable: Version | None = None


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A name that nothing supplies: as the linker sees it, as people write it, and why it is refused."""

    symbol: str
    readable: str
    reason: str
    used_by: tuple[str, ...] = ()


@cache
def _table(path: Path) -> frozenset[str]:
    return frozenset(path.read_text(encoding="utf-8", errors="surrogateescape").split("\n"))


def _limited_api(symbol: str, limit: tuple[int, int]) -> str | None:
    """Why ``symbol`` is not in Python's limited API of version ``limit``; ``None`` when it is."""
    known = FUNCTIONS.get(PythonSymbol(symbol)) or DATAS.get(PythonSymbol(symbol))
    wanted = f"{limit[0]}.{limit[1]}"
    if known is None:
        return f"it is not part of Python's limited API, which kernels are built for (version {wanted})"
    if known.added > PyVersion(*limit):
        return f"it is in Python's limited API from {known.added} on, and kernels are built for {wanted}"
    return None


def demangle(names: Iterable[str]) -> dict[str, str]:
    """C++ names as people write them; a name stays as it is where ``c++filt`` is missing."""
    ordered = list(names)
    try:
        completed = subprocess.run(["c++filt"], input="\n".join(ordered), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {name: name for name in ordered}
    return dict(zip(ordered, completed.stdout.splitlines(), strict=False))


def find_missing(elf: ElfFile, policy: UndefinedPolicy) -> tuple[Missing, ...]:
    """Undefined names of ``elf`` that ``policy`` does not allow, sorted.

    A weak name may stay undefined. A name with a version was found by the linker in a library of the right floor.
    """
    reasons: dict[str, str] = {}
    for symbol in elf.undefined:
        name = symbol.name
        if symbol.binding == "weak" or symbol.version is not None or _OPENMP.fullmatch(name):
            continue
        if any(name in _table(path) for path in policy.tables):
            continue
        if any(name in _table(path) for path in policy.torch):
            unstable = why_not_stable(name, policy.stable) if policy.stable is not None else None
            if unstable is None:
                continue
            reasons[name] = unstable
            continue
        if _PYTHON.fullmatch(name):
            reason = _limited_api(name, policy.python)
            if reason is None:
                continue
        else:
            reason = "no library that the kernel may need has it"
        reasons[name] = reason
    readable = demangle(reasons)
    return tuple(Missing(symbol=name, readable=readable[name], reason=reasons[name]) for name in sorted(reasons))


def blame(missing: tuple[Missing, ...], objects: dict[Path, str], nm: str = "nm") -> tuple[Missing, ...]:
    """Add to each name the sources that use it. ``objects`` maps object files to the paths of their sources."""
    users: dict[str, set[str]] = {}
    for path, source in objects.items():
        completed = subprocess.run([nm, "-u", str(path)], capture_output=True, text=True, check=False)
        for line in completed.stdout.splitlines():
            words = line.split()
            if words:
                users.setdefault(words[-1], set()).add(source)
    return tuple(
        Missing(
            symbol=entry.symbol,
            readable=entry.readable,
            reason=entry.reason,
            used_by=tuple(sorted(users.get(entry.symbol, ()))),
        )
        for entry in missing
    )
