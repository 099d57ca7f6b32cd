"""Carries out a plan's steps with ninja: one graph for all variants, a log per step, and an orderly end.

ninja decides what is out of date (times, command lines, headers from depfiles), so a second run starts no compiler.
Each command writes its words to its own log, below a first line that can be pasted into a shell.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ninja
from filelock import FileLock, Timeout

from kernel_builder.engine.resources import Budget
from kernel_builder.errors import BuildError, MachineError, ToolchainError
from kernel_builder.events import Notice, Output, Reporter, StepFinished, StepsPlanned, StepStarted, Waiting
from kernel_builder.plan.model import BuildPlan, GeneratedFile, Step, StepKind

_STATUS = re.compile(r"\[(?P<done>[0-9]+)/(?P<total>[0-9]+)\] (?P<description>.*)")
_FAILED = re.compile(r"FAILED: (?:\[code=[0-9]+\] )?(?P<output>.*?) ?")
_LONGEST_COMMAND = 100_000
"""Linux takes at most 128 KiB in one argument, and the whole command is one for the shell."""

_MEDDLING = frozenset(
    {
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "LIBRARY_PATH",
        "LD_RUN_PATH",
        "GCC_EXEC_PREFIX",
        "COMPILER_PATH",
        "NVCC_PREPEND_FLAGS",
        "NVCC_APPEND_FLAGS",
    }
)
_STOP_SECONDS = 20
_POLL_SECONDS = 0.5
_LONG_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class StepFailure:
    """A step that went wrong. ``words`` are the lines it wrote: those of its log, or what the shell said instead."""

    variant: str
    step: Step
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EngineResult:
    """What ran: per variant the sources that were compiled or linked, in the order they finished; and what failed."""

    ran: dict[str, tuple[Step, ...]]
    failures: tuple[StepFailure, ...]
    stopped_early: bool


def find_ninja() -> Path:
    """The ninja that came with this package's dependencies, whatever PATH says.

    Raises :class:`ToolchainError` when it is not there.
    """
    binary = Path(ninja.BIN_DIR) / "ninja"
    if not binary.is_file():
        raise ToolchainError(f"{binary} is missing", hint="reinstall the Python package 'ninja'")
    return binary


@contextmanager
def exclusive(work: Path, reporter: Reporter) -> Iterator[None]:
    """Hold the work directory: two builds of one project take turns."""
    _prepare(work)
    lock = FileLock(work / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        reporter.emit(Waiting(reason=f"another build of this project holds {work / 'lock'}"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _prepare(work: Path) -> None:
    try:
        work.mkdir(parents=True, exist_ok=True)
        ignore = work / ".gitignore"
        if not ignore.exists():
            ignore.write_text("# Made by kernel-builder; safe to delete.\n*\n", encoding="utf-8")
    except OSError as error:
        raise MachineError(f"{work} cannot be written: {error.strerror}") from error


def write_generated(files: tuple[GeneratedFile, ...]) -> None:
    """Write generated files, each only if its content differs, so that nothing is compiled again for nothing."""
    for file in files:
        try:
            if file.path.read_text(encoding="utf-8") == file.content:
                continue
        except (FileNotFoundError, UnicodeDecodeError):
            pass
        file.path.parent.mkdir(parents=True, exist_ok=True)
        beside = file.path.with_name(f".{file.path.name}.new")
        beside.write_text(file.content, encoding="utf-8")
        beside.replace(file.path)


def _describe(variant: str, step: Step) -> str:
    return f"{step.kind.value} {variant} {step.source}"


def _logged(step: Step, command: tuple[str, ...]) -> str:
    """A shell command that runs ``command`` with its words in the step's log, below the command itself."""
    text = shlex.join(command)
    log = shlex.quote(str(step.log))
    return f"printf '%s\\n' {shlex.quote(text)} >{log} && {text} >>{log} 2>&1"


def _short(step: Step) -> tuple[tuple[str, ...], GeneratedFile | None]:
    """The step's command, its arguments moved to a response file when they are too long for a shell."""
    if step.kind is not StepKind.LINK or len(shlex.join(step.command)) < _LONGEST_COMMAND:
        return step.command, None
    arguments = step.log.with_suffix(".arguments")
    content = "".join(f"{shlex.quote(argument)}\n" for argument in step.command[1:])
    return (step.command[0], f"@{arguments}"), GeneratedFile(path=arguments, content=content)


def _escape(path: Path | str) -> str:
    """A path as ninja's syntax wants it. (The writer that comes with ninja leaves a dollar sign as it is.)"""
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def render_ninja(plan: BuildPlan) -> tuple[str, tuple[GeneratedFile, ...]]:
    """The text of ``build.ninja`` for ``plan``, and the response files that it refers to. Pure."""
    lines = [
        "# Generated by kernel-builder; every build makes it anew.",
        "ninja_required_version = 1.11",
        "rule headers",
        "  command = $line",
        "  description = $what",
        "  depfile = $made",
        "  deps = gcc",
        "rule plain",
        "  command = $line",
        "  description = $what",
    ]
    responses: list[GeneratedFile] = []
    for variant in plan.variants:
        for step in variant.steps:
            command, response = _short(step)
            implicit = list(step.implicit)
            if response is not None:
                responses.append(response)
                implicit.append(response.path)
            rule = "headers" if step.depfile is not None else "plain"
            inputs = " ".join(_escape(path) for path in step.inputs)
            besides = "".join(f" {_escape(path)}" for path in implicit)
            lines.append(f"build {_escape(step.output)}: {rule} {inputs}{' |' if besides else ''}{besides}")
            lines.append(f"  line = {_logged(step, command).replace('$', '$$')}")
            lines.append(f"  what = {_describe(variant.name, step).replace('$', '$$')}")
            if step.depfile is not None:
                lines.append(f"  made = {str(step.depfile).replace('$', '$$')}")
        if variant.library is not None:
            lines.append(f"build {_escape(f'variant-{variant.name}')}: phony {_escape(variant.library)}")
    return "\n".join(lines) + "\n", tuple(responses)


def run_plan(plan: BuildPlan, *, budget: Budget, keep_going: bool, verbose: bool, reporter: Reporter) -> EngineResult:
    """Run whatever is out of date. Call it inside :func:`exclusive`.

    A failing step is a value of the result, not an exception. Raises :class:`BuildError` when ninja itself cannot
    work. On Ctrl-C ninja and every compiler are stopped, half-written outputs are removed, and KeyboardInterrupt goes
    on.
    """
    if not plan.steps:
        return EngineResult(ran={}, failures=(), stopped_early=False)
    text, responses = render_ninja(plan)
    generated = tuple(file for variant in plan.variants for file in variant.generated)
    write_generated((*generated, *responses, GeneratedFile(path=plan.work / "build.ninja", content=text)))
    for step in plan.steps:
        step.log.parent.mkdir(parents=True, exist_ok=True)
    targets = [f"variant-{variant.name}" for variant in plan.variants if variant.library is not None]
    command = [str(find_ninja()), "-C", str(plan.work), "-j", str(budget.jobs), "-k", "0" if keep_going else "1"]
    environment = compiler_environment()
    if budget.nvcc_threads > 1:
        # In the environment, not in the command: the number of jobs must not make anything out of date.
        environment["NVCC_APPEND_FLAGS"] = f"--threads {budget.nvcc_threads}"
    watcher = _Watcher(plan, reporter, verbose=verbose)
    process = subprocess.Popen(
        [*command, *targets],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,  # Ctrl-C reaches us alone, and we stop ninja in order
    )
    with process:  # which closes its pipe at the end
        try:
            return watcher.watch(process)
        except BaseException:
            _stop(process)
            raise


def compiler_environment() -> dict[str, str]:
    """The environment of compilers and linkers: the user's, less what would change the result behind the plan's back.

    ``CPATH`` brings foreign headers, ``LD_RUN_PATH`` a run path, ``LIBRARY_PATH`` other libraries. What a kernel needs
    belongs into its ``build.toml``.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _MEDDLING}
    environment |= {"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C.UTF-8", "TERM": "dumb"}
    # For __DATE__ and __TIME__, which would make every build another one.
    environment.setdefault("SOURCE_DATE_EPOCH", "0")
    return environment


def _ask_ninja(plan: BuildPlan, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Ask ninja about the work directory; nothing is run."""
    return subprocess.run(
        [str(find_ninja()), "-C", str(plan.work), *arguments],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        env=compiler_environment(),
        stdin=subprocess.DEVNULL,
    )


def is_up_to_date(plan: BuildPlan, variant: str) -> bool:
    """Whether nothing is left to do for ``variant``, by ninja's own judgement. Call it inside :func:`exclusive`."""
    completed = _ask_ninja(plan, "-n", f"variant-{variant}")
    return completed.returncode == 0 and "no work to do" in completed.stdout


def foreign_headers(plan: BuildPlan, toolchains: Iterable[Path]) -> dict[str, tuple[str, ...]]:
    """Per variant the files outside the project that its sources include, sorted, as the compilers reported them.

    Files below ``toolchains``, of the work directory and of the system do not count.
    """
    completed = _ask_ninja(plan, "-t", "deps")
    own = tuple(f"{path}{os.sep}" for path in (plan.root, plan.work, *toolchains, Path("/usr")))
    owner = {str(step.output): variant.name for variant in plan.variants for step in variant.steps}
    found: dict[str, set[str]] = {}
    variant: str | None = None
    for line in completed.stdout.splitlines():
        if not line.startswith("    "):
            variant = owner.get(line.rsplit(": #deps", 1)[0])
        elif variant is not None:
            path = os.path.normpath(line.strip())
            if os.path.isabs(path) and not path.startswith(own):  # noqa: PTH117
                found.setdefault(variant, set()).add(path)
    return {name: tuple(sorted(paths)) for name, paths in found.items()}


def _stop(process: subprocess.Popen[str]) -> None:
    """End ninja and its compilers: ninja passes SIGINT on and removes what is half written."""
    for wanted in (signal.SIGINT, signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(wanted)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class _Starts(threading.Thread):
    """Tells which steps run now, and which have been running for long. ninja speaks only when a step has ended.

    A step's log is made anew when it starts, so its time tells.
    """

    def __init__(self, plan: BuildPlan, reporter: Reporter) -> None:
        super().__init__(daemon=True, name="step starts")
        self._reporter = reporter
        self._begun = time.time_ns()
        self._waiting = {_describe(variant.name, step): step for variant in plan.variants for step in variant.steps}
        self._running: dict[str, float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            self.look()

    def look(self) -> None:
        """Report steps that have started since the last look."""
        now = time.monotonic()
        with self._lock:
            for description, step in list(self._waiting.items()):
                try:
                    started = step.log.stat().st_mtime_ns >= self._begun
                except OSError:
                    continue
                if started:
                    del self._waiting[description]
                    self._running[description] = now
                    self._reporter.emit(StepStarted(description=description))
            for description, since in self._running.items():
                if now - since > _LONG_SECONDS:
                    self._running[description] = now
                    self._reporter.emit(Waiting(reason=f"{description} is still running"))

    def ended(self, description: str) -> None:
        """A step has ended."""
        with self._lock:
            self._waiting.pop(description, None)
            self._running.pop(description, None)

    def close(self) -> None:
        """Stop looking."""
        self._over.set()
        self.join()


class _Watcher:
    """Turns ninja's output into events and a result."""

    def __init__(self, plan: BuildPlan, reporter: Reporter, *, verbose: bool) -> None:
        self._reporter = reporter
        self._verbose = verbose
        self._by_description: dict[str, tuple[str, Step]] = {}
        self._by_output: dict[str, tuple[str, Step]] = {}
        for variant in plan.variants:
            for step in variant.steps:
                self._by_description[_describe(variant.name, step)] = variant.name, step
                self._by_output[str(step.output)] = variant.name, step
        self._ran: dict[str, list[Step]] = {}
        self._failed: dict[str, list[str]] = {}
        self._speaking: list[str] | None = None
        self._complaints: list[str] = []
        self._announced = False
        self._starts = _Starts(plan, reporter)

    def watch(self, process: subprocess.Popen[str]) -> EngineResult:
        assert process.stdout is not None  # noqa: S101  (asked for above)
        self._starts.start()
        try:
            for line in process.stdout:
                self._take(line.rstrip("\n"))
            code = process.wait()
        finally:
            self._starts.close()
        if code != 0 and not self._failed:
            words = "\n".join(self._complaints[-20:]) or f"ninja ended with code {code}"
            raise BuildError(f"the build could not be run:\n{words}")
        return EngineResult(
            ran={name: tuple(steps) for name, steps in self._ran.items()},
            failures=tuple(self._failure(output, said) for output, said in self._failed.items()),
            stopped_early=code != 0,
        )

    def _failure(self, output: str, said: list[str]) -> StepFailure:
        variant, step = self._by_output[output]
        try:
            logged = step.log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
        except OSError:
            logged = []
        # ninja repeats the command before what the shell said.
        return StepFailure(variant=variant, step=step, words=tuple(logged or said[1:]))

    def _take(self, line: str) -> None:
        status = _STATUS.fullmatch(line)
        if status is not None and status["description"] in self._by_description:
            self._speaking = None
            variant, step = self._by_description[status["description"]]
            total = int(status["total"])
            if not self._announced:
                self._announced = True
                self._reporter.emit(StepsPlanned(total=total))
            self._ran.setdefault(variant, []).append(step)
            self._starts.ended(status["description"])
            self._reporter.emit(StepFinished(description=status["description"], done=int(status["done"]), total=total))
            if self._verbose:
                self._show(step)
            return
        failed = _FAILED.fullmatch(line)
        if failed is not None and failed["output"] in self._by_output:
            self._speaking = self._failed.setdefault(failed["output"], [])
        elif line.startswith(("ninja: error:", "ninja: fatal:")):
            self._complaints.append(line)
        elif line.startswith("ninja: warning:"):
            self._reporter.emit(Notice(message=line.removeprefix("ninja: ")))
        elif self._speaking is not None and not line.startswith("ninja: "):
            self._speaking.append(line)

    def _show(self, step: Step) -> None:
        self._reporter.emit(Output(text=step.log.read_text(encoding="utf-8", errors="replace")))
