"""A build's side: which workers there are and what they can do, contents that each gets once, and actions sent there.

The engine decides what runs next and where it fits; dask carries it there and back. So each task is bound to one
worker, and one that is lost is run again by the engine, as nobody knows better what it needs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_builder.actions.model import Action, ActionKind
from kernel_builder.cluster import tasks
from kernel_builder.cluster.messages import action_to_json, to_blob, versions
from kernel_builder.cluster.open import address_of, check_scheduler, dask_settings, in_words, needs_dask
from kernel_builder.cluster.service import LINK
from kernel_builder.engine.contents import blob_digest
from kernel_builder.engine.elsewhere import LostError, Station
from kernel_builder.engine.perform import Done, Performer
from kernel_builder.errors import BuildError, NetworkError
from kernel_builder.events import Notice, Reporter, Waiting
from kernel_builder.seen import stamp_of

_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 10.0
_SILENT_SECONDS = 5.0
"""How long a scheduler may be silent, or away, before it is gone."""
_PIECE = 16 << 20
"""Bytes of contents that are sent at a time."""
_SENDS = 5
PATIENCE = 60.0
"""How many seconds a build waits for a first worker, or for one in the place of the last that was lost."""


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """What a build sends of a kernel: ``files`` of the project by their paths in it, ``links`` with their targets,
    other ``texts`` by path, and the ``brief`` by which workers fetch toolchains. ``compilers`` are the host compilers
    that they must have themselves: what people call them, by digest.
    """

    files: Mapping[str, Path]
    links: Mapping[str, str]
    texts: Mapping[str, str]
    brief: Mapping[str, object]
    compilers: Mapping[str, str]


@dataclass
class _Worker:
    """A worker as it is known here. ``trouble`` says why it gets nothing any more."""

    address: str
    name: str
    threads: int = 0
    memory: int = 0
    compilers: Mapping[str, str] = field(default_factory=dict)
    trouble: str | None = None
    held: set[str] = field(default_factory=set)
    sending: threading.Lock = field(default_factory=threading.Lock)


def require_scheduler(address: str) -> None:
    """See that a scheduler answers at ``address``.

    Raises :class:`UsageError` without dask or for an address that is none, :class:`NetworkError` where none answers.
    """
    needs_dask()
    there = address_of(address)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with dask_settings():
        check_scheduler(there, address, 2 * _SILENT_SECONDS)


@contextmanager
def connect(address: str, parcel: Parcel, reporter: Reporter, *, patience: float = PATIENCE) -> Iterator[Cluster]:
    """The workers of the scheduler at ``address``, until the block ends.

    Raises what :func:`require_scheduler` does.
    """
    require_scheduler(address)
    there = address_of(address)
    from distributed import Client  # noqa: PLC0415

    to_scheduler: Any = Client  # types of dask are partial, and there are none where it is not installed
    with dask_settings():
        try:
            client = to_scheduler(there, timeout=_SILENT_SECONDS, set_as_default=False)
        except Exception as error:  # what answers there may speak anything, of which dask makes any error
            raise NetworkError(
                f"no scheduler responds at {address}: {in_words(error)}",
                hint="start one as docs/howto/clusters.md shows, or check the address",
            ) from error
        cluster = Cluster(client, address, parcel, reporter, patience=patience)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()


class Cluster:
    """See :class:`~kernel_builder.engine.elsewhere.OtherMachines`."""

    def __init__(
        self,
        client: Any,
        address: str,
        parcel: Parcel,
        reporter: Reporter,
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._client, self._address, self._reporter = client, address, reporter
        self._parcel, self._patience = parcel, patience
        self._run = uuid.uuid4().hex
        self._workers: dict[str, _Worker] = {}
        self._lock = threading.Lock()
        self._gone: str | None = None
        self._stopped = threading.Event()
        self._told: set[str] = set()
        self._sources: dict[str, Path | bytes] = {}
        self._seen: dict[Path, tuple[object, str]] = {}
        self._made: dict[str, str] = {}
        self._empty_since: float | None = None
        self._futures: set[Any] = set()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Look for workers, now and from now on."""
        self._look()
        self._watcher.start()

    def close(self) -> None:
        """Have workers forget the build, and end the connection."""
        self._stopped.set()
        if self._watcher.is_alive():
            self._watcher.join(2)
        addresses = list(self._workers)
        if self._gone is None and addresses:
            with contextlib.suppress(Exception):  # what is not told here, workers notice
                self._call(tasks.end, self._run, workers=addresses, on_error="ignore")
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)

    def takes(self, action: Action) -> bool:
        """All but checks: they look at what came back, here."""
        return action.kind is not ActionKind.INSPECT

    def threads(self) -> int:
        """How many threads all workers have."""
        return max(1, sum(one.threads for one in self._workers.values() if one.trouble is None))

    def sites_for(self, action: Action) -> Sequence[Station]:
        """The workers that have the action's host compiler."""
        self._check()
        wanted = self._compiler(action)
        able = [one for one in list(self._workers.values()) if one.trouble is None]
        fitting = [one for one in able if wanted is None or wanted in one.compilers]
        for one in able:
            if one not in fitting:
                label = self._parcel.compilers[wanted or ""]
                self._tell(f"the worker {one.name} gets no work that needs {label}: {_lack(one)}")
        digests = [self._made[word] for word in action.takes if word in self._made]
        fitting.sort(key=lambda one: -sum(digest in one.held for digest in digests))
        return [Station(name=one.address, threads=one.threads, memory=one.memory) for one in fitting]

    def refuse(self, waiting: Sequence[Action]) -> None:
        """See :class:`~kernel_builder.engine.elsewhere.OtherMachines`."""
        self._check()
        if any(self.sites_for(action) for action in waiting):
            self._empty_since = None
            return
        workers = list(self._workers.values())
        if not workers:
            now = time.monotonic()
            if self._empty_since is None:
                self._empty_since = now
                self._reporter.emit(Waiting(reason=f"the scheduler at {self._address} has no workers"))
            if now - self._empty_since < self._patience:
                return
            raise BuildError(
                f"the scheduler at {self._address} has had no workers for {self._patience:.0f} s",
                hint=f"on each machine, run: kernel-builder worker {self._address}",
            )
        wanted = self._compiler(waiting[0])
        told = "".join(f"\n  {one.name}: {one.trouble or _lack(one)}" for one in workers)
        need = f", which is compiled with {self._parcel.compilers[wanted]}" if wanted is not None else ""
        raise BuildError(
            f"no worker of the scheduler at {self._address} can do {waiting[0].description}{need}:{told}",
            hint=(
                "install what the workers lack, or start them from this machine's container image; or build here: "
                "kernel-builder build"
            ),
        )

    def run(self, performer: Performer, action: Action, site: Station, *, threads: int, memory: int) -> Done:
        """See :class:`~kernel_builder.engine.elsewhere.OtherMachines`."""
        worker = self._workers.get(site.name)
        if worker is None:
            raise LostError(f"the worker {site.name} is gone")
        message = self._message(performer, action, threads)
        wanted = {message["layout"], message["brief"], *message["files"].values()}
        sent = 0
        for _ in range(_SENDS):
            sent += self._send(worker, {digest for digest in wanted if not digest.startswith(LINK)})
            answer = self._ask(worker, message, memory)
            if "missing" not in answer:
                break
            with worker.sending:
                worker.held.difference_update(answer["missing"])
            wanted |= set(answer["missing"])
        else:
            answer = {"problem": "its limit (--blobs) is too small for this kernel", "kind": "lacks"}
        if "problem" in answer:
            self._give_up(worker, answer["problem"], for_good=answer["kind"] != "memory")
            raise LostError(f"{worker.name}: {answer['problem']}", more_memory=answer["kind"] == "memory")
        return self._taken(performer, action, worker, answer, sent)

    def stop(self) -> None:
        """See :class:`~kernel_builder.engine.elsewhere.OtherMachines`."""
        self._stopped.set()
        with self._lock:
            futures = list(self._futures)
        for future in futures:
            with contextlib.suppress(Exception):
                future.cancel()

    def _taken(
        self, performer: Performer, action: Action, worker: _Worker, answer: Mapping[str, Any], sent: int
    ) -> Done:
        contents: Mapping[str, bytes] = answer["contents"]
        damaged = [word for word, data in contents.items() if blob_digest(data) != answer["digests"].get(word)]
        missing = () if damaged else performer.portable.take(action, contents)
        if answer["code"] == 0 and (damaged or missing):
            self._give_up(worker, f"{', '.join([*damaged, *missing])} arrived damaged, or did not arrive")
            raise LostError(f"{worker.name}: {worker.trouble}")
        here = performer.conditions.contents
        differing = [path for path, digest in answer["outside"].items() if here.digest(path) != digest]
        if differing:
            self._give_up(worker, f"{differing[0]} is a different file there")
            raise LostError(f"{worker.name}: {worker.trouble}")
        with worker.sending:
            worker.held.update(answer["digests"].values())
        return Done(
            code=answer["code"],
            seconds=answer["seconds"],
            memory=answer["memory"],
            recalled=answer["recalled"],
            fell_back=answer["fell_back"],
            worker=worker.name,
            sent=sent,
            received=sum(map(len, contents.values())),
        )

    def _message(self, performer: Performer, action: Action, threads: int) -> dict[str, Any]:
        plan = performer.plan
        layout = {f"{{project}}/{_word(path)}": self._digest(file) for path, file in self._parcel.files.items()}
        layout |= {f"{{project}}/{_word(path)}": f"{LINK}{to}" for path, to in self._parcel.links.items()}
        layout |= {f"{{project}}/{_word(path)}": self._blob(text.encode()) for path, text in self._parcel.texts.items()}
        for generated in plan.generated:
            layout[generated.path] = self._blob(generated.content.encode())
        made = [word for word in action.takes if word.startswith("{work}") and word not in layout]
        files = {word: self._digest(plan.places.path(word, action)) for word in made}
        self._made.update(files)
        return {
            "run": self._run,
            "layout": self._blob(to_blob(layout)),
            "brief": self._blob(to_blob(self._parcel.brief)),
            "compiler": self._compiler(action) or "",
            "action": action_to_json(action),
            "files": files,
            "variables": performer.conditions.deciding(action),
            "threads": threads,
            "cache": performer.cache is not None,
        }

    def _blob(self, data: bytes) -> str:
        digest = blob_digest(data)
        self._sources[digest] = data
        return digest

    def _digest(self, file: Path) -> str:
        """The digest of a file as it is. Raises :class:`BuildError` where it went."""
        shown = stamp_of(str(file))
        known = self._seen.get(file)
        if known is not None and shown is not None and known[0] == shown:
            return known[1]
        digest = blob_digest(_read(file))
        self._sources[digest] = file
        self._seen[file] = (shown, digest)
        return digest

    def _send(self, worker: _Worker, wanted: set[str]) -> int:
        """Send the contents that the worker has not got from here; how many bytes these are."""
        sent = 0
        with worker.sending:
            piece: dict[str, bytes] = {}
            for digest in sorted(wanted - worker.held):
                source = self._sources[digest]
                data = source if isinstance(source, bytes) else _read(source)
                if blob_digest(data) != digest:
                    raise BuildError(f"{source!s} changed during the build", hint="run the build again")
                piece[digest] = data
                if sum(map(len, piece.values())) >= _PIECE:
                    sent += self._put(worker, tasks.put, piece)
                    piece = {}
            if piece:
                sent += self._put(worker, tasks.put, piece)
        return sent

    def _put(self, worker: _Worker, put: Callable[..., str], piece: dict[str, bytes]) -> int:
        try:
            trouble = self._call(put, piece, workers=[worker.address])[worker.address]
        except BuildError:
            raise
        except Exception as error:  # dask raises what its transports do
            self._check()
            raise LostError(f"the worker {worker.name} was lost") from error
        if trouble:
            self._give_up(worker, trouble)
            raise LostError(f"{worker.name}: {trouble}")
        worker.held.update(piece)
        return sum(map(len, piece.values()))

    def _ask(self, worker: _Worker, message: dict[str, Any], memory: int) -> dict[str, Any]:
        """The worker's answer, once it has that many bytes of ``memory``: other builds may use it, too. What needs more
        than there is has all of it. Raises :class:`LostError`, :class:`BuildError`.
        """
        self._check()
        ended = threading.Event()
        future = self._client.submit(
            tasks.perform,
            message,
            workers=[worker.address],
            allow_other_workers=False,
            resources={tasks.MEMORY: min(memory, worker.memory)},
            key=f"kernel-builder-{uuid.uuid4().hex}",
            pure=False,
            retries=0,
        )
        with self._lock:
            self._futures.add(future)
        try:
            future.add_done_callback(lambda _: ended.set())
            while not ended.wait(_POLL_SECONDS):
                self._check()
                self._check_is_there(worker)
            self._check()
            answer: dict[str, Any] = future.result(timeout=_ANSWER_SECONDS)
        except (LostError, BuildError):
            raise
        except Exception as error:  # dask raises what its transports do
            self._check()
            raise LostError(f"the worker {worker.name} was lost ({in_words(error)})") from error
        else:
            return answer
        finally:
            with self._lock:
                self._futures.discard(future)
            if not self._stopped.is_set() and self._gone is None:
                with contextlib.suppress(Exception):
                    future.cancel() if not future.done() else future.release()

    def _check(self) -> None:
        """Raises :class:`BuildError` where nothing can go on."""
        if self._gone is not None:
            raise BuildError(
                f"lost the scheduler at {self._address}: {self._gone}",
                hint="start it and its workers, then run the build again; it continues where it stopped",
            )
        if self._stopped.is_set():
            raise BuildError("the build was stopped")

    def _check_is_there(self, worker: _Worker) -> None:
        if worker.address not in self._workers:
            raise LostError(f"the worker {worker.name} was lost")

    def _watch(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            try:
                self._look()
            except BuildError:
                return

    def _look(self) -> None:
        """See which workers there are. Raises :class:`BuildError` where the scheduler does not answer."""
        try:
            listed = self._client.sync(self._client.scheduler.identity, callback_timeout=_SILENT_SECONDS)["workers"]
        except Exception as error:  # noqa: BLE001  (dask raises what its transports do)
            if self._stopped.is_set():
                return
            self._gone = in_words(error)
            self._check()
        for address in set(self._workers) - set(listed):
            del self._workers[address]
        new = {address: one for address, one in listed.items() if address not in self._workers}
        if new:
            self._meet(new)

    def _meet(self, new: Mapping[str, Mapping[str, Any]]) -> None:
        """Ask workers what they have. One that does not answer is asked again when it is looked for."""
        try:
            answers = self._call(tasks.describe, workers=list(new), on_error="return")
        except Exception:  # noqa: BLE001  (one of them has just gone)
            return
        for address, told in answers.items():
            name = str(new[address]["name"])
            worker = _Worker(address=address, name=address if name == address else f"{name} ({address})")
            if isinstance(told, OSError):
                continue
            if not isinstance(told, dict):
                self._give_up(worker, "it was not started by 'kernel-builder worker'")
            else:
                worker.threads, worker.memory = told["threads"], told["memory"]
                worker.compilers = told["compilers"]
                theirs = told["versions"]
                others = [
                    f"{key} {theirs.get(key)}, not {own}" for key, own in versions().items() if theirs.get(key) != own
                ]
                if others:
                    self._give_up(worker, f"it has {'; '.join(others)}")
            self._workers[address] = worker

    def _give_up(self, worker: _Worker, reason: str, *, for_good: bool = True) -> None:
        """Send nothing any more to a worker, and say so once."""
        if for_good:
            worker.trouble = reason
            self._tell(f"the worker {worker.name} gets no work: {reason}")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._reporter.emit(Notice(message=text, warning=True))

    def _compiler(self, action: Action) -> str | None:
        """The digest of the host compiler of ``action``, unless that is fetched."""
        return next((tool.digest for tool in action.tools if tool.digest in self._parcel.compilers), None)

    def _call(self, function: Callable[..., Any], *arguments: object, **options: object) -> Any:
        return self._client.run(function, *arguments, **options)


def _lack(worker: _Worker) -> str:
    return f"it has {', '.join(sorted(worker.compilers.values())) or 'no compiler'}"


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BuildError(f"{file}: {error.strerror}", hint="run the build again") from error


def _word(path: str) -> str:
    return path.replace("{", "{{").replace("}", "}}")
