"""Rules about names that a library leaves to others: somebody must have them, and, for the stable ABI, keep them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_builder.check.library_needed import stem
from kernel_builder.check.library_versions import several
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import LibraryFile
from kernel_builder.check.torch_names import installed_exports
from kernel_builder.frameworks.stable_abi import stable_functions
from kernel_builder.variants.names import ArchVariant, StableAbiTag
from kernel_builder.versions import Version

MISSING = rule(
    "KB131",
    "undefined-symbol",
    Severity.ERROR,
    summary="torch, the GPU runtimes, Python or the C runtime define every undefined symbol of a library",
    rationale="The library does not load, or fails at the first call.",
    remedy="Add the source that defines the symbol, or use a function that this torch release has.",
    source="DESIGN.md F2; cases T20 (b)",
)
UNKNOWN = rule(
    "KB134",
    "unknown-symbol",
    Severity.WARNING,
    summary="Undefined symbols of a library look like those of torch, the GPU runtimes, Python or the C runtime",
    rationale="The library most likely does not load. This is not an error because the variant's torch is"
    " not installed here.",
    remedy="Add the source that defines the symbol; to be sure, run the check where that torch release is installed.",
    source="DESIGN.md F2; cases T20 (b)",
)
UNCOMPARED = rule(
    "KB132",
    "undefined-not-compared",
    Severity.NOTE,
    summary="Undefined torch symbols are compared with the exports of that torch release",
    rationale="A symbol may look like torch's and still be missing from the release that the variant is for.",
    remedy="Run the check where that torch release is installed; kernel-builder build always compares them.",
    source="DESIGN.md F2",
)
UNSTABLE = rule(
    "KB133",
    "torch-stable-abi",
    Severity.ERROR,
    summary="A library for torch's stable ABI uses nothing else from torch, and nothing newer than it declares",
    rationale="torch keeps only its stable ABI from release to release; everything else breaks without notice.",
    remedy="Use only torch/csrc/stable and torch/headeronly, with TORCH_TARGET_VERSION set to the oldest release.",
    source="contract 7.5; torch's notes on its stable ABI",
)
_OPENMP = re.compile(r"(GOMP|omp|kmpc|__kmpc)_\w+")
_PYTHON = re.compile(r"_?Py[A-Z_]\w*")
_TORCH_C = re.compile(r"(aoti_torch|torch)_\w+")
_TORCH_NAMESPACES = ("c10", "at", "torch", "caffe2")
_STABLE_NAMESPACES = ("torch::stable", "torch::headeronly")
# By the documents of each: the names that runtimes which torch depends on have.
_RUNTIMES = {
    "cuda": re.compile(
        r"(__)?(cuda|cublas|cudnn|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvJitLink|nvtx|nvshmem|cupti)\w+|cu[A-Z]\w+"
    ),
    "rocm": re.compile(r"(__)?(hip|roc|miopen|rccl|nccl|hsa_|amd_comgr)\w+"),
    "xpu": re.compile(
        r"_ZN?K?\w*4sycl\w+|_ZN?K?\w*6oneapi\w+|_ZN?K?\w*4dnnl\w+|__(sycl|spirv|devicelib)\w+|(ur|ze|cl|dnnl_)[A-Z]?\w+"
    ),
    "cann": re.compile(r"acl\w+|rt[A-Z]\w+|Hccl\w+"),
}
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
            text = f"neither {variant.tag} nor any other library the variant may need defines {several(names)}"
            yield MISSING.at(library, text, symbol=min(missing))
        else:
            text = f"no library a kernel may need is known to define {several(names)}"
            yield UNKNOWN.at(library, text, symbol=min(missing))
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
    names = {symbol.name for symbol in library.elf.undefined} if library.elf else set()
    names |= {name for part in library.macho for name in part.undefined}
    names |= {name for _, name in library.pe.imports} if library.pe else set()
    unstable: list[str] = []
    for name in sorted(names):
        added = stable_functions().get(name)
        if added is not None and added > target:
            text = f"{name} is in torch's stable ABI since {added}, but the library is for {target}"
            yield UNSTABLE.at(library, text, symbol=name)
        elif added is None and _is_torch(name) and not readable(name).startswith(_STABLE_NAMESPACES):
            unstable.append(name)
    if unstable:
        shown = [readable(name) for name in unstable]
        yield UNSTABLE.at(library, f"{several(shown)}: not in torch's stable ABI", symbol=unstable[0])
