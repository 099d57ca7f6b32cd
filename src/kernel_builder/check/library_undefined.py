"""Rules about names that a library leaves to others: somebody must have them, and, for the stable ABI, keep them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from kernel_builder.binary.elf import Symbol
from kernel_builder.binary.mangled import readable
from kernel_builder.binary.stable_abi import stable_functions, why_not_stable
from kernel_builder.binary.tvm_ffi import exported_by_release, looks_like_tvm_ffi
from kernel_builder.binary.undefined import (
    Cause,
    Supply,
    Unsupplied,
    has_unbound,
    looks_like,
    unsupplied,
    unsupplied_names,
)
from kernel_builder.check.library_versions import TOO_NEW, several
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.policies import find_policy
from kernel_builder.check.subject import LibraryFile
from kernel_builder.check.torch_names import installed_exports
from kernel_builder.config.backends import Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.variants.names import ArchVariant, StableAbiTag
from kernel_builder.versions import Version

MISSING = rule(
    "KB131",
    "undefined-symbol",
    Severity.ERROR,
    summary="torch, the GPU runtimes, Python or the C runtime define every undefined symbol of a library",
    rationale="The library does not load, or fails at the first call.",
    remedy="Add the source that defines the symbol, or use a function that this torch release has.",
    source="docs/requirements.md, 'Libraries'",
)
UNKNOWN = rule(
    "KB134",
    "unknown-symbol",
    Severity.WARNING,
    summary="Undefined symbols of a library look like those of torch, the GPU runtimes, Python or the C runtime",
    rationale="The library most likely does not load. This is not an error because the variant's torch is"
    " not installed here.",
    remedy="Add the source that defines the symbol; to be sure, run the check where that torch release is installed.",
    source="docs/requirements.md, 'Libraries'",
)
UNCOMPARED = rule(
    "KB132",
    "undefined-not-compared",
    Severity.NOTE,
    summary="Undefined torch symbols are compared with the exports of that torch release",
    rationale="A symbol may look like torch's and still be missing from the release that the variant is for.",
    remedy="Run the check where that torch release is installed; kernel-builder build always compares them.",
    source="docs/requirements.md, 'Libraries'",
)
UNSTABLE = rule(
    "KB133",
    "torch-stable-abi",
    Severity.ERROR,
    summary="A library for torch's stable ABI uses nothing else from torch, and nothing newer than it declares",
    rationale="torch keeps only its stable ABI from release to release; everything else breaks without notice.",
    remedy="Use only torch/csrc/stable and torch/headeronly, with TORCH_TARGET_VERSION set to the oldest release.",
    source="docs/requirements.md, 'Libraries'",
)
# The names that runtimes which torch depends on have.
_RUNTIMES = {backend.value: re.compile(backend.symbols) for backend in Backend if backend.symbols is not None}
_TOLD_BY_NAME = frozenset({Cause.NOT_LIMITED_API, Cause.NEWER_PYTHON, Cause.LLVM_OPENMP})
"""Causes for which it does not matter who has a name."""


def _backends(library: LibraryFile) -> tuple[str, ...]:
    backend = library.variant.backend if library.variant else None
    return (backend,) if backend is not None else tuple(_RUNTIMES)


def _exports(library: LibraryFile, settings: Settings) -> frozenset[str] | None:
    """Names that the framework of the library's variant exports; ``None`` where that release is not at hand."""
    variant = library.variant.variant if library.variant else None
    if variant is None:
        return None
    if library.tvm_ffi:
        return frozenset[str]().union(*exported_by_release().values())
    known = settings.torch_exports(variant) if settings.torch_exports else None
    return installed_exports(variant) if known is None else known


def unsupplied_by(library: LibraryFile, settings: Settings, *causes: Cause) -> tuple[Unsupplied, ...]:
    """Undefined names of a library of any format that are refused for one of ``causes``, sorted."""
    runtimes = [_RUNTIMES[backend] for backend in _backends(library) if backend in _RUNTIMES]
    # Reading what torch exports takes half a second.
    known = None if _TOLD_BY_NAME.issuperset(causes) else _exports(library, settings)
    target = _stable_target(library, settings)
    limits = find_policy(settings.policy).limits.get(library.elf.machine) if library.elf is not None else None
    framework = FrameworkKind.TVM_FFI if library.tvm_ffi else FrameworkKind.TORCH
    is_unknown = library.variant is None or library.variant.variant is None
    supply = Supply(
        exports=None if known is None else known.__contains__,
        looks=looks_like(framework),
        others=lambda name: (
            any(pattern.fullmatch(name) for pattern in runtimes) or (is_unknown and looks_like_tvm_ffi(name))
        ),
        python=None if framework is FrameworkKind.TVM_FFI else settings.python_floor,
        openmp=framework is FrameworkKind.TORCH,
        why_not_stable=None if target is None else partial(why_not_stable, target=target),
        c_library=limits.newest.get("GLIBC") if limits is not None else None,
        sanitizers=library.variant is not None and bool(library.variant.build_type.sanitizers),
    )
    if library.elf is not None:
        found = unsupplied(library.elf, supply)
    else:
        names = {name for part in library.macho for name in part.undefined}
        names |= {name for _, name in library.pe.imports} if library.pe else set()
        found = unsupplied_names((Symbol(name=name) for name in names), supply)
    return tuple(entry for entry in found if entry.cause in causes)


@checks(LibraryFile, TOO_NEW)
def without_version(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Names of a glibc newer than the policy's that are bound to no version, so that no loader refuses the library."""
    if library.elf is None or not has_unbound(library.elf):
        return
    for entry in unsupplied_by(library, settings, Cause.NEWER_C_LIBRARY):
        yield TOO_NEW.at(library, f"{entry.symbol} has no version; {entry.reason}", symbol=entry.symbol)


@checks(LibraryFile, MISSING, UNKNOWN, UNCOMPARED)
def undefined(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Undefined names of an ELF library that nobody has."""
    if library.elf is None:
        return
    variant = library.variant.variant if library.variant else None
    absent = unsupplied_by(library, settings, Cause.ABSENT)
    compared = isinstance(variant, ArchVariant) and _exports(library, settings) is not None
    for reason, remedy in dict.fromkeys((entry.reason, entry.remedy) for entry in absent):
        missing = [entry.symbol for entry in absent if (entry.reason, entry.remedy) == (reason, remedy)]
        names = several([readable(name) for name in missing])
        text = f"{names}: {reason}"
        if remedy is None and isinstance(variant, ArchVariant) and compared:
            text = f"neither {variant.tag} nor any other library the variant may need defines {names}"
        elif remedy is None:
            text = f"no library a kernel may need is known to define {names}"
        hint = None if remedy is None else f"{remedy[0].upper()}{remedy[1:]}."
        yield (MISSING if compared else UNKNOWN).at(library, text, symbol=missing[0], hint=hint)
    openmp = [entry.symbol for entry in unsupplied_by(library, settings, Cause.LLVM_OPENMP)]
    if openmp:
        text = f"{several(openmp)}: part of LLVM's OpenMP runtime, but torch ships GNU's"
        yield MISSING.at(library, text, symbol=openmp[0], hint="Compile the OpenMP code with gcc.")
    uncompared = unsupplied_by(library, settings, Cause.UNCOMPARED)
    if uncompared:
        release = str(variant.tag) if isinstance(variant, ArchVariant) else "torch"
        yield UNCOMPARED.at(library, f"{len(uncompared)} symbols were not compared with the exports of {release}")


def _stable_target(library: LibraryFile, settings: Settings) -> Version | None:
    variant = library.variant.variant if library.variant else None
    target = settings.torch_stable_abi
    if isinstance(variant, ArchVariant) and isinstance(variant.tag, StableAbiTag):
        target = variant.tag.version
    return None if target is None else Version.parse(f"{target[0]}.{target[1]}")


@checks(LibraryFile, UNSTABLE)
def stable_abi(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Names of torch that its stable ABI does not have, where a library is to keep to it; weak ones count."""
    target = _stable_target(library, settings)
    if target is None or library.error is not None:
        return
    unstable: list[str] = []
    for name in (entry.symbol for entry in unsupplied_by(library, settings, Cause.UNSTABLE)):
        added = stable_functions().get(name)
        if added is not None:
            text = f"{name} is in torch's stable ABI since {added}, but the library is for {target}"
            yield UNSTABLE.at(library, text, symbol=name)
        else:
            unstable.append(name)
    if unstable:
        shown = [readable(name) for name in unstable]
        yield UNSTABLE.at(library, f"{several(shown)}: not in torch's stable ABI", symbol=unstable[0])
