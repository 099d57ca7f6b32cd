"""Choices that were made before: ``<store>/resolutions/`` keeps what was taken for each request, and from where."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kernel_builder.config.backends import HOST, Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.files import parse_json, write_text
from kernel_builder.store.artefact import parse_artefact
from kernel_builder.store.cache import Store
from kernel_builder.toolchain.choice import Chain, Refused, Taken, ToolchainRequest
from kernel_builder.toolchain.deciding import NoSourceError
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.kinds import Kinds
from kernel_builder.toolchain.model import HostCompiler, Toolkit
from kernel_builder.toolchain.resolved import Describer, ResolvedToolchain
from kernel_builder.toolchain.sources import Sources
from kernel_builder.variants.names import Abi, Machine, System

_FORMAT = 3
_FOLDER = "resolutions"
_REFUSAL = ".refused"


@dataclass(frozen=True, kw_only=True)
class KeptChoice:
    """A choice that was kept, and how old it is, in seconds."""

    resolved: ResolvedToolchain
    age: float


class Resolutions:
    """The kept choices of one store, for one configuration of sources."""

    def __init__(self, sources: Sources, store: Store, kinds: Kinds, describer: Describer) -> None:
        self._sources = sources
        self._folder = store.root / _FOLDER
        self._kinds = kinds
        self._describer = describer

    def file(self, request: ToolchainRequest) -> Path | None:
        """Where it is kept what was chosen for ``request``, if something was."""
        path = self._path(request)
        return path if path.is_file() else None

    def read(self, request: ToolchainRequest, host: HostCompiler) -> KeptChoice | None:
        """The kept choice, if everything that it needs from the network is in the store."""
        return self._read(self._path(request), request, host)

    def newest(self, request: ToolchainRequest, host: HostCompiler) -> KeptChoice | None:
        """As :meth:`read`, of any configuration of sources: the youngest."""
        pattern = f"{_stem(request)}-*.json"
        found = [self._read(path, request, host) for path in self._folder.glob(pattern)]
        return min(filter(None, found), key=lambda entry: entry.age, default=None)

    def requests(self, machine: str) -> tuple[ToolchainRequest, ...]:
        """What was asked for so far, on this machine or on one that exported its store; sorted."""
        found: set[ToolchainRequest] = set()
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                table = parse_json(path.read_text(encoding="utf-8"))
                if (table["recipe"], table["machine"]) != (self._describer.recipes, machine):
                    continue
                abi = Abi(table["abi"]) if table["abi"] else None
                toolkits = [Toolkit(backend=one, version=table[one.value]) for one in self._kinds if table[one.value]]
                found.add(
                    ToolchainRequest(
                        release=table["release"],
                        framework=FrameworkKind(table["framework"]),
                        machine=Machine(table["machine"]),
                        abi=abi,
                        toolkit=toolkits[0] if toolkits else None,
                        system=System(table["system"]),
                    )
                )
        return tuple(sorted(found, key=str))

    def keep(self, request: ToolchainRequest, chain: Chain) -> None:
        """Keep what was chosen for ``request``. It saves time only: others tell of a store that cannot be written."""
        table = {
            "format": _FORMAT,
            "framework": request.framework,
            "release": request.release,
            **{backend.value: _version(request, backend) for backend in self._kinds},
            "abi": request.abi,
            "machine": request.machine,
            "system": request.system,
            "tools": build_machine(),
            "recipe": self._describer.recipes,
            "taken": [{**asdict(taken), "root": str(taken.root) if taken.root else None} for taken in chain.taken],
            "refused": [asdict(refused) for refused in chain.refused],
        }
        self._write(self._path(request), table)
        with contextlib.suppress(OSError):
            self._path(request).with_suffix(_REFUSAL).unlink(missing_ok=True)

    def keep_refusal(self, request: ToolchainRequest, error: NoSourceError) -> None:
        """Keep that no source has what ``request`` needs."""
        table = {"message": error.message, "hint": error.hint, "parts": error.parts, "silent": error.silent}
        self._write(self._path(request).with_suffix(_REFUSAL), table)

    def refusal(self, request: ToolchainRequest, max_age: float) -> NoSourceError | None:
        """That no source had it, if that was found out in the last ``max_age`` seconds."""
        path = self._path(request).with_suffix(_REFUSAL)
        try:
            if not 0 <= time.time() - path.stat().st_mtime <= max_age:
                return None
            table = parse_json(path.read_text(encoding="utf-8"))
            return NoSourceError(table["message"], parts=table["parts"], silent=table["silent"], hint=table["hint"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, path: Path, table: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(table, indent=1))

    def _path(self, request: ToolchainRequest) -> Path:
        recipes = self._describer.recipes
        facts = [_FORMAT, self._sources.fingerprint, recipes, request.machine, build_machine(), request.abi]
        facts += [request.system] if request.system is not System.LINUX else []
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
        return self._folder / f"{_stem(request)}-{digest}.json"

    def _read(self, path: Path, request: ToolchainRequest, host: HostCompiler) -> KeptChoice | None:
        """The choice in ``path``, if it is for ``request`` and all that it needs from the network is there."""
        try:
            age = max(0.0, time.time() - path.stat().st_mtime)
            table = parse_json(path.read_text(encoding="utf-8"))
            facts = (table["format"], table["abi"], table["machine"], table["system"], table["tools"], table["recipe"])
            wanted = (_FORMAT, request.abi, request.machine, request.system, build_machine(), self._describer.recipes)
            if facts != wanted:
                return None
            chain = Chain(
                taken=tuple(_parse_taken(entry) for entry in table["taken"]),
                refused=tuple(Refused(**entry) for entry in table["refused"]),
            )
            if not all(self._is_as_it_was(request, taken) for taken in chain.taken if taken.root is not None):
                return None
            resolved = self._describer.describe(request, host, chain)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return KeptChoice(resolved=resolved, age=age) if resolved.expected_bytes == 0 else None

    def _is_as_it_was(self, request: ToolchainRequest, taken: Taken) -> bool:
        """Whether something outside of the store is what it was when it was chosen."""
        toolkit = request.toolkit
        components = self._kinds[toolkit.backend].recipe.components(toolkit.version) if toolkit else ()
        return self._sources.local_now(request, taken.part, taken.source, components) == taken


def _version(request: ToolchainRequest, backend: Backend) -> str | None:
    toolkit = request.toolkit
    return toolkit.version if toolkit is not None and toolkit.backend is backend else None


def _stem(request: ToolchainRequest) -> str:
    toolkit = request.toolkit
    compute = f"{toolkit.backend.value}-{toolkit.version}" if toolkit else HOST.value
    return f"{request.framework.value}-{request.release}-{compute}"


def _parse_taken(table: Mapping[str, object]) -> Taken:
    artefact, root, build = table["artefact"], table["root"], table["build"]
    if not isinstance(artefact, dict):
        raise TypeError("an artefact must be a table")
    return Taken(
        part=str(table["part"]),
        source=str(table["source"]),
        artefact=parse_artefact(artefact),
        root=Path(root) if isinstance(root, str) else None,
        build=Backend(build) if isinstance(build, str) else None,
    )
