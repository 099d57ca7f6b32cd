"""One grammar for variant names: parsing and formatting, each the inverse of the other.

Reference: interoperability contract 2.1. A name is a directory below ``build/``; the ``kernels`` client parses the
same text to decide whether a machine can load it.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from kernel_builder.config.backends import SHOWN, Backend


class Abi(StrEnum):
    """The C++ ABI of libstdc++ that a Linux build of torch uses (``cxx98`` ended with torch 2.6)."""

    CXX11 = "cxx11"
    CXX98 = "cxx98"


class Machine(StrEnum):
    """Processor families, as variant names spell them."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"


class System(StrEnum):
    """Operating systems, as variant names spell them."""

    LINUX = "linux"
    DARWIN = "darwin"
    WINDOWS = "windows"

    @classmethod
    def current(cls) -> System:
        """That of this machine. Raises ``ValueError`` for one that variants have no name for."""
        return cls(platform.system().lower())

    @property
    def label(self) -> str:
        """For people."""
        return {System.LINUX: "Linux", System.DARWIN: "macOS", System.WINDOWS: "Windows"}[self]


def this_machine() -> str:
    """The processor family of this machine, as variants call it where they have a name for it: macOS and Windows have
    names of their own.
    """
    machine = platform.machine().lower()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine)


@dataclass(frozen=True, kw_only=True, order=True)
class Platform:
    """What a variant runs on: ``x86_64-linux``."""

    machine: Machine
    system: System

    @classmethod
    def current(cls) -> Platform:
        """This machine. Raises ``ValueError`` when no variant name exists for it."""
        return cls(machine=Machine(this_machine()), system=System(platform.system().lower()))

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Read ``x86_64-linux``. Raises ``ValueError`` with a sentence for the user."""
        machine, _, system = text.partition("-")
        try:
            return cls(machine=Machine(machine), system=System(system))
        except ValueError:
            raise ValueError(f"{text!r} is not a platform; use the form x86_64-linux or aarch64-darwin") from None

    def __str__(self) -> str:
        return f"{self.machine.value}-{self.system.value}"


def _two_parts(version: tuple[int, int], what: str) -> str:
    """``(13, 0)`` -> ``130``. The grammar gives the minor number one digit, so 13.10 cannot be written."""
    major, minor = version
    if minor > 9:
        raise ValueError(f"{what} {major}.{minor} cannot be written in a variant name: the minor has one digit there")
    return f"{major}{minor}"


@dataclass(frozen=True, kw_only=True, order=True)
class Compute:
    """A backend and, where names carry it, its toolkit version (CUDA, ROCm, oneAPI, CANN)."""

    backend: Backend
    version: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if (self.version is None) == (self.backend.prefix is not None):
            raise ValueError(f"{self.backend} {'needs a' if self.version is None else 'takes no'} toolkit version")

    def __str__(self) -> str:
        if self.version is None:
            return self.backend.value
        return f"{self.backend.prefix}{_two_parts(self.version, self.backend.value)}"

    @property
    def label(self) -> str:
        """For people: ``rocm 7.1``, ``metal``."""
        return f"{self.backend.value} {self.version[0]}.{self.version[1]}" if self.version else self.backend.value


@dataclass(frozen=True, kw_only=True, order=True)
class TorchTag:
    """``torch213-cxx11``: one torch release, and on Linux its C++ ABI."""

    version: tuple[int, int]
    abi: Abi | None

    def __str__(self) -> str:
        major, minor = self.version
        if major > 9:
            raise ValueError(
                f"torch {major}.{minor} cannot be written in a variant name: the major has one digit there"
            )
        return f"torch{major}{minor}{f'-{self.abi.value}' if self.abi else ''}"


@dataclass(frozen=True, kw_only=True, order=True)
class StableAbiTag:
    """``torch-stable-abi211``: torch's stable ABI from that release on."""

    version: tuple[int, int]

    def __str__(self) -> str:
        return f"torch-stable-abi{self.version[0]}{self.version[1]}"


@dataclass(frozen=True, kw_only=True, order=True)
class TvmFfiTag:
    """``tvm-ffi01``: one release of tvm-ffi."""

    version: tuple[int, int]

    def __str__(self) -> str:
        return f"tvm-ffi{self.version[0]}{self.version[1]}"


Tag = TorchTag | StableAbiTag | TvmFfiTag


@dataclass(frozen=True, kw_only=True)
class ArchVariant:
    """A variant with compiled code."""

    tag: Tag
    compute: Compute
    machine: Machine
    system: System

    @property
    def backend(self) -> Backend:
        """The compute backend."""
        return self.compute.backend

    @property
    def needs_torch(self) -> bool:
        """Whether it is loaded with torch, and not by tvm-ffi."""
        return not isinstance(self.tag, TvmFfiTag)

    def __str__(self) -> str:
        return f"{self.tag}-{self.compute}-{self.machine.value}-{self.system.value}"


@dataclass(frozen=True, kw_only=True)
class NoarchVariant:
    """A variant of Python code alone: ``torch-cuda``."""

    backend: Backend
    needs_torch: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"torch-{self.backend.value}"


Variant = ArchVariant | NoarchVariant

_ARCH = re.compile(
    r"(?:torch(?P<torch>[0-9]{2,})(?:-(?P<abi>cxx11|cxx98))?"
    r"|torch-stable-abi(?P<stable>[0-9]{2,})"
    r"|tvm-ffi(?P<tvm>[0-9]{2,}))"
    r"-(?P<compute>[a-z]+)(?P<number>[0-9]*)"
    r"-(?P<machine>x86_64|aarch64)-(?P<system>linux|darwin|windows)"
)
_BACKEND_OF_PREFIX = {backend.prefix or backend.value: backend for backend in Backend}


def _split(digits: str, *, major_digits: int) -> tuple[int, int]:
    version = int(digits[:major_digits]), int(digits[major_digits:])
    if f"{version[0]}{version[1]}" != digits:
        raise ValueError(f"{digits!r} has redundant zeros")
    return version


def parse_variant(name: str) -> Variant:
    """Read a variant name; ``str()`` of the result is ``name`` again. Raises ``ValueError`` saying what is wrong."""
    noarch = {f"torch-{backend.value}": backend for backend in Backend}
    if name in noarch:
        return NoarchVariant(backend=noarch[name])
    match = _ARCH.fullmatch(name)
    if match is None:
        raise ValueError(
            f"{name!r} is not a variant name; use the form torch213-cxx11-cu130-x86_64-linux or torch-{SHOWN}"
        )
    backend = _BACKEND_OF_PREFIX.get(match["compute"])
    if backend is None:
        raise ValueError(f"{name!r}: unknown backend {match['compute']!r}")
    number = match["number"]
    if bool(number) != (backend.prefix is not None) or len(number) == 1:
        raise ValueError(f"{name!r}: {match['compute']}{number} is not a backend with its version")
    version = _split(number, major_digits=len(number) - 1) if number else None
    tag: Tag
    if match["torch"]:
        tag = TorchTag(version=_split(match["torch"], major_digits=1), abi=Abi(match["abi"]) if match["abi"] else None)
    elif match["stable"]:
        tag = StableAbiTag(version=_split(match["stable"], major_digits=1))
    else:
        tag = TvmFfiTag(version=_split(match["tvm"], major_digits=1))
    return ArchVariant(
        tag=tag,
        compute=Compute(backend=backend, version=version),
        machine=Machine(match["machine"]),
        system=System(match["system"]),
    )
