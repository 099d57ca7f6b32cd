"""Runs a plan's actions with ninja: one graph for all variants, a log per action, and an orderly end.

ninja decides what is out of date (times, command lines, headers from depfiles), so a second run starts no compiler.
Each action writes its output to its own log, below a first line that can be pasted into a shell, and notes in a journal
when it starts and ends; nothing is learnt from what ninja itself prints.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ninja

from kernel_builder.actions.model import Action, ActionKind
from kernel_builder.engine.journal import Watcher, done_in, end_line, ended_in, start_line
from kernel_builder.engine.protocol import ActionResult, ActionStatus, EngineOptions, EngineResult
from kernel_builder.engine.queue import LAST_TURN, Queue
from kernel_builder.engine.resources import Budget, Need, measure, plan_jobs
from kernel_builder.engine.stale import digest_of, outdated, record
from kernel_builder.engine.work import environment_for, write_generated
from kernel_builder.errors import BuildError, ToolchainError
from kernel_builder.events import Reporter, Waiting
from kernel_builder.plan.model import BuildPlan

_LONGEST_COMMAND = 50_000
"""Linux takes at most 128 KiB in one argument; a line for the shell is one, and has the command in it twice."""
_STOP_SECONDS = 20
_COMPLAINT_LINES = 20
_KILL_SECONDS = 5
_ANY_ORDER = Queue()
JOURNAL = "journal"
PROCESS = "ninja.pid"
OUTPUT = "ninja.log"


def find_ninja() -> Path:
    """The ninja that came with this package's dependencies, whatever PATH says.

    Raises :class:`ToolchainError` when it is not there.
    """
    binary = Path(ninja.BIN_DIR) / "ninja"
    if not binary.is_file():
        raise ToolchainError(f"{binary} is missing", hint="reinstall the Python package 'ninja'")
    return binary


@dataclass(frozen=True, kw_only=True)
class NinjaFiles:
    """``build.ninja``, and the response files that it refers to, as ``(path, content)``."""

    text: str
    responses: tuple[tuple[Path, str], ...]


def _escape(path: Path | str) -> str:
    """A path as ninja's syntax wants it. (The writer that comes with ninja leaves a dollar sign as it is.)"""
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def _shell_line(plan: BuildPlan, action: Action, commands: Sequence[Sequence[str]], hidden: Sequence[str]) -> str:
    """What the shell runs: the commands with their output in the action's log, below the commands themselves.

    The identity of tools and trees stands behind it as a comment: ninja runs again what has another line.
    """
    text = " && ".join(map(shlex.join, commands))
    log = shlex.quote(str(plan.places.path(action.log)))
    journal = plan.places.work / JOURNAL
    unset = f"unset {' '.join(hidden)}; " if hidden else ""
    # A tool that fails or is killed may leave a part of its output behind, which must never count.
    remove = f"rm -f {_paths(plan, action, action.outputs)}"
    clear = f"rm -f {_paths(plan, action, action.scratch)}; " if action.scratch else ""
    run = text if len(commands) == 1 else f"{{ {text}; }}"
    code = "0" if action.kind is ActionKind.INSPECT else "$code"  # nothing else waits for what a check finds
    return (
        f"{unset}{start_line(journal, action)}; {remove}; printf '%s\\n' {shlex.quote(text)} >{log} && {run} >>{log}"
        f" 2>&1; code=$?; {clear}[ $code = 0 ] || {remove}; {end_line(journal, action, digest_of(plan, action))};"
        f" exit {code} # {action.identity}"
    )


def _paths(plan: BuildPlan, action: Action, words: Sequence[str]) -> str:
    return shlex.join(str(plan.places.path(word, action)) for word in words)


def _short(plan: BuildPlan, action: Action) -> tuple[tuple[tuple[str, ...], ...], tuple[Path, str] | None]:
    """The action's commands, the arguments of a link moved to a response file when they are too long for a shell."""
    *before, command = plan.places.commands(action)
    if action.kind is not ActionKind.LINK or len(shlex.join(command)) < _LONGEST_COMMAND:
        return (*before, command), None
    arguments = plan.places.path(action.log).with_suffix(".arguments")
    content = "".join(f"{shlex.quote(argument)}\n" for argument in command[1:])
    return (*before, (command[0], f"@{arguments}")), (arguments, content)


def _pool(budget: Budget, action: Action) -> str | None:
    if budget.per_variant is not None:
        return f"of_{action.variant}"
    return f"memory_{action.memory >> 20}" if action.memory in budget.pools else None


def _pools(plan: BuildPlan, budget: Budget) -> list[str]:
    depths = {f"memory_{memory >> 20}": depth for memory, depth in sorted(budget.pools.items())}
    if budget.per_variant is not None:
        depths = {f"of_{variant.name}": budget.per_variant for variant in plan.variants if variant.actions}
    return [line for name, depth in depths.items() for line in (f"pool {name}", f"  depth = {depth}")]


def render_ninja(plan: BuildPlan, budget: Budget, variables: Iterable[str], queue: Queue = _ANY_ORDER) -> NinjaFiles:
    """``build.ninja`` for ``plan`` on this machine, run with the environment ``variables``. Pure."""
    lines = ["# Generated by kernel-builder; every build writes it again.", "ninja_required_version = 1.11"]
    lines += _pools(plan, budget)
    lines += ["rule headers", "  command = $line", "  description = $what", "  depfile = $made", "  deps = gcc"]
    lines += ["rule plain", "  command = $line", "  description = $what"]
    responses: list[tuple[Path, str]] = []
    goals = {v.name: [_escape(plan.places.path(word)) for word in v.goals] for v in plan.variants if v.actions}
    some = sorted({name for name in variables if any(action.sees(name) for action in plan.actions)})
    for action in plan.actions:
        commands, response = _short(plan, action)
        words = [plan.places.path(word, action) for word in action.implicit]
        if response is not None:
            responses.append(response)
            words.append(response[0])
        inputs = " ".join(_escape(plan.places.path(word, action)) for word in action.inputs)
        besides = "".join(f" {_escape(path)}" for path in words)
        outputs = " ".join(_escape(plan.places.path(word, action)) for word in action.outputs)
        rule = "headers" if action.depfile is not None else "plain"
        before = queue.predecessor(action.variant)
        later = f" || {' '.join(goals[before])}" if before is not None else ""
        lines.append(f"build {outputs}: {rule} {inputs}{' |' if besides else ''}{besides}{later}")
        hidden = [name for name in some if not action.sees(name)]
        lines.append(f"  line = {_shell_line(plan, action, commands, hidden).replace('$', '$$')}")
        lines.append(f"  what = {action.id.replace('$', '$$')}")
        if action.depfile is not None:
            lines.append(f"  made = {str(plan.places.path(action.depfile)).replace('$', '$$')}")
        pool = _pool(budget, action)
        if pool is not None:
            lines.append(f"  pool = {pool}")
    lines += [f"build {_escape(f'variant-{name}')}: phony {' '.join(words)}" for name, words in goals.items()]
    lines += queue.tails(goals, plan.actions)
    return NinjaFiles(text="\n".join(lines) + "\n", responses=tuple(responses))


class NinjaEngine:
    """See :class:`~kernel_builder.engine.protocol.Engine`."""

    def run(self, plan: BuildPlan, options: EngineOptions) -> EngineResult:
        """See :class:`~kernel_builder.engine.protocol.Engine`."""
        if not plan.actions:
            return EngineResult(results={})
        budget = plan_jobs(
            measure(),
            [Need(memory=a.memory, threads=a.threads.most if a.threads else 1) for a in plan.actions],
            asked=options.jobs,
            cores=options.cores,
            variants=options.variants,
        )
        _end_what_is_left(plan.places.work, options.reporter)
        journal = plan.places.work / JOURNAL
        record(plan.places.work, done_in(journal))  # of a run that was killed
        environment = _environment(plan, budget, options.environ)
        self._write_generated(plan)
        expected = outdated(plan)
        actions = {action.id: action for action in plan.actions}
        logs = {action.id: plan.places.path(action.log) for action in plan.actions}
        watcher = Watcher(journal, actions, options.reporter, expected=expected, logs=logs, verbose=options.verbose)
        try:
            watcher.start()
            code = self._run_all(plan, budget, options, environment, expected)
        finally:
            watcher.close()
            record(plan.places.work, done_in(journal))
        failed = any(end.code != 0 for end in watcher.ended.values())
        if code != 0 and not failed:
            raise BuildError(f"ninja ended with code {code}:\n{_tail(plan.places.work / OUTPUT)}")
        results = {
            name: _result(action, watcher, logs, left=name in expected and code != 0)
            for name, action in actions.items()
        }
        return EngineResult(results=results, finished=tuple(watcher.ended))

    def _write_generated(self, plan: BuildPlan) -> None:
        write_generated((plan.places.path(file.path), file.content) for file in plan.generated)
        (plan.places.work / JOURNAL).write_bytes(b"")
        for action in plan.actions:
            plan.places.path(action.log).parent.mkdir(parents=True, exist_ok=True)

    def _run_all(
        self,
        plan: BuildPlan,
        budget: Budget,
        options: EngineOptions,
        environment: Mapping[str, str],
        expected: frozenset[str],
    ) -> int:
        """Run ninja until it ends well or can do nothing more: variants may have waited for one that failed."""
        variant_of = {action.id: action.variant for action in plan.actions}
        due = {variant_of[name] for name in expected}
        targets = [variant.name for variant in plan.variants if variant.actions]
        failed = 0
        while True:
            queue = Queue(variants=tuple(name for name in targets if name in due), at_once=options.variants)
            files = render_ninja(plan, budget, environment, queue)
            write_generated([*files.responses, (plan.places.work / "build.ninja", files.text)])
            code = self._run(plan, budget, options, environment, targets)
            ended = ended_in(plan.places.work / JOURNAL)
            left = {variant_of[name] for name in expected if name not in ended}
            left -= {variant_of[name] for name, how in ended.items() if how != 0}
            if code == 0 or not options.keep_going or not left or left == due:
                return code or failed
            due, failed = left, code
            targets = [name for name in targets if name in due]

    def _run(
        self,
        plan: BuildPlan,
        budget: Budget,
        options: EngineOptions,
        environment: Mapping[str, str],
        variants: Sequence[str],
    ) -> int:
        targets = [*(f"variant-{name}" for name in variants), LAST_TURN]
        command = [str(find_ninja()), "-C", str(plan.places.work), "-d", "keepdepfile"]
        command += ["-j", str(budget.jobs), "-k", "0" if options.keep_going else "1", *targets]
        with (plan.places.work / OUTPUT).open("wb") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches us alone, and we stop ninja in order
            )
            try:
                (plan.places.work / PROCESS).write_text(str(process.pid), encoding="ascii")
                return process.wait()
            except BaseException:
                _stop(process)
                raise


def _environment(plan: BuildPlan, budget: Budget, environ: Mapping[str, str]) -> dict[str, str]:
    environment = environment_for(environ, (name for action in plan.actions for name in action.environment))
    if any(action.sees("PYTHONPATH") for action in plan.actions):
        # Checks run this very package, wherever it is, and not from here.
        given = [str(Path(part).absolute()) for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), *given])
    if budget.threads > 1:
        for action in plan.actions:
            if action.threads is not None:
                environment[action.threads.variable] = action.threads.value.format(count=budget.threads)
    return environment


def _result(action: Action, watcher: Watcher, logs: Mapping[str, Path], *, left: bool) -> ActionResult:
    end = watcher.ended.get(action.id)
    if end is None:
        return ActionResult(action=action, status=ActionStatus.NOT_RUN if left else ActionStatus.UP_TO_DATE)
    if end.code == 0:
        return ActionResult(action=action, status=ActionStatus.DONE, seconds=end.seconds)
    try:
        lines = logs[action.id].read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    except OSError:
        lines = []
    output = tuple(lines) or (f"it ended with code {end.code} without output",)
    return ActionResult(action=action, status=ActionStatus.FAILED, output=output, seconds=end.seconds)


def _tail(file: Path) -> str:
    return "\n".join(file.read_text(encoding="utf-8", errors="replace").splitlines()[-_COMPLAINT_LINES:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End ninja and its compilers: ninja passes SIGINT on and removes what is half written. Another Ctrl-C shortens the
    wait.
    """
    for wanted in (signal.SIGINT, signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(wanted)
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(_STOP_SECONDS)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _left_over(work: Path) -> int | None:
    """The process of a ninja that still runs in ``work``, without the build that started it: somebody killed that."""
    try:
        number = int((work / PROCESS).read_text(encoding="ascii"))
        words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return number if os.fsencode(work) in words else None


def _end_what_is_left(work: Path, reporter: Reporter) -> None:
    """Its compilers would write into what is built now."""
    number = _left_over(work)
    if number is None:
        return
    reporter.emit(Waiting(reason="an earlier build was killed; stopping its compilers"))
    for wanted in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, wanted)
        deadline = time.monotonic() + _KILL_SECONDS
        while _left_over(work) == number and time.monotonic() < deadline:
            time.sleep(0.05)
