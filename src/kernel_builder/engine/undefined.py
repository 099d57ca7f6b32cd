"""Refuses a library that needs names which torch, CUDA or the C library of its variant do not have (DESIGN.md F2).

The linker is told to allow undefined names, because two families of them are right. So the names are compared here,
with the export tables of the very release that the variant is for; :mod:`kernel_builder.binary.undefined` decides.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kernel_builder.binary.causes import NamedCause
from kernel_builder.binary.elf import ElfFile
from kernel_builder.binary.python_api import is_python
from kernel_builder.binary.stable_abi import why_not_stable
from kernel_builder.binary.undefined import NOBODY, Supply, looks_like, unsupplied
from kernel_builder.config.model import FrameworkKind
from kernel_builder.engine.framework_names import framework_cause, not_exported, table
from kernel_builder.engine.own_names import OwnNames, demangle
from kernel_builder.versions import Version


@dataclass(frozen=True, kw_only=True)
class UndefinedPolicy:
    """What a library may leave undefined: names of these tables (one a line) and Python's limited API.

    ``python`` is the limited API's version; ``None`` where no name of Python's may be needed. ``exports`` are the
    tables of the ``framework`` itself. With ``stable``, a release of torch, only those of their names may be left
    undefined that belong to the stable ABI of that release. ``c_library`` is the oldest glibc that the library runs on.
    ``sanitizers`` are those that it is instrumented for.
    """

    tables: tuple[Path, ...]
    exports: tuple[Path, ...]
    python: tuple[int, int] | None
    framework: FrameworkKind = FrameworkKind.TORCH
    stable: Version | None = None
    c_library: Version | None = None
    sanitizers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A name that nothing supplies: as the linker sees it, as people write it, why it is refused, and what to do."""

    symbol: str
    readable: str
    reason: str
    remedy: str | None = None
    used_by: tuple[str, ...] = ()


def _within(tables: tuple[Path, ...]) -> Callable[[str], bool]:
    return lambda name: any(name in table(path) for path in tables)


def supply_of(policy: UndefinedPolicy) -> Supply:
    """What the variant of ``policy`` finds when it is loaded, by its export tables."""
    return Supply(
        exports=_within(policy.exports),
        looks=looks_like(policy.framework),
        others=_within(policy.tables),
        python=policy.python,
        why_not_stable=None if policy.stable is None else partial(why_not_stable, target=policy.stable),
        c_library=policy.c_library,
        openmp=policy.framework is FrameworkKind.TORCH,
        sanitizers=bool(policy.sanitizers),
    )


def find_missing(elf: ElfFile, policy: UndefinedPolicy) -> tuple[Missing, ...]:
    """Undefined names of ``elf`` that ``policy`` does not allow, sorted."""
    found = unsupplied(elf, supply_of(policy))
    names = demangle(entry.symbol for entry in found)
    return tuple(
        Missing(symbol=entry.symbol, readable=names[entry.symbol], reason=entry.reason, remedy=entry.remedy)
        for entry in found
    )


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
    return tuple(replace(entry, used_by=tuple(sorted(users.get(entry.symbol, ())))) for entry in missing)


def diagnose(missing: Missing, own: OwnNames, policy: UndefinedPolicy, release: str) -> Missing:
    """``missing`` with the cause that is known best. What the project defines itself comes first."""
    if missing.reason != NOBODY and is_python(missing.symbol):
        return missing
    cause = own.cause(missing.symbol, missing.readable, missing.used_by)
    if cause is None and missing.reason != NOBODY:
        return missing
    looks = looks_like(policy.framework)
    if cause is None and looks(missing.symbol):
        cause = framework_cause(missing.symbol, missing.readable, policy.exports, release)
    declared = own.declaration(missing.readable) if cause is None else None
    where = f"{declared.place} declares it, but " if declared is not None else ""
    if cause is None and (declared is not None or not looks(missing.symbol)):
        why = f"{where}neither the project nor a library that it may need defines it"
        cause = NamedCause(why=why, instead="add the source that defines it to 'src'")
    if cause is None:
        cause = not_exported(release, policy.framework)
    return replace(missing, reason=cause.why, remedy=cause.instead)


def grouped(missing: Iterable[Missing]) -> Iterator[tuple[tuple[Missing, ...], str, str | None]]:
    """Names with the same cause together, as they come first."""
    found: dict[tuple[str, str | None], list[Missing]] = {}
    for entry in missing:
        found.setdefault((entry.reason, entry.remedy), []).append(entry)
    for (reason, remedy), entries in found.items():
        yield tuple(entries), reason, remedy
