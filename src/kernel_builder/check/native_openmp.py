"""A rule about C++ that divides its work among threads, and is compiled so that it does not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import SourceTree, join
from kernel_builder.interface.native import NativeText

ONE_THREAD = rule(
    "KB214",
    "one-thread",
    Severity.WARNING,
    summary="Sources that use OpenMP are compiled with -fopenmp",
    rationale=(
        "Without that flag, compilers ignore OpenMP pragmas, and at::parallel_for and at::parallel_reduce run on one "
        "thread. The kernel gives the right results, but slowly."
    ),
    remedy="Add \"-fopenmp\" to 'cxx-flags' of the section.",
    source="OpenMP specification, 'Conditional compilation'; ATen/ParallelOpenMP.h of PyTorch",
)
_CALL = re.compile(r"\bat\s*::\s*(?P<name>parallel_(?:for|reduce))\b")
# `omp simd` asks for vectors, not for threads.
_THREADS = re.compile(r"omp\s+(?!simd\b|declare\b)")
_FLAG = "-fopenmp"


@checks(SourceTree, ONE_THREAD)
def one_thread(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """The first use of OpenMP in each source of a section for CPUs that lacks the flag. What stands under a condition,
    such as ``#ifdef _OPENMP``, is meant to be left out.
    """
    project = source.draft
    if project is None:
        return
    lacking = {
        path: section.id
        for section in project.sections
        if section.backend.is_host and not any(flag.startswith(_FLAG) for flag in section.cxx_flags)
        for path in section.src
    }
    for file in source.compiled:
        found = _first(file.native) if file.path in lacking and file.certain else None
        if found is not None:
            line, what = found
            said = f"{what}, but [kernel.{lacking[file.path]}] is compiled without {_FLAG}"
            yield ONE_THREAD.at(join(source.shown, file.path), said, line=line)


def _first(native: NativeText) -> tuple[int, str] | None:
    """The line of what uses OpenMP first, and what that does."""
    uses = [
        (native.line(call.start()), f"at::{call['name']} runs on one thread")
        for call in _CALL.finditer(native.bare)
        if native.is_certain(call.start())
    ]
    uses += [
        (pragma.line, f"'#pragma {' '.join(pragma.text.split())}' has no effect")
        for pragma in native.pragmas
        if pragma.certain and _THREADS.match(pragma.text)
    ]
    return min(uses, default=None)
