"""Which sources are compiled with slim headers, and what these are asked for: by the names that the sources mention.

See :mod:`kernel_builder.toolchain.torch_slim`. Whatever operator a source can name, itself or by a header of the
project, is declared; a name that only comes about elsewhere does not compile, and then the whole headers are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

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
    if framework.kind is not FrameworkKind.TORCH or (headers is Headers.SLIM and not is_proved(framework.version)):
        return Headers.FULL
    return Headers.VERIFY if headers is Headers.SLIM and complete else headers


def covers_cxx(headers: Headers, framework: FrameworkSdk) -> bool:
    """Whether C++ sources are compiled with slim headers as well, where ``headers`` is what :func:`uses_slim` says."""
    return headers is Headers.VERIFY or (headers is Headers.SLIM and is_proved(framework.version, cxx=True))


def slim_definitions(survey: Survey, sources: Iterable[str], torch: FrameworkSdk) -> Mapping[str, tuple[str, ...]]:
    """For each of ``sources`` that is better compiled with slim headers, what to define for them. None is while the
    slim headers of ``torch`` are not made.
    """
    operators = operators_of(torch.slim) if torch.slim is not None else None
    if not operators:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for source in sources:
        marks = _needs_of_all(source, survey.needs)
        if UMBRELLA in marks and WHOLE not in marks:
            found[source] = definitions(mentioned_words(marks), operators)
    return found


def _needs_of_all(source: str, marks: Marks) -> frozenset[str]:
    """What ``source`` needs, and all files of the project that it may include, which are found by their names."""
    by_name: dict[str, list[str]] = {}
    for path in marks:
        by_name.setdefault(PurePosixPath(path).name, []).append(path)
    seen: set[str] = set()
    left = [source]
    together: set[str] = set()
    while left:
        path = left.pop()
        if path in seen:
            continue
        seen.add(path)
        own = marks.get(path, frozenset())
        together |= own
        for name in included_names(own):
            left += by_name.get(PurePosixPath(name).name, ())
    return frozenset(together)
