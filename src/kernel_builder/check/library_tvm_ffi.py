"""Rules about libraries of tvm-ffi kernels, which tvm-ffi loads and no Python: what they offer, and what they need."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_builder.binary.tvm_ffi import exported_by_release, functions_in, looks_like_tvm_ffi, releases_without
from kernel_builder.check.library_python import exported_names, python_imports
from kernel_builder.check.library_versions import several
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import LibraryFile
from kernel_builder.variants.names import ArchVariant, System
from kernel_builder.versions import Version

NO_MODULE = rule(
    "KB126",
    "tvm-ffi-library",
    Severity.ERROR,
    summary=(
        "The library of a tvm-ffi variant is named <id>.so (macOS: .dylib, Windows: .dll), exports functions "
        "through tvm-ffi, and is not a Python module"
    ),
    rationale="tvm_ffi.load_module looks up functions named __tvm_ffi_<name>, in programs that may not have Python.",
    remedy="Export each function with TVM_FFI_DLL_EXPORT_TYPED_FUNC; remove Python.h, pybind11 and PyInit functions.",
    source="docs/requirements.md, 'Libraries'",
)
RELEASES = rule(
    "KB127",
    "tvm-ffi-releases",
    Severity.WARNING,
    summary="A tvm-ffi library uses only symbols that every release of its variant's tvm-ffi has",
    rationale=(
        "A tvm-ffi01 variant is loaded with any release of tvm-ffi 0.1; loading fails with those that lack a symbol."
    ),
    remedy="Avoid the function, or tell users which tvm-ffi they need.",
    source="docs/requirements.md, 'Libraries'",
)
_SUFFIXES = {System.DARWIN: ".dylib", System.WINDOWS: ".dll"}


@checks(LibraryFile, NO_MODULE)
def no_module(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """The name of a tvm-ffi library, the functions that it offers, and what makes it a Python module."""
    variant = library.variant.variant if library.variant else None
    if library.tvm_ffi is None or not isinstance(variant, ArchVariant) or library.error is not None:
        return
    exports = exported_names(library)
    own = library.variant.id if library.variant else None
    wanted = f"{own}{_SUFFIXES.get(variant.system, '.so')}"
    functions = functions_in(exports)
    if own is not None and functions and library.name != wanted:
        yield NO_MODULE.at(library, f"the library of this variant must be named {wanted}")
    if not functions and library.name == wanted:
        yield NO_MODULE.at(library, "exports no function for tvm-ffi: no name begins with __tvm_ffi_")
    inits = sorted(name for name in exports if name.startswith(("PyInit_", "PyInitU_")))
    if inits:
        yield NO_MODULE.at(library, f"exports {several(inits)}, so it is a Python module", symbol=inits[0])
    needed = list(python_imports(library))
    if needed:
        text = f"{several(needed)}: Python's, but a tvm-ffi kernel must load into any program"
        yield NO_MODULE.at(library, text, symbol=needed[0])


@checks(LibraryFile, RELEASES)
def releases(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """Names of tvm-ffi that some releases of the variant's tvm-ffi lack; one finding for each set of releases."""
    release = library.tvm_ffi
    if release is None or library.elf is None:
        return
    known = frozenset[str]().union(*exported_by_release().values())
    lacking: dict[tuple[Version, ...], list[str]] = {}
    for symbol in library.elf.undefined:
        if looks_like_tvm_ffi(symbol.name) and symbol.name in known:
            lacking.setdefault(releases_without(symbol.name, release), []).append(symbol.name)
    for without, names in sorted(lacking.items()):
        if without:
            span = str(without[0]) if len(without) == 1 else f"{without[0]} to {without[-1]}"
            text = f"{several(sorted(names))}: missing in tvm-ffi {span}, which also loads this variant"
            yield RELEASES.at(library, text, symbol=min(names))
