"""What a variant is compiled with, as plain values. Choosing and providing them is the work of the other modules.

All directories lie in the store and are read-only, except those of the host compiler.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.config.settings import FILE_NAME
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import StoreKey


class Family(StrEnum):
    """Whose compiler it is."""

    GCC = "gcc"
    CLANG = "clang"

    @property
    def program(self) -> str:
        """What its C++ compiler is called: ``g++``, ``clang++``."""
        return "g++" if self is Family.GCC else "clang++"


class HostChoice(StrEnum):
    """Which compiler the user wants for host code."""

    AUTO = "auto"
    """The best on the machine; where none serves, :attr:`ZIG`."""
    GCC = "gcc"
    CLANG = "clang"
    ZIG = "zig"
    """The clang and the linker out of the wheel of zig, which the package index has: nothing need be installed."""


@dataclass(frozen=True, kw_only=True)
class FetchedPart:
    """A part of a compiler that was fetched: its ``name`` for people (``ziglang 0.17.1``), its entry of the store, and
    the files that the entry was made from.
    """

    name: str
    key: StoreKey
    artefacts: tuple[Artefact, ...]


@dataclass(frozen=True, kw_only=True)
class HostCompiler:
    """A C++ compiler. ``version`` is its full version, ``target`` its triplet.

    ``library`` is the major release of the libstdc++ that it compiles with: a g++ has its own, a clang that of a GCC
    on the machine. ``fingerprint`` changes when the files that it is made of do, even under the same version and
    path; it is empty until they are looked at. ``packages`` is empty for one that is installed on this machine.
    ``headers`` are the directories of its own headers, ``shared`` those where it finds the C library's among others.
    ``parts`` are the programs and archives that it puts into what it makes, each with its SHA-256, by name.
    """

    cxx: Path
    version: str
    target: str
    library: int
    family: Family = Family.GCC
    fingerprint: str = ""
    packages: tuple[FetchedPart, ...] = field(default=(), repr=False)
    headers: tuple[Path, ...] = field(default=(), repr=False)
    shared: tuple[Path, ...] = field(default=(), repr=False)
    parts: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def major(self) -> int:
        """The major version."""
        return int(self.version.partition(".")[0])

    @property
    def machine(self) -> str:
        """The processor family that it compiles for (``x86_64``)."""
        name = self.target.partition("-")[0]
        return "aarch64" if name == "arm64" else name

    @property
    def is_apple(self) -> bool:
        """Whether it is Apple's, with Apple's C++ library."""
        return "-apple-" in self.target

    @property
    def digest(self) -> str:
        """Changes with everything above: what was compiled with another one is compiled again."""
        return hashlib.sha256(repr(self).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @property
    def library_flags(self) -> tuple[str, ...]:
        """What makes it take libstdc++, on systems too where clang takes another library by itself."""
        return ("-stdlib=libstdc++",) if self.family is Family.CLANG and not self.is_apple else ()

    def __str__(self) -> str:
        """For people: ``g++ 12.2.0``, ``clang++ 22.1.8 (ziglang 0.17.1)``."""
        packages = f" ({', '.join(part.name for part in self.packages)})" if self.packages else ""
        return f"{self.family.program} {self.version}{packages}"


@dataclass(frozen=True, kw_only=True)
class Sysroot:
    """Link-time view of an older C library, generated from the host's own (DESIGN.md F6, F7).

    ``libraries`` holds stub shared objects that offer only symbol versions up to the floor; ``shim`` is the object
    that defines, hidden, the few newer names that static libstdc++ asks for. ``floor`` is e.g. ``2.27``; ``others``
    are the stubs besides libc, libm and libgcc_s, as sorted file names. ``openmp`` is a directory with ``omp.h`` of the
    runtime that torch brings, which clang does not have.
    """

    libraries: Path
    shim: Path
    floor: str
    others: tuple[str, ...] = ()
    openmp: Path | None = None


@dataclass(frozen=True, kw_only=True)
class AppleSdk:
    """Apple's SDK for macOS, and the compilers that Xcode brings beside clang.

    ``root`` is its directory, ``version`` that of the SDK (``26.0``); ``identity`` changes with either and with the
    compilers. ``metal`` compiles shaders and ``metallib`` links them; ``None`` where Xcode is installed without them.
    """

    root: Path
    version: str
    identity: str
    metal: Path | None = None
    metallib: Path | None = None


@dataclass(frozen=True, kw_only=True)
class PythonHeaders:
    """The headers of this Python. Only a kernel that includes Python.h needs them. ``identity`` changes with each.

    ``of_machine`` is where Debian and Ubuntu keep the pyconfig.h of one machine, which the one in ``include`` includes
    as ``<x86_64-linux-gnu/python3.12/pyconfig.h>``; ``None`` elsewhere.
    """

    include: Path
    version: str
    identity: str
    of_machine: Path | None = None

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every directory that headers are read from."""
        return (self.include, *((self.of_machine,) if self.of_machine is not None else ()))

    def serve(self, machine: str) -> bool:
        """Whether they can be compiled for ``machine`` (``aarch64``). Debian's serve one, any others are taken to."""
        return self.of_machine is None or self.of_machine.parent.name.startswith(f"{machine}-")


@dataclass(frozen=True, kw_only=True)
class FrameworkSdk:
    """Headers, link stubs and export tables of one release of a framework.

    ``kind`` says which it is. ``version`` is that of the wheel (``2.13.0``); ``include`` the include directories in
    order; ``libraries`` a directory of link stubs (``libc10.so``, ``libtorch.so``, ``libtorch_cpu.so``; with CUDA also
    ``libc10_cuda.so``, ``libtorch_cuda.so``); ``exports`` text files, one symbol a line, sorted, one file per
    library, named ``<soname>.txt``. ``identity`` changes with every header: it is the key of an entry of the store, or
    was measured. ``slim`` is the directory of its slim headers (:mod:`kernel_builder.toolchain.torch_slim`), where they
    are used. ``build`` is the backend for which the framework has a build with headers of their own, where these are
    that one's; ``made``: they were made of those of a build for another backend. ``package`` is where what was taken
    of the framework's package lies, headers or not; where it is not said, beside its headers.
    """

    version: str
    include: tuple[Path, ...]
    libraries: Path
    exports: tuple[Path, ...]
    identity: str
    kind: FrameworkKind = FrameworkKind.TORCH
    slim: Path | None = None
    build: Backend | None = None
    made: bool = False
    package: Path | None = None


_OF_MANY = ("/", "/usr", "/usr/local")
"""Where programs of all kinds are installed."""


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """A release of a backend's toolkit: ``version`` is major.minor (``13.0``)."""

    backend: Backend
    version: str

    @property
    def compute(self) -> str:
        """What variant names call it: ``cu130``."""
        return f"{self.backend.prefix}{self.version.replace('.', '')}"

    def __str__(self) -> str:
        """For people: ``CUDA 13.0``."""
        return f"{self.backend.label} {self.version}"


@dataclass(frozen=True, kw_only=True)
class ToolkitSdk:
    """A compiler of a backend's toolkit, with its headers.

    ``compiler`` is the compiler driver, ``include`` all header directories that torch's headers need, ``libraries`` a
    directory with link stubs of the toolkit's libraries that a torch wheel depends on, ``exports`` their tables as in
    :class:`FrameworkSdk`. ``gpu_codes`` is a file with what the compiler itself says that it can make code for
    (``sm_90``), one a line; it is there once the toolkit was provided. ``identity`` changes with every file that a
    compile may run or read: it is the key of an entry of the store, or was measured.
    """

    toolkit: Toolkit
    compiler: Path
    include: tuple[Path, ...]
    libraries: Path
    exports: tuple[Path, ...]
    identity: str
    gpu_codes: Path | None = None
    unfit: str | None = None

    @property
    def own_folders(self) -> tuple[Path, ...]:
        """The directories with the toolkit alone: that of its programs, unless others have theirs there."""
        root = self.compiler.parent.parent
        return () if str(root) in _OF_MANY else (root,)

    def known_codes(self) -> tuple[str, ...] | None:
        """The codes in ``gpu_codes``; ``None`` while the compiler was not asked yet."""
        try:
            return tuple(self.gpu_codes.read_text(encoding="ascii").split()) if self.gpu_codes else None
        except FileNotFoundError:
            return None


@dataclass(frozen=True, kw_only=True)
class LibraryHeaders:
    """Headers of a C++ library that a section depends on.

    ``name`` is what ``depends`` calls it (``cutlass_3_8``), ``library`` what it is a release of (``cutlass``),
    ``version`` that release (``3.8.0``), ``include`` its include directories in order.
    """

    name: str
    library: str
    version: str
    include: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class ProjectPart:
    """A part of a toolchain that comes from a source which the project itself names, not its user."""

    name: str
    version: str
    source: str

    def __str__(self) -> str:
        """For people: ``torch 2.13.0 from 'mine', named by kernel-builder.toml``."""
        return f"{self.name} {self.version} from {self.source!r}, named by {FILE_NAME}"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """Everything that one variant is compiled with. ``libraries`` are those that some section depends on; ``python`` is
    ``None`` where Python's headers are not installed. ``by_project`` are the parts whose source the project names.
    ``sysroot`` is set for variants for Linux, ``sdk`` for those for macOS.
    """

    host: HostCompiler
    framework: FrameworkSdk
    sysroot: Sysroot | None = None
    sdk: AppleSdk | None = None
    toolkit: ToolkitSdk | None = None
    libraries: tuple[LibraryHeaders, ...] = ()
    python: PythonHeaders | None = None
    by_project: tuple[ProjectPart, ...] = ()

    @property
    def c_library(self) -> Sysroot:
        """The C library of a variant for Linux. Raises ``LookupError`` for others, which take their system's."""
        if self.sysroot is None:
            raise LookupError("only variants for Linux have a C library of their own")
        return self.sysroot
