"""Rules about the C++ runtime inside a library (DESIGN.md F7, where each was measured with torch)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_builder.binary.elf import ElfFile
from kernel_builder.check.library_versions import several
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.scan import contains
from kernel_builder.check.subject import LibraryFile

EXPORTED_CXX = rule(
    "KB110",
    "exported-cxx-runtime",
    Severity.ERROR,
    summary="A library does not export its statically linked C++ runtime",
    rationale=(
        "Otherwise, symbols of the kernel's copy and of torch's copy get mixed: std::regex misparsed patterns,"
        " and numbers vanished from error messages, whenever torch was imported first."
    ),
    remedy="Link with -Wl,--exclude-libs,ALL, or with a version script that exports only PyInit_*.",
    source="docs/requirements.md, 'Libraries'",
)
PRIVATE_UNWINDER = rule(
    "KB111",
    "private-unwinder",
    Severity.ERROR,
    summary="A library uses the process's unwinder, libgcc_s.so.1, and does not bring its own",
    rationale="An exception that crosses from the frames of one unwinder to another's aborts the process (measured).",
    remedy="Link without -static-libgcc (libgcc_s.so.1 is always present, because torch needs it too).",
    source="docs/requirements.md, 'Libraries'",
)
# Functions and objects of the runtime that are no templates: whoever exports one exports the runtime. Templates such
# as std::vector<int> are instantiated in any library, and are exported from most.
_RUNTIME = re.compile(
    r"__cxa_(throw|rethrow|begin_catch|end_catch|allocate_exception|free_exception|get_globals|init_primary_exception"
    r"|pure_virtual|bad_cast|bad_typeid|demangle|guard_acquire|guard_release|current_exception_type|throw_bad_\w+)"
    r"|__gxx_personality_v0|__dynamic_cast"
    r"|_ZSt(3cin|4cout|4cerr|4clog|4wcout|7nothrow|9terminatev|10unexpectedv|13set_terminatePFvvE|18uncaught_exceptionv"
    r"|19uncaught_exceptionsv|17current_exceptionv|17rethrow_exceptionNSt15__exception_ptr13exception_ptrE)"
    r"|_ZSt\d+__throw_(bad_(alloc|cast|typeid|exception|function_call)|(logic|domain|length|runtime|range|overflow"
    r"|underflow|system)_error|invalid_argument|out_of_range|ios_failure)\w*"
    r"|_ZNSt(6locale(C[12]E|D[12]E|7classic|6global)\w*|8ios_base(4Init)?[CD][12]E\w*|6thread(15_M_start_thread|4join)\w*"
    r"|9exceptionD[0-2]Ev|9bad_allocD[0-2]Ev|8bad_castD[0-2]Ev"
    r"|1[13](logic|runtime)_error(C[12]E(PKc|RKNSt\w+)|D[0-2]Ev))"
    r"|_ZN10__cxxabiv1\w+|_ZTVN10__cxxabiv1\w+"
)
_UNWINDER = re.compile(r"_Unwind_\w+|__register_frame\w*|__deregister_frame\w*")
_FINDS_FRAMES = frozenset({"dl_iterate_phdr", "_dl_find_object"})
_RAISES = frozenset(
    {
        "_Unwind_Resume",
        "_Unwind_RaiseException",
        "_Unwind_Resume_or_Rethrow",
        "_Unwind_ForcedUnwind",
        "_Unwind_Backtrace",
    }
)
_IN_SYMBOL_TABLE = b"\0_Unwind_RaiseException\0"
_STATIC_CXX = b"terminate called "


@checks(LibraryFile, EXPORTED_CXX)
def exported_runtime(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """Exports of an ELF library that are the C++ runtime's."""
    if library.elf is None:
        return
    names = sorted(symbol.name for symbol in library.elf.exports if _RUNTIME.fullmatch(symbol.name))
    if names:
        yield EXPORTED_CXX.at(library, f"exports the C++ runtime: {several(names)}", symbol=names[0])


@checks(LibraryFile, PRIVATE_UNWINDER)
def private_unwinder(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """An unwinder inside an ELF library: exported, named in its symbol table, or, when that was stripped, betrayed by
    what it imports: whoever throws without importing the functions that throw, but with the function that lists all
    loaded libraries, which only an unwinder needs, has an unwinder.
    """
    elf = library.elf
    if elf is None:
        return
    exported = sorted(symbol.name for symbol in elf.exports if _UNWINDER.fullmatch(symbol.name))
    if exported:
        yield PRIVATE_UNWINDER.at(library, f"exports an unwinder: {several(exported)}", symbol=exported[0])
    elif (evidence := _hidden_unwinder(library, elf)) is not None:
        yield PRIVATE_UNWINDER.at(library, f"brings its own unwinder: {evidence}")


def _parts(library: LibraryFile, name: str) -> list[tuple[int, int]]:
    return [(s.offset, s.offset + s.size) for s in library.sections if s.name.startswith(name) and s.occupies]


def _hidden_unwinder(library: LibraryFile, elf: ElfFile) -> str | None:
    undefined = {symbol.name for symbol in elf.undefined}
    if undefined & _RAISES:
        return None
    if contains(library.path, _parts(library, ".strtab"), _IN_SYMBOL_TABLE):
        return "it defines _Unwind_RaiseException instead of importing it"
    listing = undefined & _FINDS_FRAMES
    if not listing:
        return None
    throws = undefined & {"__gxx_personality_v0", "__cxa_throw"}
    if throws or contains(library.path, _parts(library, ".rodata"), _STATIC_CXX):
        return f"it throws, imports {' and '.join(sorted(listing))}, but nothing from libgcc_s's unwinder"
    return None
