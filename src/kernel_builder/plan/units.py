"""Which files are compiled for a backend, and with what: sections merged into one unit per source file.

Reference: interoperability contract 1.3 and 3.5, corpus edge cases 2, 3, 8, 11 and 18. Flags, include directories and
architectures belong to a section and reach only its files. A file in several sections is compiled once, with the union
of what they say, as the reference does.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TypeVar

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Capability
from kernel_builder.project.tree import HEADER_SUFFIXES
from kernel_builder.toolchain.model import LibraryHeaders

_T = TypeVar("_T")


class Language(StrEnum):
    """What a file is compiled as."""

    CXX = "c++"
    C = "c"
    CUDA = "cuda"


_LANGUAGES = {
    ".cpp": Language.CXX,
    ".cc": Language.CXX,
    ".cxx": Language.CXX,
    ".c++": Language.CXX,
    ".c": Language.C,
    ".cu": Language.CUDA,
    # As compilers know them, and for file systems that shout.
    ".C": Language.CXX,
    ".CPP": Language.CXX,
    ".CC": Language.CXX,
    ".CXX": Language.CXX,
}
_NOT_COMPILED = HEADER_SUFFIXES | {".md", ".txt", ".py", ".metal", ".mm", ".hip"}


def language_of(path: str) -> Language | None:
    """The language of a source file by its suffix; ``None`` for headers and everything that is only read."""
    return _LANGUAGES.get(PurePosixPath(path).suffix)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One source file and everything that its sections say about it.

    ``source`` and ``include`` are POSIX paths relative to the project root, ``capabilities`` the CUDA capabilities it
    is compiled for (empty for other languages), ``sections`` the ids of its sections, for messages. ``libraries`` are
    those that its sections depend on, besides torch.
    """

    source: str
    language: Language
    include: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    cuda_flags: tuple[str, ...]
    capabilities: tuple[Capability, ...]
    sections: tuple[str, ...]
    libraries: tuple[LibraryHeaders, ...] = ()

    def flags(self) -> tuple[str, ...]:
        """The user's flags for the compiler of this file's language: C++ flags never reach nvcc, nor the reverse."""
        if self.language is Language.CUDA:
            return self.cuda_flags
        return self.cxx_flags if self.language is Language.CXX else ()


@dataclass(frozen=True, kw_only=True)
class SectionInput:
    """What the planner knows of a section once capabilities are chosen. ``id`` is its heading: ``[kernel.relu]``."""

    id: str
    src: tuple[str, ...]
    include: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    cuda_flags: tuple[str, ...]
    capabilities: tuple[Capability, ...]
    libraries: tuple[LibraryHeaders, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Units:
    """Units in the order in which their files are first named, with warnings about files that are not compiled."""

    units: tuple[Unit, ...]
    warnings: tuple[str, ...]
    misplaced: tuple[str, ...]
    """Messages about files that the backend has no compiler for."""


def _union(first: tuple[_T, ...], second: tuple[_T, ...]) -> tuple[_T, ...]:
    return first + tuple(item for item in second if item not in first)


def _joined_flags(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Both flag lists, the second left out when it is the same: repeated words may be parts of pairs (-x c -x c++)."""
    return first if first == second else first + second


def merge(backend: Backend, sections: tuple[SectionInput, ...]) -> Units:
    """Merge ``sections`` into one unit per source file.

    Warnings name files whose suffix says nothing; ``misplaced`` the CUDA files that a backend other than cuda should
    compile. (That a file has contradicting flags in two sections is said when ``build.toml`` is read.)
    """
    units: dict[str, Unit] = {}
    warnings: list[str] = []
    misplaced: list[str] = []
    for section in sections:
        for written in section.src:
            source = posixpath.normpath(written)
            language = language_of(source)
            if language is None:
                if PurePosixPath(source).suffix.lower() not in _NOT_COMPILED:
                    warnings.append(f"{source} is not compiled: its suffix is neither a source's nor a header's")
                continue
            if language is Language.CUDA and backend is not Backend("cuda"):
                misplaced.append(f"{source} (in {section.id}) is a CUDA source")
                continue
            unit = Unit(
                source=source,
                language=language,
                include=section.include,
                cxx_flags=section.cxx_flags,
                cuda_flags=section.cuda_flags,
                capabilities=section.capabilities if language is Language.CUDA else (),
                sections=(section.id,),
                libraries=section.libraries,
            )
            known = units.get(source)
            if known is None:
                units[source] = unit
            elif section.id not in known.sections:
                units[source] = _merge_units(known, unit)
    return Units(units=tuple(units.values()), warnings=tuple(warnings), misplaced=tuple(misplaced))


def _merge_units(first: Unit, second: Unit) -> Unit:
    return Unit(
        source=first.source,
        language=first.language,
        include=_union(first.include, second.include),
        cxx_flags=_joined_flags(first.cxx_flags, second.cxx_flags),
        cuda_flags=_joined_flags(first.cuda_flags, second.cuda_flags),
        capabilities=_union(first.capabilities, second.capabilities),
        sections=first.sections + second.sections,
        libraries=_union(first.libraries, second.libraries),
    )


def clashing_libraries(unit: Unit) -> tuple[LibraryHeaders, ...]:
    """Two releases of one library that the sections of ``unit`` depend on; empty when there are none.

    Both have the same header names and the same C++ names, so one file can be compiled with one of them only.
    """
    for index, first in enumerate(unit.libraries):
        for second in unit.libraries[index + 1 :]:
            if first.library == second.library:
                return first, second
    return ()


_STANDARD = re.compile(r"(?:-std|--std)=(?P<dialect>c|gnu)\+\+(?P<year>[0-9][0-9a-z])")
_YEARS = {"98": 1998, "03": 2003, "0x": 2011, "11": 2011, "1y": 2014, "14": 2014, "1z": 2017, "17": 2017}
_YEARS |= {"2a": 2020, "20": 2020, "2b": 2023, "23": 2023, "2c": 2026, "26": 2026}


def raise_standard(flags: tuple[str, ...], minimum: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Raise every ``-std=`` in ``flags`` that is below C++ ``minimum`` (17, 20) to it.

    Returns the flags and the words that were replaced. torch's headers refuse to compile below their minimum
    (corpus edge case 8).
    """
    result: list[str] = []
    replaced: list[str] = []
    following = False
    for flag in flags:
        spelled = f"-std={flag}" if following else flag
        match = _STANDARD.fullmatch(spelled)
        if match is not None and _YEARS.get(match["year"], 9999) < _YEARS[str(minimum)]:
            replaced.append(f"-std {flag}" if following else flag)
            raised = f"{match['dialect']}++{minimum}"
            result.append(raised if following else f"-std={raised}")
        else:
            result.append(flag)
        following = flag in {"-std", "--std"}
    return tuple(result), tuple(replaced)
