"""Rules about what the loader has to do for a library, and about what the build left in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_builder.binary.elf import ElfError, load_ranges, mapped
from kernel_builder.check.library_versions import several
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.scan import pieces
from kernel_builder.check.subject import LibraryFile

EXECUTABLE_STACK = rule(
    "KB108",
    "executable-stack",
    Severity.ERROR,
    summary="A library does not request an executable stack",
    rationale=(
        "Loading it makes every stack of the process executable; hardened kernels and glibc 2.41 reject the library."
    ),
    remedy="Link with -Wl,-z,noexecstack, and add a .note.GNU-stack section to assembly sources.",
    source="kernel-builder; glibc 2.41 release notes",
)
TEXT_RELOCATIONS = rule(
    "KB109",
    "text-relocations",
    Severity.ERROR,
    summary="A library has no text relocations",
    rationale="The loader must make the code writable: processes cannot share it, and SELinux rejects it.",
    remedy="Compile every object with -fPIC, and link with -Wl,-z,text.",
    source="kernel-builder; gABI, DT_TEXTREL",
)
UNIQUE_SYMBOLS = rule(
    "KB112",
    "unique-symbols",
    Severity.WARNING,
    summary="A library defines no STB_GNU_UNIQUE symbols",
    rationale=(
        "The dynamic linker merges such symbols across the process: two versions of a kernel share their static"
        " variables, and neither library can be unloaded."
    ),
    remedy="Compile with -fno-gnu-unique.",
    source="docs/requirements.md, 'Libraries'",
)
BUILD_PATHS = rule(
    "KB151",
    "build-path",
    Severity.WARNING,
    summary="A library does not reveal where it was built",
    rationale="Source paths from __FILE__ or debug information reveal user names and make builds irreproducible.",
    remedy="Compile with -ffile-prefix-map=$PWD=. (nvcc: through -Xcompiler), and strip debug information.",
    source="docs/requirements.md, 'Libraries'",
)
DEBUG_SECTIONS = rule(
    "KB152",
    "debug-information",
    Severity.WARNING,
    summary="A library contains no debug information",
    rationale="Users download it with every variant and never use it.",
    remedy="Compile without -g, or run: strip --strip-debug FILE.",
    source="kernel-builder",
)
OVERSIZED = rule(
    "KB153",
    "oversized-library",
    Severity.WARNING,
    summary="A library is smaller than 2 GiB",
    rationale=(
        "Relative addresses in code reach 2 GiB; larger libraries fail to link or load in ways that are hard to"
        " understand, and every user of the variant downloads all of it."
    ),
    remedy="Build for fewer architectures, or split the kernel.",
    source="kernel-builder; x86-64 psABI, small code model",
)
_MAX_LIBRARY = 2 * 2**30
# The empty string of the old C++ ABI must be one object in the whole process (std::string and std::wstring).
_EMPTY_STRING = re.compile(r"_ZNS(s|bIwSt11char_traitsIwESaIwEE)4_Rep20_S_empty_rep_storageE")

_PLACES = (b"/home/", b"/root/", b"/tmp/", b"/Users/", b"/build/", b"/workspace/", b"/nix/store/", b":\\Users\\")
_SOURCE = re.compile(
    rb"[^\0-\x20\x7f]{1,400}?\.(?:cpp|cc|cxx|cu|cuh|c|h|hpp|hip|inl|inc|mm|metal|py|o)(?=[\0\s:\"']|$)"
)
_STORE = re.compile(rb"[0-9a-z]{32}-[^\0-\x1f\x7f]{1,200}")
_TEMPORARY = b"XXXXXX"  # the pattern of a file that mkstemp makes while the kernel runs
_MAX_HITS = 4096


@checks(LibraryFile, EXECUTABLE_STACK, TEXT_RELOCATIONS, UNIQUE_SYMBOLS)
def loading(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """What a library demands of the dynamic linker."""
    if library.elf is None:
        return
    if library.elf.executable_stack:
        yield EXECUTABLE_STACK.at(library, "requests an executable stack")
    if library.elf.text_relocations:
        yield TEXT_RELOCATIONS.at(library, "has text relocations (DT_TEXTREL)")
    unique = sorted(
        symbol.name
        for symbol in library.elf.exports
        if symbol.binding == "unique" and not _EMPTY_STRING.fullmatch(symbol.name)
    )
    if unique:
        yield UNIQUE_SYMBOLS.at(
            library, f"defines symbols that the loader merges across the process: {several(unique)}", symbol=unique[0]
        )


@checks(LibraryFile, BUILD_PATHS, DEBUG_SECTIONS, OVERSIZED)
def leftovers(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """What the build left in a library. Code and GPU code are not searched: paths are not there."""
    if library.size >= _MAX_LIBRARY:
        yield OVERSIZED.at(library, f"is {library.size / 2**30:.1f} GiB in size")
    if library.error is not None:
        return
    debug = [s for s in library.sections if s.name.startswith((".debug_", ".zdebug_")) and s.occupies]
    if debug:
        size = sum(section.size for section in debug)
        yield DEBUG_SECTIONS.at(library, f"{size / 2**20:.1f} MiB of debug information")
    paths = sorted({path for piece in pieces(library.path, _searched(library)) for path in _build_paths(piece)})
    if paths:
        yield BUILD_PATHS.at(library, f"contains paths of the build machine: {several(paths, 2)}")


def _searched(library: LibraryFile) -> list[tuple[int, int]]:
    """(start, end) of the parts of a file where text may be."""
    if library.elf is None:
        return [(0, library.size)]
    if library.sections:
        wanted = (".rodata", ".data", ".debug_str", ".debug_line_str", ".dynstr")
        return [(s.offset, s.offset + s.size) for s in library.sections if s.name.startswith(wanted) and s.occupies]
    try:
        with mapped(library.path) as data:
            return [(offset, offset + size) for offset, size in load_ranges(data)]
    except ElfError:
        return []


def _build_paths(data: bytes) -> set[str]:
    found: set[str] = set()
    for place in _PLACES:
        pattern = _STORE if place == b"/nix/store/" else _SOURCE
        at = 0
        for _ in range(_MAX_HITS):
            at = data.find(place, at)
            if at < 0:
                break
            match = pattern.match(data, at + len(place), at + len(place) + 512)
            before = data[at - 1 : at] if at else b""
            starts_a_word = not (before.isalnum() or before in {b".", b"_", b"-"})
            if match is not None and (starts_a_word or place.startswith(b":")) and _TEMPORARY not in match[0]:
                found.add((place + match[0]).decode("utf-8", "replace"))
            at += len(place)
    return found
