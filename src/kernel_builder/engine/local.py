"""Runs a plan's actions on this machine, and on others where there are some: one graph for all variants, a log per
action, and an orderly end.

What is out of date is decided by contents, when the turn of an action comes: one that made what it made before makes
nothing after it run. What the action cache has is not run either.
"""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kernel_builder.actions.host import MODULE_SOURCE
from kernel_builder.actions.model import Action, ActionKind
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.elsewhere import HERE, LostError, Station
from kernel_builder.engine.interrupts import deferred
from kernel_builder.engine.perform import Done, Performer
from kernel_builder.engine.processes import Processes, end_what_is_left
from kernel_builder.engine.protocol import ActionResult, ActionStatus, EngineOptions, EngineResult
from kernel_builder.engine.records import Conditions, Record, Records, needs_of, open_contents
from kernel_builder.engine.resources import measure
from kernel_builder.engine.schedule import Bounds, Costs, Running, fits, may_pass, ranks
from kernel_builder.engine.timeline import Span, Timeline
from kernel_builder.engine.work import environment_of, write_generated
from kernel_builder.errors import BuildError
from kernel_builder.events import Notice, Output, Reporter, StepFinished, StepsPlanned, StepStarted, StillRunning
from kernel_builder.plan.model import BuildPlan

_LONG_SECONDS = 60.0
_POLL_SECONDS = 1.0
_STEP_SECONDS = 0.01
_HURRY_SECONDS = 1.0
_TRIES = 3
"""How many machines may be lost with one action before it is to blame."""
_ANY_NUMBER = 1 << 20
_LOOK_UP_SECONDS = 0.5
"""Whatever takes longer is not found in a cache."""
_SPARE_MEMORY = 1 << 30
"""About what torch takes once it is imported, in bytes."""


class LocalEngine:
    """See :class:`~kernel_builder.engine.protocol.Engine`."""

    def run(self, plan: BuildPlan, options: EngineOptions) -> EngineResult:
        """See :class:`~kernel_builder.engine.protocol.Engine`."""
        if not plan.actions:
            return EngineResult(results={})
        work = plan.places.work
        end_what_is_left(work, options.reporter)
        write_generated((plan.places.path(file.path), file.content) for file in plan.generated)
        records, contents = Records(work), open_contents(plan)
        conditions = Conditions(
            plan=plan, contents=contents, environ=options.environ, sandboxed=options.sandbox is not None
        )
        processes = Processes(work)
        run = _Run(conditions, options, records, processes)
        with deferred(run.interrupt):
            try:
                run.go()
            except BaseException as error:
                if options.elsewhere is not None:
                    options.elsewhere.stop()
                processes.stop()
                run.wait()
                if isinstance(error, OSError):
                    raise _told(error, work) from error
                raise
            finally:
                processes.close()
                with suppress(OSError):  # they save time, and nothing else
                    contents.save()
                    records.compact()
                if options.cache is not None:
                    options.cache.close()
        _tell_of(options.cache, options.reporter)
        run.act()  # on a signal that came when nothing was left to run
        return run.result()


def _tell_of(cache: ActionCache | None, reporter: Reporter) -> None:
    """Say once that the cache could not be written: nothing else is wrong with the build."""
    if cache is not None and cache.problem is not None:
        message = f"cannot write to the cache {cache.root} ({cache.problem}), so some results were not cached"
        reporter.emit(Notice(message=message, warning=True, once=True))


def _told(error: OSError, work: Path) -> BuildError:
    """What a build that cannot keep its own files says."""
    if isinstance(error, FileNotFoundError) or not work.is_dir():
        return BuildError(f"{work}, or something in it, was removed during the build", hint="run the build again")
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    # Of a write into an open file, nobody says which it was.
    return BuildError(
        f"{error.filename or work}: {error.strerror}",
        hint="free some space, then run the build again; it continues where it stopped" if is_full else None,
    )


@dataclass(frozen=True)
class _Ended:
    """An action, by its id, and what became of it."""

    name: str
    done: Done | BaseException
    record: Record | None


class _Run:
    """One run. Only the thread that calls :meth:`go` changes it; others do actions and hand in what became of them."""

    def __init__(self, conditions: Conditions, options: EngineOptions, records: Records, processes: Processes) -> None:
        plan = conditions.plan
        self._plan, self._options, self._records, self._conditions = plan, options, records, conditions
        self._processes = processes
        self._performer = Performer(
            conditions=conditions, cache=options.cache, processes=processes, sandbox=options.sandbox
        )
        self._actions = {action.id: action for action in plan.actions}
        self._elsewhere = options.elsewhere
        self._tries: Counter[str] = Counter()
        self._needs = needs_of(plan.actions)
        self._users: dict[str, list[str]] = {}
        for name, needs in self._needs.items():
            for need in needs:
                self._users.setdefault(need, []).append(name)
        self._expected = conditions.outdated(records)
        self._left = len(self._expected)
        self._open = Counter(action.variant for action in plan.actions)
        self._over: list[str] = []
        self._results: dict[str, ActionResult] = {}
        self._finished: list[str] = []
        self._ready: set[str] = set()
        self._running: dict[str, Running] = {}
        self._noticed: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._renewed: set[str] = set()
        self._begun: dict[str, float] = {}
        self._threads: list[threading.Thread] = []
        self._ended: queue.SimpleQueue[_Ended | Callable[[], None]] = queue.SimpleQueue()
        self._stopped = False
        self._is_interrupted = False
        self._is_away = False

    def interrupt(self, act: Callable[[], None]) -> None:
        """Have ``act``, which may raise, called at the next moment that suits; once asked, be quick."""
        if self._is_interrupted:
            self._processes.hurry.set()
        self._is_interrupted = True
        if self._is_away:  # the run's own state is whole, and what is called may take long
            act()
        else:
            self._ended.put(act)

    def act(self) -> None:
        """Do what signals ask for that nobody has acted on."""
        while not self._ended.empty():
            ended = self._ended.get()
            if not isinstance(ended, _Ended):
                ended()

    def go(self) -> None:
        """Run all that is out of date, or as much of it as can be."""
        expected = [self._actions[name] for name in self._actions if name in self._expected]
        if expected:
            self._options.reporter.emit(StepsPlanned(total=len(expected)))
        costs = Costs.of(self._plan.actions, self._records)
        due = {action.variant for action in expected}
        self._turns = [variant.name for variant in self._plan.variants if variant.name in due]
        self._ranks = ranks(self._plan.actions, costs, self._turns)
        self._memory = dict(costs.memory)
        self._here, self._bounds = self._measured(expected)
        jobs = self._bounds.jobs if self._elsewhere is None else self._options.jobs or self._elsewhere.threads()
        self._timeline = Timeline(self._plan.places.work, jobs)
        for name, needs in self._needs.items():
            if not needs:
                self._consider(name)
        while self._ready or self._running:
            self._start()
            self._tell_spare()
            self._hand_over()
            if not self._running:
                if self._elsewhere is None or not self._ready:
                    return
                self._elsewhere.refuse(
                    [self._actions[name] for name in sorted(self._ready, key=self._ranks.__getitem__)]
                )
            self._take()
        self._hand_over()

    def _hand_over(self) -> None:
        """Tell of the variants that are over. What runs goes on, and what ended meanwhile is noted afterwards."""
        over, self._over = self._over, []
        if self._options.over is None:
            return
        for variant in over:
            so_far = EngineResult(results=self._results, finished=tuple(self._finished))
            self._is_away = True
            try:
                if self._is_interrupted:  # which nobody has acted on yet
                    return
                self._options.over(variant, so_far.of_variant(variant))
            finally:
                self._is_away = False

    def _measured(self, expected: Iterable[Action]) -> tuple[Bounds, Bounds]:
        """How much may run at once here, and in all."""
        bounds = Bounds.of(
            measure(),
            jobs=self._options.jobs,
            cores=self._options.cores,
            variants=self._options.variants,
            hungriest=max((self._memory[action.id] for action in expected), default=1),
        )
        if self._elsewhere is None:
            return bounds, bounds
        return bounds, replace(bounds, jobs=self._options.jobs or _ANY_NUMBER, memory=None)

    def result(self) -> EngineResult:
        """What became of every action."""
        for name, action in self._actions.items():
            self._results.setdefault(name, ActionResult(action=action, status=ActionStatus.NOT_RUN))
        return EngineResult(results=self._results, finished=tuple(self._finished))

    def wait(self) -> None:
        """Wait for the threads, whose programs were stopped. One may wait for a cache that others share: for whoever is
        in a hurry, not for long.
        """
        end = None
        while any(thread.is_alive() for thread in self._threads):
            time.sleep(_STEP_SECONDS)
            if self._processes.hurry.is_set():
                end = end or time.monotonic() + _HURRY_SECONDS
                if time.monotonic() > end:
                    return

    def _consider(self, name: str) -> None:
        """The turn of an action has come: what it needs is there."""
        action, record = self._actions[name], self._records[name]
        # What was up to date before anything ran needs nothing that ran since.
        if name not in self._expected or self._conditions.is_current(action, record):
            fell_back = record.fell_back if record is not None else None
            self._settle(ActionResult(action=action, status=ActionStatus.UP_TO_DATE, fell_back=fell_back))
        else:
            self._ready.add(name)

    def _settle(self, result: ActionResult) -> None:
        """An action is over; those that waited for nothing else have their turn, or never will."""
        name = result.action.id
        self._results[name] = result
        self._close(result.action)
        self._left -= name in self._expected
        if result.status is ActionStatus.FAILED:
            self._leave_out(name)
            return
        for user in self._users.get(name, ()):
            if user not in self._results and all(self._is_made(need) for need in self._needs[user]):
                self._consider(user)

    def _is_made(self, name: str) -> bool:
        result = self._results.get(name)
        return result is not None and result.status not in (ActionStatus.FAILED, ActionStatus.NOT_RUN)

    def _close(self, action: Action) -> None:
        """An action of a variant is over, in whatever way."""
        self._open[action.variant] -= 1
        if not self._open[action.variant]:
            self._over.append(action.variant)

    def _leave_out(self, name: str) -> None:
        for user in self._users.get(name, ()):
            if user not in self._results:
                action = self._actions[user]
                self._results[user] = ActionResult(action=action, status=ActionStatus.NOT_RUN)
                self._close(action)
                self._leave_out(user)

    def _start(self) -> None:
        """Start what may start now."""
        if self._stopped:
            self._ready.clear()
            return
        passed = False
        allowed = self._allowed()
        for name in sorted(self._ready, key=self._ranks.__getitem__):
            action = self._actions[name]
            if action.variant not in allowed:
                continue
            place = self._place_for(action)
            if place is not None and not passed:
                self._launch(action, *place)
            elif not passed and self._bounds.memory is not None:
                need = Running(variant=action.variant, threads=1, memory=self._memory[name])
                passed = not may_pass(need, self._running.values())

    def _tell_spare(self) -> None:
        """Tell of a variant that something new is made of, where nothing waits for the room that there is."""
        spare, now = self._options.spare, time.monotonic()
        more = Running(variant="", threads=1, memory=_SPARE_MEMORY)
        here = [one for one in self._running.values() if one.site == HERE]
        if spare is None or self._ready or self._stopped or self._is_interrupted or not fits(more, here, self._here):
            return
        # What was recalled, or is about to be, most likely comes to what is known already.
        slow = {self._actions[name].variant for name, since in self._since.items() if now - since > _LOOK_UP_SECONDS}
        renewed = {one.variant for one in self._running.values()} & (self._renewed | slow)
        if renewed:
            spare(min(renewed, key=self._turns.index))

    def _place_for(self, action: Action) -> tuple[Running, Station | None] | None:
        """Where the action may start now, and what it takes there; ``None`` as a site stands for this machine."""
        for site, bounds in self._places_for(action):
            name = HERE if site is None else site.name
            there = [one for one in self._running.values() if one.site == name]
            threads = self._threads_for(action, there, bounds)
            need = Running(variant=action.variant, threads=threads, memory=self._memory[action.id], site=name)
            if fits(need, there, bounds) and fits(need, self._running.values(), self._bounds):
                return need, site
        return None

    def _places_for(self, action: Action) -> Iterator[tuple[Station | None, Bounds]]:
        if self._elsewhere is None or not self._elsewhere.takes(action):
            yield None, self._here
            return
        away = [one for one in self._running.values() if one.site != HERE]
        if sum(one.threads for one in away) >= self._elsewhere.threads():
            return  # which most of the time spares looking at all of them
        busy = Counter(one.site for one in away)
        # Sorting is stable: of those that are equally busy, the one that has most of what it reads.
        for site in sorted(self._elsewhere.sites_for(action), key=lambda one: busy[one.name] / one.threads):
            yield site, Bounds(jobs=site.threads, memory=site.memory)

    def _allowed(self) -> set[str]:
        """The variants that may be worked on: the first that are not over."""
        turns = [name for name in self._turns if self._open[name]]
        return set(turns if self._bounds.variants is None else turns[: self._bounds.variants])

    def _threads_for(self, action: Action, running: Iterable[Running], bounds: Bounds) -> int:
        """How many threads an action gets that can use several: what is free, shared by all such that are ready."""
        if action.threads is None:
            return 1
        rivals = sum(self._actions[name].threads is not None for name in self._ready)
        free = bounds.jobs - sum(one.threads for one in running)
        most = self._bounds.cores or bounds.jobs
        return max(1, min(action.threads.most, free // max(1, rivals), most))

    def _launch(self, action: Action, need: Running, site: Station | None) -> None:
        self._ready.discard(action.id)
        for word in action.takes:
            path = self._plan.places.path(word, action)
            if not path.exists():
                raise BuildError(f"{path}, which {action.source} needs, is missing", hint="run the build again")
        self._running[action.id] = need
        self._noticed[action.id] = self._since[action.id] = time.monotonic()
        self._begun[action.id] = time.time()
        self._options.reporter.emit(StepStarted(description=action.description))
        arguments = (action, environment_of(action, self._options.environ, need.threads), site, need)
        thread = threading.Thread(target=self._work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, action: Action, environment: Mapping[str, str], site: Station | None, need: Running) -> None:
        """In a thread of its own: do an action and hand in what became of it."""
        way = None
        if site is not None and self._elsewhere is not None:
            run = self._elsewhere.run
            way = partial(run, self._performer, site=site, threads=need.threads, memory=need.memory)
        try:
            done, record = self._performer.perform(action, environment, way)
        except BaseException as error:  # noqa: BLE001  (it is raised where it can be dealt with)
            self._ended.put(_Ended(action.id, error, None))
        else:
            self._ended.put(_Ended(action.id, done, record))

    def _take(self) -> None:
        """Wait for an action to end, and note it."""
        ended = self._next()
        if not isinstance(ended, _Ended):
            if ended is not None:
                ended()
            return
        name, done, record = ended.name, ended.done, ended.record
        del self._running[name], self._noticed[name], self._since[name]
        if isinstance(done, LostError):
            self._try_again(name, done)
            return
        if isinstance(done, BaseException):
            raise done
        action = self._actions[name]
        if record is not None:
            self._records.add(name, record)
        self._finished.append(name)
        result = _result(self._plan, action, done)
        self._timeline.add(_span(result, done, self._begun[name], self._needs[name]))
        if result.status is ActionStatus.DONE and action.source != MODULE_SOURCE:
            self._renewed.add(action.variant)
        is_check = action.kind is ActionKind.INSPECT  # nothing else waits for what a check finds
        self._stopped |= result.status is ActionStatus.FAILED and not self._options.keep_going and not is_check
        self._settle(result)
        self._tell(action)

    def _try_again(self, name: str, lost: LostError) -> None:
        """The machine that ran an action did not do it; others may. Raises :class:`BuildError` for the last time."""
        action = self._actions[name]
        self._tries[name] += 1
        if self._tries[name] >= _TRIES:
            raise BuildError(
                f"{action.description}: failed on {_TRIES} machines, on the last because {lost.reason}",
                hint="give workers more memory and disk space, or build here: kernel-builder build",
            )
        if lost.more_memory:
            self._memory[name] *= 2
        message = f"{action.description}: {lost.reason}; trying again"
        self._options.reporter.emit(Notice(message=message, warning=True))
        self._ready.add(name)

    def _next(self) -> _Ended | Callable[[], None] | None:
        try:
            return self._ended.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            self._notice()
            return None  # machines may have come, too

    def _tell(self, action: Action) -> None:
        done = len(self._finished)
        self._options.reporter.emit(StepFinished(description=action.description, done=done, total=done + self._left))
        if self._options.verbose:
            text = self._plan.places.path(action.log).read_text(encoding="utf-8", errors="replace")
            self._options.reporter.emit(Output(text=text))

    def _notice(self) -> None:
        now = time.monotonic()
        for name, since in self._noticed.items():
            if now - since > _LONG_SECONDS:
                self._noticed[name] = now
                self._options.reporter.emit(StillRunning(description=self._actions[name].description))


def _span(result: ActionResult, done: Done, begin: float, needs: Iterable[str]) -> Span:
    action = result.action
    return Span(
        id=action.id,
        kind=action.kind.value,
        variant=action.variant,
        source=action.source,
        architecture=action.architecture,
        begin=begin,
        end=time.time(),
        status=result.status.value,
        seconds=round(done.seconds, 3),
        memory=done.memory,
        fell_back=done.fell_back,
        needs=tuple(sorted(needs)),
        worker=done.worker,
        sent=done.sent,
        received=done.received,
        processor=round(done.processor, 3),
    )


def _result(plan: BuildPlan, action: Action, done: Done) -> ActionResult:
    if done.code == 0:
        status = ActionStatus.RECALLED if done.recalled else ActionStatus.DONE
        return ActionResult(action=action, status=status, seconds=done.seconds, fell_back=done.fell_back)
    try:
        text = plan.places.path(action.log).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    output = tuple(text.splitlines()[1:]) or (f"it exited with code {done.code} and no output",)
    return ActionResult(action=action, status=ActionStatus.FAILED, output=output, seconds=done.seconds)
