"""Toolchains, in two steps: from where (``resolve``), and their parts on disk (``provide``).

Resolving reads index pages, and of a torch wheel the names that prove its C++ ABI, and knows every path that providing
will make. Choices are kept: for a day they are used as they are, and after that as long as a source cannot be reached,
provided that everything is there.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kernel_builder.config.backends import HOST
from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.events import Notice, Reporter
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.cache import Store
from kernel_builder.store.index import locate
from kernel_builder.store.offline import OfflineError
from kernel_builder.store.parallel import run_all
from kernel_builder.toolchain.apple import find_apple
from kernel_builder.toolchain.choice import Chain, Taken, ToolchainRequest
from kernel_builder.toolchain.cxx_libraries import is_cxx_library
from kernel_builder.toolchain.deciding import (
    Lacking,
    NoSourceError,
    all_of,
    choose_components,
    choose_framework,
    settle,
)
from kernel_builder.toolchain.host import (
    HostCompilers,
    Purpose,
    Rejected,
    choose_host_compiler,
    judge_host_compilers,
)
from kernel_builder.toolchain.kept import KeptChoice, Resolutions
from kernel_builder.toolchain.kinds import Kinds, ToolkitKind
from kernel_builder.toolchain.model import HostChoice, HostCompiler
from kernel_builder.toolchain.recipe import Component, bound_for
from kernel_builder.toolchain.resolved import Describer, Provided, ResolvedToolchain
from kernel_builder.toolchain.sources import Sources
from kernel_builder.toolchain.trees import Trees
from kernel_builder.toolchain.zig import ZigCompilers, is_zig
from kernel_builder.variants.names import System

CHOICE_SECONDS = 24 * 3600.0
"""How long a kept choice is used without asking again."""
_HOUR = 3600.0


def purpose_of(request: ToolchainRequest, kinds: Kinds) -> Purpose:
    """What the host compiler for ``request`` must serve."""
    toolkit = request.toolkit
    bound = bound_for(kinds[toolkit.backend].recipe.host_compilers, toolkit.version) if toolkit is not None else None
    return Purpose(release=request.release, framework=request.framework, toolkit=toolkit, bound=bound)


class Toolchains:
    """Toolchains out of ``sources``, for the compilers ``hosts`` of this machine, with toolkits of ``kinds``.

    ``max_age`` is how long, in seconds, a kept choice is used without asking again.
    With ``offline`` nothing is fetched. ``zig`` has a compiler for where no other serves.
    """

    def __init__(
        self,
        sources: Sources,
        store: Store,
        hosts: HostCompilers,
        reporter: Reporter,
        kinds: Kinds,
        *,
        offline: bool = False,
        max_age: float = CHOICE_SECONDS,
        zig: ZigCompilers | None = None,
    ) -> None:
        self._offline = offline
        self._sources = sources
        self._store = store
        self._hosts = hosts
        self._zig = zig
        self._reporter = reporter
        self._kinds = kinds
        self._describer = Describer(sources, store, kinds)
        self._kept = Resolutions(sources, store, kinds, self._describer)
        self._trees = Trees(sources, store, kinds, reporter, hosts.environ)
        self._max_age = max_age
        self._told: set[str] = set()

    @property
    def bytes_received(self) -> int:
        """Bytes that came over the wire so far, index pages included."""
        return self._sources.network.bytes_received

    def artefacts(self, resolved: ResolvedToolchain) -> tuple[Artefact, ...]:
        """What the toolchain is made from, the framework first; digests of RECORD are there for what the store has."""
        known: dict[str, Artefact] = {}
        for key in resolved.fetched_keys:
            if self._store.has(key):
                known.update({artefact.filename: artefact for artefact in self._store.artefacts(key)})
        return tuple(known.get(artefact.filename, artefact) for artefact in resolved.artefacts)

    def resolve(self, request: ToolchainRequest, *, fresh: bool = False, recall: bool = False) -> ResolvedToolchain:
        """Choose the sources of every part of ``request``. ``fresh`` asks them even where a choice is kept; with
        ``recall`` those that answered and had nothing are not asked again for an hour.

        Raises :class:`ToolchainError` with all that is lacking and all reasons: what no source has, and whether no
        compiler of this machine fits; :class:`NetworkError` when a source cannot be asked and no complete earlier
        choice is in the store.
        """
        try:
            host = self._host(request, fresh=fresh)
        except ToolchainError as error:
            raise self._with_what_else_is_lacking(error, request, recall=recall) from error
        kept = self._kept.read(request, host)
        if self._offline:
            return self._resolve_offline(request, host, kept)
        if kept is not None and kept.age <= self._max_age and not fresh:
            return kept.resolved
        try:
            chain = self._choose_or_recall(request, recall=recall)
        except NetworkError as error:
            if kept is None:
                raise
            return self._keep_to(kept, error.message)
        if chain.unreachable:
            reasons = {entry.source: entry.reason for entry in chain.refused if entry.source in chain.unreachable}
            if kept is not None:
                return self._keep_to(kept, "; ".join(dict.fromkeys(reasons.values())))
            for source, reason in reasons.items():
                self._reporter.emit(Notice(message=f"{source} is skipped: {reason}", warning=True))
        else:
            self._kept.keep(request, chain)
        self._tell_who_is_silent(chain)
        return self._describer.describe(request, host, chain)

    def _choose_or_recall(self, request: ToolchainRequest, *, recall: bool) -> Chain:
        """What the sources have. Raises as :func:`~kernel_builder.toolchain.deciding.settle` does; with ``recall``
        without asking, where nobody had it a short time ago.
        """
        refusal = self._kept.refusal(request, min(self._max_age, _HOUR)) if recall else None
        if refusal is not None and not self._is_overtaken(request, refusal):
            raise refusal
        try:
            return self._choose(request)
        except NoSourceError as error:
            self._kept.keep_refusal(request, error)
            raise

    def _with_what_else_is_lacking(
        self, error: ToolchainError, request: ToolchainRequest, *, recall: bool
    ) -> ToolchainError | NetworkError:
        """``error``, that no compiler fits, and what the sources lack besides; who does not answer now is left out."""
        if not self._offline:
            try:
                self._choose_or_recall(request, recall=recall)
            except NoSourceError as other:
                return all_of([error, other])
            except NetworkError:
                pass
        return error

    def _is_overtaken(self, request: ToolchainRequest, refusal: NoSourceError) -> bool:
        """Whether a source on this machine, or one that could not be reached then, has now what none had, or says
        something else of a framework: another environment is active.
        """

        def asked(label: str) -> bool:
            return label in refusal.silent or self._sources.is_at_hand(label)

        answers: list[Chain | Lacking] = []
        if request.part in refusal.parts:
            sources = self._sources.frameworks[request.framework]
            answers.append(choose_framework(request, [source for source in sources if asked(source.label)]))
        if {*refusal.parts} - {request.part}:
            answers.append(self._choose_toolkit(request, asked, parts=refusal.parts))
        lacking = [answer for answer in answers if isinstance(answer, Lacking)]
        said = [text for one in lacking if request.part in one.parts for group in one.groups for text in group.reasons]
        if not all(text in refusal.message for text in said):
            return True
        still = {part for one in lacking for part in one.parts}
        return any(one.failures for one in lacking) or not still.issuperset(refusal.parts)

    def _tell_who_is_silent(self, chain: Chain) -> None:
        """Say once which sources that nobody asked for cannot be reached."""
        for entry in chain.refused:
            if entry.unreachable and entry.source not in self._told:
                self._told.add(entry.source)
                self._reporter.emit(Notice(message=f"the source '{entry.source}' is skipped: {entry.reason}"))

    def _host(self, request: ToolchainRequest, *, locked: Sequence[Artefact] = (), fresh: bool = False) -> HostCompiler:
        """The compiler for ``request``. What is fetched for it is made of ``locked``, if the compiler is among it."""
        if request.machine != self._hosts.machine:
            raise ToolchainError(f"the compilers are for {self._hosts.machine}, not for {request.machine.value}")
        if request.system is System.DARWIN:
            return find_apple(self._hosts.environ).host
        purpose = purpose_of(request, self._kinds)
        if self._zig is None or (not self._zig.asked and judge_host_compilers(self._hosts, purpose)[0] is not None):
            return choose_host_compiler(self._hosts, purpose)
        try:
            found = self._zig.provide(purpose, locked=locked, fresh=fresh)
        except (ToolchainError, NetworkError) as error:
            if self._zig.asked or isinstance(error, IntegrityError):
                raise
            found = Rejected(path=Path(HostChoice.ZIG), reason=error.message)
        if isinstance(found, HostCompiler):
            return found
        return choose_host_compiler(replace(self._hosts, rejected=(*self._hosts.rejected, found)), purpose)

    def resolve_locked(self, request: ToolchainRequest, artefacts: Sequence[Artefact]) -> ResolvedToolchain:
        """The toolchain for ``request`` that is made from exactly these files, wherever they come from now. Nothing is
        fetched, and no server is asked.

        Raises :class:`ToolchainError` when they are not the files that such a toolchain is made from, when something on
        this machine that is among them has changed, or when no compiler fits.
        """
        host = self._host(request, locked=artefacts)
        artefacts = [artefact for artefact in artefacts if not (is_zig(artefact) or is_cxx_library(artefact))]
        project = self._sources.recipes[request.framework].project
        taken = [self._taken_from_lock(request, request.part, artefacts, lambda a: a.name == project)]
        for component in self._components(request):
            is_part = partial(self._kind(request).is_part, component)
            if not component.optional or any(map(is_part, artefacts)):
                taken.append(self._taken_from_lock(request, component.name, artefacts, is_part))
        unused = {artefact.filename for artefact in artefacts} - {part.artefact.filename for part in taken}
        if unused:
            raise _other_files(request, f"it does not use {', '.join(sorted(unused))}")
        return self._describer.describe(request, host, Chain(taken=tuple(taken)))

    def with_records(self, resolved: ResolvedToolchain) -> tuple[Artefact, ...]:
        """:meth:`artefacts`, and the digest of every wheel's RECORD, for which those that are not in the store are
        opened.

        Raises :class:`NetworkError`, :class:`IntegrityError`.
        """
        artefacts = self.artefacts(resolved)
        indexes = {index.label: index for index in self._sources.network.indexes}

        def one(artefact: Artefact) -> Artefact:
            index = indexes.get(artefact.source)
            if artefact.kind is not ArtefactKind.WHEEL or artefact.record_sha256 or index is None:
                return artefact
            with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
                wheel = index.open(locate(index, artefact), Path(scratch), lambda _: None)
                return replace(artefact, record_sha256=wheel.record_sha256)

        tasks = [partial(one, artefact) for artefact in artefacts]
        return tuple(run_all(tasks, transfers=self._sources.network))

    def differences(self, artefacts: Sequence[Artefact]) -> tuple[str, ...]:
        """What their indexes say of wheels now that is not what they were: gone, another file, or with another RECORD.
        Raises :class:`NetworkError`.
        """
        indexes = {index.label: index for index in self._sources.network.indexes}

        def one(artefact: Artefact) -> str | None:
            index = indexes.get(artefact.source)
            if artefact.kind is not ArtefactKind.WHEEL or index is None:
                return None
            try:
                with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
                    wheel = index.open(locate(index, artefact), Path(scratch), lambda _: None)
                    found = wheel.record_sha256
            except (ToolchainError, IntegrityError) as error:
                return error.message
            if artefact.record_sha256 in {None, found}:
                return None
            return f"{artefact.filename}: the SHA-256 of its RECORD is {found}, but {artefact.record_sha256} was locked"

        tasks = [partial(one, artefact) for artefact in artefacts]
        return tuple(text for text in run_all(tasks, transfers=self._sources.network) if text is not None)

    def _taken_from_lock(
        self,
        request: ToolchainRequest,
        part: str,
        artefacts: Sequence[Artefact],
        fits: Callable[[Artefact], bool],
    ) -> Taken:
        # One archive may hold what a wheel was taken for: then, as when it was chosen, the order decides.
        own = request.toolkit is None or part == request.part
        build = self._sources.build_for(request) if part == request.part else None
        of = request.framework if own or request.toolkit is None else request.toolkit.backend
        found = sorted(filter(fits, artefacts), key=lambda artefact: self._sources.rank(of, artefact.source))
        if not found:
            raise _other_files(request, f"no file provides {part}")
        if found[0].kind is not ArtefactKind.LOCAL:
            return Taken(part=part, source=found[0].source, artefact=found[0], build=build)
        now = self._sources.local_now(request, part, found[0].source, self._components(request), was=found[0])
        if now is None or now.artefact != found[0]:
            raise ToolchainError(
                f"{part} of {request} was {found[0].filename} on this machine, which has changed or is gone",
                hint="run: kernel-builder lock --upgrade",
            )
        return now

    def _keep_to(self, kept: KeptChoice, reason: str) -> ResolvedToolchain:
        message = f"{reason}; using what was chosen for {kept.resolved.request} {_ago(kept.age)}"
        self._reporter.emit(Notice(message=message, warning=True))
        return kept.resolved

    def _kind(self, request: ToolchainRequest) -> ToolkitKind:
        assert request.toolkit is not None  # noqa: S101  (callers ask for what has one)
        return self._kinds[request.toolkit.backend]

    def _components(self, request: ToolchainRequest) -> tuple[Component, ...]:
        return () if request.toolkit is None else self._kind(request).recipe.components(request.toolkit.version)

    def _choose(self, request: ToolchainRequest) -> Chain:
        answers = [choose_framework(request, self._sources.frameworks[request.framework])]
        if request.toolkit is not None:
            answers.append(self._choose_toolkit(request))
        return settle(answers, str(request))

    def _choose_toolkit(
        self,
        request: ToolchainRequest,
        asked: Callable[[str], bool] = lambda _: True,
        *,
        parts: Collection[str] | None = None,
    ) -> Chain | Lacking:
        """A source for each component (of ``parts`` alone, and what belongs together with them) of those that ``asked``
        admits.
        """
        assert request.toolkit is not None  # noqa: S101  (callers ask for what has one)
        sources = self._sources.toolkits[request.toolkit.backend]
        components = self._components(request)
        if parts is not None:
            in_compiler = any(component.compiler for component in components if component.name in parts)
            components = tuple(one for one in components if one.name in parts or (in_compiler and one.compiler))
        return choose_components(
            components,
            request.toolkit,
            request.machine,
            [source for source in sources if asked(source.label)],
            self._kind(request).where_else,
        )

    def _resolve_offline(
        self, request: ToolchainRequest, host: HostCompiler, kept: KeptChoice | None
    ) -> ResolvedToolchain:
        """What was chosen at any time, from any source, if all of it is in the store; else what this machine has."""
        kept = kept or self._kept.newest(request, host)
        if kept is not None:
            return kept.resolved
        with contextlib.suppress(NetworkError, ToolchainError):
            resolved = self._describer.describe(request, host, self._choose(request))
            if self._is_at_hand(resolved):
                return resolved
        raise self._not_here([request])

    def _not_here(self, requests: Sequence[ToolchainRequest]) -> OfflineError:
        names = ", ".join(dict.fromkeys(str(request) for request in requests))
        patterns = " ".join(dict.fromkeys(f"'{request.pattern}'" for request in requests))
        return OfflineError(
            f"the toolchain for {names} is not complete in the store ({self._store.root}), but --offline"
            " forbids using the network",
            hint=(
                f"with network access, run: kernel-builder toolchain fetch {patterns}; 'toolchain export' and "
                "'toolchain import' copy it to machines without a network"
            ),
        )

    def _is_at_hand(self, resolved: ResolvedToolchain) -> bool:
        """Whether everything is on this machine, in the store or elsewhere."""
        return resolved.expected_bytes == 0 or all(
            taken.root is not None or self._sources.is_at_hand(taken.source) for taken in resolved.chain.taken
        )

    def kept_file(self, request: ToolchainRequest) -> Path | None:
        """Where it is kept what was chosen for ``request``, if something was."""
        return self._kept.file(request)

    def kept_requests(self) -> tuple[ToolchainRequest, ...]:
        """What was asked for so far, on this machine or on one that exported its store; sorted."""
        return self._kept.requests(self._hosts.machine)

    def weigh(self, resolved: ResolvedToolchain) -> Mapping[str, int]:
        """About how many bytes are still to be fetched of each file that ``resolved`` is made from, by its name; 0 for
        what is on this machine. Of wheels only parts are fetched. Raises :class:`NetworkError`.
        """
        return self._trees.weigh(resolved)

    def provide(self, resolved: ResolvedToolchain) -> Provided:
        """Fetch what is missing of ``resolved``, verified, and make the link stubs.

        Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` and
        :class:`ToolchainError`; what was complete before the failure stays in the store, nothing else does.
        """
        return self.provide_all([resolved])[0]

    def provide_all(self, wanted: Sequence[ResolvedToolchain]) -> tuple[Provided, ...]:
        """:meth:`provide` for several at once; what they share is fetched once. The first failure ends all of them."""
        if self._offline and not all(map(self._is_at_hand, wanted)):
            raise self._not_here([resolved.request for resolved in wanted if not self._is_at_hand(resolved)])
        self._trees.provide(wanted)
        for resolved in wanted:
            for table in resolved.framework.exports:
                if not table.is_file():
                    build = f"a build of {resolved.request.framework.value} without {_label(resolved)}"
                    raise ToolchainError(
                        f"{resolved.artefacts[0].filename} contains no {table.stem}: it is {build}",
                        hint=f"build the {HOST.label} variants of this release, or set an index that has its"
                        f" {_label(resolved)} build",
                    )
        return tuple(Provided(framework=resolved.framework, toolkit=resolved.toolkit) for resolved in wanted)


def _label(resolved: ResolvedToolchain) -> str:
    toolkit = resolved.request.toolkit
    return toolkit.backend.label if toolkit is not None else "the libraries that kernels are linked with"


def _other_files(request: ToolchainRequest, what: str) -> ToolchainError:
    return ToolchainError(
        f"the lock lists different files for {request} than this version of kernel-builder uses: {what}",
        hint="run: kernel-builder lock --upgrade",
    )


def _ago(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.0f} hours ago" if hours < 48 else f"{hours / 24:.0f} days ago"
