"""Which source each part of a toolchain comes from: the first, in the user's order, that has it.

A candidate that is not taken keeps its reason, so that an error, and ``toolchain explain``, can name everything that
was tried. Sources are asked for all that is still missing at once, and only while something is. What nobody has is a
value, too: :func:`settle` tells all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kernel_builder.config.backends import HOST
from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.toolchain.choice import (
    Chain,
    ComponentSource,
    FrameworkCandidate,
    FrameworkFacts,
    FrameworkSource,
    Refused,
    Taken,
    ToolchainRequest,
    rank_of,
)
from kernel_builder.toolchain.model import Toolkit
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.settings import LOCAL
from kernel_builder.variants.names import Abi, Machine, System

_Answer = TypeVar("_Answer")
_INDENT = "\n    "


class NoSourceError(ToolchainError):
    """No source has ``parts``. ``silent`` are sources that nobody asked for and that cannot be reached."""

    def __init__(self, message: str, *, parts: Sequence[str], silent: Sequence[str] = (), hint: str | None) -> None:
        super().__init__(message, hint=hint)
        self.parts = tuple(parts)
        self.silent = tuple(silent)


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Parts that are lacking for the same reasons, one a line; ``what`` names them for people."""

    what: str
    parts: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Lacking:
    """What no source has. ``platform`` is where it would be used (``Linux on x86_64``), ``failures`` are the errors of
    sources that did not answer, ``silent`` is that of :class:`NoSourceError`, ``hint`` says where it may be found.
    """

    groups: tuple[_Group, ...]
    platform: str
    failures: tuple[NetworkError, ...]
    silent: tuple[str, ...]
    hint: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of all parts that are lacking."""
        return tuple(part for group in self.groups for part in group.parts)


def settle(answers: Sequence[Chain | Lacking], of: str) -> Chain:
    """The decisions of ``answers`` as one, for the toolchain that ``of`` describes.

    Raises one error for everything that is lacking, with all reasons: :class:`NoSourceError`, or the
    :class:`NetworkError` of a source that may have some of it and did not answer.
    """
    lacking = [answer for answer in answers if isinstance(answer, Lacking)]
    if lacking:
        raise _error(lacking, of)
    chains = [answer for answer in answers if isinstance(answer, Chain)]
    return Chain(
        taken=tuple(taken for chain in chains for taken in chain.taken),
        refused=tuple(refused for chain in chains for refused in chain.refused),
        unreachable=tuple(sorted({label for chain in chains for label in chain.unreachable})),
    )


def _error(lacking: Sequence[Lacking], of: str) -> NoSourceError | NetworkError:
    failures = list({error.message: error for one in lacking for error in one.failures}.values())
    # What only a source lacks that did not answer, its own error says.
    groups = [group for one in lacking for group in one.groups if group.reasons or not failures]
    others = " other" if failures else ""
    where = "" if failures else f" for {lacking[0].platform}"
    if len(groups) == 1:
        head, indent, named = f"no{others} source has {groups[0].what}{where}", _INDENT, False
    else:
        head, indent, named = f"no{others} source has these parts of {of}{where}", f"{_INDENT}    ", True
    lines = []
    for group in groups:
        lines += [f"{_INDENT}{group.what}"] * named
        lines += [f"{indent}{reason}" for reason in group.reasons or ("the configured sources have no candidates",)]
    message = f"{head}:{''.join(lines)}"
    if not failures:
        silent = sorted({label for one in lacking for label in one.silent})
        hint = _joined(one.hint for one in lacking)
        return NoSourceError(message, parts=[part for one in lacking for part in one.parts], silent=silent, hint=hint)
    # A new error, for a source keeps its own and raises it again. Not a copy: a library may have taught `copy`
    # to share what an error holds, as tblib does.
    kind = type(next((error for error in failures if isinstance(error, IntegrityError)), failures[0]))
    told = "\n".join([*(error.message for error in failures), *([message] if groups else [])])
    hints = [*(error.hint for error in failures), *(one.hint for one in lacking if not one.failures)]
    return kind(told, hint=_joined(hints))


def all_of(errors: Sequence[ToolchainError | NetworkError]) -> ToolchainError | NetworkError:
    """One error that tells all of them; a network error when one of them is. A file that is not what it should be is
    told alone.
    """
    wrong = next((error for error in errors if isinstance(error, IntegrityError)), None)
    if wrong is not None or len(errors) == 1:
        return wrong or errors[0]
    kind = next((NetworkError for error in errors if isinstance(error, NetworkError)), ToolchainError)
    messages = dict.fromkeys(error.message for error in errors)
    return kind("\n".join(messages), hint=_joined(error.hint for error in errors))


def _joined(hints: Iterable[str | None]) -> str | None:
    """Several hints as one, each once."""
    return "; ".join(dict.fromkeys(filter(None, hints))) or None


class _Decisions:
    """Collects, and turns network failures into reasons."""

    def __init__(self) -> None:
        self.taken: dict[str, Taken] = {}
        self.refused: list[Refused] = []
        self.failures: dict[str, NetworkError] = {}

    def ask(self, part: str, source: str, question: Callable[[], _Answer]) -> _Answer | None:
        if source in self.failures:
            return None
        try:
            return question()
        except NetworkError as error:
            self.failures[source] = error
            self.refused.append(Refused(part=part, source=source, candidate=part, reason=error.message))
            return None

    def kinds_of_reasons(self, part: str) -> tuple[tuple[str, str], ...]:
        """What each source that answered says against ``part``, whatever it calls that."""
        return tuple(dict.fromkeys((entry.source, entry.reason) for entry in self._refusals({part})))

    def reasons(self, parts: Collection[str]) -> tuple[str, ...]:
        """Why no source that answered has ``parts``, a line for each reason of each source."""
        found: dict[tuple[str, str], list[str]] = {}
        for entry in self._refusals(parts):
            candidates = found.setdefault((entry.source, entry.reason), [])
            candidates += [entry.candidate] * (entry.candidate not in candidates)
        return tuple(
            f"{source}: {candidates[0]}{f' and {len(candidates) - 1} more' * (len(candidates) > 1)}: {reason}"
            for (source, reason), candidates in found.items()
        )

    def _refusals(self, parts: Collection[str]) -> list[Refused]:
        return [entry for entry in self.refused if entry.part in parts and entry.source not in self.failures]

    def lacking(self, groups: Sequence[_Group], platform: str, hint: str) -> Lacking:
        return Lacking(
            groups=tuple(groups),
            platform=platform,
            failures=tuple(self.failures.values()),
            silent=self.silent,
            hint=hint,
        )

    @property
    def silent(self) -> tuple[str, ...]:
        """Sources that nobody asked for and that cannot be reached."""
        return tuple(sorted({refused.source for refused in self.refused if refused.unreachable}))


def _platform(system: System, machine: Machine) -> str:
    return f"{system.label} on {machine.value}"


def choose_framework(request: ToolchainRequest, sources: Sequence[FrameworkSource]) -> Chain | Lacking:
    """The framework for ``request``: from the first source with one whose C++ ABI, proved by its export table, fits (a
    request without ABI takes the first one of the release, unseen).

    Headers that must be made out of another build's are used where no source has the build itself. One that is
    installed takes the place of sources that lack the release, not of sources that do not answer: what a kernel is
    compiled with must not depend on the weather.
    """
    decisions = _Decisions()
    for source, candidate in _in_order(decisions, request, sources):
        reason: str | None = None
        if request.abi is not None:
            facts = decisions.ask(request.part, source.label, partial(source.facts, candidate))
            if facts is None:
                continue
            reason = _unfit(request, facts)
        if reason is None:
            return Chain(
                taken=(candidate.taken(request.part),),
                refused=tuple(decisions.refused),
                unreachable=tuple(sorted(decisions.failures)),
            )
        decisions.refused.append(
            Refused(part=request.part, source=source.label, candidate=candidate.artefact.filename, reason=reason)
        )
    group = _Group(what=str(request), parts=(request.part,), reasons=decisions.reasons([request.part]))
    hint = f"name an index that has {request.framework.value} {request.release} in kernel-builder.toml ([[index]] with"
    hint += " name and url)" + (", such as PyTorch's own" if request.framework is FrameworkKind.TORCH else "")
    return decisions.lacking([group], _platform(request.system, request.machine), hint)


def _in_order(
    decisions: _Decisions, request: ToolchainRequest, sources: Sequence[FrameworkSource]
) -> Iterator[tuple[FrameworkSource, FrameworkCandidate]]:
    """The candidates of all sources, asked one after the other; at the end those whose headers must be made."""
    made: list[tuple[FrameworkSource, FrameworkCandidate]] = []
    for source in sources:
        if decisions.failures and source.label == LOCAL:
            break
        for candidate in _in_question(decisions, request, source):
            if candidate.made:
                made.append((source, candidate))
            else:
                yield source, candidate
    yield from (one for one in made if one[0].label != LOCAL or not decisions.failures)


def _in_question(
    decisions: _Decisions, request: ToolchainRequest, source: FrameworkSource
) -> Iterator[FrameworkCandidate]:
    answer = decisions.ask(request.part, source.label, partial(source.candidates, request))
    if answer is None:
        return
    candidates, refused = answer
    decisions.refused += refused
    for candidate in sorted(candidates, key=lambda c: rank_of(c, request.toolkit)):
        if request.toolkit is not None and (candidate.flavour or "").startswith(HOST.value):
            decisions.refused.append(
                Refused(
                    part=request.part,
                    source=source.label,
                    candidate=candidate.artefact.filename,
                    reason=f"{candidate.flavour} builds have no {request.toolkit.backend.label} libraries",
                )
            )
        else:
            yield candidate


def _unfit(request: ToolchainRequest, facts: FrameworkFacts) -> str | None:
    if not facts.has_headers:
        return "it contains no C++ headers"
    if facts.abi is None:
        return "the names in its libc10.so do not show its C++ ABI"
    if facts.abi is not request.abi:
        ages = {Abi.CXX11: "the new", Abi.CXX98: "the old"}
        return f"its libc10.so has {ages[facts.abi]} C++ ABI ({facts.abi.value})"
    if request.toolkit is not None and request.toolkit.backend not in facts.backends:
        return f"it is a build of torch without {request.toolkit.backend.label}"
    return None


def choose_components(
    components: Sequence[Component],
    toolkit: Toolkit,
    machine: Machine,
    sources: Sequence[ComponentSource],
    where_else: Callable[[Toolkit, Sequence[str], Sequence[str]], str],
) -> Chain | Lacking:
    """A source for each of ``components``: the compiler's from one source, each of the others from the first that has
    it.

    Where the compiler comes from a toolkit on this machine, so do its headers: one toolkit fits together best.
    ``where_else`` gives the hint for people whose sources, given by their labels, lack a part or cannot be reached.
    """
    decisions = _Decisions()
    compiler = [component for component in components if component.compiler]
    others = [component for component in components if not component.compiler]
    chosen: ComponentSource | None = None
    missing = list(others)
    for source in sources:
        wanted = [*(compiler if chosen is None else ()), *missing]
        if not wanted:
            break
        found = decisions.ask(wanted[0].name, source.label, partial(source.offers, wanted, toolkit.version, machine))
        if found is None:
            continue
        if chosen is None and _take_all(decisions, compiler, found):
            chosen = source
            if source.whole:
                _prefer(decisions, others, source.offers(others, toolkit.version, machine))
        missing = [component for component in missing if not _take(decisions, component, found)]
    required = [component.name for component in components if not component.optional]
    lacking = [name for name in required if name not in decisions.taken]
    if lacking:
        hint = where_else(toolkit, [source.label for source in sources], decisions.silent)
        groups = _groups(decisions, toolkit, lacking, whole=lacking == required)
        return decisions.lacking(groups, _platform(System.LINUX, machine), hint)
    return Chain(
        taken=tuple(decisions.taken[component.name] for component in components if component.name in decisions.taken),
        refused=tuple(decisions.refused),
        unreachable=tuple(sorted(decisions.failures)),
    )


def _groups(decisions: _Decisions, toolkit: Toolkit, lacking: Sequence[str], *, whole: bool) -> list[_Group]:
    """The parts that are lacking, put together where the reasons are the same. ``whole``: it is the whole toolkit."""
    if whole and len(lacking) > 1:
        return [_Group(what=str(toolkit), parts=tuple(lacking), reasons=decisions.reasons(lacking))]
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in lacking:
        found.setdefault(decisions.kinds_of_reasons(name), []).append(name)
    if len(found) > 1:
        # A part of the compiler that a source has, and that is not taken for another part that this source lacks.
        found.pop((), None)
    return [
        _Group(what=f"the {_enumerated(names)} of {toolkit}", parts=tuple(names), reasons=decisions.reasons(names))
        for names in found.values()
    ]


def _enumerated(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _take(decisions: _Decisions, component: Component, found: Mapping[str, Taken | Refused]) -> bool:
    if component.name in decisions.taken:
        return True
    answer = found.get(component.name)
    if isinstance(answer, Taken):
        decisions.taken[component.name] = answer
        return True
    if answer is not None:
        decisions.refused.append(answer)
    return False


def _take_all(decisions: _Decisions, compiler: Iterable[Component], found: Mapping[str, Taken | Refused]) -> bool:
    answers = [found[component.name] for component in compiler if component.name in found]
    if answers and all(isinstance(answer, Taken) for answer in answers):
        decisions.taken.update({answer.part: answer for answer in answers if isinstance(answer, Taken)})
        return True
    decisions.refused += [answer for answer in answers if isinstance(answer, Refused)]
    return False


def _prefer(decisions: _Decisions, others: Iterable[Component], found: Mapping[str, Taken | Refused]) -> None:
    """Let the compiler's own source replace what an earlier one gave."""
    for component in others:
        answer = found.get(component.name)
        before = decisions.taken.get(component.name)
        if isinstance(answer, Taken):
            decisions.taken[component.name] = answer
            if before is not None:
                decisions.refused.append(
                    Refused(
                        part=component.name,
                        source=before.source,
                        candidate=before.artefact.filename,
                        reason=f"the compiler comes from {answer.source}, which also has it",
                    )
                )
