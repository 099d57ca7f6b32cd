"""Rules about the libraries that a library needs, and where it looks for them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_builder.binary.glibc import apart_in
from kernel_builder.binary.libraries import load_allowed, stem
from kernel_builder.check.library_versions import several
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.policies import find_policy
from kernel_builder.check.subject import LibraryFile
from kernel_builder.toml.nodes import printable
from kernel_builder.variants.names import ArchVariant, System

DYNAMIC_CXX = rule(
    "KB105",
    "dynamic-cxx-runtime",
    Severity.ERROR,
    summary="libstdc++ and libc++ are linked statically",
    rationale="The C++ runtime on the user's machine, or the one torch has loaded, may be older than the kernel's.",
    remedy=(
        "Link with -static-libstdc++ and -Wl,--exclude-libs,ALL (but not -static-libgcc), or use a policy that"
        " allows a dynamic one: kernel-builder check --policy manylinux_2_28."
    ),
    source="docs/requirements.md, 'Libraries'",
)
NEEDED = rule(
    "KB106",
    "needed-library",
    Severity.ERROR,
    summary="A library needs only torch, the GPU runtimes that torch depends on, and the C runtime",
    rationale="A kernel bundles nothing: any other library is missing on most machines, or has a different version.",
    remedy="Link it statically, or avoid it.",
    source="docs/requirements.md, 'Libraries'",
)
APART = rule(
    "KB113",
    "library-of-old-glibc",
    Severity.WARNING,
    summary="A library names the libraries that have its functions in older releases of glibc, such as libpthread",
    rationale=(
        "glibc 2.34 moved threads, dlopen, timers and more into libc.so.6. A library linked against it does not "
        "name the libraries that have them in older releases, so there it loads only if something else loaded those."
    ),
    remedy="Link against an older C library (kernel-builder does), or add the library: -Wl,--no-as-needed -lpthread.",
    source="glibc 2.34 release notes",
)
OTHER_TOOLKIT = rule(
    "KB114",
    "other-toolkit",
    Severity.ERROR,
    summary="A library needs the runtime of the toolkit version in its variant's name",
    rationale="The client chooses a variant by its name; where torch has another runtime, the library does not load.",
    remedy="Build it with the toolkit version in the name, or move it to the variant that it was built for.",
    source="docs/requirements.md, 'Libraries'",
)
RUN_PATH = rule(
    "KB107",
    "run-path",
    Severity.ERROR,
    summary="A library has no run path",
    rationale=(
        "A run path lists directories of the build machine. There it hides missing libraries; on other machines it "
        "may load any library that someone put there."
    ),
    remedy="Link without -rpath, or remove it: patchelf --remove-rpath FILE.",
    source="docs/requirements.md, 'Libraries'",
)
_HASHED = re.compile(r"-[0-9a-f]{8}$")
_OWN_SYSTEM_PATHS = ("/usr/lib/", "/System/Library/")


def _allowed_for(library: LibraryFile, system: System) -> frozenset[str]:
    """Stems for the backend of the library's variant; for every backend when that is not known."""
    variant = library.variant.variant if library.variant else None
    backend = variant.backend.value if variant is not None else library.variant.backend if library.variant else None
    is_tvm_ffi, is_known = library.tvm_ffi is not None, isinstance(variant, ArchVariant)
    return load_allowed(system).stems(backend, torch=not is_tvm_ffi, tvm_ffi=is_tvm_ffi or not is_known)


@checks(LibraryFile, DYNAMIC_CXX, NEEDED)
def needed(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Compares the needed libraries of an ELF file with the allowed ones."""
    if library.elf is None:
        return
    policy, allowed, cxx = find_policy(settings.policy), _allowed_for(library, System.LINUX), load_allowed().cxx
    for name in sorted(set(library.elf.needed)):
        own = stem(name)
        if own in cxx:
            if policy.static_cxx or own != "libstdc++":
                yield DYNAMIC_CXX.at(library, f"{printable(name)} is linked dynamically", symbol=name)
        elif own not in allowed:
            yield NEEDED.at(
                library,
                f"needs {printable(name)}, which neither {_provider(library)} nor its dependencies provide",
                symbol=name,
                hint=_hint(own, library, System.LINUX),
            )


@checks(LibraryFile, OTHER_TOOLKIT)
def other_toolkit(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """Compares the runtime that an ELF or PE file needs with the toolkit in its variant's name."""
    variant = library.variant.variant if library.variant else None
    file, system = (library.elf, System.LINUX) if library.elf is not None else (library.pe, System.WINDOWS)
    if file is None or not isinstance(variant, ArchVariant) or variant.compute.version is None:
        return
    runtime = load_allowed(system).runtimes.get(variant.backend.value)
    expected = runtime.number(variant.compute.version[0]) if runtime is not None else None
    if runtime is None or expected is None:
        return
    for name in sorted(set(file.needed)):
        if runtime.number_in(name) not in {None, expected}:
            toolkit = f"{variant.backend.label} {'.'.join(map(str, variant.compute.version))}"
            text = f"needs {printable(name)}, but the variant is for {toolkit}, which has {runtime.name(expected)}"
            yield OTHER_TOOLKIT.at(library, text, symbol=name)


@checks(LibraryFile, APART)
def libraries_of_old_glibc(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Names that the policy's glibc has in a library of their own, in an ELF file that does not need it."""
    elf = library.elf
    limits = find_policy(settings.policy).limits.get(elf.machine) if elf is not None else None
    if elf is None or limits is None or "GLIBC" not in limits.newest:
        return
    oldest = limits.newest["GLIBC"]
    apart = apart_in(elf.machine, oldest)
    users: dict[str, list[str]] = {}
    for symbol in elf.undefined:
        soname = apart.get(symbol.name)
        from_glibc = symbol.version is None or symbol.version.startswith("GLIBC_")
        if soname is not None and soname not in elf.needed and symbol.binding != "weak" and from_glibc:
            users.setdefault(soname, []).append(symbol.name)
    for soname, names in sorted(users.items()):
        text = f"{several(sorted(names))}: in {soname} where glibc is {oldest}, but the library does not need that"
        yield APART.at(library, text, symbol=soname)


def _provider(library: LibraryFile) -> str:
    """The framework that brings what a library may need, for people."""
    return "tvm-ffi" if library.tvm_ffi else "torch"


def _hint(own: str, library: LibraryFile, system: System) -> str | None:
    plain, allowed = _HASHED.sub("", own), load_allowed(system)
    if library.tvm_ffi:
        of_torch = own in allowed.stems(None) - allowed.stems(None, torch=False)
        return "A tvm-ffi kernel must load without torch; use only tvm-ffi's headers in it." if of_torch else None
    if plain in {"libgomp", "libiomp5", "libomp"}:
        return (
            "A second OpenMP runtime beside torch's own breaks threading. Compile with -fopenmp, but link without it:"
            " torch's runtime supplies the functions when the library is loaded."
        )
    backends = sorted(name for name, stems in allowed.backend.items() if own in stems)
    return f"Only {' and '.join(backends)} variants may use this library." if backends else None


@checks(LibraryFile, RUN_PATH)
def run_paths(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """DT_RPATH and DT_RUNPATH of an ELF file, LC_RPATH of a Mach-O file."""
    if library.elf is not None:
        found = [path for path in library.elf.run_paths if path]
    else:
        found = [path for part in library.macho for path in part.run_paths if not path.startswith("@loader_path")]
    for path in dict.fromkeys(found):
        yield RUN_PATH.at(library, f"its run path contains {printable(path)}", symbol=path)


@checks(LibraryFile, NEEDED)
def needed_elsewhere(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """Needed libraries of Mach-O and PE files."""
    allowed = _allowed_for(library, System.DARWIN) | load_allowed(System.DARWIN).cxx
    for name in sorted({name for part in library.macho for name in part.needed}):
        system = name.startswith(_OWN_SYSTEM_PATHS)
        own = name.rpartition("/")[2] == library.name  # LC_ID_DYLIB is not among them, a re-export of itself may be
        if not system and not own and (stem(name) not in allowed or not name.startswith("@")):
            yield _unprovided(library, name, System.DARWIN)
    allowed = _allowed_for(library, System.WINDOWS) | load_allowed(System.WINDOWS).cxx
    for name in sorted(library.pe.needed if library.pe else ()):
        if name.lower().startswith("api-ms-win-") or stem(name) in allowed or _is_python(name):
            continue
        yield _unprovided(library, name, System.WINDOWS)


def _unprovided(library: LibraryFile, name: str, system: System) -> Finding:
    text = f"needs {printable(name)}, which {_provider(library)} does not provide"
    return NEEDED.at(library, text, symbol=name, hint=_hint(stem(name), library, system))


def _is_python(name: str) -> bool:
    """A version of Python's own library; the rules about the limited API speak of it."""
    return re.fullmatch(r"python3[0-9]+t?\.dll", name.lower()) is not None
