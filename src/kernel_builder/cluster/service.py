"""What a worker does for builds: it keeps contents by digest, lays out kernels, and runs actions with its own tools.

    blobs/              contents by digest, of all builds, up to a limit; a cache as that of actions is
    run-<id>/project/   a kernel as its build has it, with the work directory in it; removed when the build is over

Nothing here knows of dask: :mod:`kernel_builder.cluster.tasks` hands in what came.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_builder.actions.model import Action
from kernel_builder.actions.places import Places
from kernel_builder.cluster.messages import LacksError, Provisions, Wanted, action_from_json, versions
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.contents import Contents, blob_digest, file_digest
from kernel_builder.engine.perform import Done, Performer
from kernel_builder.engine.processes import Processes
from kernel_builder.engine.records import Conditions, headers
from kernel_builder.engine.resources import Resources
from kernel_builder.engine.work import environment_of
from kernel_builder.errors import KernelBuilderError
from kernel_builder.files import parse_json
from kernel_builder.plan.model import BuildPlan
from kernel_builder.project.tree import WORK_DIRECTORY

WORKS = f"builds/run-*/project/{WORK_DIRECTORY}"
"""Where programs run, below a worker's directory, in whose ``builds`` the service is."""
LINK = "-> "
"""What stands before the target of a symbolic link, where a digest stands for a file."""
_POLL_SECONDS = 0.1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SAYS_FULL = ("no space left on device", "disk quota exceeded", "file size limit exceeded")
_SAYS_KILLED = (
    "killed signal terminated program",
    "virtual memory exhausted",
    "cannot allocate memory",
    "out of memory",
)

Provide = Callable[[Path, Mapping[str, Any], str], Provisions]
"""Fetches what a kernel, laid out in a directory, is compiled with, by what its build told, with the host compiler of
that digest (empty: with none of this machine's).
"""


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What a worker announces: threads and memory, and what people call its host compilers, by digest."""

    resources: Resources
    compilers: Mapping[str, str]


@dataclass
class _Home:
    """A build's own directory, and what is running in it."""

    root: Path
    processes: Processes
    contents: Contents
    lock: threading.Lock = field(default_factory=threading.Lock)
    provisions: dict[str, Provisions] = field(default_factory=dict)
    laid_out: set[str] = field(default_factory=set)
    users: int = 0
    ended: bool = False


class Service:
    """A worker's side. Safe for concurrent threads.

    ``cache`` is the action cache that it asks before anything runs, unless its build does without; ``store`` is where
    its toolchains are, ``limit`` how many bytes of contents it keeps in ``folder``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        store: Path,
        environ: Mapping[str, str],
        abilities: Abilities,
        provide: Provide,
        cache: ActionCache | None,
        limit: int,
    ) -> None:
        self._folder, self._store, self._environ = folder, store, environ
        self._abilities, self._provide, self._cache = abilities, provide, cache
        self._blobs = ActionCache(folder / "blobs", limit=limit)
        self._homes: dict[str, _Home] = {}
        self._lock = threading.Lock()
        self._closed = False

    def describe(self) -> dict[str, Any]:
        """What it announces to builds."""
        return {
            "versions": versions(),
            "threads": self._abilities.resources.processors,
            "memory": self._abilities.resources.memory,
            "compilers": dict(self._abilities.compilers),
        }

    def put(self, blobs: Mapping[str, bytes]) -> str:
        """Keep contents; what went wrong, if something did."""
        try:
            for digest, data in blobs.items():
                if self._blobs.put(data) != digest:
                    return "received contents do not match their digest"
            self._blobs.close()
        except OSError as error:
            return _told(error)
        return ""

    def perform(self, message: Mapping[str, Any], is_wanted: Wanted) -> dict[str, Any]:
        """Do what ``message`` says. The answer has ``missing`` digests, or a ``problem``, or how it ended."""
        wanted = {message["layout"], message["brief"], *message["files"].values()}
        missing = sorted(digest for digest in wanted if not self._blobs.has(digest))
        if missing:
            return {"missing": missing}
        home = self._enter(message["run"])
        try:
            return self._perform_in(home, message, is_wanted)
        except LacksError as error:
            return {"problem": str(error), "kind": "lacks"}
        except _MissingError as error:
            return {"missing": sorted(error.digests)}
        except KernelBuilderError as error:
            return {"problem": f"{error.message}{f' ({error.hint})' if error.hint else ''}", "kind": "lacks"}
        except OSError as error:
            return {"problem": _told(error), "kind": "disk"}
        finally:
            self._leave(message["run"], home)

    def end(self, run: str) -> None:
        """The build is over: stop what it runs, and remove what it left."""
        with self._lock:
            home = self._homes.get(run)
            if home is None:
                return
            home.ended = True
        home.processes.stop()
        with self._lock:
            if not home.users:
                self._remove(run, home)

    @property
    def is_busy(self) -> bool:
        """Whether something still runs for a build, as where a server that a toolchain comes from does not answer."""
        return bool(self._homes)

    def close(self) -> None:
        """Stop everything, and leave nothing. Only the end of the process ends what waits for a server."""
        self._closed = True
        for run in list(self._homes):
            self.end(run)
        end = time.monotonic() + 5
        while self._homes and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _enter(self, run: str) -> _Home:
        with self._lock:
            home = self._homes.get(run)
            if home is None or home.ended:
                root = self._folder / f"run-{blob_digest(run.encode())[:16]}-{time.monotonic_ns()}" / "project"
                (root / WORK_DIRECTORY).mkdir(parents=True)
                home = self._homes[run] = _Home(
                    root=root,
                    processes=Processes(root / WORK_DIRECTORY),
                    contents=Contents(root / WORK_DIRECTORY / "contents.json"),
                )
            home.users += 1
            return home

    def _leave(self, run: str, home: _Home) -> None:
        with self._lock:
            home.users -= 1
            if home.ended and not home.users:
                self._remove(run, home)

    def _remove(self, run: str, home: _Home) -> None:
        shutil.rmtree(home.root.parent, ignore_errors=True)
        if self._homes.get(run) is home:
            del self._homes[run]

    def _perform_in(self, home: _Home, message: Mapping[str, Any], is_wanted: Wanted) -> dict[str, Any]:
        places = Places(root=home.root, work=home.root / WORK_DIRECTORY, output=home.root / "build", store=self._store)
        with home.lock:
            if message["layout"] not in home.laid_out:
                self._lay_out(places, parse_json(self._text(message["layout"])))
                home.laid_out.add(message["layout"])
            key = f"{message['brief']} {message['compiler']}"
            if key not in home.provisions:
                brief = parse_json(self._text(message["brief"]))
                home.provisions[key] = self._provide(home.root, brief, message["compiler"])
        action = action_from_json(message["action"], home.provisions[key])
        self._lay_out(places, message["files"])
        lacking = [word for word in action.takes if not places.path(word, action).exists()]
        if lacking:
            raise LacksError(f"{', '.join(lacking)} could not be made there")
        environ = {**self._environ, **message["variables"]}
        cache = self._cache if message["cache"] else None
        performer = Performer(
            conditions=Conditions(plan=_plan(places), contents=home.contents, environ=environ),
            cache=cache,
            processes=home.processes,
        )
        environment = environment_of(action, environ, message["threads"])
        done = self._watched(home, performer, action, environment, is_wanted)
        if cache is not None:
            cache.close()
        return self._answer(performer, action, done)

    def _watched(
        self, home: _Home, performer: Performer, action: Action, environment: Mapping[str, str], is_wanted: Wanted
    ) -> Done:
        """Do the action in a thread, and stop it when nobody waits for it any more. Raises what it raises."""
        found: list[Done | BaseException] = []

        def work() -> None:
            try:
                found.append(performer.perform(action, environment)[0])
            except BaseException as error:  # noqa: BLE001  (raised below)
                found.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        delay = 0.002
        while thread.is_alive():
            thread.join(delay)
            delay = min(_POLL_SECONDS, 2 * delay)
            if not home.ended and (self._closed or not is_wanted()):
                home.ended = True  # a build that waits for one no more waits for none
                home.processes.stop()
        done = found[0]
        if isinstance(done, BaseException):
            raise done
        return done

    def _answer(self, performer: Performer, action: Action, done: Done) -> dict[str, Any]:
        contents = performer.portable.contents(action)
        if done.code != 0:
            log = performer.plan.places.path(action.log)
            text = log.read_text(encoding="utf-8", errors="replace").lower() if log.exists() else ""
            if any(says in text for says in _SAYS_FULL):
                return {"problem": "its disk is full, or a file is larger than it may write", "kind": "disk"}
            if done.code == -9 or any(says in text for says in _SAYS_KILLED):
                return {"problem": "a program was killed: it has too little memory", "kind": "memory"}
        digests = {word: self._keep(data) for word, data in contents.items()}
        return {
            "code": done.code,
            "seconds": done.seconds,
            "memory": done.memory,
            "recalled": done.recalled,
            "fell_back": done.fell_back,
            "contents": contents,
            "digests": digests,
            "outside": self._outside(performer, action) if done.code == 0 else {},
        }

    def _keep(self, data: bytes) -> str:
        """Keep what was made, for whoever links it here."""
        with contextlib.suppress(OSError):
            return self._blobs.put(data)
        return blob_digest(data)

    def _outside(self, performer: Performer, action: Action) -> dict[str, str]:
        """Digests of the headers of this very machine that the action read."""
        if action.depfile is None:
            return {}
        places = performer.plan.places
        within = tuple(f"{place}/" for place in (places.root, places.store))
        read = (os.path.normpath(path) for path in headers(places.path(action.depfile, action)) if path.startswith("/"))
        found: dict[str, str] = {}
        for path in sorted({path for path in read if not path.startswith(within)}):
            digest = performer.conditions.contents.digest(path)
            if digest is not None:
                found[path] = digest
        return found

    def _lay_out(self, places: Places, files: Mapping[str, str]) -> None:
        """Write files by words, each of which has the contents of a digest, or is a link. Raises ``OSError``."""
        missing = set()
        for word, digest in files.items():
            path = places.path(word)
            path.parent.mkdir(parents=True, exist_ok=True)
            if digest.startswith(LINK):
                with contextlib.suppress(FileExistsError):
                    path.symlink_to(digest.removeprefix(LINK))
            elif not _has(path, digest) and not self._blobs.restore(digest, path):
                missing.add(digest)
        if missing:
            raise _MissingError(missing)

    def _text(self, digest: str) -> bytes:
        data = self._blobs.blob(digest)
        if data is None:
            raise _MissingError({digest})
        return data


class _MissingError(Exception):
    """Contents went, to make room for others."""

    def __init__(self, digests: set[str]) -> None:
        super().__init__()
        self.digests = digests


def _plan(places: Places) -> BuildPlan:
    """A plan for that is run action by action."""
    return BuildPlan(places=places, name="", python_name="", variants=())


def _has(path: Path, digest: str) -> bool:
    try:
        return file_digest(path) == digest
    except OSError:
        return False


def _told(error: OSError) -> str:
    if error.errno in _FULL:
        return "its disk is full, or a file is larger than it may write"
    return f"it cannot write {error.filename or 'a file'}: {error.strerror}"
