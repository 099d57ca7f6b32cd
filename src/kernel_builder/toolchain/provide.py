"""Toolchains, in two steps: from where (``resolve``), and their parts on disk (``provide``).

Resolving reads index pages, and of a torch wheel the names that prove its C++ ABI, and knows every path that providing
will make, because store paths follow from the digests of what was chosen. Choices are kept in
``<store>/resolutions/``: for a day they are used as they are, and after that as long as a source cannot be reached,
provided that everything is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.events import Notice, Reporter
from kernel_builder.store.artefact import Artefact, ArtefactKind, parse_artefact
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.store.index import locate
from kernel_builder.store.offline import OfflineError
from kernel_builder.store.parallel import run_all
from kernel_builder.store.progress import Fetch
from kernel_builder.toolchain.choice import (
    TORCH,
    Chain,
    CudaTree,
    Refused,
    Taken,
    ToolchainRequest,
    choose_components,
    choose_torch,
)
from kernel_builder.toolchain.host import HostCompilers, build_machine, choose_host_compiler
from kernel_builder.toolchain.link_tables import EXPORTS, write_stubs
from kernel_builder.toolchain.local import header_directories
from kernel_builder.toolchain.model import CudaSdk, HostCompiler, TorchSdk
from kernel_builder.toolchain.recipe import Component, Recipe, default_recipe
from kernel_builder.toolchain.sources import PARTS, Sources
from kernel_builder.variants.names import Abi, Machine

GPU_CODES = "gpu-codes.txt"

_STUB_RECIPE = 1  # raise when stubs come out differently from the same tables
_FORMAT = 2
_WORKERS = 4  # entries that are provided at once
_DAY = 24 * 3600.0
_PROBE_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class ResolvedToolchain:
    """What a request is met with: the exact files, and the final values whose directories :meth:`Toolchains.provide`
    makes.

    ``chain`` says which part comes from where, torch first, and what was refused. ``host`` is the compiler that fits.
    ``expected_bytes`` is 0 when everything is in the store, ``None`` when something must be fetched (how much is known
    only once the wheels' directories are read).
    """

    request: ToolchainRequest
    host: HostCompiler
    torch: TorchSdk
    cuda: CudaSdk | None
    chain: Chain = field(repr=False)
    expected_bytes: int | None
    torch_key: StoreKey
    torch_stubs_key: StoreKey
    cuda_key: StoreKey | None
    cuda_stubs_key: StoreKey | None

    @property
    def fetched_keys(self) -> tuple[StoreKey, ...]:
        """The entries of the store that come from elsewhere; the others are made from these on this machine."""
        return (self.torch_key,) if self.cuda_key is None else (self.torch_key, self.cuda_key)

    @property
    def artefacts(self) -> tuple[Artefact, ...]:
        """The files that it is made from, torch first, each once, as far as their source describes them."""
        return tuple(dict.fromkeys(taken.artefact for taken in self.chain.taken))


@dataclass(frozen=True, kw_only=True)
class Provided:
    """The same values as in :class:`ResolvedToolchain`, now with everything they name on disk."""

    torch: TorchSdk
    cuda: CudaSdk | None


@dataclass(frozen=True, kw_only=True)
class _Tree:
    """An entry of the store with tables of libraries, and the one with the stubs that are made from them."""

    host: HostCompiler
    key: StoreKey
    stubs: StoreKey
    build: Callable[[Path], Sequence[Artefact]]
    compiler: bool = False


class Toolchains:
    """Toolchains out of ``sources``, for the compilers ``hosts`` of this machine.

    ``max_age`` is how long, in seconds, a kept choice is used without asking again.
    With ``offline`` nothing is fetched.
    """

    def __init__(
        self,
        sources: Sources,
        store: Store,
        hosts: HostCompilers,
        reporter: Reporter,
        *,
        offline: bool = False,
        recipe: Recipe | None = None,
        max_age: float = _DAY,
    ) -> None:
        self._offline = offline
        self._sources = sources
        self._store = store
        self._hosts = hosts
        self._reporter = reporter
        self._recipe = recipe or default_recipe()
        self._max_age = max_age

    @property
    def bytes_received(self) -> int:
        """Bytes that came over the wire so far, index pages included."""
        return self._sources.network.bytes_received

    def artefacts(self, resolved: ResolvedToolchain) -> tuple[Artefact, ...]:
        """What the toolchain is made from, torch first; digests of RECORD are there for what is in the store."""
        known: dict[str, Artefact] = {}
        for key in resolved.fetched_keys:
            if self._store.has(key):
                known.update({artefact.filename: artefact for artefact in self._store.artefacts(key)})
        return tuple(known.get(artefact.filename, artefact) for artefact in resolved.artefacts)

    def resolve(self, request: ToolchainRequest, *, fresh: bool = False) -> ResolvedToolchain:
        """Choose the sources of every part of ``request``. ``fresh`` asks them even where a choice is kept.

        Raises :class:`ToolchainError` with all reasons when no source has what is asked for, or no compiler of this
        machine fits; :class:`NetworkError` when a source cannot be asked and no complete earlier choice is in the
        store.
        """
        host = self._host(request)
        kept = self._read_kept(request, host)
        if self._offline:
            return self._resolve_offline(request, host, kept)
        if kept is not None and kept.age <= self._max_age and not fresh:
            return kept.resolved
        try:
            with self._transfers():
                chain = self._choose(request)
        except NetworkError as error:
            if kept is None:
                raise
            return self._keep_to(kept, error.message)
        if chain.unreachable:
            reasons = [entry.reason for entry in chain.refused if entry.source in chain.unreachable]
            if kept is not None:
                return self._keep_to(kept, reasons[0])
            for source, reason in zip(chain.unreachable, reasons, strict=False):
                self._reporter.emit(Notice(message=f"{source} is passed over: {reason}", warning=True))
        else:
            self._keep(request, chain)
        return self._describe(request, host, chain)

    def _host(self, request: ToolchainRequest) -> HostCompiler:
        if request.machine != self._hosts.machine:
            raise ToolchainError(f"the compilers are for {self._hosts.machine}, not for {request.machine.value}")
        return choose_host_compiler(self._hosts, torch=request.torch, cuda=request.cuda, recipe=self._recipe)

    def resolve_locked(self, request: ToolchainRequest, artefacts: Sequence[Artefact]) -> ResolvedToolchain:
        """The toolchain for ``request`` that is made from exactly these files, wherever they come from now. Nothing is
        fetched, and no server is asked.

        Raises :class:`ToolchainError` when they are not the files that such a toolchain is made from, when something on
        this machine that is among them has changed, or when no compiler fits.
        """
        taken = [self._taken_from_lock(request, TORCH, artefacts, lambda a: a.name == self._recipe.torch.project)]
        for component in self._recipe.cuda.components(request.cuda) if request.cuda is not None else ():
            taken.append(self._taken_from_lock(request, component.name, artefacts, partial(_is_part_of, component)))
        unused = {artefact.filename for artefact in artefacts} - {part.artefact.filename for part in taken}
        if unused:
            raise _other_files(request, f"nothing of it comes from {', '.join(sorted(unused))}")
        return self._describe(request, self._host(request), Chain(taken=tuple(taken)))

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

        with self._transfers():
            tasks = [partial(one, artefact) for artefact in artefacts]
            return tuple(run_all(tasks, cancel=self._sources.network.cancel))

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
            return f"{artefact.filename}: the SHA-256 of its RECORD is {found}, and {artefact.record_sha256} was locked"

        with self._transfers():
            tasks = [partial(one, artefact) for artefact in artefacts]
            return tuple(text for text in run_all(tasks, cancel=self._sources.network.cancel) if text is not None)

    def _taken_from_lock(
        self,
        request: ToolchainRequest,
        part: str,
        artefacts: Sequence[Artefact],
        fits: Callable[[Artefact], bool],
    ) -> Taken:
        # One archive may hold what a wheel was taken for: then, as when it was chosen, the order decides.
        found = sorted(filter(fits, artefacts), key=lambda artefact: self._sources.rank(artefact.source))
        if not found:
            raise _other_files(request, f"it has none for {part}")
        if found[0].kind is not ArtefactKind.LOCAL:
            return Taken(part=part, source=found[0].source, artefact=found[0])
        now = self._sources.local_now(request, part, found[0].source, self._recipe)
        if now is None or now.artefact != found[0]:
            raise ToolchainError(
                f"{part} of {request} was {found[0].filename} on this machine, which has changed or is gone",
                hint="kernel-builder lock --upgrade",
            )
        return now

    def _keep_to(self, kept: _Kept, reason: str) -> ResolvedToolchain:
        message = f"{reason}; using what was chosen for {kept.resolved.request} {_ago(kept.age)}"
        self._reporter.emit(Notice(message=message, warning=True))
        return kept.resolved

    def _choose(self, request: ToolchainRequest) -> Chain:
        torch = choose_torch(request, self._sources.torch)
        if request.cuda is None:
            return torch
        components = self._recipe.cuda.components(request.cuda)
        cuda = choose_components(components, request.cuda, request.machine, self._sources.cuda)
        return Chain(
            taken=torch.taken + cuda.taken,
            refused=torch.refused + cuda.refused,
            unreachable=tuple(sorted({*torch.unreachable, *cuda.unreachable})),
        )

    def _resolve_offline(self, request: ToolchainRequest, host: HostCompiler, kept: _Kept | None) -> ResolvedToolchain:
        """What was chosen at any time, from any source, if all of it is in the store; else what this machine has."""
        if kept is None:
            pattern = f"{_kept_stem(request)}-*.json"
            found = [
                self._read_kept_file(path, request, host) for path in (self._store.root / "resolutions").glob(pattern)
            ]
            kept = min(filter(None, found), key=lambda entry: entry.age, default=None)
        if kept is not None:
            return kept.resolved
        with contextlib.suppress(NetworkError, ToolchainError):
            resolved = self._describe(request, host, self._choose(request))
            if self._is_at_hand(resolved):
                return resolved
        raise self._not_here([request])

    def _not_here(self, requests: Sequence[ToolchainRequest]) -> OfflineError:
        names = ", ".join(dict.fromkeys(str(request) for request in requests))
        patterns = " ".join(dict.fromkeys(f"'{request.pattern}'" for request in requests))
        return OfflineError(
            f"the toolchain for {names} is not complete in the store ({self._store.root}), and the network must not be"
            " used (--offline)",
            hint=f"where there is a network: kernel-builder toolchain fetch {patterns}; 'toolchain export' and"
            " 'toolchain import' bring it to machines that have none",
        )

    def _is_at_hand(self, resolved: ResolvedToolchain) -> bool:
        """Whether everything is on this machine, in the store or elsewhere."""
        return resolved.expected_bytes == 0 or all(
            taken.root is not None or self._sources.is_at_hand(taken.source) for taken in resolved.chain.taken
        )

    def kept_file(self, request: ToolchainRequest) -> Path | None:
        """Where it is kept what was chosen for ``request``, if something was."""
        path = self._kept_path(request)
        return path if path.is_file() else None

    def kept_requests(self) -> tuple[ToolchainRequest, ...]:
        """What was asked for so far, on this machine or on one that exported its store; sorted."""
        found: set[ToolchainRequest] = set()
        for path in (self._store.root / "resolutions").glob("torch-*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                table = json.loads(path.read_text(encoding="utf-8"))
                if (table["recipe"], table["machine"]) != (self._recipes, self._hosts.machine):
                    continue
                abi = Abi(table["abi"]) if table["abi"] else None
                found.add(
                    ToolchainRequest(
                        torch=table["torch"], machine=Machine(table["machine"]), abi=abi, cuda=table["cuda"]
                    )
                )
        return tuple(sorted(found, key=str))

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
        trees = {tree.stubs: tree for resolved in wanted for tree in self._trees(resolved)}
        # The compilers first: they take longest.
        ordered = sorted(trees.values(), key=lambda tree: (not tree.compiler, tree.key.name))
        with self._transfers():
            run_all(
                [partial(self._provide_tree, tree) for tree in ordered],
                cancel=self._sources.network.cancel,
                workers=_WORKERS,
            )
        for resolved in wanted:
            for table in resolved.torch.exports:
                if not table.is_file():
                    raise ToolchainError(
                        f"{resolved.artefacts[0].filename} holds no {table.stem}: it is a torch without CUDA",
                        hint="build the CPU variants of this release, or name an index that has its CUDA build",
                    )
        return tuple(Provided(torch=resolved.torch, cuda=resolved.cuda) for resolved in wanted)

    def _trees(self, resolved: ResolvedToolchain) -> list[_Tree]:
        torch, *others = resolved.chain.taken
        trees = [
            _Tree(
                host=resolved.host,
                key=resolved.torch_key,
                stubs=resolved.torch_stubs_key,
                build=partial(self._build_torch, resolved.torch_key, torch),
            )
        ]
        if resolved.cuda is not None and resolved.cuda_key is not None and resolved.cuda_stubs_key is not None:
            trees.append(
                _Tree(
                    host=resolved.host,
                    key=resolved.cuda_key,
                    stubs=resolved.cuda_stubs_key,
                    build=partial(self._build_cuda, resolved.cuda_key, resolved.cuda.version, others),
                    compiler=True,
                )
            )
        return trees

    def _provide_tree(self, tree: _Tree) -> None:
        check = self._sources.network.check
        entry = self._store.ensure(tree.key, tree.build, check)

        def stubs(into: Path) -> Sequence[Artefact]:
            write_stubs(entry, into, tree.host)
            return ()

        self._store.ensure(tree.stubs, stubs, check)

    def _build_torch(self, key: StoreKey, taken: Taken, into: Path) -> Sequence[Artefact]:
        with self._fetching(f"torch {taken.artefact.version}", key) as (scratch, progress):
            return self._sources.torch_named(taken.source).fill(taken, scratch=scratch, progress=progress, into=into)

    def _build_cuda(self, key: StoreKey, version: str, taken: Sequence[Taken], into: Path) -> Sequence[Artefact]:
        """Everything that the sources give in one tree; see nvcc run, and ask it what it can make code for."""
        components = {component.name: component for component in self._recipe.cuda.components(version)}
        by_source: dict[str, list[tuple[Component, Taken]]] = {}
        for part in taken:
            by_source.setdefault(part.source, []).append((components[part.part], part))

        def fill(label: str, parts: Sequence[tuple[Component, Taken]]) -> Sequence[Artefact]:
            what = f"CUDA {version}" if len(by_source) == 1 else f"CUDA {version} ({label})"
            with self._fetching(what, key, label) as (scratch, progress):
                tree = CudaTree(cuda=version, into=into, scratch=scratch, progress=progress)
                return self._sources.cuda_named(label).fill(parts, tree)

        filled = run_all(
            [partial(fill, label, parts) for label, parts in by_source.items()], cancel=self._sources.network.cancel
        )
        nvcc = _nvcc(taken, into)
        _check_compiler(nvcc, version)
        (into / GPU_CODES).write_text(_ask_codes(nvcc, version), encoding="ascii")
        shutil.rmtree(self._store.root / PARTS / key.name, ignore_errors=True)
        return [artefact for artefacts in filled for artefact in artefacts]

    @contextmanager
    def _fetching(self, what: str, key: StoreKey, part: str = "") -> Iterator[tuple[Path, Fetch]]:
        """A scratch directory for the entry that is being built, and who hears about bytes.

        The entry's lock is held, so the directory is its alone. It stays when the network fails or the process dies,
        and the next attempt goes on with what is in it; not when what arrived was wrong.
        """
        scratch = self._store.root / PARTS / key.name / part
        scratch.mkdir(parents=True, exist_ok=True)
        progress = Fetch(what, self._reporter)
        try:
            yield scratch, progress
        except (IntegrityError, ToolchainError):
            shutil.rmtree(scratch)
            raise
        shutil.rmtree(scratch)
        progress.finish()

    @contextmanager
    def _transfers(self) -> Iterator[None]:
        """A failure cancels the transfers beside it; when all have ended, new ones may start."""
        try:
            yield
        finally:
            self._sources.network.resume()

    def _describe(self, request: ToolchainRequest, host: HostCompiler, chain: Chain) -> ResolvedToolchain:
        torch, *others = chain.taken
        torch_key = self._sources.torch_key(torch)
        torch_stubs = self._stubs_key(torch_key, host)
        keys = [torch_key]
        cuda: CudaSdk | None = None
        cuda_tree: StoreKey | None = None
        cuda_stubs: StoreKey | None = None
        if request.cuda is not None:
            cuda_tree = StoreKey.of(
                f"cuda-{request.cuda}",
                parts=sorted(f"{part.part} {part.artefact.identity}" for part in others),
                recipe=self._recipe.cuda.digest,
            )
            cuda_stubs = self._stubs_key(cuda_tree, host)
            keys.append(cuda_tree)
            cuda = self._cuda_sdk(request.cuda, others, self._store.path(cuda_tree), self._store.path(cuda_stubs))
        return ResolvedToolchain(
            request=request,
            host=host,
            torch=self._torch_sdk(
                torch, self._store.path(torch_key), self._store.path(torch_stubs), cuda=request.cuda is not None
            ),
            cuda=cuda,
            chain=chain,
            expected_bytes=0 if all(self._store.has(key) for key in keys) else None,
            torch_key=torch_key,
            torch_stubs_key=torch_stubs,
            cuda_key=cuda_tree,
            cuda_stubs_key=cuda_stubs,
        )

    def _torch_sdk(self, taken: Taken, entry: Path, stubs: Path, *, cuda: bool) -> TorchSdk:
        recipe = self._recipe.torch
        names = sorted(library.soname for library in recipe.libraries if cuda or not library.cuda)
        root = entry if taken.root is None else taken.root
        return TorchSdk(
            version=taken.artefact.version.partition("+")[0],
            include=tuple(root / folder for folder in recipe.include_directories),
            libraries=stubs,
            exports=tuple(entry / EXPORTS / f"{name}.txt" for name in names),
        )

    def _cuda_sdk(self, version: str, taken: Sequence[Taken], entry: Path, stubs: Path) -> CudaSdk:
        sonames = [library.soname for part in self._recipe.cuda.components(version) for library in part.libraries]
        roots = dict.fromkeys(part.root for part in taken if part.root is not None)
        include = [folder for root in roots for folder in header_directories(root)]
        if any(part.root is None for part in taken):
            include += [entry / folder for folder in self._recipe.cuda.include_directories]
        return CudaSdk(
            version=version,
            nvcc=_nvcc(taken, entry),
            include=tuple(include),
            libraries=stubs,
            exports=tuple(entry / EXPORTS / f"{name}.txt" for name in sorted(sonames)),
            gpu_codes=entry / GPU_CODES,
        )

    def _stubs_key(self, tables: StoreKey, host: HostCompiler) -> StoreKey:
        return StoreKey.of(f"{tables.stem}-stubs", tables=tables.digest, target=host.target, recipe=_STUB_RECIPE)

    @property
    def _recipes(self) -> str:
        return f"{self._recipe.torch.digest} {self._recipe.cuda.digest}"

    def _kept_path(self, request: ToolchainRequest) -> Path:
        facts = [_FORMAT, self._sources.fingerprint, self._recipes, request.machine, build_machine(), request.abi]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
        return self._store.root / "resolutions" / f"{_kept_stem(request)}-{digest}.json"

    def _keep(self, request: ToolchainRequest, chain: Chain) -> None:
        path = self._kept_path(request)
        table = {
            "format": _FORMAT,
            "torch": request.torch,
            "cuda": request.cuda,
            "abi": request.abi,
            "machine": request.machine,
            "tools": build_machine(),
            "recipe": self._recipes,
            "taken": [{**asdict(taken), "root": str(taken.root) if taken.root else None} for taken in chain.taken],
            "refused": [asdict(refused) for refused in chain.refused],
        }
        with contextlib.suppress(OSError):  # it only saves time; providing reports a store that cannot be written
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=path.parent, prefix=".new-", delete=False, encoding="utf-8"
            ) as file:
                json.dump(table, file, indent=1)
            Path(file.name).replace(path)

    def _read_kept(self, request: ToolchainRequest, host: HostCompiler) -> _Kept | None:
        """The kept choice, if everything that it needs from the network is in the store."""
        return self._read_kept_file(self._kept_path(request), request, host)

    def _read_kept_file(self, path: Path, request: ToolchainRequest, host: HostCompiler) -> _Kept | None:
        """The choice in ``path``, if it is for ``request`` and all that it needs from the network is there."""
        try:
            age = max(0.0, time.time() - path.stat().st_mtime)
            table = json.loads(path.read_text(encoding="utf-8"))
            facts = (table["format"], table["abi"], table["machine"], table["tools"], table["recipe"])
            if facts != (_FORMAT, request.abi, request.machine, build_machine(), self._recipes):
                return None
            chain = Chain(
                taken=tuple(_parse_taken(entry) for entry in table["taken"]),
                refused=tuple(Refused(**entry) for entry in table["refused"]),
            )
            if not all(self._is_as_it_was(request, taken) for taken in chain.taken if taken.root is not None):
                return None
            resolved = self._describe(request, host, chain)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return _Kept(resolved=resolved, age=age) if resolved.expected_bytes == 0 else None

    def _is_as_it_was(self, request: ToolchainRequest, taken: Taken) -> bool:
        """Whether something outside of the store is what it was when it was chosen."""
        return self._sources.local_now(request, taken.part, taken.source, self._recipe) == taken


@dataclass(frozen=True, kw_only=True)
class _Kept:
    resolved: ResolvedToolchain
    age: float


def _is_part_of(component: Component, artefact: Artefact) -> bool:
    """Whether a component is taken out of ``artefact``."""
    if artefact.kind is ArtefactKind.LOCAL:
        return artefact.name == component.name
    if artefact.kind is ArtefactKind.PACKAGE:
        return component.debian
    if artefact.kind is ArtefactKind.ARCHIVE:
        return artefact.name == component.redistrib
    return component.wheel is not None and artefact.name == component.wheel.project


def _other_files(request: ToolchainRequest, what: str) -> ToolchainError:
    return ToolchainError(
        f"the lock has other files for {request} than this version of kernel-builder makes it from: {what}",
        hint="kernel-builder lock --upgrade",
    )


def _parse_taken(table: Mapping[str, object]) -> Taken:
    artefact, root = table["artefact"], table["root"]
    if not isinstance(artefact, dict):
        raise TypeError("an artefact must be a table")
    return Taken(
        part=str(table["part"]),
        source=str(table["source"]),
        artefact=parse_artefact(artefact),
        root=Path(root) if isinstance(root, str) else None,
    )


def _nvcc(taken: Sequence[Taken], entry: Path) -> Path:
    root = next((part.root for part in taken if part.part == "nvcc"), None)
    return (entry if root is None else root) / "bin" / "nvcc"


def _check_compiler(nvcc: Path, version: str) -> None:
    """See that nvcc starts here and is of the version that was asked for."""
    if not nvcc.with_name("nvcc.profile").is_file() and not str(nvcc).startswith("/usr/"):
        raise ToolchainError(
            f"there is no nvcc.profile beside the nvcc of CUDA {version}, which would not find its parts"
        )
    answer = _ask(nvcc, "--version", version)
    if f"release {version}," not in answer:
        raise ToolchainError(f"nvcc of CUDA {version} says it is another: {answer.strip()[-200:]}")


def _ask_codes(nvcc: Path, version: str) -> str:
    """What ``nvcc --list-gpu-code`` prints, sorted: one code a line."""
    words = _ask(nvcc, "--list-gpu-code", version).split()
    return "".join(f"{code}\n" for code in sorted(words) if code.startswith("sm_"))


def _ask(nvcc: Path, question: str, version: str) -> str:
    try:
        completed = subprocess.run(
            [nvcc, question],
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(
            f"nvcc of CUDA {version} does not run on this machine: {error}",
            hint="is the cache on a disk that is mounted noexec? KERNEL_BUILDER_CACHE names another",
        ) from error
    return completed.stdout


def _kept_stem(request: ToolchainRequest) -> str:
    return f"torch-{request.torch}-{f'cuda-{request.cuda}' if request.cuda else 'cpu'}"


def _ago(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.0f} hours ago" if hours < 48 else f"{hours / 24:.0f} days ago"
