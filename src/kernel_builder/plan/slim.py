"""Which sources are compiled with slim headers, and what these are asked for: by the names that the sources mention.

See :mod:`kernel_builder.toolchain.torch_slim`. Whatever operator a source can name, itself or by a header of the
project, is declared; a name that only comes about elsewhere does not compile, and then the whole headers are used.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Iterable, Mapping

from kernel_builder.actions.headers import Headers
from kernel_builder.config.model import FrameworkKind
from kernel_builder.frameworks.protocol import UMBRELLA, WHOLE, included_names, mentioned_words
from kernel_builder.project.survey import Marks, Survey
from kernel_builder.toolchain.model import FrameworkSdk
from kernel_builder.toolchain.torch_slim import definitions, is_proved, operators_of


def uses_slim(headers: Headers, framework: FrameworkSdk, *, complete: bool = False) -> Headers:
    """What becomes of ``headers`` for a release: what is published is proved once more (``complete``). Only torch has
    slim headers.
    """
    if framework.kind is not FrameworkKind.TORCH:
        return Headers.FULL
    if headers is Headers.SLIM and not is_proved(framework.version, build=framework.build):
        return Headers.FULL
    return Headers.VERIFY if headers is Headers.SLIM and complete else headers


def covers_cxx(headers: Headers, framework: FrameworkSdk) -> bool:
    """Whether C++ sources are compiled with slim headers as well, where ``headers`` is what :func:`uses_slim` says."""
    proved = is_proved(framework.version, build=framework.build, cxx=True)
    return headers is Headers.VERIFY or (headers is Headers.SLIM and proved)


def slim_definitions(survey: Survey, sources: Iterable[str], torch: FrameworkSdk) -> Mapping[str, tuple[str, ...]]:
    """For each of ``sources`` that is better compiled with slim headers, what to define for them. None is while the
    slim headers of ``torch`` are not made.
    """
    operators = operators_of(torch.slim) if torch.slim is not None else None
    if not operators:
        return {}
    needs = _Needs(survey.needs)
    found: dict[str, tuple[str, ...]] = {}
    for source in sources:
        marks = needs.of(source)
        if UMBRELLA in marks and WHOLE not in marks:
            found[source] = definitions(mentioned_words(marks), operators)
    return found


class _Needs:
    """What files need, together with all files of the project that they may include, which are found by their names.

    Each file is read once. Sources that include the same files, as generated ones do by the thousand, share what these
    need.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        by_name: dict[str, list[str]] = {}
        for path in marks:
            by_name.setdefault(posixpath.basename(path), []).append(path)
        self._included = {
            path: frozenset(file for name in included_names(own) for file in by_name.get(posixpath.basename(name), ()))
            for path, own in marks.items()
        }
        self._together = functools.cache(self._find_together)

    def of(self, source: str) -> frozenset[str]:
        """The marks of ``source``, and of all that it may include."""
        return self._marks.get(source, frozenset()) | self._together(self._included.get(source, frozenset()))

    def _find_together(self, files: frozenset[str]) -> frozenset[str]:
        reached = set(files)
        left = list(files)
        while left:
            new = self._included[left.pop()] - reached
            reached |= new
            left += new
        return frozenset(mark for path in reached for mark in self._marks[path])
