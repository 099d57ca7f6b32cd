"""Rules about names that a library leaves to others: somebody must have them, and, for the stable ABI, keep them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_builder.check.library_needed import stem
from kernel_builder.check.library_versions import several
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import LibraryFile
from kernel_builder.check.torch_names import installed_exports
from kernel_builder.config.backends import Backend
from kernel_builder.frameworks.stable_abi import stable_functions
from kernel_builder.variants.names import ArchVariant, StableAbiTag
from kernel_builder.versions import Version

MISSING = rule(
    "KB131",
    "undefined-symbol",
    Severity.ERROR,
    summary="torch, the GPU runtimes, Python or the C runtime supply every name that a library leaves undefined",
    rationale="The library does not load, or fails at the first call.",
    remedy="Add the source that defines the name, or use a function that this release of torch has.",
    source="DESIGN.md F2; cases T20 (b)",
)
UNKNOWN = rule(
    "KB134",
    "unknown-symbol",
    Severity.WARNING,
    summary="Names that a library leaves undefined look like those of torch, the GPU runtimes, Python or the C runtime",
    rationale="The library most likely does not load. It is no error because the torch of the variant is not at hand.",
    remedy="Add the source that defines the name; check where that release of torch is installed to be sure.",
    source="DESIGN.md F2; cases T20 (b)",
)
UNCOMPARED = rule(
    "KB132",
    "undefined-not-compared",
    Severity.NOTE,
    summary="Names of torch are compared with what that release of torch exports",
    rationale="A name may look like torch's, and still not be there in the release that the variant is for.",
    remedy="Run the check where that release of torch is installed; kernel-builder build compares them always.",
    source="DESIGN.md F2",
)
UNSTABLE = rule(
    "KB133",
    "torch-stable-abi",
    Severity.ERROR,
    summary="A library for torch's stable ABI uses nothing else of torch, and nothing newer than it says",
    rationale="Only the stable ABI is kept from one release of torch to the next; all else breaks without notice.",
    remedy="Use torch/csrc/stable and torch/headeronly alone, with TORCH_TARGET_VERSION set to the oldest release.",
    source="contract 7.5; torch's notes on its stable ABI",
)
_OPENMP = re.compile(r"(GOMP|omp|kmpc|__kmpc)_\w+")
_PYTHON = re.compile(r"_?Py[A-Z_]\w*")
_TORCH_C = re.compile(r"(aoti_torch|torch)_\w+")
_TORCH_NAMESPACES = ("c10", "at", "torch", "caffe2")
_STABLE_NAMESPACES = ("torch::stable", "torch::headeronly")
# The names that runtimes which torch depends on have.
_RUNTIMES = {backend.value: re.compile(backend.symbols) for backend in Backend if backend.symbols is not None}
_TVM_FFI = re.compile(r"TVMFFI\w+|_ZN?K?\w*3tvm3ffi\w+")
_MANGLED = re.compile(r"_Z(?:T[VISCW]|GV)?(?:N[rVK]*[RO]?)?")


def readable(symbol: str) -> str:
    """The name in a mangled C++ name: ``_ZN3c106detail14torchCheckFailEPKc`` -> ``c10::detail::torchCheckFail``.

    Arguments are left out; names of other languages stay as they are.
    """
    start = _MANGLED.match(symbol)
    if start is None:
        return symbol
    parts: list[str] = []
    at = start.end()
    if symbol.startswith("St", at):
        parts, at = ["std"], at + 2
    while at < len(symbol) and symbol[at].isdigit():
        digits = at
        while digits < len(symbol) and symbol[digits].isdigit() and digits - at < 6:
            digits += 1
        length = int(symbol[at:digits])
        if digits + length > len(symbol):
            return symbol
        parts.append(symbol[digits : digits + length])
        at = digits + length
        while symbol.startswith("B5cxx11", at):
            at += len("B5cxx11")
    return "::".join(parts) or symbol


def _is_torch(symbol: str) -> bool:
    return _TORCH_C.fullmatch(symbol) is not None or readable(symbol).split("::", maxsplit=1)[0] in _TORCH_NAMESPACES


def _backends(library: LibraryFile) -> tuple[str, ...]:
    backend = library.variant.backend if library.variant else None
    return (backend,) if backend is not None else tuple(_RUNTIMES)


@checks(LibraryFile, MISSING, UNKNOWN, UNCOMPARED)
def undefined(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Undefined names of an ELF library that nobody has.

    Weak names may stay undefined. A name with a version is one that the linker found in a library that is needed; some
    of libstdc++ have none.
    """
    if library.elf is None:
        return
    variant = library.variant.variant if library.variant else None
    known = settings.torch_exports(variant) if settings.torch_exports and variant is not None else None
    if known is None and variant is not None:
        known = installed_exports(variant)
    runtimes = [_RUNTIMES[backend] for backend in _backends(library) if backend in _RUNTIMES]
    has_cxx = any(stem(needed) == "libstdc++" for needed in library.elf.needed)
    missing: list[str] = []
    uncompared: list[str] = []
    for symbol in library.elf.undefined:
        name = symbol.name
        if symbol.binding == "weak" or symbol.version is not None or _OPENMP.fullmatch(name) or _PYTHON.fullmatch(name):
            continue
        if (known is not None and name in known) or (has_cxx and readable(name).startswith("std::")):
            continue
        if any(pattern.fullmatch(name) for pattern in (*runtimes, _TVM_FFI)):
            continue
        if known is None and _is_torch(name):
            uncompared.append(name)
        else:
            missing.append(name)
    if missing:
        names = [readable(name) for name in sorted(missing)]
        if known is not None and isinstance(variant, ArchVariant):
            text = f"neither {variant.tag} nor anything else that the variant may need has {several(names)}"
            yield MISSING.at(library, text, symbol=min(missing))
        else:
            text = f"nothing that a kernel may need is known to have {several(names)}"
            yield UNKNOWN.at(library, text, symbol=min(missing))
    if uncompared:
        release = str(variant.tag) if isinstance(variant, ArchVariant) else "torch"
        yield UNCOMPARED.at(library, f"{len(uncompared)} names were not compared with what {release} exports")


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
    names = {symbol.name for symbol in library.elf.undefined} if library.elf else set()
    names |= {name for part in library.macho for name in part.undefined}
    names |= {name for _, name in library.pe.imports} if library.pe else set()
    unstable: list[str] = []
    for name in sorted(names):
        added = stable_functions().get(name)
        if added is not None and added > target:
            text = f"{name} is in torch's stable ABI from {added} on, and the library is for {target}"
            yield UNSTABLE.at(library, text, symbol=name)
        elif added is None and _is_torch(name) and not readable(name).startswith(_STABLE_NAMESPACES):
            unstable.append(name)
    if unstable:
        shown = [readable(name) for name in unstable]
        yield UNSTABLE.at(library, f"{several(shown)}: not in torch's stable ABI", symbol=unstable[0])
