"""What a variant needs that this machine may lack: which libraries and names :mod:`load.probe.standins` may define."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.binary.elf import ElfError, ElfFile, Symbol, read_elf_file
from kernel_builder.binary.libraries import load_allowed, stem
from kernel_builder.binary.stable_abi import looks_like_torch
from kernel_builder.binary.undefined import Cause, Supply, unsupplied_names
from kernel_builder.config.backends import Backend
from kernel_builder.variants.names import ArchVariant, Variant
from kernel_builder.variants.support import load_support

# Versions of the C and C++ runtimes' names: they are here, or the variant cannot run here.
_RUNTIMES = ("GLIBC", "CXXABI", "GCC_", "GOMP_", "OMP_")


@dataclass(frozen=True, kw_only=True)
class StandIns:
    """What the probe may stand in for; see ``stand_in`` of :mod:`load.probe.standins` for the fields."""

    files: tuple[str, ...]
    needed: tuple[str, ...]
    replaceable: tuple[str, ...]
    undefined: tuple[tuple[str, str, str, str], ...]
    quiet: str | None
    machine: str
    version: tuple[str, str] | None

    @property
    def has_objects(self) -> bool:
        """Whether objects are among the names, whose content nobody here knows."""
        return any(kind == "object" or name.startswith("_Z") for name, _, _, kind in self.undefined if kind != "func")


def stand_ins_for(directory: Path, variant: Variant) -> StandIns:
    """What the probe is asked to stand in for, of what the libraries of a variant in ``directory`` need.

    Only libraries that the rules allow may be missing, and only names that look like theirs are stood in for: what
    nobody has stays an error.
    """
    libraries = _libraries(directory)
    backend = variant.backend
    own = {path.name for path in libraries} | {elf.soname for elf in libraries.values()}
    exported = {symbol.name for elf in libraries.values() for symbol in elf.exports}
    needed = dict.fromkeys(name for elf in libraries.values() for name in elf.needed if name not in own)
    allowed = load_allowed().stems(backend.value, torch=variant.needs_torch, tvm_ffi=not variant.needs_torch)
    undefined = {
        symbol.name: (symbol.name, symbol.version or "", symbol.library or "", symbol.kind)
        for elf in libraries.values()
        for symbol in elf.undefined
        if symbol.name not in exported and _may_be_stood_in(symbol, backend)
    }
    return StandIns(
        files=tuple(sorted(str(path.relative_to(directory)) for path in libraries)),
        needed=tuple(needed),
        replaceable=tuple(name for name in needed if stem(name) in allowed),
        undefined=tuple(undefined.values()),
        quiet=backend.registration,
        machine=next((elf.machine for elf in libraries.values()), ""),
        version=_version(variant),
    )


def _libraries(directory: Path) -> dict[Path, ElfFile]:
    found: dict[Path, ElfFile] = {}
    for path in sorted(directory.rglob("*")):
        if re.search(r"\.so(\.\d+)*$", path.name) and path.is_file():
            try:
                found[path] = read_elf_file(path)
            except (OSError, ElfError):
                continue  # other rules say so
    return found


def _may_be_stood_in(symbol: Symbol, backend: Backend) -> bool:
    """Whether a library that may be missing is likely to have the name. A weak one may stay undefined."""
    if symbol.binding == "weak" or (symbol.version or "").startswith(_RUNTIMES):
        return False
    runtime = re.compile(backend.symbols or r"\w+")
    supply = Supply(
        exports=None,
        looks=looks_like_torch,
        others=lambda name: runtime.fullmatch(name) is not None,
        python=(3, 9),
    )
    return all(entry.cause is Cause.UNCOMPARED for entry in unsupplied_names([symbol], supply))


def _version(variant: Variant) -> tuple[str, str] | None:
    """The attribute of torch.version that tells the variant's toolkit, and its value there."""
    torch = variant.backend.torch
    if torch.version is None:
        return None
    found = variant.compute.version if isinstance(variant, ArchVariant) else None
    if found is None:  # any that there is
        rows = (row.variant.compute for row in load_support().rows)
        found = max((row.version for row in rows if row.backend == variant.backend and row.version), default=None)
    return None if found is None else (torch.version, torch.version_text.format(major=found[0], minor=found[1]))
