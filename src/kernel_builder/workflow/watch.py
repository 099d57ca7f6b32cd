"""``watch``: build and test again whenever a file of the project changes, and tell what that changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import re
import stat
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_builder.config.model import Project
from kernel_builder.config.reader import FILE_NAME, load_project
from kernel_builder.config.settings import FILE_NAME as SETTINGS_NAME
from kernel_builder.environments.report import PytestReport, read_report
from kernel_builder.environments.warm import WarmProcess
from kernel_builder.errors import KernelBuilderError
from kernel_builder.events import Event, Notice, Reporter
from kernel_builder.project.tree import OUTPUT_DIRECTORY
from kernel_builder.variants.matrix import Kept
from kernel_builder.workflow.build import BuildRequest
from kernel_builder.workflow.environments import (
    EnvironmentRequest,
    Workplace,
    best_variant,
    look_here,
    provide_environment,
)
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.testing import PLUGIN, TESTS, build_variant, named_places, trial_changes

_DEBOUNCE, _STEP = 60, 20
"""Milliseconds: a change is told once nothing changed for the second, or after the first."""
_NOISE = (".pyc", ".pyo", ".swp", ".swx", ".tmp", ".log", ".xml", "~")
_OF_TESTS = (".py", ".toml", ".ini", ".cfg")
_DONE, _NONE_SELECTED = (0, 1), 5
_PASSING = re.compile(r"0x[0-9a-f]+|(?<=_)[0-9a-f]{7,}")
"""What differs from run to run in what a failure says: addresses, and the digest in the kernel's own name."""
_TAIL = 40


@dataclass(frozen=True, kw_only=True)
class WatchRequest:
    """Which variant, in which environment; ``build`` says how it is built, ``arguments`` go to pytest."""

    environment: EnvironmentRequest
    build: BuildRequest
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Round:
    """What came of one change, or of the beginning.

    ``changed`` are the files, relative to the project; ``problems`` say why nothing was built. ``report`` has all
    tests, ``failing`` and ``passing`` those that did otherwise before, ``still`` those that fail as before. ``text`` is
    what pytest wrote, where its report does not say it all. ``stopped``: another change came before the tests ended.
    Times are in seconds.
    """

    variant: str
    label: str
    changed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()
    report: PytestReport = field(default_factory=PytestReport)
    failing: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    still: tuple[str, ...] = ()
    text: str = ""
    stopped: bool = False
    building: float = 0.0
    testing: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it was built and nothing failed."""
        return not (self.problems or self.stopped or self.text or self.report.failed)


def watch(request: WatchRequest, run: Run) -> Generator[Round, None, None]:
    """One round now, and one for each change, until the iterator is closed: then nothing is left running.

    Raises what providing the environment raises, and what is wrong with the project at the beginning.
    """
    root = request.environment.root
    reporter = _Once(run.reporter)
    run = replace(run, reporter=reporter)
    with _Changes(root) as changes:
        changed: tuple[str, ...] = ()
        while True:
            # What tests are run with follows from these files: after a change of one, all of it is set up again.
            with _open(request, run) as session:
                yield session.round(changed, changes)
                while True:
                    changed = changes.wait()
                    if {FILE_NAME, SETTINGS_NAME} & set(changed):
                        try:
                            load_project(root)
                            run.settings(root)
                        except KernelBuilderError as error:
                            yield session.refused(changed, error)
                            continue
                        break
                    yield session.round(changed, changes)


@contextlib.contextmanager
def _open(request: WatchRequest, run: Run) -> Iterator[_Session]:
    project = load_project(request.environment.root)[0]
    here = look_here(project, request.environment, run)
    entry = best_variant(project, request.environment, here, run)
    workplace = provide_environment(project, entry, request.environment, here, run)
    with tempfile.TemporaryDirectory(prefix="kernel-builder-watch-") as scratch:
        variant = (request.build.output or project.root / OUTPUT_DIRECTORY) / entry.name
        environ = trial_changes(project, variant, workplace.python, run.environ).applied(run.environ)
        with WarmProcess(workplace.python, environ=environ, cwd=project.root, log=Path(scratch) / "log") as warm:
            yield _Session(
                project=project,
                entry=entry,
                workplace=workplace,
                request=request,
                run=run,
                warm=warm,
                scratch=Path(scratch),
            )


@dataclass(kw_only=True)
class _Session:
    """What stays the same from round to round, and the last report."""

    project: Project
    entry: Kept
    workplace: Workplace
    request: WatchRequest
    run: Run
    warm: WarmProcess
    scratch: Path
    before: PytestReport | None = None
    built: bool = False

    def round(self, changed: Sequence[str], changes: _Changes) -> Round:
        """Build, then test. A file that changes meanwhile begins another round: this one tells what it came to."""
        started = time.monotonic()
        compiled, problems = self._build()
        building = time.monotonic() - started
        told = Round(
            variant=self.entry.name,
            label=self.workplace.environment.label,
            changed=tuple(changed),
            compiled=compiled,
            problems=problems,
            building=building,
        )
        arguments = self.request.arguments
        if problems or not ((self.project.root / TESTS).is_dir() or named_places(self.project.root, arguments)):
            return told
        return self._test(told, changes)

    def refused(self, changed: Sequence[str], error: KernelBuilderError) -> Round:
        """A round that ends with a mistake in the project's own files."""
        return Round(
            variant=self.entry.name,
            label=self.workplace.environment.label,
            changed=tuple(changed),
            problems=(problem_text(error),),
        )

    def _build(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        # The first build is proven to load. Later ones are loaded by the tests, which would tell.
        options = replace(self.request.build, load=not self.built, loaded_next=self.built)
        try:
            outcome = build_variant(self.entry, self.workplace, options, self.run)
        except KernelBuilderError as error:
            return (), (problem_text(error),)
        (variant,) = outcome.variants
        self.built = self.built or variant.path is not None
        return variant.compiled, variant.problems

    def _test(self, told: Round, changes: _Changes) -> Round:
        started = time.monotonic()
        notes, output = self.scratch / "report", self.scratch / "output"
        for file in (notes, output):
            file.unlink(missing_ok=True)
        places = [] if named_places(self.project.root, self.request.arguments) else [TESTS]
        words = [*PLUGIN, f"--kernel-builder-report={notes}", *self.request.arguments, *places]
        code = self.warm.run(words, output, stop=changes.are_there)
        testing = time.monotonic() - started
        if code is None:
            return replace(told, stopped=True, testing=testing)
        report = read_report(notes)
        before = self.before.tests if self.before is not None else {}
        bad = {name for name, one in report.tests.items() if one.outcome in {"failed", "error"}}
        was_bad = {name for name, one in before.items() if one.outcome in {"failed", "error"}}
        same = {name for name in bad & was_bad if _essence(report.tests[name].text) == _essence(before[name].text)}
        self.before = report
        return replace(
            told,
            report=report,
            failing=tuple(name for name in report.tests if name in bad - same),
            passing=tuple(name for name in report.tests if name in was_bad - bad),
            still=tuple(name for name in report.tests if name in same),
            text=_rest(code, report, output),
            testing=testing,
        )


def _essence(text: str) -> str:
    return _PASSING.sub("", text)


def problem_text(error: KernelBuilderError) -> str:
    """All that an error says."""
    diagnostics = getattr(error, "diagnostics", ())
    hint = [f"  hint: {error.hint}"] if error.hint else []
    return "\n".join([*(one.render() for one in diagnostics), error.message, *hint])


def _rest(code: int, report: PytestReport, output: Path) -> str:
    """What the report does not say of how pytest ended: the end of what it wrote."""
    if code in _DONE and (report.tests or report.exit is not None):
        return ""
    if code == _NONE_SELECTED:
        return "no test was selected"
    if report.failed and code == 2:  # it stopped because tests could not be collected
        return ""
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines() if output.exists() else []
    if code < 0:
        at = f" in {report.running}" if report.running else ""
        lines.append(f"Python was killed by signal {-code}{at}")
    return "\n".join(lines[-_TAIL:])


class _Once:
    """Passes on what was not said before."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._told: set[str] = set()

    def emit(self, event: Event, /) -> None:
        """See :class:`Reporter`."""
        if isinstance(event, Notice):
            if event.message in self._told:
                return
            self._told.add(event.message)
        self._reporter.emit(event)


class _Changes:
    """The files below ``root`` that change, as their contents say. Use as a context manager."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._queue: queue.Queue[tuple[str, ...] | Exception] = queue.Queue()
        self._stop = threading.Event()
        self._seen: dict[str, str | None] = {}
        # What this process writes changes with every round that is told: `watch > rounds.txt` would never end.
        self._written = {found for number in (1, 2) if (found := _identity(number)) is not None}
        self._thread = threading.Thread(target=self._listen, name="watch", daemon=True)

    def __enter__(self) -> _Changes:
        for path in self._root.rglob("*"):
            if self._counts(path) and path.is_file():
                self._seen[self._relative(path)] = _digest(path)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _listen(self) -> None:
        from watchfiles import watch as listen  # noqa: PLC0415  (start-up time)

        try:
            for changes in listen(
                self._root,
                watch_filter=lambda _, path: self._counts(Path(path)),
                debounce=_DEBOUNCE,
                step=_STEP,
                stop_event=self._stop,
                rust_timeout=200,
                raise_interrupt=False,
            ):
                changed = self._changed({path for _, path in changes})
                if changed:
                    self._queue.put(changed)
        except Exception as error:  # noqa: BLE001  (raised where it is waited for)
            self._queue.put(error)

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _counts(self, path: Path) -> bool:
        """Whether a change of this file may change anything: not of what builds, tests and editors write."""
        try:
            parts = path.relative_to(self._root).parts
        except ValueError:
            return False
        if not parts or parts[0] == OUTPUT_DIRECTORY or path.name.endswith(_NOISE):
            return False
        if any(part.startswith((".", "#")) or part == "__pycache__" for part in parts):
            return False
        return parts[0] != TESTS or path.suffix in _OF_TESTS or len(parts) == 1

    def are_there(self) -> bool:
        """Whether something changed that nobody was told of yet."""
        return not self._queue.empty()

    def wait(self) -> tuple[str, ...]:
        """Wait until contents change. The files, sorted. Raises what listening raises."""
        found = [self._queue.get()]
        while not self._queue.empty():
            found.append(self._queue.get())
        names: set[str] = set()
        for one in found:
            if isinstance(one, Exception):
                raise one
            names.update(one)
        return tuple(sorted(names))

    def _changed(self, paths: set[str]) -> tuple[str, ...]:
        """Those whose contents are other ones. Editors and builds touch files, too."""
        changed = []
        for path in map(Path, sorted(paths)):
            name, digest = self._relative(path), _digest(path)
            if path.is_dir() or self._seen.get(name) == digest or _identity(path) in self._written:
                continue
            self._seen[name] = digest
            changed.append(name)
        return tuple(changed)


def _identity(file: Path | int) -> tuple[int, int] | None:
    """Device and inode of a regular file, or of one that is open under this number."""
    try:
        found = os.stat(file)  # noqa: PTH116  (numbers, too)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
