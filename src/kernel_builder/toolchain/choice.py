"""Which source each part of a toolchain comes from: the first, in the user's order, that has it.

A candidate that is not taken keeps its reason, so that an error, and ``toolchain explain``, can name everything that
was tried. Sources are asked for all that is still missing at once, and only while something is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from packaging.version import Version

from kernel_builder.config.backends import HOST, Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import NetworkError, ToolchainError
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.progress import Progress
from kernel_builder.toolchain.model import Toolkit
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.settings import LOCAL
from kernel_builder.variants.names import Abi, Machine, System

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, kw_only=True)
class ToolchainRequest:
    """What is wanted: release ``2.13`` of a framework with a C++ ABI (``None``: whatever it has), and a toolkit or
    ``None`` for backends without one, for ``system`` on ``machine``.
    """

    release: str
    machine: Machine
    abi: Abi | None = None
    toolkit: Toolkit | None = None
    framework: FrameworkKind = FrameworkKind.TORCH
    system: System = System.LINUX

    @property
    def part(self) -> str:
        """What the framework's part of the toolchain is called; the others are named as the table names components."""
        return self.framework.value

    @property
    def compute(self) -> tuple[Backend | None, str]:
        """The backend of the toolkit, and its version."""
        return (None, "") if self.toolkit is None else (self.toolkit.backend, self.toolkit.version)

    @property
    def pattern(self) -> str:
        """A glob for the names of the variants that need it."""
        name = f"{self.framework.value}{''.join(self.release.split('.')[:2])}"
        abi = self.abi.value if self.abi else "*"
        abis = f"-{abi}" if self.framework is FrameworkKind.TORCH else ""
        compute = self.toolkit.compute if self.toolkit else HOST.value
        return f"{name}{abis}-{compute}-{self.machine.value}-{self.system.value}"

    def __str__(self) -> str:
        abi = f" ({self.abi.value})" if self.abi else ""
        return f"{self.framework.value} {self.release}{abi}" + (f" with {self.toolkit}" if self.toolkit else "")


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A part that was found: what it is, from where, and the file that holds it.

    ``root`` is set when it is used where it lies, outside of the store. ``build`` is the backend for which torch has a
    build with headers of its own, where it is taken for that.
    """

    part: str
    source: str
    artefact: Artefact
    root: Path | None = None
    build: Backend | None = None


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Something that was looked at and not taken. ``candidate`` is a file, or what was looked for. ``unreachable``: the
    source, which nobody asked for, does not answer.
    """

    part: str
    source: str
    candidate: str
    reason: str
    unreachable: bool = False

    def __str__(self) -> str:
        return f"{self.source}: {self.candidate}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class FrameworkCandidate:
    """A framework that may fit. ``version`` has its flavour (``2.6.0+cu126``), as far as its name tells. ``build`` is
    that of :class:`Taken`; ``made``: its headers are those of another build, of which that one's are made.
    """

    version: Version
    artefact: Artefact
    root: Path | None = None
    build: Backend | None = None
    made: bool = False

    def taken(self, part: str) -> Taken:
        """It, taken as ``part``."""
        return Taken(part=part, source=self.artefact.source, artefact=self.artefact, root=self.root, build=self.build)

    @property
    def flavour(self) -> str | None:
        """``cu126``, ``cpu``, ``rocm6.2``; ``None`` when its name does not say."""
        return self.version.local


@dataclass(frozen=True, kw_only=True)
class FrameworkFacts:
    """What a look into a framework showed. ``abi`` is ``None`` when its libraries do not prove one; ``backends`` are
    those whose libraries it has.
    """

    abi: Abi | None
    backends: frozenset[Backend]
    has_headers: bool


@dataclass(frozen=True, kw_only=True)
class ToolkitTree:
    """A toolkit that is being put together.

    ``into`` is its root, ``version`` its version, ``scratch`` a directory that
    keeps what arrives until all of it has; ``progress`` hears about bytes.
    """

    version: str
    into: Path
    scratch: Path
    progress: Progress


class ComponentSource(Protocol):
    """Somewhere that components of a backend's toolkits come from."""

    @property
    def label(self) -> str:
        """What people call it, and what locks and manifests hold."""
        ...

    @property
    def whole(self) -> bool:
        """Whether its other components are preferred to everyone else's when its compiler is taken."""
        ...

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """For each component by name: the file that would be taken, or why there is none. Raises
        :class:`NetworkError` when it cannot be asked.
        """
        ...

    def weigh(self, parts: Sequence[tuple[Component, Taken]], scratch: Path) -> Mapping[str, int]:
        """About how many bytes :meth:`fill` fetches of each file, by its name. Raises :class:`NetworkError`."""
        ...

    def fill(self, parts: Sequence[tuple[Component, Taken]], tree: ToolkitTree) -> Sequence[Artefact]:
        """Put what it offered into the tree, verified, with tables of its libraries. What is used in place gets tables
        alone.
        """
        ...


class FrameworkSource(Protocol):
    """Somewhere that a framework comes from."""

    @property
    def label(self) -> str:
        """See :class:`ComponentSource`."""
        ...

    def candidates(self, request: ToolchainRequest) -> tuple[Sequence[FrameworkCandidate], Sequence[Refused]]:
        """What has that release for that machine, best first, and those that are out of the question. Raises
        :class:`NetworkError` when it cannot be asked.
        """
        ...

    def facts(self, candidate: FrameworkCandidate) -> FrameworkFacts:
        """Look into one. Raises :class:`NetworkError`, :class:`IntegrityError`."""
        ...

    def weigh(self, taken: Taken) -> int:
        """About how many bytes :meth:`fill` fetches. Raises :class:`NetworkError`."""
        ...

    def fill(self, taken: Taken, *, scratch: Path, progress: Progress, into: Path) -> Sequence[Artefact]:
        """Put headers and tables of libraries into ``into``; tables alone when it is used in place. ``scratch`` keeps
        what arrives until all of it has.
        """
        ...


def whole_files(parts: Iterable[tuple[Component, Taken]]) -> Mapping[str, int]:
    """What :meth:`ComponentSource.weigh` answers where files are fetched as a whole; what is used in place is not."""
    artefacts = (taken.artefact for _, taken in parts)
    return {a.filename: 0 if a.kind is ArtefactKind.LOCAL else a.size or 0 for a in artefacts}


@dataclass(frozen=True, kw_only=True)
class Chain:
    """What was decided: parts taken, the framework first, in the table's order; and everything refused, as it was met.

    ``unreachable`` names sources that did not answer.
    """

    taken: tuple[Taken, ...]
    refused: tuple[Refused, ...] = ()
    unreachable: tuple[str, ...] = ()


class NoSourceError(ToolchainError):
    """No source has ``part``. ``silent`` are sources that nobody asked for and that cannot be reached."""

    def __init__(self, message: str, *, part: str, silent: Sequence[str] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.part = part
        self.silent = tuple(silent)


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

    def fail(
        self, part: str, what: str, machine: Machine, hint: str, system: System = System.LINUX
    ) -> ToolchainError | NetworkError:
        """The error for a part that nobody has; a network error when somebody who may have it did not answer. Both
        have all reasons.
        """
        first = next(iter(self.failures), None)
        reasons = "".join(
            f"\n    {refused}" for refused in self.refused if refused.part == part and refused.source != first
        )
        if first is not None:
            failure = self.failures[first]
            others = f"\nno other source has {what}:{reasons}" if reasons else ""
            # A new error, for a source keeps its own and raises it again. Not a copy: a library may have taught `copy`
            # to share what an error holds, as tblib does.
            return type(failure)(failure.message + others, hint=failure.hint)
        reasons = f":{reasons}" if reasons else "; the configured sources have no candidates"
        return NoSourceError(
            f"no source has {what} for {system.label} on {machine.value}{reasons}",
            part=part,
            silent=self.silent,
            hint=hint,
        )

    @property
    def silent(self) -> tuple[str, ...]:
        """Sources that nobody asked for and that cannot be reached."""
        return tuple(sorted({refused.source for refused in self.refused if refused.unreachable}))


def choose_framework(request: ToolchainRequest, sources: Sequence[FrameworkSource]) -> Chain:
    """The framework for ``request``: from the first source with one whose C++ ABI, proved by its export table, fits (a
    request without ABI takes the first one of the release, unseen).

    One that is installed takes the place of sources that lack the release, not of sources that do not answer: what
    a kernel is compiled with must not depend on the weather.

    Raises :class:`ToolchainError` with all reasons when there is none, :class:`NetworkError`.
    """
    decisions = _Decisions()
    for source in sources:
        if decisions.failures and source.label == LOCAL:
            break
        for candidate in _in_question(decisions, request, source):
            reason: str | None = None
            if request.abi is not None:
                facts = decisions.ask(request.part, source.label, partial(source.facts, candidate))
                if facts is None:
                    break
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
    raise decisions.fail(
        request.part,
        str(request),
        request.machine,
        "set an index that has it in kernel-builder.toml ([[index]] with name and url)"
        + (", such as PyTorch's own" if request.framework is FrameworkKind.TORCH else ""),
        request.system,
    )


def _in_question(
    decisions: _Decisions, request: ToolchainRequest, source: FrameworkSource
) -> Iterator[FrameworkCandidate]:
    answer = decisions.ask(request.part, source.label, partial(source.candidates, request))
    if answer is None:
        return
    candidates, refused = answer
    decisions.refused += refused
    for candidate in sorted(candidates, key=lambda c: rank_of(c, request.toolkit)):
        if request.toolkit is not None and candidate.flavour is not None and candidate.flavour.startswith(HOST.value):
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


def rank_of(candidate: FrameworkCandidate, toolkit: Toolkit | None) -> tuple[bool, tuple[int, ...], int]:
    """Smaller is better: what need not be made; newest patch; then the flavour of this very toolkit, of its major, any
    other.
    """
    newest = (candidate.made, tuple(-part for part in (*candidate.version.release, candidate.version.post or 0)))
    flavour = candidate.flavour
    if toolkit is None or flavour is None:
        return *newest, 0 if flavour is None or flavour.startswith(HOST.value) else 1
    flavour = flavour.replace(".", "")  # rocm7.2 is for what variants call rocm72
    wanted = toolkit.compute
    major = f"{toolkit.backend.prefix}{toolkit.version.partition('.')[0]}"
    return *newest, 0 if flavour.startswith(wanted) else 1 if flavour.startswith(major) else 2


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
) -> Chain:
    """A source for each of ``components``: the compiler's from one source, each of the others from the first that has
    it.

    Where the compiler comes from a toolkit on this machine, so do its headers: one toolkit fits together best.
    ``where_else`` gives the hint for people whose sources, given by their labels, lack a part or cannot be reached.
    Raises :class:`ToolchainError` with all reasons for the first part that nobody has, :class:`NetworkError`.
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
    for component in components:
        if component.name not in decisions.taken and not component.optional:
            hint = where_else(toolkit, [source.label for source in sources], decisions.silent)
            raise decisions.fail(component.name, f"the {component.name} of {toolkit}", machine, hint)
    return Chain(
        taken=tuple(decisions.taken[component.name] for component in components if component.name in decisions.taken),
        refused=tuple(decisions.refused),
        unreachable=tuple(sorted(decisions.failures)),
    )


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
