"""Refuses a library that needs names which torch, CUDA or the C library of its variant do not have (DESIGN.md F2).

The linker is told to allow undefined names, because two families of them are right. So the names are compared here,
with the export tables of the very release that the variant is for; :mod:`kernel_builder.binary.undefined` decides.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from kernel_builder.binary.elf import ElfFile
from kernel_builder.binary.stable_abi import looks_like_torch, why_not_stable
from kernel_builder.binary.undefined import Supply, unsupplied
from kernel_builder.versions import Version


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


def _within(tables: tuple[Path, ...]) -> Callable[[str], bool]:
    return lambda name: any(name in _table(path) for path in tables)


def supply_of(policy: UndefinedPolicy) -> Supply:
    """What the variant of ``policy`` finds when it is loaded, by its export tables."""
    return Supply(
        exports=_within(policy.torch),
        looks=looks_like_torch,
        others=_within(policy.tables),
        python=policy.python,
        why_not_stable=None if policy.stable is None else partial(why_not_stable, target=policy.stable),
    )


def demangle(names: Iterable[str]) -> dict[str, str]:
    """C++ names as people write them; a name stays as it is where ``c++filt`` is missing."""
    ordered = list(names)
    try:
        completed = subprocess.run(["c++filt"], input="\n".join(ordered), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {name: name for name in ordered}
    return dict(zip(ordered, completed.stdout.splitlines(), strict=False))


def find_missing(elf: ElfFile, policy: UndefinedPolicy) -> tuple[Missing, ...]:
    """Undefined names of ``elf`` that ``policy`` does not allow, sorted."""
    found = unsupplied(elf, supply_of(policy))
    names = demangle(entry.symbol for entry in found)
    return tuple(Missing(symbol=entry.symbol, readable=names[entry.symbol], reason=entry.reason) for entry in found)


def blame(missing: tuple[Missing, ...], objects: dict[Path, str], nm: str = "nm") -> tuple[Missing, ...]:
    """Add to each name the sources that use it. ``objects`` maps object files to the paths of their sources."""
    users: dict[str, set[str]] = {}
    for path, source in objects.items():
        try:
            completed = subprocess.run([nm, "-u", str(path)], capture_output=True, text=True, check=False)
        except OSError:  # no binutils on PATH: the names alone, then
            return missing
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
