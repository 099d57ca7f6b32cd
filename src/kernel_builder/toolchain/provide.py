"""Toolchains from the package index, in two steps: which wheels (``resolve``), and their parts on disk
(``provide``).

Resolving reads index pages alone and knows every path that providing will make, because store paths follow
from the wheels' digests. Which wheels were chosen is kept in ``<store>/resolutions/``: for a day it is used
as it is, and after that as long as the index cannot be reached, provided that everything is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.events import Notice, Reporter
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.store.index import Index, IndexFile, choose_wheel, locate
from kernel_builder.store.offline import OfflineError, is_offline
from kernel_builder.store.parallel import run_all
from kernel_builder.store.progress import Fetch
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.index_cuda import (
    build_cuda,
    choose_cuda_wheels,
    complete_releases,
    cuda_key,
    cuda_sdk,
)
from kernel_builder.toolchain.index_torch import build_torch, torch_key, torch_sdk
from kernel_builder.toolchain.link_tables import write_stubs
from kernel_builder.toolchain.model import CudaSdk, HostCompiler, TorchSdk
from kernel_builder.toolchain.recipe import Recipe, default_recipe
from kernel_builder.variants.names import Abi, Machine

_STUB_RECIPE = 1  # raise when stubs come out differently from the same tables
_FORMAT = 1
_WORKERS = 4  # entries that are provided at once
_DAY = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class ToolchainRequest:
    """What is wanted: torch ``2.13`` with a C++ ABI (``None``: whatever it has), and CUDA ``13.0`` or ``None`` for CPU
    variants, for Linux on ``machine``.
    """

    torch: str
    machine: Machine
    abi: Abi | None = None
    cuda: str | None = None

    @property
    def pattern(self) -> str:
        """A glob for the names of the variants that need it."""
        torch = "".join(self.torch.split(".")[:2])
        abi = self.abi.value if self.abi else "*"
        cuda = f"cu{self.cuda.replace('.', '')}" if self.cuda else "cpu"
        return f"torch{torch}-{abi}-{cuda}-{self.machine.value}-linux"

    def __str__(self) -> str:
        abi = f" ({self.abi.value})" if self.abi else ""
        return f"torch {self.torch}{abi}" + (f" with CUDA {self.cuda}" if self.cuda else "")


@dataclass(frozen=True, kw_only=True)
class ResolvedToolchain:
    """The exact wheels for a request, and the final values whose directories :meth:`IndexToolchains.provide`
    makes.

    ``wheels`` starts with torch's. ``expected_bytes`` is 0 when everything is in the store, ``None`` when
    something must be fetched (how much is known only once the wheels' directories are read).
    """

    request: ToolchainRequest
    torch: TorchSdk
    cuda: CudaSdk | None
    wheels: tuple[IndexFile, ...]
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
        """The files that it is made from, torch first, as far as their index describes them."""
        return tuple(
            Artefact(
                name=wheel.project,
                version=str(wheel.version),
                filename=wheel.filename,
                size=wheel.size,
                sha256=wheel.sha256,
                record_sha256=wheel.record_sha256,
            )
            for wheel in self.wheels
        )


@dataclass(frozen=True, kw_only=True)
class Provided:
    """The same values as in :class:`ResolvedToolchain`, now with everything they name on disk."""

    torch: TorchSdk
    cuda: CudaSdk | None


class IndexToolchains:
    """Toolchains out of a package index.

    ``max_age`` is how long, in seconds, a kept resolution is used without asking the index again. Everything
    is for Linux on the machine that ``host`` compiles for, and the programs among it for this machine.
    """

    def __init__(
        self,
        index: Index,
        store: Store,
        host: HostCompiler,
        reporter: Reporter,
        *,
        recipe: Recipe | None = None,
        max_age: float = _DAY,
    ) -> None:
        self._index = index
        self._store = store
        self._host = host
        self._reporter = reporter
        self._recipe = recipe or default_recipe()
        self._max_age = max_age
        self._machine = host.target.partition("-")[0]

    def artefacts(self, resolved: ResolvedToolchain) -> tuple[Artefact, ...]:
        """What the toolchain is made from, torch first; digests of RECORD are there for what is in the store."""
        known: dict[str, Artefact] = {}
        for key in (resolved.torch_key, resolved.cuda_key):
            if key is not None and self._store.has(key):
                known.update({artefact.filename: artefact for artefact in self._store.artefacts(key)})
        return tuple(known.get(artefact.filename, artefact) for artefact in resolved.artefacts)

    @property
    def bytes_received(self) -> int:
        """Bytes that came over the wire so far, index pages included."""
        return self._index.bytes_received

    def cuda_releases(self, major: int) -> tuple[str, ...]:
        """The CUDA versions of ``major`` for which the index has a complete compiler. Raises
        :class:`NetworkError`.
        """
        with self._transfers():
            return complete_releases(self._index, self._recipe, self._machine, major, build_machine())

    def resolve(self, request: ToolchainRequest) -> ResolvedToolchain:
        """Choose the wheels for ``request``; at most index pages are fetched.

        Raises :class:`ToolchainError` when the index has not what is asked for, :class:`NetworkError` when it
        cannot be asked and no complete earlier answer is in the store.
        """
        self._check_request(request)
        kept = self._read_kept(request)
        if is_offline():
            return self._resolve_offline(request, kept)
        if kept is not None and kept.age <= self._max_age:
            return kept.resolved
        try:
            with self._transfers():
                wheels = self._choose(request)
        except NetworkError as error:
            if kept is None:
                raise
            self._reporter.emit(
                Notice(
                    message=f"{error.message}; using what was chosen for {request} {_ago(kept.age)}",
                    warning=True,
                )
            )
            return kept.resolved
        self._keep(request, wheels)
        return self._describe(request, wheels)

    def _resolve_offline(self, request: ToolchainRequest, kept: _Kept | None) -> ResolvedToolchain:
        """What was chosen at any time, from any index, if all of it is in the store."""
        if kept is None:
            pattern = f"{_kept_stem(request)}-*.json"
            found = [self._read_kept_file(path, request) for path in (self._store.root / "resolutions").glob(pattern)]
            kept = min(filter(None, found), key=lambda entry: entry.age, default=None)
        if kept is None:
            raise OfflineError(
                f"the toolchain for {request} is not complete in the store ({self._store.root}), and the network must"
                " not be used (--offline)",
                hint=f"where there is a network: kernel-builder toolchain fetch '{request.pattern}'; 'toolchain export'"
                " and 'toolchain import' bring it to machines that have none",
            )
        return kept.resolved

    def resolve_locked(self, request: ToolchainRequest, artefacts: Sequence[Artefact]) -> ResolvedToolchain:
        """The toolchain for ``request`` that is made from exactly these wheels. Nothing is fetched or asked.

        Raises :class:`ToolchainError` when they are not the wheels that such a toolchain is made from.
        """
        self._check_request(request)
        by_project = {artefact.name: artefact for artefact in artefacts}
        projects = [self._recipe.torch.project]
        if request.cuda is not None:
            projects += [package.project for package in self._recipe.cuda]
        if by_project.keys() != set(projects) or len(by_project) != len(artefacts):
            odd = ", ".join(sorted(by_project.keys() ^ set(projects))) or "one of them is there twice"
            raise ToolchainError(
                f"the lock has other files for {request} than this version of kernel-builder makes it from ({odd})",
                hint="kernel-builder lock --upgrade",
            )
        return self._describe(request, tuple(_from_artefact(by_project[project]) for project in projects))

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
                if (table["recipe"], table["machine"]) != (self._recipe.digest, self._machine):
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
        torches = {resolved.torch_key: resolved for resolved in wanted}
        cudas = {resolved.cuda_key: resolved for resolved in wanted if resolved.cuda is not None}
        # The compilers first: they take longest.
        tasks = [partial(self._provide_cuda, resolved) for resolved in cudas.values()]
        tasks += [partial(self._provide_torch, resolved) for resolved in torches.values()]
        with self._transfers():
            run_all(tasks, cancel=self._index.cancel, workers=_WORKERS)
        for resolved in wanted:
            for table in resolved.torch.exports:
                if not table.is_file():
                    raise ToolchainError(
                        f"{resolved.wheels[0].filename} holds no {table.stem}: it is a torch without CUDA",
                        hint="build the CPU variants of this release, or name an index that has its CUDA build",
                    )
        return tuple(Provided(torch=resolved.torch, cuda=resolved.cuda) for resolved in wanted)

    def _provide_torch(self, resolved: ResolvedToolchain) -> None:
        wheel = resolved.wheels[0]

        def build(into: Path) -> Sequence[Artefact]:
            with self._fetching(f"torch {wheel.version}", resolved.torch_key) as (scratch, progress):
                return build_torch(
                    self._locate([wheel])[0],
                    recipe=self._recipe,
                    index=self._index,
                    scratch=scratch,
                    progress=progress,
                    into=into,
                )

        entry = self._store.ensure(resolved.torch_key, build, self._index.check)
        self._provide_stubs(resolved.torch_stubs_key, entry)

    def _provide_cuda(self, resolved: ResolvedToolchain) -> None:
        version = resolved.request.cuda
        key = resolved.cuda_key
        if version is None or key is None or resolved.cuda_stubs_key is None:
            return

        def build(into: Path) -> Sequence[Artefact]:
            with self._fetching(f"CUDA {version}", key) as (scratch, progress):
                return build_cuda(
                    self._locate(resolved.wheels[1:]),
                    version=version,
                    recipe=self._recipe,
                    index=self._index,
                    scratch=scratch,
                    progress=progress,
                    into=into,
                )

        entry = self._store.ensure(key, build, self._index.check)
        self._provide_stubs(resolved.cuda_stubs_key, entry)

    def _locate(self, wheels: Sequence[IndexFile]) -> list[IndexFile]:
        """The wheels with addresses, whenever they were chosen."""
        tasks = [partial(locate, self._index, wheel) if not wheel.url else partial(_itself, wheel) for wheel in wheels]
        return run_all(tasks, cancel=self._index.cancel)

    def _provide_stubs(self, key: StoreKey, entry: Path) -> None:
        def build(into: Path) -> Sequence[Artefact]:
            write_stubs(entry, into, self._host)
            return ()

        self._store.ensure(key, build, self._index.check)

    @contextmanager
    def _fetching(self, what: str, key: StoreKey) -> Iterator[tuple[Path, Fetch]]:
        """A scratch directory for the entry that is being built, and who hears about bytes.

        The entry's lock is held, so the directory is its alone. It stays when the network fails or the process dies,
        and the next attempt goes on with what is in it; not when what arrived was wrong.
        """
        scratch = self._store.root / "parts" / key.name
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
            self._index.resume()

    def _check_request(self, request: ToolchainRequest) -> None:
        if request.machine != self._machine:
            raise ToolchainError(f"the host compiler makes code for {self._machine}, not for {request.machine}")
        if request.cuda is None:
            return
        major = int(request.cuda.partition(".")[0])
        if major not in self._recipe.cuda_majors:
            known = " and ".join(str(number) for number in self._recipe.cuda_majors)
            raise ToolchainError(
                f"the package index has no complete compiler for CUDA {request.cuda}",
                hint=f"compilers come from the index for CUDA {known}",
            )

    def _choose(self, request: ToolchainRequest) -> tuple[IndexFile, ...]:
        torch = choose_wheel(
            self._index.files(self._recipe.torch.project),
            project=self._recipe.torch.project,
            allowed=SpecifierSet(f"=={request.torch}.*"),
            machine=self._machine,
        ).file
        if request.cuda is None:
            return (torch,)
        return (torch, *choose_cuda_wheels(request.cuda, self._index, self._recipe, self._machine, build_machine()))

    def _describe(self, request: ToolchainRequest, wheels: tuple[IndexFile, ...]) -> ResolvedToolchain:
        torch, *others = wheels
        keys: list[StoreKey] = [torch_key(torch, self._recipe)]
        keys.append(self._stubs_key(keys[0]))
        cuda: CudaSdk | None = None
        cuda_tree: StoreKey | None = None
        cuda_stubs: StoreKey | None = None
        if request.cuda is not None:
            cuda_tree = cuda_key(request.cuda, others, self._recipe)
            cuda_stubs = self._stubs_key(cuda_tree)
            keys += [cuda_tree, cuda_stubs]
            cuda = cuda_sdk(request.cuda, self._recipe, self._store.path(cuda_tree), self._store.path(cuda_stubs))
        return ResolvedToolchain(
            request=request,
            torch=torch_sdk(
                torch,
                self._recipe,
                self._store.path(keys[0]),
                self._store.path(keys[1]),
                cuda=request.cuda is not None,
            ),
            cuda=cuda,
            wheels=wheels,
            expected_bytes=0 if all(self._store.has(key) for key in keys if key not in keys[1::2]) else None,
            torch_key=keys[0],
            torch_stubs_key=keys[1],
            cuda_key=cuda_tree,
            cuda_stubs_key=cuda_stubs,
        )

    def _stubs_key(self, tables: StoreKey) -> StoreKey:
        return StoreKey.of(f"{tables.stem}-stubs", tables=tables.digest, target=self._host.target, recipe=_STUB_RECIPE)

    def _kept_path(self, request: ToolchainRequest) -> Path:
        facts = [_FORMAT, self._index.fingerprint, self._recipe.digest, self._machine]
        facts.append(request.abi)
        if build_machine() != self._machine:
            facts.append(build_machine())
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
        return self._store.root / "resolutions" / f"{_kept_stem(request)}-{digest}.json"

    def _keep(self, request: ToolchainRequest, wheels: Sequence[IndexFile]) -> None:
        path = self._kept_path(request)
        table = {
            "format": _FORMAT,
            "torch": request.torch,
            "cuda": request.cuda,
            "abi": request.abi,
            "machine": request.machine,
            "tools": build_machine(),
            "recipe": self._recipe.digest,
            "wheels": [
                {
                    "name": wheel.project,
                    "version": str(wheel.version),
                    "filename": wheel.filename,
                    "sha256": wheel.sha256,
                    "size": wheel.size,
                }
                for wheel in wheels
            ],
        }
        with contextlib.suppress(OSError):  # it only saves time; providing reports a store that cannot be written
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=path.parent, prefix=".new-", delete=False, encoding="utf-8"
            ) as file:
                json.dump(table, file, indent=1)
            Path(file.name).replace(path)

    def _read_kept(self, request: ToolchainRequest) -> _Kept | None:
        """The kept resolution, if everything that it needs from the network is in the store."""
        return self._read_kept_file(self._kept_path(request), request)

    def _read_kept_file(self, path: Path, request: ToolchainRequest) -> _Kept | None:
        """The resolution in ``path``, if it is for ``request`` and all that it needs from the network is there."""
        try:
            age = max(0.0, time.time() - path.stat().st_mtime)
            table = json.loads(path.read_text(encoding="utf-8"))
            facts = (table.get("abi"), table.get("machine"), table.get("tools"), table.get("recipe"))
            wanted = (request.abi, request.machine, build_machine(), self._recipe.digest)
            if path != self._kept_path(request) and facts != wanted:
                return None
            wheels = tuple(
                IndexFile(
                    project=entry["name"],
                    version=Version(entry["version"]),
                    filename=entry["filename"],
                    tags=frozenset(),
                    url="",
                    sha256=entry["sha256"],
                    size=entry["size"],
                )
                for entry in table["wheels"]
            )
            resolved = self._describe(request, wheels)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return _Kept(resolved=resolved, age=age) if resolved.expected_bytes == 0 else None


@dataclass(frozen=True, kw_only=True)
class _Kept:
    resolved: ResolvedToolchain
    age: float


def _itself(wheel: IndexFile) -> IndexFile:
    return wheel


def _from_artefact(artefact: Artefact) -> IndexFile:
    return IndexFile(
        project=artefact.name,
        version=Version(artefact.version),
        filename=artefact.filename,
        tags=frozenset(),
        url="",
        sha256=artefact.sha256,
        size=artefact.size,
        record_sha256=artefact.record_sha256,
    )


def _kept_stem(request: ToolchainRequest) -> str:
    return f"torch-{request.torch}-{f'cuda-{request.cuda}' if request.cuda else 'cpu'}"


def _ago(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.0f} hours ago" if hours < 48 else f"{hours / 24:.0f} days ago"
