"""Units: source files with everything that their sections say about them, ready to be compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from kernel_builder.config.model import Architecture
from kernel_builder.toolchain.model import LibraryHeaders

CXX, C = "c++", "c"
"""The languages that the host compiler takes; every other one belongs to a backend."""

HOST_LANGUAGES = {
    ".cpp": CXX,
    ".cc": CXX,
    ".cxx": CXX,
    ".c++": CXX,
    ".c": C,
    # As compilers know them, and for file systems that shout.
    ".C": CXX,
    ".CPP": CXX,
    ".CC": CXX,
    ".CXX": CXX,
}


def suffix_of(path: str) -> str:
    """The suffix that says what a file is compiled as."""
    return PurePosixPath(path).suffix


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One source file and everything that its sections say about it.

    ``source`` and ``include`` are POSIX paths relative to the project root, ``language`` is ``c++``, ``c`` or the
    backend's name. ``cxx_flags`` are for the C++ compiler, ``flags`` for the backend's own; ``architectures`` are what
    it is compiled for (empty for the host's languages), ``sections`` the ids of its sections, for messages.
    ``libraries`` are those that its sections depend on, besides the framework; ``is_binding`` is set for a file of the
    framework's section alone, which no kernel's names.
    """

    source: str
    language: str
    include: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    flags: tuple[str, ...]
    architectures: tuple[Architecture, ...]
    sections: tuple[str, ...]
    libraries: tuple[LibraryHeaders, ...] = ()
    is_binding: bool = False

    @property
    def own_flags(self) -> tuple[str, ...]:
        """The user's flags for the compiler of this file's language: C++ flags never reach another one."""
        if self.language == CXX:
            return self.cxx_flags
        return () if self.language == C else self.flags
