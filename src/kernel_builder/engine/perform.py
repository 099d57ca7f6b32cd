"""Does one action: recalls what it makes from the cache, or runs its steps, of which single ones may be recalled.

The first line of a log can be pasted into a shell; what the programs wrote follows.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from kernel_builder.actions.model import Action, ActionKind, Step
from kernel_builder.actions.precompile import without_launcher
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.contents import tells_its_time, text_digest
from kernel_builder.engine.declared import undeclared
from kernel_builder.engine.own_columns import Mirrored, line_of, told_of_own
from kernel_builder.engine.portable import Portable, made_by
from kernel_builder.engine.processes import Ended, Processes
from kernel_builder.engine.read_headers import preprocessed
from kernel_builder.engine.recalling import Recalling
from kernel_builder.engine.records import TIME_OF, Conditions, Record, headers
from kernel_builder.engine.sandbox import ActionSandbox, Box
from kernel_builder.engine.texts import text_command
from kernel_builder.plan.model import BuildPlan
from kernel_builder.seen import YOUNG_NS

_LONGEST = 1_000_000
"""Linux takes about two megabytes of arguments; linkers read more than that from a file."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How an action ended: its exit code, and what it cost if it ran. ``recalled``: the cache had what it makes.
    ``fell_back`` says why its fallback ran. ``worker`` is the other machine that ran it, to which ``sent`` bytes went
    and from which ``received`` came. ``processor`` are the seconds that processors of this machine
    spent on its programs.
    """

    code: int
    seconds: float
    memory: int = 0
    recalled: bool = False
    fell_back: str | None = None
    worker: str = ""
    sent: int = 0
    received: int = 0
    processor: float = 0.0


@dataclass(frozen=True)
class Moment:
    """When something began: nanoseconds since the epoch, and of a clock that nobody sets."""

    at: int = field(default_factory=time.time_ns)
    steady: int = field(default_factory=time.monotonic_ns)

    def seconds(self) -> float:
        """The seconds since then."""
        return (time.monotonic_ns() - self.steady) / 1e9

    def now(self, path: str, own: Path) -> int | None:
        """The time now, if it is what the file system of ``path`` dates files by, and if the clock was not set since
        this moment; else ``None``. ``own`` is a file that may be touched: servers have clocks of their own.
        """
        own.touch()
        touched, now = own.stat(), time.time_ns()
        passed = time.monotonic_ns() - self.steady
        is_one = abs(touched.st_ctime_ns - now) < YOUNG_NS and abs(now - self.at - passed) < YOUNG_NS
        return now if is_one and touched.st_dev == Path(path).stat().st_dev else None


@dataclass
class _Cost:
    """What the programs of an action come to: their peak of memory in bytes, and seconds of processors."""

    memory: int = 0
    processor: float = 0.0

    def add(self, ended: Ended) -> Ended:
        self.memory = max(self.memory, ended.memory)
        self.processor += ended.processor_seconds
        return ended


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

    @cached_property
    def portable(self) -> Portable:
        """The files of its actions, for other machines."""
        return Portable(self.plan)

    @cached_property
    def _recalling(self) -> Recalling | None:
        return None if self.cache is None else Recalling(self.conditions, self.cache, self.portable)

    def perform(
        self, action: Action, environment: Mapping[str, str], way: Way | None = None
    ) -> tuple[Done, Record | None]:
        """Make the outputs of ``action``, by running its steps or in another ``way``; the record of it, if it ended
        well. A failing one leaves no output behind.
        """
        made = [*made_by(action), *action.scratch]
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
        began, cost = Moment(), _Cost()
        self._remove(action, action.makes)
        for word in action.makes:
            self.conditions.contents.forget(str(self._path(word, action)))
        key = None
        if self._recalling is not None:
            key = self._recalling.key_of(action)
            found = self._recalling.find(action, key)
            if found is not None and self._recalling.restore(action, found):
                if self._hold(action):  # what another machine declared may be nobody's here
                    return Done(code=1, seconds=began.seconds()), None
                done = Done(
                    code=0, seconds=found.seconds, memory=found.memory, recalled=True, fell_back=found.fell_back
                )
                # What it was made of is what was found, whatever is written there now.
                return done, self._record(action, done, self._recalling.local_reads(action, found))
        text = self._text_key(action, environment, cost) if way is None else None
        try:
            recalled = self._recalled_by_text(action, text, cost) if text is not None else None
            done = recalled or (self._held(action, way(action)) if way else self._run(action, environment, began, cost))
        finally:
            self._remove(action, action.scratch)
        self._tell_of_own(action)
        read = self._read_since(action, began) if done.code == 0 else None
        record = self._record(action, done, read) if read is not None else None
        if record is not None and self._recalling is not None and key is not None:
            self._recalling.keep(key, action, record)
            if text is not None and not done.recalled:
                self._keep_by_text(text, action, done)
        return done, record

    def _text_key(self, action: Action, environment: Mapping[str, str], cost: _Cost) -> str | None:
        """What decides an action whose source is one text (:mod:`kernel_builder.engine.texts`), its depfile written;
        ``None`` for others.
        """
        if self._recalling is None or (self.sandbox is not None and self.sandbox.holds(action)):
            return None
        target = f"{action.outputs[0]}.ii"
        command = text_command(action, target)
        if command is None:
            return None
        text, log = self._path(target, action), self._path(f"{target}.log", action)
        try:
            ended = cost.add(self.processes.run(self.plan.places.expanded(action, command), environment, log))
            if ended.code != 0:
                return None  # the compiler says what is wrong
            return self._recalling.key_of_text(action, text_digest(text.read_bytes()))
        finally:
            text.unlink(missing_ok=True)
            log.unlink(missing_ok=True)

    def _recalled_by_text(self, action: Action, key: str, cost: _Cost) -> Done | None:
        """What another action made of the same text, if the cache has it. Raises ``OSError``."""
        found = None if self._recalling is None else self._recalling.restore_part(action, key, action.outputs)
        if found is None:
            return None
        self._write_command(action, action.steps)
        return Done(
            code=self._hold(action),
            seconds=found.seconds,
            memory=found.memory,
            recalled=True,
            processor=cost.processor,
        )

    def _keep_by_text(self, key: str, action: Action, done: Done) -> None:
        """Keep what was made of a text, unless it was made otherwise, or the compiler said something: of lines that
        another source has elsewhere.
        """
        if self._recalling is None or done.fell_back is not None:
            return
        with contextlib.suppress(OSError):
            if self._path(action.log).read_bytes().count(b"\n") == 1:
                self._recalling.keep_part(key, action, action.outputs, seconds=done.seconds, memory=done.memory)

    def _held(self, action: Action, done: Done) -> Done:
        """What another machine did, unless it read there what nobody declares here."""
        return replace(done, code=1) if done.code == 0 and self._hold(action) else done

    def _run(self, action: Action, environment: Mapping[str, str], began: Moment, cost: _Cost) -> Done:
        if action.depfile is not None:  # where no step that runs writes it, no header was read
            self._path(action.depfile).write_bytes(b"")
        with self._box(action) as box:
            code = self._steps(action, action.steps, environment, box, cost)
            reason = None
            if code > 0 and action.fallback:
                reason = _complaint(self._path(action.log))
                code = self._steps(action, action.fallback, environment, box, cost)
            if code == 0 and box is not None:
                box.take_out(action.makes)
        code = code or self._hold(action)
        return Done(code=code, seconds=began.seconds(), memory=cost.memory, fell_back=reason, processor=cost.processor)

    def _box(self, action: Action) -> AbstractContextManager[Box | None]:
        """The sandbox that ``action`` runs in, if it does."""
        if self.sandbox is None or not self.sandbox.holds(action):
            return contextlib.nullcontext()
        return self.sandbox.box(action)

    def _hold(self, action: Action) -> int:
        """Hold what was read against what is declared: 0, or 1 where the log now says what is wrong."""
        places, environ = self.plan.places, self.conditions.environ
        scratch = places.path(action.log, action).with_suffix(".read")
        preprocess = partial(preprocessed, action, places, environ, scratch)
        problems = undeclared(action, places, preprocess, sandboxed=self.conditions.sandboxed)
        if problems:
            with self._path(action.log).open("a", encoding="utf-8", errors="surrogateescape") as log:
                log.write("".join(f"{line}\n" for line in problems))
        return 1 if problems else 0

    def _steps(
        self, action: Action, steps: Sequence[Step], environment: Mapping[str, str], box: Box | None, cost: _Cost
    ) -> int:
        """The exit code of the last step that ran."""
        log = self._path(action.log)
        # In a sandbox there is no store to put precompiled headers into; they make no difference but of time.
        steps = [step if box is None else replace(step, command=without_launcher(step.command)) for step in steps]
        commands = self._write_command(action, steps)
        recalling = self._recalling if box is None else None
        for step, command in zip(steps, commands, strict=True):
            self._remove(action, step.writes)
            key = None if recalling is None else recalling.key_of_step(action, step)
            if recalling is not None and key is not None and recalling.restore_part(action, key, step.writes):
                continue
            size = log.stat().st_size
            shortened = self._shortened(action, command)
            if box is not None:
                lists = (Path(word[1:]) for word in shortened if word.startswith(f"@{log.parent}"))
                shortened = box.command(shortened, lists)
            inner = environment if box is None else box.environment(environment)
            ended = cost.add(self.processes.run(shortened, inner, log))
            if ended.code != 0:
                return ended.code
            # What a program said may name lines, and the next text may have others: then it must say it again.
            if recalling is not None and key is not None and log.stat().st_size == size:
                recalling.keep_part(key, action, step.writes, seconds=0, memory=ended.memory)
        return 0

    @cached_property
    def _translated(self) -> Mapping[str, Mapping[str, str]]:
        """For each file that was made of one of the project's: all that were made with it, by the names of those that
        they were made of.
        """
        found: dict[str, Mapping[str, str]] = {}
        for action in self.plan.actions:
            if action.kind is ActionKind.TRANSLATE:
                names = [word.removeprefix("{project}/") for word in action.inputs]
                made = dict(zip(names, action.outputs, strict=True))
                found |= dict.fromkeys(action.outputs, made)
        return found

    def _tell_of_own(self, action: Action) -> None:
        """Write the log of ``action`` as it would be had the project's own files been compiled."""
        made = next((self._translated[word] for word in action.inputs if word in self._translated), None)
        log = self._path(action.log)
        if made is None or not log.is_file():
            return
        command, *lines = log.read_text(encoding="utf-8", errors="surrogateescape").splitlines() or [""]
        texts: dict[str, tuple[str, str]] = {}

        def find(name: str, number: int) -> Mirrored | None:
            if name not in made:
                return None
            if name not in texts:
                paths = (self._path(made[name], action), self.plan.places.root / name)
                with contextlib.suppress(OSError):
                    one, two = (path.read_text(encoding="utf-8", errors="replace") for path in paths)
                    texts[name] = (one, two)
            return line_of(*texts[name], number) if name in texts else None

        told = told_of_own(lines, find)
        if told != lines:
            text = "".join(f"{line}\n" for line in (command, *told))
            log.write_text(text, encoding="utf-8", errors="surrogateescape")

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


def _complaint(log: Path) -> str:
    """The first error in a log, or its last line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    errors = [line.strip() for line in lines if "error" in line]
    return (errors or lines[-1:] or ["it exited without output"])[0]
