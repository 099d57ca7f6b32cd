"""The one model of a kernel project that every edition of ``build.toml`` is read into.

Frozen values only: a reader (``config/reader.py``) has judged everything before one of these exists, so the
rest of the package never validates again. Paths in ``src`` and ``include`` are POSIX text relative to the
project root, as written. Reference: interoperability contract 1.2-1.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from kernel_builder.config.backends import Backend
from kernel_builder.versions import Version


class FrameworkKind(StrEnum):
    """The framework section of ``build.toml``: exactly one of them is there."""

    TORCH = "torch"
    TORCH_NOARCH = "torch-noarch"
    TVM_FFI = "tvm-ffi"

    @property
    def needs_torch(self) -> bool:
        """Whether its compiled kernels are loaded with torch."""
        return self is not FrameworkKind.TVM_FFI

    @property
    def package(self) -> str:
        """The Python package of the framework, as an index has it."""
        return "torch" if self.needs_torch else "apache-tvm-ffi"


class Suffix(StrEnum):
    """What follows the number of a capability: nothing, ``a`` (this chip only) or ``f`` (its family)."""

    NONE = ""
    ARCH = "a"
    FAMILY = "f"


@dataclass(frozen=True, order=True)
class Capability:
    """A compute capability such as ``9.0a`` or ``8.0+PTX``."""

    major: int
    minor: int
    suffix: Suffix = Suffix.NONE
    ptx: bool = False

    @property
    def number(self) -> str:
        """``90a``: what stands behind ``compute_`` and ``sm_``."""
        return f"{self.major}{self.minor}{self.suffix.value}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.suffix.value}{'+PTX' if self.ptx else ''}"


Architecture = Capability | str
"""What code is compiled for: a capability, or the name of an architecture where backends have names for them."""


@dataclass(frozen=True, kw_only=True)
class KernelDependency:
    """Another Hub kernel: ``version`` xor ``revision``."""

    repo_id: str
    version: int | None = None
    revision: str | None = None


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """``[general.<backend>]``: bounds of the backend's toolkit, and dependencies of that backend."""

    minver: Version | None = None
    maxver: Version | None = None
    kernel_depends: tuple[KernelDependency, ...] = ()
    python_depends: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Hub:
    """``[general.hub]``: where the kernel is uploaded to."""

    repo_id: str | None = None
    branch: str | None = None


@dataclass(frozen=True, kw_only=True)
class Framework:
    """``[torch]``, ``[torch-noarch]`` or ``[tvm-ffi]``.

    ``pyext`` is ``None`` when it is not written. ``architectures`` are those of ``[torch-noarch]``, which only
    describe the kernel; backends without any are left out. ``stable_abi`` maps the backends that use torch's
    stable ABI to the torch version they target.
    """

    kind: FrameworkKind
    src: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    pyext: tuple[str, ...] | None = None
    minver: Version | None = None
    maxver: Version | None = None
    stable_abi: Mapping[Backend, Version] = field(default_factory=lambda: MappingProxyType({}))
    architectures: Mapping[Backend, tuple[Architecture, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def directory(self) -> str:
        """Name of the directory that holds the Python package: ``torch-ext`` or ``tvm-ffi-ext``."""
        return "tvm-ffi-ext" if self.kind is FrameworkKind.TVM_FFI else "torch-ext"


@dataclass(frozen=True, kw_only=True)
class Section:
    """``[kernel.<id>]``: sources of one backend that are compiled alike. ``None`` means 'not written'.

    ``flags`` are those of the backend's own compiler, ``architectures`` those to compile for, and ``toolkit_minver``
    is the oldest toolkit that compiles the section.
    """

    id: str
    backend: Backend
    src: tuple[str, ...]
    depends: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    architectures: tuple[Architecture, ...] | None = None
    toolkit_minver: Version | None = None


@dataclass(frozen=True, kw_only=True)
class Project:
    """A kernel project: what ``build.toml`` says, whatever its edition.

    ``root`` is the absolute directory that holds ``build.toml``; ``edition`` the edition it was written in.
    ``sections`` are in file order.
    """

    root: Path
    edition: int
    name: str
    version: int
    license: str | None
    backends: tuple[Backend, ...]
    framework: Framework
    sections: tuple[Section, ...] = ()
    upstream: str | None = None
    source: str | None = None
    hub: Hub = Hub()
    kernel_depends: tuple[KernelDependency, ...] = ()
    python_depends: tuple[str, ...] = ()
    backend_options: Mapping[Backend, BackendOptions] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def python_name(self) -> str:
        """The kernel's name as a Python identifier: every dash becomes an underscore."""
        return self.name.replace("-", "_")

    @property
    def package(self) -> Path:
        """Directory of the Python package, ``torch-ext/<python name>``."""
        return self.root / self.framework.directory / self.python_name

    def sections_for(self, backend: Backend) -> tuple[Section, ...]:
        """Sections of one backend, in file order."""
        return tuple(section for section in self.sections if section.backend is backend)

    def is_compiled_for(self, backend: Backend) -> bool:
        """Whether this backend has compiled code; otherwise its variant is noarch (contract 2.5)."""
        return self.framework.kind is not FrameworkKind.TORCH_NOARCH and bool(self.sections_for(backend))
