"""Does one action: recalls what it makes from the cache, or runs its steps, of which single ones may be recalled.

The first line of a log can be pasted into a shell; what the programs wrote follows.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_builder.actions.model import Action, ActionKind, Step
from kernel_builder.actions.precompile import without_launcher
from kernel_builder.engine.cache import ActionCache, Made
from kernel_builder.engine.contents import blob_digest, file_digest, tells_its_time, text_digest
from kernel_builder.engine.declared import undeclared
from kernel_builder.engine.processes import Processes
from kernel_builder.engine.records import TIME_OF, Conditions, Record, escaped, headers
from kernel_builder.engine.sandbox import ActionSandbox, Box
from kernel_builder.engine.texts import beside_the_text, text_command
from kernel_builder.files import replacing
from kernel_builder.plan.model import BuildPlan
from kernel_builder.seen import YOUNG_NS

_FORMAT = 5
_LONGEST = 1_000_000
"""Linux takes about two megabytes of arguments; linkers read more than that from a file."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How an action ended: its exit code, and what it cost if it ran. ``recalled``: the cache had what it makes.
    ``fell_back`` says why its fallback ran. ``worker`` is the other machine that ran it, to which ``sent`` bytes went
    and from which ``received`` came.
    """

    code: int
    seconds: float
    memory: int = 0
    recalled: bool = False
    fell_back: str | None = None
    worker: str = ""
    sent: int = 0
    received: int = 0


@dataclass(frozen=True)
class Moment:
    """When something began: nanoseconds since the epoch, and of a clock that nobody sets."""

    at: int = field(default_factory=time.time_ns)
    steady: int = field(default_factory=time.monotonic_ns)

    def now(self, path: str, own: Path) -> int | None:
        """The time now, if it is what the file system of ``path`` dates files by, and if the clock was not set since
        this moment; else ``None``. ``own`` is a file that may be touched: servers have clocks of their own.
        """
        own.touch()
        touched, now = own.stat(), time.time_ns()
        passed = time.monotonic_ns() - self.steady
        is_one = abs(touched.st_ctime_ns - now) < YOUNG_NS and abs(now - self.at - passed) < YOUNG_NS
        return now if is_one and touched.st_dev == Path(path).stat().st_dev else None


Way = Callable[[Action], Done]
"""How an action runs that the cache does not have: it leaves what it makes, and its log."""


@dataclass(frozen=True, kw_only=True)
class Performer:
    """Does the actions of a plan. Safe for concurrent threads; two of them never do the same action."""

    conditions: Conditions
    cache: ActionCache | None
    processes: Processes
    sandbox: ActionSandbox | None = None

    @property
    def plan(self) -> BuildPlan:
        """The plan."""
        return self.conditions.plan

    def perform(
        self, action: Action, environment: Mapping[str, str], way: Way | None = None
    ) -> tuple[Done, Record | None]:
        """Make the outputs of ``action``, by running its steps or in another ``way``; the record of it, if it ended
        well. A failing one leaves no output behind.
        """
        made = [*self._made(action), *action.scratch]
        for folder in {self._path(word, action).parent for word in made}:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            done, record = self._recalled_or_run(action, environment, way)
        except BaseException:
            self._remove(action, (*action.makes, *action.scratch))
            raise
        if done.code != 0:
            self._remove(action, action.outputs)
        return done, record

    def _recalled_or_run(
        self, action: Action, environment: Mapping[str, str], way: Way | None
    ) -> tuple[Done, Record | None]:
        begun, began = time.monotonic(), Moment()
        self._remove(action, action.makes)
        for word in action.makes:
            self.conditions.contents.forget(str(self._path(word, action)))
        key = self._key(action)
        found = self._find(action, key)
        if found is not None and self._restore(action, found):
            if self._hold(action):  # what another machine declared may be nobody's here
                return Done(code=1, seconds=time.monotonic() - begun), None
            done = Done(code=0, seconds=found.seconds, memory=found.memory, recalled=True, fell_back=found.fell_back)
            # What it was made of is what was found, whatever is written there now.
            reads = {self._local_name(action, word): digest for word, digest in found.reads.items()}
            return done, self._record(action, done, reads)
        text = self._text_key(action, environment) if way is None else None
        try:
            recalled = self._recalled_by_text(action, text) if text is not None else None
            done = recalled or (self._held(action, way(action)) if way else self._run(action, environment, begun))
        finally:
            self._remove(action, action.scratch)
        read = self._read_since(action, began) if done.code == 0 else None
        record = self._record(action, done, read) if read is not None else None
        if record is not None:
            self._keep(key, action, record)
            if text is not None and not done.recalled:
                self._keep_by_text(text, action, done)
        return done, record

    def _text_key(self, action: Action, environment: Mapping[str, str]) -> str | None:
        """What decides an action whose source is one text (:mod:`kernel_builder.engine.texts`), its depfile written;
        ``None`` for others.
        """
        if self.cache is None or (self.sandbox is not None and self.sandbox.holds(action)):
            return None
        target = f"{action.outputs[0]}.ii"
        command = text_command(action, target)
        if command is None:
            return None
        text, log = self._path(target, action), self._path(f"{target}.log", action)
        try:
            ended = self.processes.run(self.plan.places.expanded(action, command), environment, log)
            if ended.code != 0:
                return None  # the compiler says what is wrong
            digest = text_digest(text.read_bytes())
        finally:
            text.unlink(missing_ok=True)
            log.unlink(missing_ok=True)
        tools = [f"{tool.name} {tool.digest}" for tool in action.tools]
        words = [self._neutral(action, word) for word in beside_the_text(action)]
        facts = [_FORMAT, "text", words, digest, tools, self.conditions.deciding(action)]
        return blob_digest(json.dumps(facts).encode("utf-8", "surrogateescape"))

    def _recalled_by_text(self, action: Action, key: str) -> Done | None:
        """What another action made of the same text, if the cache has it. Raises ``OSError``."""
        found = self.cache.find(key, lambda _: None) if self.cache is not None else None
        if found is None or not self._write_all(action, found, action.outputs):
            return None
        self._write_command(action, action.steps)
        return Done(code=self._hold(action), seconds=found.seconds, memory=found.memory, recalled=True)

    def _keep_by_text(self, key: str, action: Action, done: Done) -> None:
        """Keep what was made of a text, unless it was made otherwise, or the compiler said something: of lines that
        another source has elsewhere.
        """
        if self.cache is None or done.fell_back is not None:
            return
        with contextlib.suppress(OSError):
            if self._path(action.log).read_bytes().count(b"\n") == 1:
                made = self._contents_of(action, action.outputs)
                self.cache.keep(key, made, Made(reads={}, blobs={}, seconds=done.seconds, memory=done.memory))

    def _held(self, action: Action, done: Done) -> Done:
        """What another machine did, unless it read there what nobody declares here."""
        return replace(done, code=1) if done.code == 0 and self._hold(action) else done

    def _find(self, action: Action, key: str) -> Made | None:
        """What the cache has for the files as they are this moment: some may have changed since they were looked at."""
        if self.cache is None:
            return None

        def current(word: str) -> str | None:
            try:
                name = self._local_name(action, word)
            except KeyError:  # a tool or tree that others have
                return None
            self.conditions.contents.look_again(name)
            return self.conditions.now(name)

        return self.cache.find(key, current)

    def _run(self, action: Action, environment: Mapping[str, str], begun: float) -> Done:
        if action.depfile is not None:  # where no step that runs writes it, no header was read
            self._path(action.depfile).write_bytes(b"")
        with self._box(action) as box:
            code, memory = self._steps(action, action.steps, environment, box)
            reason = None
            if code > 0 and action.fallback:
                reason = _complaint(self._path(action.log))
                code, more = self._steps(action, action.fallback, environment, box)
                memory = max(memory, more)
            if code == 0 and box is not None:
                box.take_out(action.makes)
        code = code or self._hold(action)
        return Done(code=code, seconds=time.monotonic() - begun, memory=memory, fell_back=reason)

    def _box(self, action: Action) -> AbstractContextManager[Box | None]:
        """The sandbox that ``action`` runs in, if it does."""
        if self.sandbox is None or not self.sandbox.holds(action):
            return contextlib.nullcontext()
        return self.sandbox.box(action)

    def _hold(self, action: Action) -> int:
        """Hold what was read against what is declared: 0, or 1 where the log now says what is wrong."""
        problems = undeclared(action, self.plan.places, sandboxed=self.conditions.sandboxed)
        if problems:
            with self._path(action.log).open("a", encoding="utf-8", errors="surrogateescape") as log:
                log.write("".join(f"{line}\n" for line in problems))
        return 1 if problems else 0

    def _steps(
        self, action: Action, steps: Sequence[Step], environment: Mapping[str, str], box: Box | None
    ) -> tuple[int, int]:
        """The exit code of the last step that ran, and the peak of memory."""
        log = self._path(action.log)
        # In a sandbox there is no store to put precompiled headers into; they make no difference but of time.
        steps = [step if box is None else replace(step, command=without_launcher(step.command)) for step in steps]
        commands = self._write_command(action, steps)
        memory = 0
        for step, command in zip(steps, commands, strict=True):
            self._remove(action, step.writes)
            key = self._step_key(action, step) if box is None else None
            if key is not None and self._recall_step(action, step, key):
                continue
            size = log.stat().st_size
            shortened = self._shortened(action, command)
            if box is not None:
                lists = (Path(word[1:]) for word in shortened if word.startswith(f"@{log.parent}"))
                shortened = box.command(shortened, lists)
            ended = self.processes.run(shortened, environment if box is None else box.environment(environment), log)
            memory = max(memory, ended.memory)
            if ended.code != 0:
                return ended.code, memory
            # What a program said may name lines, and the next text may have others: then it must say it again.
            if key is not None and self.cache is not None and log.stat().st_size == size:
                with contextlib.suppress(OSError):
                    made = self._contents_of(action, step.writes)
                    self.cache.keep(key, made, Made(reads={}, blobs={}, seconds=0, memory=ended.memory))
        return 0, memory

    def _write_command(self, action: Action, steps: Sequence[Step]) -> list[tuple[str, ...]]:
        """Begin the log of ``action`` with its command, and give the commands of ``steps`` for this machine."""
        commands = [self.plan.places.expanded(action, step.command) for step in steps]
        text = f"{' && '.join(map(shlex.join, commands))}\n"
        self._path(action.log).write_text(text, encoding="utf-8", errors="surrogateescape")
        return commands

    def _shortened(self, action: Action, command: tuple[str, ...]) -> tuple[str, ...]:
        if action.kind is not ActionKind.LINK or sum(map(len, command)) < _LONGEST:
            return command
        arguments = self._path(action.log).with_suffix(".arguments")
        text = "".join(f"{shlex.quote(argument)}\n" for argument in command[1:])
        arguments.write_text(text, encoding="utf-8", errors="surrogateescape")
        return command[0], f"@{arguments}"

    def _key(self, action: Action) -> str:
        facts = [
            _FORMAT,
            action.kind.value,
            [[self._neutral(action, word) for word in step.command] for step in (*action.steps, *action.fallback)],
            [self._neutral(action, word) for word in action.outputs],
            action.identity,
            self.conditions.deciding(action),
        ]
        return blob_digest(json.dumps(facts).encode("utf-8", "surrogateescape"))

    def _step_key(self, action: Action, step: Step) -> str | None:
        """What decides a step alone; ``None`` where that is not known."""
        if self.cache is None or step.reads is None:
            return None
        reads = []
        for word in step.reads:
            path = self._path(word, action)
            try:
                reads.append(text_digest(path.read_bytes()) if word in step.texts else file_digest(path))
            except OSError:
                return None
        tools = [f"{tool.name} {tool.digest}" for tool in action.tools]
        command = [self._neutral(action, word) for word in step.command]
        writes = [self._neutral(action, word) for word in step.writes]
        facts = [_FORMAT, "step", command, writes, reads, tools, self.conditions.deciding(action)]
        return blob_digest(json.dumps(facts).encode("utf-8", "surrogateescape"))

    def _neutral(self, action: Action, word: str) -> str:
        """A word without the name of the variant: others make the same of the same."""
        return word.replace(f"{{work}}/{action.variant}/", "{own}/")

    def _local_name(self, action: Action, word: str) -> str:
        """What a neutral word for something that was read names here. Raises ``KeyError`` for what ``action`` lacks."""
        prefix, _, own = word.rpartition(TIME_OF)
        own = own.replace("{own}/", f"{{work}}/{action.variant}/")
        return f"{prefix}{TIME_OF if TIME_OF in word else ''}{self._path(own, action)}"

    def _name_for_all(self, action: Action, name: str) -> str:
        """The neutral word for something that was read."""
        prefix, _, path = name.rpartition(TIME_OF)
        word = self._neutral(action, self.plan.places.word(Path(path), action.trees))
        return f"{prefix}{TIME_OF if TIME_OF in name else ''}{word}"

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
        """Write what was found. Raises ``OSError``."""
        assert self.cache is not None  # noqa: S101  (where it was found)
        for word in words:
            digest, path = found.blobs.get(self._neutral(action, word)), self._path(word, action)
            if digest is None:
                return False
            if word not in (action.log, action.depfile):
                if not self.cache.restore(digest, path):
                    return False
                continue
            text = self.cache.blob(digest)
            if text is None:
                return False
            with path.open("ab" if word == action.log else "wb") as file:
                file.write(self._local(text, in_make=word == action.depfile))
        return True

    def _contents_of(self, action: Action, words: Iterable[str]) -> dict[str, Path | bytes]:
        """What has the contents of files, by neutral words; texts have words for directories. Raises ``OSError``."""
        found: dict[str, Path | bytes] = {}
        for word in words:
            path = self._path(word, action)
            is_text = word in (action.log, action.depfile)
            found[self._neutral(action, word)] = (
                self._portable(path.read_bytes(), in_make=word == action.depfile) if is_text else path
            )
        return found

    def contents(self, action: Action) -> dict[str, bytes]:
        """What is in the log of ``action`` and in what it made, by words that are the same everywhere, without the
        directories of this machine.
        """
        there = [word for word in self._made(action) if self._path(word, action).exists()]
        found = self._contents_of(action, there)
        return {word: one if isinstance(one, bytes) else one.read_bytes() for word, one in found.items()}

    def take(self, action: Action, contents: Mapping[str, bytes]) -> tuple[str, ...]:
        """Write what another machine found in :meth:`contents`, each file beside and renamed; what of it is missing."""
        missing = []
        for word in self._made(action):
            data = contents.get(self._neutral(action, word))
            if data is None:
                missing.append(word)
                continue
            if word in (action.log, action.depfile):
                data = self._local(data, in_make=word == action.depfile)
            with replacing(self._path(word, action), durable=False) as file:
                file.write(data)
        return tuple(missing)

    def _keep(self, key: str, action: Action, record: Record) -> None:
        if self.cache is None:
            return
        reads = {self._name_for_all(action, name): digest for name, digest in record.reads.items()}
        kept = Made(reads=reads, blobs={}, seconds=record.seconds, memory=record.memory, fell_back=record.fell_back)
        with contextlib.suppress(OSError):
            self.cache.keep(key, self._contents_of(action, self._made(action)), kept)

    def _read_since(self, action: Action, began: Moment) -> dict[str, str] | None:
        """Digests of what the action read, which began at that moment, by name. ``None`` where a file changed while it
        ran: nobody knows what was read.
        """
        places, contents = self.plan.places, self.conditions.contents
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
            since = None if path.startswith(work) else began.at
            digest = contents.digest_before(path, since, lambda name: began.now(name, self._path(action.log)))
            if digest is None:
                return None
            reads[path] = digest
        if any(map(tells_its_time, reads.values())):
            names = [f"{TIME_OF}{path}" for path in reads]
            reads |= {name: digest for name in names if (digest := self.conditions.now(name)) is not None}
        return reads

    def _record(self, action: Action, done: Done, reads: Mapping[str, str]) -> Record | None:
        """The record of an action that read that and ended well; ``None`` where something is not there."""
        makes: dict[str, str] = {}
        for word in action.makes:
            path = str(self._path(word, action))
            digest = self.conditions.contents.digest(path)
            if digest is None:
                return None
            makes[path] = digest
        return Record(
            digest=self.conditions.digest_of(action),
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

    def _portable(self, data: bytes, *, in_make: bool) -> bytes:
        """Text with words for the directories of this machine; ``in_make``: it has make's syntax."""
        for place, word in self._directories(in_make=in_make):
            data = data.replace(place, word)
        return data

    def _local(self, data: bytes, *, in_make: bool) -> bytes:
        for place, word in self._directories(in_make=in_make):
            data = data.replace(word, place)
        return data

    def _directories(self, *, in_make: bool) -> tuple[tuple[bytes, bytes], ...]:
        places = self.plan.places
        pairs = {
            escaped(bytes(path)) if in_make else bytes(path): b"\0%s\0" % name
            for path, name in ((places.root, b"project"), (places.store, b"store"), (places.work, b"work"))
        }
        return tuple(sorted(pairs.items(), key=lambda pair: len(pair[0]), reverse=True))


def _complaint(log: Path) -> str:
    """The first error in a log, or its last line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    errors = [line.strip() for line in lines if "error" in line]
    return (errors or lines[-1:] or ["it ended without a word"])[0]
