"""Does one action: recalls what it makes from the cache, or runs its steps, of which single ones may be recalled.

The first line of a log can be pasted into a shell; what the programs wrote follows.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.actions.model import Action, ActionKind, Step
from kernel_builder.engine.cache import ActionCache, Made
from kernel_builder.engine.contents import Contents, blob_digest, text_digest
from kernel_builder.engine.processes import Processes
from kernel_builder.engine.records import Record, digest_of, headers
from kernel_builder.plan.model import BuildPlan

_FORMAT = 2
_LONGEST = 1_000_000
"""Linux takes about two megabytes of arguments; linkers read more than that from a file."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How an action ended: its exit code, and what it cost if it ran. ``recalled``: the cache had what it makes.
    ``fell_back`` says why its fallback ran.
    """

    code: int
    seconds: float
    memory: int = 0
    recalled: bool = False
    fell_back: str | None = None


@dataclass(frozen=True, kw_only=True)
class Performer:
    """Does actions of ``plan``. Safe for concurrent threads; two of them never do the same action."""

    plan: BuildPlan
    contents: Contents
    cache: ActionCache | None
    processes: Processes

    def perform(self, action: Action, environment: Mapping[str, str]) -> tuple[Done, Record | None]:
        """Make the outputs of ``action``; the record of it, if it ended well. A failing one leaves no output behind."""
        begun, began = time.monotonic(), time.time_ns()
        made = [*self._made(action), *action.scratch]
        for folder in {self._path(word, action).parent for word in made}:
            folder.mkdir(parents=True, exist_ok=True)
        self._remove(action, action.makes)
        key = self._key(action, environment)

        def current(word: str) -> str | None:
            own = word.replace("{own}/", f"{{work}}/{action.variant}/")
            return self.contents.digest(str(self._path(own, action)))

        found = self.cache.find(key, current) if self.cache is not None else None
        if found is not None and self._restore(action, found):
            done = Done(code=0, seconds=found.seconds, memory=found.memory, recalled=True, fell_back=found.fell_back)
            return done, self._record(action, done, began)
        try:
            done = self._run(action, environment, begun)
        finally:
            self._remove(action, action.scratch)
        if done.code != 0:
            self._remove(action, action.outputs)
            return done, None
        record = self._record(action, done, began)
        if record is not None:
            self._keep(key, action, record)
        return done, record

    def _run(self, action: Action, environment: Mapping[str, str], begun: float) -> Done:
        code, memory = self._steps(action, action.steps, environment)
        reason = None
        if code > 0 and action.fallback:
            reason = _complaint(self._path(action.log))
            code, more = self._steps(action, action.fallback, environment)
            memory = max(memory, more)
        return Done(code=code, seconds=time.monotonic() - begun, memory=memory, fell_back=reason)

    def _steps(self, action: Action, steps: Sequence[Step], environment: Mapping[str, str]) -> tuple[int, int]:
        """The exit code of the last step that ran, and the peak of memory."""
        log = self._path(action.log)
        commands = [self.plan.places.expanded(action, step.command) for step in steps]
        log.write_text(f"{' && '.join(map(shlex.join, commands))}\n", encoding="utf-8", errors="surrogateescape")
        memory = 0
        for step, command in zip(steps, commands, strict=True):
            self._remove(action, step.writes)
            key = self._step_key(action, step)
            if key is not None and self._recall_step(action, step, key):
                continue
            size = log.stat().st_size
            ended = self.processes.run(self._shortened(action, command), environment, log)
            memory = max(memory, ended.memory)
            if ended.code != 0:
                return ended.code, memory
            # What a program said may name lines, and the next text may have others: then it must say it again.
            if key is not None and self.cache is not None and log.stat().st_size == size:
                with contextlib.suppress(OSError):
                    made = self._contents_of(action, step.writes)
                    self.cache.keep(key, made, Made(reads={}, blobs={}, seconds=0, memory=ended.memory))
        return 0, memory

    def _shortened(self, action: Action, command: tuple[str, ...]) -> tuple[str, ...]:
        if action.kind is not ActionKind.LINK or sum(map(len, command)) < _LONGEST:
            return command
        arguments = self._path(action.log).with_suffix(".arguments")
        text = "".join(f"{shlex.quote(argument)}\n" for argument in command[1:])
        arguments.write_text(text, encoding="utf-8", errors="surrogateescape")
        return command[0], f"@{arguments}"

    def _key(self, action: Action, environment: Mapping[str, str]) -> str:
        facts = [
            _FORMAT,
            action.kind.value,
            [[self._neutral(action, word) for word in step.command] for step in (*action.steps, *action.fallback)],
            [self._neutral(action, word) for word in action.outputs],
            action.identity,
            environment.get("SOURCE_DATE_EPOCH"),
        ]
        return blob_digest(json.dumps(facts).encode("utf-8", "surrogateescape"))

    def _step_key(self, action: Action, step: Step) -> str | None:
        """What decides a step alone; ``None`` where that is not known."""
        if self.cache is None or step.reads is None:
            return None
        reads = []
        for word in step.reads:
            try:
                data = self._path(word, action).read_bytes()
            except OSError:
                return None
            reads.append(text_digest(data) if word in step.texts else blob_digest(data))
        tools = [f"{tool.name} {tool.digest}" for tool in action.tools]
        command = [self._neutral(action, word) for word in step.command]
        facts = [_FORMAT, "step", command, [self._neutral(action, word) for word in step.writes], reads, tools]
        return blob_digest(json.dumps(facts).encode("utf-8", "surrogateescape"))

    def _neutral(self, action: Action, word: str) -> str:
        """A word without the name of the variant: others make the same of the same."""
        return word.replace(f"{{work}}/{action.variant}/", "{own}/")

    def _recall_step(self, action: Action, step: Step, key: str) -> bool:
        found = self.cache.find(key, lambda _: None) if self.cache is not None else None
        return found is not None and self._write_all(action, found, step.writes)

    def _restore(self, action: Action, found: Made) -> bool:
        """Write what an action made; ``False`` where a part of it is missing."""
        with contextlib.suppress(OSError):
            self._path(action.log).unlink()
        return self._write_all(action, found, self._made(action))

    def _made(self, action: Action) -> tuple[str, ...]:
        """The words of all that an action makes, its log included."""
        return (*action.makes, action.log)

    def _write_all(self, action: Action, found: Made, words: Iterable[str]) -> bool:
        assert self.cache is not None  # noqa: S101  (where it was found)
        for word in words:
            digest = found.blobs.get(self._neutral(action, word))
            data = self.cache.blob(digest) if digest is not None else None
            if data is None:
                return False
            path = self._path(word, action)
            with path.open("ab" if word == action.log else "wb") as file:
                file.write(self._local(data) if word in (action.log, action.depfile) else data)
        return True

    def _contents_of(self, action: Action, words: Iterable[str]) -> dict[str, bytes]:
        """What files hold, by neutral words; texts with words for directories. Raises ``OSError``."""
        found = {}
        for word in words:
            data = self._path(word, action).read_bytes()
            found[self._neutral(action, word)] = self._portable(data) if word in (action.log, action.depfile) else data
        return found

    def _keep(self, key: str, action: Action, record: Record) -> None:
        if self.cache is None:
            return
        places = self.plan.places
        reads = {
            self._neutral(action, places.word(Path(path), action.trees)): digest
            for path, digest in record.reads.items()
        }
        kept = Made(reads=reads, blobs={}, seconds=record.seconds, memory=record.memory, fell_back=record.fell_back)
        with contextlib.suppress(OSError):
            self.cache.keep(key, self._contents_of(action, self._made(action)), kept)

    def _record(self, action: Action, done: Done, began: int) -> Record | None:
        """What the action read and made. ``None`` where a file changed while it ran: nobody knows what was read."""
        places = self.plan.places
        read = [str(places.path(word, action)) for word in action.takes]
        if action.depfile is not None:
            # Programs run in the work directory, wherever links to it lead.
            here = places.work.resolve()
            listed = headers(places.path(action.depfile, action))
            read += (path if path.startswith("/") else os.path.normpath(here / path) for path in listed)
        store, work = f"{places.store}/", f"{places.work}/"
        reads: dict[str, str] = {}
        # What is in the store never changes; work directories of projects that cannot be written are there, too.
        for path in dict.fromkeys(path for path in read if path.startswith(work) or not path.startswith(store)):
            # What other actions made was there when this one began.
            digest = self.contents.digest_before(path, None if path.startswith(work) else began)
            if digest is None:
                return None
            reads[path] = digest
        makes: dict[str, str] = {}
        for word in action.makes:
            path = str(places.path(word, action))
            self.contents.forget(path)
            digest = self.contents.digest(path)
            if digest is None:
                return None
            makes[path] = digest
        return Record(
            digest=digest_of(self.plan, action),
            reads=reads,
            makes=makes,
            seconds=round(done.seconds, 3),
            memory=done.memory,
            fell_back=done.fell_back,
        )

    def _path(self, word: str, action: Action | None = None) -> Path:
        return self.plan.places.path(word, action)

    def _remove(self, action: Action, words: Iterable[str]) -> None:
        for word in words:
            with contextlib.suppress(OSError):
                self._path(word, action).unlink()

    def _portable(self, data: bytes) -> bytes:
        """Text with words for the directories of this machine."""
        for place, word in self._directories():
            data = data.replace(place, word)
        return data

    def _local(self, data: bytes) -> bytes:
        for place, word in self._directories():
            data = data.replace(word, place)
        return data

    def _directories(self) -> tuple[tuple[bytes, bytes], ...]:
        places = self.plan.places
        pairs = {
            bytes(path): b"\0%s\0" % name
            for path, name in ((places.root, b"project"), (places.store, b"store"), (places.work, b"work"))
        }
        return tuple(sorted(pairs.items(), key=lambda pair: len(pair[0]), reverse=True))


def _complaint(log: Path) -> str:
    """The first error in a log, or its last line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    errors = [line.strip() for line in lines if "error" in line]
    return (errors or lines[-1:] or ["it ended without a word"])[0]
