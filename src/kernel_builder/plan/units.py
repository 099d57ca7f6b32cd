"""Which files are compiled for a backend, and with what: sections merged into one unit per source file.

Reference: interoperability contract 1.3 and 3.5, corpus edge cases 2, 3, 8, 11 and 18. Flags, include directories and
architectures belong to a section and reach only its files. A file in several sections is compiled once, with the union
of what they say, as the reference does.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TypeVar

from kernel_builder.actions.units import HOST_LANGUAGES, Unit, suffix_of
from kernel_builder.config.backends import Backend
from kernel_builder.config.flags import STANDARD, UNKNOWN_YEAR, YEARS
from kernel_builder.config.model import Architecture
from kernel_builder.project.tree import HEADER_SUFFIXES
from kernel_builder.toolchain.model import LibraryHeaders

_T = TypeVar("_T")

_READ_ONLY = HEADER_SUFFIXES | {".md", ".txt", ".py"}


@dataclass(frozen=True, kw_only=True)
class SectionInput:
    """What the planner knows of a section once architectures are chosen. ``id`` is its heading: ``[kernel.relu]``;
    ``is_binding`` is set for the framework's own.
    """

    id: str
    src: tuple[str, ...]
    include: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    flags: tuple[str, ...]
    architectures: tuple[Architecture, ...]
    libraries: tuple[LibraryHeaders, ...] = ()
    is_binding: bool = False


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

    Warnings name files whose suffix says nothing; ``misplaced`` the sources of another backend, which ``backend``
    should compile. (That a file has contradicting flags in two sections is said when ``build.toml`` is read.)
    """
    compiling = [other for other in Backend if other.has_module and other is not backend]
    # Of several that compile it, the first in the table: the others make it theirs.
    others = {suffix: other for other in reversed(compiling) for suffix in other.sources}
    elsewhere = frozenset[str]().union(*(other.sources for other in Backend))
    units: dict[str, Unit] = {}
    warnings: list[str] = []
    misplaced: list[str] = []
    for section in sections:
        for written in section.src:
            source = posixpath.normpath(written)
            suffix = suffix_of(source)
            language = backend.value if suffix in backend.sources else HOST_LANGUAGES.get(suffix)
            if language is None and suffix in others and suffix not in backend.sources:
                misplaced.append(f"{source} (in {section.id}) is a {others[suffix].label} source")
                continue
            if language is None:
                # Sections list sources of backends that nothing compiles yet beside what they share with others.
                if suffix.lower() not in _READ_ONLY | elsewhere:
                    warnings.append(f"{source} is not compiled: its suffix is neither a source's nor a header's")
                continue
            unit = Unit(
                source=source,
                language=language,
                include=section.include,
                cxx_flags=section.cxx_flags,
                flags=section.flags,
                architectures=section.architectures if suffix in backend.sources else (),
                sections=(section.id,),
                libraries=section.libraries,
                is_binding=section.is_binding,
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
        flags=_joined_flags(first.flags, second.flags),
        architectures=_union(first.architectures, second.architectures),
        sections=first.sections + second.sections,
        libraries=_union(first.libraries, second.libraries),
        is_binding=first.is_binding and second.is_binding,
    )


def raise_standard(flags: tuple[str, ...], minimum: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Raise every ``-std=`` in ``flags`` that is below C++ ``minimum`` (17, 20) to it.

    Returns the flags and the words that were replaced. torch's headers refuse to compile below their minimum
    (corpus edge case 8).
    """
    result: list[str] = []
    replaced: list[str] = []
    following = False
    for flag in flags:
        match = STANDARD.fullmatch(f"-std {flag}" if following else flag)
        if match is not None and YEARS.get(match["year"], UNKNOWN_YEAR) < YEARS[str(minimum)]:
            replaced.append(f"-std {flag}" if following else flag)
            raised = f"{match['dialect']}++{minimum}"
            result.append(raised if following else f"-std={raised}")
        else:
            result.append(flag)
        following = flag in {"-std", "--std"}
    return tuple(result), tuple(replaced)
