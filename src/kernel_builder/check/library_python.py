"""Rules about Python's ABI: the limited API, free threading, file names, and the function that Python calls."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from kernel_builder.binary.python_api import is_python, limited_api
from kernel_builder.binary.undefined import Cause
from kernel_builder.check.library_undefined import unsupplied_by
from kernel_builder.check.library_versions import several
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.python_version import spared_by
from kernel_builder.check.subject import LibraryFile
from kernel_builder.variants.names import ArchVariant, System, TvmFfiTag

TOO_NEW_API = rule(
    "KB121",
    "limited-api-version",
    Severity.ERROR,
    summary="A library uses only functions in the limited API of the oldest supported Python",
    rationale="An older interpreter lacks the function, so the library does not load.",
    remedy="Compile with -DPy_LIMITED_API=0x03090000, which hides newer functions.",
    source="docs/requirements.md, 'Libraries'",
    acceptable=True,
)
NOT_LIMITED = rule(
    "KB122",
    "limited-api",
    Severity.ERROR,
    summary="A library uses only Python's limited API",
    rationale="Other functions, and all private ones, change between Python versions, but one library must"
    " work on all.",
    remedy="Compile with -DPy_LIMITED_API=0x03090000; avoid pybind11 and <torch/extension.h>.",
    source="docs/requirements.md, 'Libraries'",
)
EXTENSION_NAME = rule(
    "KB123",
    "extension-name",
    Severity.ERROR,
    summary="The extension module is named <id>.abi3.so (Windows: <id>.pyd)",
    rationale="Python looks for the module under that name; a name with a Python version works only with that version.",
    remedy="Rename the file, or build it with the suffix .abi3.so.",
    source="docs/requirements.md, 'Libraries'",
)
FREE_THREADED = rule(
    "KB124",
    "free-threading",
    Severity.ERROR,
    summary="A library is not built for a free-threaded Python",
    rationale="Free-threaded Python has no limited API before 3.15, and a regular Python cannot load the library.",
    remedy="Build with a regular Python.",
    source="docs/requirements.md, 'Libraries'",
)
INIT_FUNCTION = rule(
    "KB125",
    "init-function",
    Severity.ERROR,
    summary="The extension module exports exactly one PyInit function, the one for its own name",
    rationale="Python calls PyInit_<module name>; without it, the import fails.",
    remedy="Compile REGISTER_EXTENSION(TORCH_EXTENSION_NAME) with TORCH_EXTENSION_NAME set to the kernel's id.",
    source="docs/requirements.md, 'Libraries'",
)
_FREE_THREADED_NAME = re.compile(r"\.(cpython-3[0-9]+t|abi3t)\b|\.cp3[0-9]+t-")
_VERSIONED_NAME = re.compile(r"\.(cpython-3[0-9]+|cp3[0-9]+-)")
# What only the headers of a free-threaded Python make a library import.
_FREE_THREADED_SYMBOLS = frozenset(
    {"_Py_MergeZeroLocalRefcount", "_Py_DecRefShared", "_Py_DecRefSharedDebug", "PyUnstable_Module_SetGIL"}
)
_INIT = "PyInit_"


def python_imports(library: LibraryFile) -> tuple[str, ...]:
    """Names of Python that a library of any format wants, weak ones included, sorted."""
    names: set[str] = set()
    if library.elf is not None:
        names = {symbol.name for symbol in library.elf.undefined}
    elif library.macho:
        names = {name for part in library.macho for name in part.undefined}
    elif library.pe is not None:
        names = {name for _, name in library.pe.imports}
    return tuple(sorted(name for name in names if is_python(name)))


def exported_names(library: LibraryFile) -> frozenset[str]:
    """Names that a library of any format exports."""
    if library.elf is not None:
        return frozenset(symbol.name for symbol in library.elf.exports)
    if library.pe is not None:
        return frozenset(library.pe.exports)
    return frozenset(name for part in library.macho for name in part.exports)


@checks(LibraryFile, TOO_NEW_API, NOT_LIMITED)
def python_api(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Compares the names that a library wants of Python with the limited API of the oldest supported version."""
    if library.tvm_ffi:  # it may use nothing of Python, as KB126 says
        return
    floor = ".".join(map(str, settings.python_floor))
    newer: dict[tuple[int, int], list[str]] = defaultdict(list)
    for entry in unsupplied_by(library, settings, Cause.NEWER_PYTHON):
        newer[limited_api()[entry.symbol]].append(entry.symbol)
    foreign = [entry.symbol for entry in unsupplied_by(library, settings, Cause.NOT_LIMITED_API)]
    for added, names in sorted(newer.items()):
        version = ".".join(map(str, added))
        text = f"{several(names)}: in the limited API since Python {version}; the oldest supported is {floor}"
        spared = spared_by(added, settings)
        yield TOO_NEW_API.at(
            library, f"{text}{spared or ''}", symbol=names[0], severity=Severity.WARNING if spared else None
        )
    private = [name for name in foreign if name.startswith("_")]
    public = [name for name in foreign if not name.startswith("_")]
    if public:
        yield NOT_LIMITED.at(library, f"{several(public)}: not in the limited API", symbol=public[0])
    if private:
        yield NOT_LIMITED.at(library, f"{several(private)}: private to CPython", symbol=private[0])
    for name in library.pe.needed if library.pe else ():
        if re.fullmatch(r"python3[0-9]+t?\.dll", name.lower()):
            hint = "Link with python3.lib, the library of the limited API."
            yield NOT_LIMITED.at(library, f"needs {name}, which belongs to one Python version", symbol=name, hint=hint)


@checks(LibraryFile, FREE_THREADED)
def free_threading(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """Libraries for a free-threaded Python, by name, by what they import, or (Windows) by Python's library."""
    if _FREE_THREADED_NAME.search(library.name):
        yield FREE_THREADED.at(library, "its name marks it as built for free-threaded Python")
        return
    found = sorted(_FREE_THREADED_SYMBOLS.intersection(python_imports(library)))
    found += [
        name for name in (library.pe.needed if library.pe else ()) if re.fullmatch(r"python3[0-9]+t\.dll", name.lower())
    ]
    if found:
        yield FREE_THREADED.at(library, f"uses {several(found)}, which only free-threaded Python has", symbol=found[0])


def _expected(library: LibraryFile) -> str | None:
    """The id of a variant whose libraries are Python extensions; ``None`` elsewhere."""
    if library.variant is None or library.variant.id is None:
        return None
    variant = library.variant.variant
    if isinstance(variant, ArchVariant) and not isinstance(variant.tag, TvmFfiTag):
        return library.variant.id
    return None


@checks(LibraryFile, EXTENSION_NAME, INIT_FUNCTION)
def extension(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """File name and init function of whatever is a Python extension."""
    if library.error is not None or library.tvm_ffi:
        return
    inits = sorted(name for name in exported_names(library) if name.startswith((_INIT, "PyInitU_")))
    module = library.name.split(".", maxsplit=1)[0]
    wanted = _expected(library)
    if _VERSIONED_NAME.search(library.name) and not _FREE_THREADED_NAME.search(library.name):
        yield EXTENSION_NAME.at(library, f"{library.name} works with only one Python version")
    elif wanted is not None and inits:
        suffix = ".pyd" if _is_windows(library) else ".abi3.so"
        if library.name != wanted + suffix:
            yield EXTENSION_NAME.at(library, f"the extension module of this variant must be named {wanted}{suffix}")
    is_extension = bool(inits) or ".abi3." in library.name or library.name.endswith(".pyd") or module == wanted
    if not is_extension:
        return
    for part in (module,) if wanted is None else (wanted,):
        if inits != [_INIT + part]:
            got = several(inits) if inits else "none"
            yield INIT_FUNCTION.at(
                library, f"must export {_INIT}{part} and no other; exports {got}", symbol=_INIT + part
            )


def _is_windows(library: LibraryFile) -> bool:
    variant = library.variant.variant if library.variant else None
    return isinstance(variant, ArchVariant) and variant.system is System.WINDOWS
