"""What kernel-builder must know of a framework to compile kernels for it.

A framework is one module in this package whose ``RULES`` meets :class:`FrameworkRules`, named in ``__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from kernel_builder.actions.context import Layout
from kernel_builder.actions.model import GeneratedFile
from kernel_builder.actions.places import Places
from kernel_builder.project.survey import Survey
from kernel_builder.variants.support import SupportRow
from kernel_builder.versions import Version

HEAVY = "heavy"
"""The mark of a source that includes all of the framework's headers, which costs a compiler much memory (F10)."""


FIRST = "first: "
"""What the mark of a source begins with that includes headers of the framework before it says anything else; their
names follow.
"""


def first_headers(marks: Iterable[str]) -> tuple[str, ...]:
    """The headers of the framework that a source with these marks includes first, in order."""
    return next((tuple(mark.removeprefix(FIRST).split()) for mark in marks if mark.startswith(FIRST)), ())


UMBRELLA = "umbrella"
"""The mark of a file that includes headers of the framework which have a slim form."""

WHOLE = "whole"
"""The mark of a file that needs so much of the framework that slim headers are of no use."""

INCLUDES, WORDS = "includes: ", "words: "
"""What the marks of a file begin with that say which headers it includes, and which names it mentions."""


def included_names(marks: Iterable[str]) -> frozenset[str]:
    """The headers that files with these marks include, as they are written."""
    return frozenset(name for mark in marks if mark.startswith(INCLUDES) for name in mark[len(INCLUDES) :].split("\n"))


def mentioned_words(marks: Iterable[str]) -> frozenset[str]:
    """The names that files with these marks mention."""
    return frozenset(word for mark in marks if mark.startswith(WORDS) for word in mark[len(WORDS) :].split())


class FrameworkRules(Protocol):
    """What a framework is, as far as compiling and packaging go."""

    @property
    def library(self) -> str:
        """The library that a kernel needs even where it uses no symbol of it."""
        ...

    @property
    def suffix(self) -> str:
        """What follows the ops id in the name of a kernel's library on Linux."""
        ...

    @property
    def limited_api(self) -> tuple[int, int] | None:
        """The version of Python's limited API that a kernel's library may use; ``None`` where it must not use any."""
        ...

    def cxx_standard(self, row: SupportRow) -> int:
        """The oldest C++ standard (17, 20) that the headers can be compiled with, for a variant with ``row`` behind
        it.
        """
        ...

    def marks_of(self, text: bytes) -> frozenset[str]:
        """The marks of a source or header with that text, :data:`HEAVY` and :data:`FIRST` among them; see
        :class:`Survey`.
        """
        ...

    def needs_of(self, text: bytes) -> frozenset[str]:
        """What a source or header with that text needs of the framework, as marks: :data:`UMBRELLA`, :data:`WHOLE`,
        :data:`INCLUDES` and :data:`WORDS`.
        """
        ...

    def binds_early(self, sources: tuple[str, ...], survey: Survey) -> bool:
        """Whether any of ``sources`` must be compiled with the final ops id, which then may be anywhere in the library.
        Otherwise it stands in the library where :mod:`kernel_builder.binary.renaming` finds it.
        """
        ...

    def definer(
        self,
        sources: tuple[str, ...],
        survey: Survey,
        *,
        ops_id: str,
        unique: str,
        cxx11_abi: bool,
        stable: Version | None,
    ) -> Callable[[str], tuple[str, ...]]:
        """A function that gives the definitions (``NAME=value``) of one of ``sources``. ``unique`` is the last part of
        ``ops_id``, ``stable`` the release whose stable ABI the kernel is for.
        """
        ...

    def generated(
        self, layout: Layout, places: Places, *, ops_id: str, unique: str, cxx11_abi: bool
    ) -> tuple[GeneratedFile, ...]:
        """The sources and scripts that are generated for a compiled variant that is linked as ``ops_id``.
        :meth:`module` is among them, if there is one.
        """
        ...

    def module(self, layout: Layout) -> Path | None:
        """The generated source of the Python module; ``None`` where the library is none."""
        ...

    def ops_module(self, ops_id: str, *, compiled: bool) -> str:
        """The text of ``_ops.py``."""
        ...

    def compatibility_package(self, python_name: str) -> str:
        """The text of ``<python name>/__init__.py`` inside the variant."""
        ...
