"""What is common to all backends: the host compiler's command lines and the link.

Reference: interoperability contract 3.5 for definitions and flags, DESIGN.md F6 and F7 for the link.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_builder.frameworks.stable_abi import target_definition
from kernel_builder.plan.binding import PLACEHOLDER, Binding
from kernel_builder.plan.model import Step, StepKind
from kernel_builder.plan.units import Language, Unit
from kernel_builder.toolchain.model import Family, Toolchain
from kernel_builder.versions import Version

LIMITED_API = (3, 9)
"""The oldest Python whose limited API kernels are built for (kernel requirements)."""

GIB = 1 << 30
_CXX_MEMORY = int(1.5 * GIB)
_HEAVY_MEMORY = int(2.8 * GIB)
"""A compiler, g++ or nvcc, that reads all of torch's headers (DESIGN.md F10)."""
_LINK_MEMORY = GIB // 2

_CLANG_ABI = 17
"""The newest clang that gives all names as g++ does: clang 18 began to tell apart template parameters (Tn, Ty)."""

_HEAVY_INCLUDES = (b"torch/all.h", b"torch/torch.h", b"torch/extension.h", b"ATen/ATen.h")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Directories of one variant's build, all absolute.

    ``registration`` is the directory whose ``registration.h`` counts; its last part is ``torch-ext`` so that
    ``../torch-ext/registration.h`` finds the same file. ``refused`` holds stand-ins for headers that cannot be used.
    The stamps are generated files that change with the compiler itself, and with the set of files that can be included.
    """

    root: Path
    work: Path
    variant: Path
    registration: Path
    refused: Path
    exports_map: Path
    compiler_stamp: Path
    headers_stamp: Path
    store: Path

    def object_for(self, source: str) -> Path:
        """``a/util.cpp`` -> ``<variant>/obj/a/util.cpp.o``: the whole relative path, so equal names never meet."""
        return self.variant / "obj" / f"{source}.o"

    def log_for(self, name: str) -> Path:
        """Where the words of a step go."""
        return self.variant / "log" / f"{name}.log"


@dataclass(frozen=True, kw_only=True)
class Context:
    """Everything a backend module needs to plan one variant."""

    layout: Layout
    toolchain: Toolchain
    ops_id: str
    ops_stem: str
    binding: Binding
    cxx_standard: int
    cxx11_abi: bool
    headers_include: tuple[Path, ...]
    """System include directories besides torch's: Python's, if this machine has them."""
    stable_target: Version | None = None
    """The release whose stable ABI the variant is for, if it is for one."""

    def extension_name(self, source: str) -> str:
        """What TORCH_EXTENSION_NAME is while ``source`` is compiled."""
        return self.ops_id if source in self.binding.early else f"{self.ops_stem}{PLACEHOLDER}"


def definitions(context: Context, source: str, backend_definitions: tuple[str, ...]) -> list[str]:
    """``-D`` options of one source."""
    major, minor = LIMITED_API
    return [
        f"-DTORCH_EXTENSION_NAME={context.extension_name(source)}",
        # Said even where it is the compiler's default: some distributions' compilers still default to the old ABI.
        f"-D_GLIBCXX_USE_CXX11_ABI={int(context.cxx11_abi)}",
        f"-DPy_LIMITED_API=0x{major:02x}{minor:02x}0000",
        *([f"-D{target_definition(context.stable_target)}"] if context.stable_target else []),
        *(f"-D{definition}" for definition in backend_definitions),
    ]


def includes(context: Context, unit: Unit, extra_system: tuple[Path, ...] = ()) -> list[str]:
    """Include options in order: the section's, ``csrc``, the generated ones, then system headers.

    The libraries that a section depends on are its own: another section may depend on another release.
    """
    root = context.layout.root
    own = [str(root / path) if path != "." else str(root) for path in unit.include]
    own += [str(root / "csrc")] if (root / "csrc").is_dir() else []
    generated = context.layout.refused.parent  # for "torch-ext/registration.h"
    own += [str(path) for path in (context.layout.registration, generated, context.layout.refused)]
    libraries = [path for library in unit.libraries for path in library.include]
    torch = context.toolchain.torch.include
    system = [str(path) for path in (*libraries, *torch, *extra_system, *context.headers_include)]
    return [f"-I{path}" for path in own] + [word for path in system for word in ("-isystem", path)]


def host_code_flags(context: Context) -> list[str]:
    """Flags of the host compiler that do not change what code means: position, visibility, reproducibility."""
    layout = context.layout
    return [
        "-fPIC",
        # Without it, templates with static variables are shared between libraries (corpus edge case 22). clang does not
        # make unique symbols, and does not know the flag.
        *(["-fno-gnu-unique"] if context.toolchain.host.family is Family.GCC else []),
        "-ffunction-sections",
        "-fdata-sections",
        # __FILE__ in messages must not tell where a kernel was built, nor differ between two machines.
        f"-ffile-prefix-map={layout.work}=generated",
        f"-ffile-prefix-map={layout.root}=.",
        f"-ffile-prefix-map={layout.store}=toolchain",
    ]


def compile_step(context: Context, unit: Unit, compiler: list[str], options: list[str], *, memory: int) -> Step:
    """The step that makes ``unit``'s object: ``compiler`` with the common arguments and then ``options``.

    ``memory`` is what the compiler needs when the source includes little, in bytes.
    """
    layout = context.layout
    source = layout.root / unit.source
    target = layout.object_for(unit.source)
    depfile = target.with_name(f"{target.name}.d")
    common = ["-c", str(source), "-o", str(target), "-MMD", "-MF", str(depfile), "-O3", "-DNDEBUG"]
    return Step(
        kind=StepKind.COMPILE,
        command=(*compiler, *common, *options),
        inputs=(source,),
        implicit=(layout.compiler_stamp, layout.headers_stamp),
        output=target,
        depfile=depfile,
        log=layout.log_for(unit.source),
        source=unit.source,
        memory=_HEAVY_MEMORY if _is_heavy(source) else memory,
    )


def cxx_flags(context: Context) -> list[str]:
    """Flags that make clang's C++ that of g++, with which torch is built.

    Its library is libstdc++. And from clang 18 on some names of templates are other than g++'s: a kernel that uses them
    would not find them in torch.
    """
    host = context.toolchain.host
    newer = host.family is Family.CLANG and host.major > _CLANG_ABI
    return [*host.library_flags, *([f"-fclang-abi-compat={_CLANG_ABI}"] if newer else [])]


def host_step(context: Context, unit: Unit, backend_definitions: tuple[str, ...], flags: tuple[str, ...]) -> Step:
    """Compile a C++ or C file with the host compiler."""
    language = ["-x", "c"]
    if unit.language is not Language.C:
        language = ["-x", "c++", f"-std=c++{context.cxx_standard}", *cxx_flags(context)]
    options = [
        *host_code_flags(context),
        *definitions(context, unit.source, backend_definitions),
        *includes(context, unit, context.toolchain.cuda.include if context.toolchain.cuda else ()),
        *flags,
    ]
    return compile_step(context, unit, [str(context.toolchain.host.cxx), *language], options, memory=_CXX_MEMORY)


def _is_heavy(source: Path) -> bool:
    """Whether a file includes all of torch, which costs a compiler two to three times as much memory (F10)."""
    text = source.read_bytes()
    return any(name in text for name in _HEAVY_INCLUDES)


def module_step(context: Context, generated: Path) -> Step:
    """Compile the generated Python module, which needs neither torch's headers nor Python's."""
    layout = context.layout
    target = layout.variant / "obj" / "kernel-builder-module.o"
    command = [
        str(context.toolchain.host.cxx),
        "-x",
        "c",
        "-c",
        str(generated),
        "-o",
        str(target),
        "-O2",
        *host_code_flags(context),
    ]
    return Step(
        kind=StepKind.COMPILE,
        command=tuple(command),
        inputs=(generated,),
        implicit=(layout.compiler_stamp,),
        output=target,
        log=layout.log_for("kernel-builder-module"),
        source="(module)",
        memory=_LINK_MEMORY,
    )


def link_step(context: Context, objects: tuple[Path, ...], library: Path) -> Step:
    """Link the library: floor stubs for the C library, libstdc++ static and hidden, libgcc_s shared (F6, F7).

    With the old C++ ABI the version script hides what ``--exclude-libs`` hides otherwise, all but the empty string:
    that is one static object, with which whoever destroys a string compares it, so where a process has two of these,
    memory is freed that nobody allocated (torch 2.6 aborted while a kernel was loaded). A unique symbol is merged.

    ``objects`` are passed in plan order. libtorch.so stays needed even if no symbol of it is, because torch's
    libraries are not in the global scope (F7).
    """
    layout, toolchain = context.layout, context.toolchain
    sysroot, torch, cuda = toolchain.sysroot, toolchain.torch, toolchain.cuda
    libraries = [torch.libraries, *([cuda.libraries] if cuda else []), sysroot.libraries]
    tables = [*torch.exports, *(cuda.exports if cuda else ())]
    # A table is named by soname, its stub by the name that -l looks for: libcublas.so.13.txt, libcublas.so.
    needed = [table.name[: table.name.index(".so") + 3] for table in tables]
    command = [
        str(toolchain.host.cxx),
        "-shared",
        "-nodefaultlibs",
        "-o",
        str(library),
        f"-Wl,-soname,{library.name}",
        f"-Wl,--version-script,{layout.exports_map}",
        *(["-Wl,--exclude-libs,ALL"] if context.cxx11_abi else []),
        "-Wl,--gc-sections",
        "-Wl,--build-id=sha1",
        "-Wl,-z,relro,-z,now,-z,noexecstack",
        "-Wl,--hash-style=gnu",
        *(f"-L{directory}" for directory in libraries),
        *(str(path) for path in objects),
        # Before torch: its libraries export the parts of libstdc++ that they were linked with, and half of a C++
        # runtime from there and half from here does not work.
        "-l:libstdc++.a",
        "-Wl,--no-as-needed",
        "-l:libtorch.so",
        "-Wl,--as-needed",
        *(f"-l:{name}" for name in needed if name != "libtorch.so"),
        "-Wl,--start-group",
        "-l:libstdc++.a",
        str(sysroot.shim),
        "-l:libm.so.6",
        "-l:libgcc_s.so.1",
        "-l:libc.so.6",
        *(f"-l:{name}" for name in sysroot_optional(sysroot.libraries)),
        "-l:libc_nonshared.a",
        "-lgcc",
        "-Wl,--end-group",
    ]
    return Step(
        kind=StepKind.LINK,
        command=tuple(command),
        inputs=objects,
        implicit=(layout.exports_map, layout.compiler_stamp, sysroot.shim),
        output=library,
        log=layout.log_for("link"),
        source=library.name,
        memory=_LINK_MEMORY,
    )


def sysroot_optional(directory: Path) -> tuple[str, ...]:
    """Stub libraries of the floor besides libc, libm and libgcc_s, as sorted file names."""
    common = {"libc.so.6", "libm.so.6", "libgcc_s.so.1"}
    return tuple(sorted(path.name for path in directory.iterdir() if path.name not in common))
