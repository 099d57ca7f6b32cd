"""What is common to all backends: the host compiler's commands and the link.

Reference: interoperability contract 3.5 for definitions and flags, DESIGN.md F6 and F7 for the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_builder.actions.build_flags import of_the_host, optimizing, overriding
from kernel_builder.actions.context import Context
from kernel_builder.actions.model import Action, ActionKind, Step, Threads, Tool, Tree, action_id
from kernel_builder.actions.places import literal, tool_word
from kernel_builder.actions.precompile import launcher, shared_definitions
from kernel_builder.actions.slim import slim_compile, words_of_slim
from kernel_builder.actions.units import C, Unit
from kernel_builder.toolchain.model import Family

GIB = 1 << 30
_CXX_MEMORY = int(1.5 * GIB)
HEAVY_MEMORY = int(2.8 * GIB)
"""A compiler that reads all of torch's headers (DESIGN.md F10)."""
_LINK_MEMORY = GIB // 2

CLANG_ABI = "-fclang-abi-compat=17"
"""The newest clang that mangles all names as g++ does: clang 18 began to tell apart template parameters (Tn, Ty)."""

MODULE_SOURCE = "(module)"
"""What people read for the generated Python module."""


def apple_target(context: Context) -> list[str]:
    """What a compiler for macOS is told of the system that it compiles for; nothing for others."""
    sdk = context.toolchain.sdk
    if sdk is None:
        return []
    return [f"--target=arm64-apple-macos{context.macos}", "-isysroot", context.word(sdk.root)]


def apple_trees(context: Context) -> tuple[Tree, ...]:
    """The SDK, for actions that read nothing else; nothing for systems without one."""
    return context.trees_named("sdk")


def definitions(context: Context, source: str, backend_definitions: tuple[str, ...]) -> list[str]:
    """``-D`` options of one source: the framework's, then the backend's."""
    return [f"-D{literal(text)}" for text in (*context.define(source), *backend_definitions)]


def includes(context: Context, unit: Unit, toolkit: tuple[Path, ...] = ()) -> list[str]:
    """Include options in order: the section's, ``csrc``, the generated ones, then system headers.

    The libraries that a section depends on are its own: another section may depend on another release.
    """
    own, libraries, others = _folders(context, unit, toolkit)
    system = [*libraries, *context.toolchain.framework.include, *others]
    return [f"-I{context.word(path)}" for path in own] + [
        word for path in system for word in ("-isystem", context.word(path))
    ]


def _folders(
    context: Context, unit: Unit, toolkit: tuple[Path, ...]
) -> tuple[list[Path], list[Path], tuple[Path, ...]]:
    """Where ``unit`` looks for headers before and behind the framework's: the project's directories, those of
    libraries; then the toolkit's and Python's.
    """
    layout = context.layout
    own = [layout.root / path if path != "." else layout.root for path in unit.include]
    own += [layout.csrc] if layout.csrc is not None else []
    # The parent of the refused ones holds the generated headers, for "torch-ext/registration.h".
    own += [layout.registration, layout.refused.parent, layout.refused]
    libraries = [path for library in unit.libraries for path in library.include]
    python = (context.toolchain.python.include,) if context.toolchain.python is not None else ()
    return own, libraries, (*toolkit, *python)


def host_code_flags(context: Context, family: Family | None = None) -> list[str]:
    """Flags of a compiler for host code that do not change what code means: position, visibility, reproducibility.

    ``family`` is whose it is (default: the host compiler's).
    """
    return [
        *apple_target(context),
        "-fPIC",
        # Without it, templates with static variables are shared between libraries (corpus edge case 22). clang does not
        # make unique symbols, and does not know the flag.
        *(["-fno-gnu-unique"] if (family or context.host.family) is Family.GCC else []),
        "-ffunction-sections",
        "-fdata-sections",
        *_prefixes(context),
    ]


def _prefixes(context: Context) -> list[str]:
    """What paths become in what is compiled.

    __FILE__ in messages must not tell where a kernel was built, nor differ between two machines. A debugger looks for
    the files where they are; then the paths stand in the command as they are, so that it tells one place from another.
    """
    places = context.places
    told = {"work": "generated", "project": ".", "store": "toolchain"}
    if not context.build_type.is_release:
        told = {"work": str(places.work), "project": str(places.root), "store": str(places.store)}
    return [f"-ffile-prefix-map={{{name}}}={literal(text)}" for name, text in told.items()]


def own_flags(context: Context, flags: Sequence[str]) -> list[str]:
    """The project's ``flags`` for a source of the host, and what is told after them."""
    build_type = context.build_type
    return [*map(literal, flags), *overriding(build_type), *of_the_host(build_type)]


def cxx_flags(context: Context) -> list[str]:
    """Flags that make clang's C++ that of g++, with which torch is built.

    Its library is libstdc++, and its OpenMP that of GNU's runtime. From clang 18 on it mangles some names of templates
    differently: a kernel that uses them would not find them in torch.
    """
    host = context.host
    if host.family is Family.GCC:
        return []
    if context.toolchain.sdk is not None:
        return []
    openmp = context.toolchain.c_library.openmp
    return [
        *host.library_flags,
        *([CLANG_ABI] if host.major > int(CLANG_ABI.rpartition("=")[2]) else []),
        *(["-isystem", context.word(openmp)] if openmp is not None else []),
    ]


def listing(context: Context) -> str:
    """The option that has a compiler list the headers that it read: all of them, so that they can be held against what
    is declared. Apple's compilers leave those of the SDK out, which has everything of the system.
    """
    return "-MD" if context.toolchain.sdk is None else "-MMD"


def compile_action(
    context: Context,
    unit: Unit,
    compiler: Sequence[str],
    options: Sequence[str],
    *,
    tools: tuple[Tool, ...],
    memory: int,
    threads: Threads | None = None,
) -> Action:
    """The action that makes ``unit``'s object: ``compiler`` with the common arguments and then ``options``, as words.

    ``memory`` is what the compiler needs when the source includes little, in bytes.
    """
    layout, word = context.layout, context.places.word
    source, target = word(layout.root / unit.source), layout.object_for(unit.source)
    depfile = word(target.with_name(f"{target.name}.d"))
    common = ["-c", source, "-o", word(target), listing(context), "-MF", depfile]
    return Action(
        id=action_id(context.variant, ActionKind.COMPILE, unit.source),
        kind=ActionKind.COMPILE,
        variant=context.variant,
        source=unit.source,
        steps=(Step(command=(*compiler, *common, *options), writes=(word(target),)),),
        inputs=(source,),
        outputs=(word(target),),
        depfile=depfile,
        log=word(layout.log_for(unit.source)),
        memory=max(memory, HEAVY_MEMORY) if unit.source in context.heavy else memory,
        tools=tools,
        trees=context.trees(*(library.name for library in unit.libraries)),
        threads=threads,
    )


def host_action(context: Context, unit: Unit, backend_definitions: tuple[str, ...], flags: tuple[str, ...]) -> Action:
    """Compile a C++ or C file with the host compiler and the user's ``flags``; with slim headers where it has them."""
    language = ["-x", "c"]
    if unit.language != C:
        language = ["-x", "c++", f"-std=c++{context.cxx_standard}", *cxx_flags(context)]
    toolkit = context.toolkit.include if context.toolkit else ()
    named = definitions(context, unit.source, backend_definitions)
    own, libraries, others = _folders(context, unit, toolkit)
    # Where the project lies makes no difference to headers that are not in it.
    anywhere = [flag for flag in host_code_flags(context) if "{project}" not in flag and "{work}" not in flag]
    precompile = [tool_word(context.cxx), "-x", "c++-header", *language[2:], *optimizing(context.build_type), *anywhere]
    precompile += [*shared_definitions(named), *map(literal, flags)]
    slim = words_of_slim(context, unit.source)
    before, tools = launcher(context, unit, [*precompile, *slim], [*own, *libraries, *others])

    def compiled(before: Sequence[str], slim: Sequence[str], tools: tuple[Tool, ...]) -> Action:
        options = [*optimizing(context.build_type), *host_code_flags(context), *named, *slim]
        options += [*includes(context, unit, toolkit), *own_flags(context, flags)]
        compiler = [*before, tool_word(context.cxx), *language]
        return compile_action(context, unit, compiler, options, tools=(context.cxx, *tools), memory=_CXX_MEMORY)

    if not slim:
        return compiled(before, (), tools)
    return slim_compile(context, compiled((), (), ()), compiled(before, slim, tools))


def module_action(context: Context, generated: Path) -> Action:
    """Compile the generated Python module, which needs neither torch's headers nor Python's."""
    layout, word = context.layout, context.places.word
    target = word(layout.variant / "obj" / "kernel-builder-module.o")
    source = word(generated)
    command = [tool_word(context.cxx), "-x", "c", "-c", source, "-o", target, "-O2", *host_code_flags(context)]
    return Action(
        id=action_id(context.variant, ActionKind.COMPILE, MODULE_SOURCE),
        kind=ActionKind.COMPILE,
        variant=context.variant,
        source=MODULE_SOURCE,
        steps=(Step(command=tuple(command), writes=(target,)),),
        inputs=(source,),
        outputs=(target,),
        log=word(layout.log_for("kernel-builder-module")),
        memory=_LINK_MEMORY,
        tools=(context.cxx,),
        trees=apple_trees(context),
    )


def _libraries(context: Context, framework: str) -> list[str]:
    """What a library is linked with, in order, and where the linker finds it."""
    toolchain, word = context.toolchain, context.places.word
    sysroot, own, toolkit = toolchain.c_library, toolchain.framework, toolchain.toolkit
    folders = [own.libraries, *([toolkit.libraries] if toolkit else []), sysroot.libraries]
    tables = [*own.exports, *(toolkit.exports if toolkit else ())]
    # A table is named by soname, its stub by the name that -l looks for: libcublas.so.13.txt, libcublas.so.
    needed = [table.name[: table.name.index(".so") + 3] for table in tables]
    return [
        *(f"-L{word(folder)}" for folder in folders),
        # Before torch: its libraries export the parts of libstdc++ that they were linked with, and half of a C++
        # runtime from there and half from here does not work.
        "-l:libstdc++.a",
        "-Wl,--no-as-needed",
        f"-l:{framework}",
        "-Wl,--as-needed",
        *(f"-l:{name}" for name in needed if name != framework),
        "-Wl,--start-group",
        "-l:libstdc++.a",
        word(sysroot.shim),
        "-l:libm.so.6",
        "-l:libgcc_s.so.1",
        "-l:libc.so.6",
        *(f"-l:{name}" for name in sysroot.others),
        "-l:libc_nonshared.a",
        "-lgcc",
        "-Wl,--end-group",
    ]


def link_action(context: Context, objects: tuple[str, ...], library: Path, framework: str) -> Action:
    """Link the library, for the system that the variant is for. Arguments as of :func:`_link_for_linux`."""
    if context.toolchain.sdk is not None:
        return _link_for_macos(context, objects, library)
    return _link_for_linux(context, objects, library, framework)


def _link_for_macos(context: Context, objects: tuple[str, ...], library: Path) -> Action:
    """Link a bundle, whose C++ names stay inside as on Linux.

    Names of torch and of Python are looked up when it is loaded, among the libraries that are there by then, as those
    of every extension for macOS are: it records no library of theirs, hence no place where one would lie.
    """
    layout, word = context.layout, context.places.word
    command = [
        tool_word(context.cxx),
        *apple_target(context),
        "-bundle",
        "-o",
        word(library),
        *("-Xlinker", "-undefined", "-Xlinker", "dynamic_lookup"),
        *("-Xlinker", "-unexported_symbol", "-Xlinker", "__Z*"),
        *("-Xlinker", "-dead_strip"),
        *(flag for name in context.frameworks for flag in ("-framework", name)),
        *objects,
    ]
    return Action(
        id=action_id(context.variant, ActionKind.LINK, "library"),
        kind=ActionKind.LINK,
        variant=context.variant,
        source=library.name,
        steps=(Step(command=tuple(command), writes=(word(library),)),),
        inputs=objects,
        outputs=(word(library),),
        log=word(layout.log_for("link")),
        memory=_LINK_MEMORY,
        tools=(context.cxx,),
        trees=apple_trees(context),
    )


def _link_for_linux(context: Context, objects: tuple[str, ...], library: Path, framework: str) -> Action:
    """Link the library: floor stubs for the C library, libstdc++ static and hidden, libgcc_s shared (F6, F7).

    With the old C++ ABI the version script hides what ``--exclude-libs`` hides otherwise, all but the empty string:
    that is one static object, with which whoever destroys a string compares it, so where a process has two of these,
    memory is freed that nobody allocated (torch 2.6 aborted while a kernel was loaded). A unique symbol is merged.

    ``objects`` are words, in plan order. ``framework`` is the library that stays needed even if no symbol of it is
    (``libtorch.so``), because torch's libraries are not in the global scope (F7).
    """
    layout, toolchain, word = context.layout, context.toolchain, context.places.word
    sysroot = toolchain.c_library
    exports_map, shim = word(layout.exports_map), word(sysroot.shim)
    command = [
        tool_word(context.cxx),
        "-shared",
        "-nodefaultlibs",
        "-o",
        word(library),
        f"-Wl,-soname,{library.name}",
        *("-Xlinker", f"--version-script={exports_map}"),  # -Wl, would split the path at a comma
        *(["-Wl,--exclude-libs,ALL"] if context.cxx11_abi else []),
        "-Wl,--gc-sections",
        "-Wl,--build-id=sha1",
        "-Wl,-z,relro,-z,now,-z,noexecstack",
        "-Wl,--hash-style=gnu",
        *objects,
        *_libraries(context, framework),
    ]
    return Action(
        id=action_id(context.variant, ActionKind.LINK, "library"),
        kind=ActionKind.LINK,
        variant=context.variant,
        source=library.name,
        steps=(Step(command=tuple(command), writes=(word(library),)),),
        inputs=objects,
        implicit=(exports_map, shim),
        outputs=(word(library),),
        log=word(layout.log_for("link")),
        memory=_LINK_MEMORY,
        tools=(context.cxx,),
        # What is linked comes from the same places as the headers.
        trees=(
            *context.trees_named(toolchain.framework.kind.value, "toolkit"),
            Tree(name="glibc", identity=word(sysroot.libraries)),
        ),
    )
