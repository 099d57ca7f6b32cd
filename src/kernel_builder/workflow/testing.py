"""``test`` and ``ci-test``: build what is stale, then run the project's tests against the build.

Each variant is tested by itself, in an environment with its torch, as its users have it: through the ``kernels``
client, which is told of the variant's directory.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from kernel_builder.config.model import Project
from kernel_builder.config.reader import load_project
from kernel_builder.environments import inside
from kernel_builder.environments.report import PytestReport, read_report
from kernel_builder.environments.running import run_tests
from kernel_builder.environments.variables import (
    Changes,
    import_changes,
    kernel_changes,
    python_changes,
    together,
    with_variables,
)
from kernel_builder.errors import ConfigError, ExitCode, KernelBuilderError, UsageError
from kernel_builder.events import Event, Foreground, Notice, Reporter
from kernel_builder.variants.matrix import Kept
from kernel_builder.workflow.build import BuildRequest, build
from kernel_builder.workflow.environments import (
    EnvironmentRequest,
    Here,
    Workplace,
    best_variant,
    look_here,
    provide_environment,
    variants_here,
)
from kernel_builder.workflow.outcome import BuildOutcome
from kernel_builder.workflow.run import Run

TESTS = "tests"
MARKER = "kernels_ci"
_JUNIT = ("--junitxml", "--junit-xml")
_WITH_VALUE = frozenset({
    "-W", "-c", "-k", "-m", "-n", "-o", "-p", "-r", "--assert", "--basetemp", "--capture", "--code-highlight",
    "--color", "--confcutdir", "--config-file", "--count", "--cov-config", "--cov-report", "--deselect", "--dist",
    "--doctest-glob", "--doctest-report", "--durations", "--durations-min", "--html", "--ignore", "--ignore-glob",
    "--import-mode", "--junit-prefix", "--junitprefix", "--last-failed-no-failures", "--lfnf", "--log-cli-level",
    "--log-disable", "--log-file", "--log-file-format", "--log-file-level", "--log-file-mode", "--log-format",
    "--log-level", "--max-warnings", "--maxfail", "--numprocesses", "--override-ini", "--pastebin", "--pdbcls",
    "--pythonwarnings", "--report-chars", "--rootdir", "--show-capture", "--tb", "--timeout", "--verbosity", *_JUNIT,
})  # fmt: skip
"""Options of pytest 9 and of its usual plugins whose value is the next word."""
_NONE_SELECTED, _USAGE, _INTERRUPTED = 5, 4, 2


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """What ``kernel-builder test`` was asked for.

    With ``everything`` each variant that can run here is tested, else the best one, or those that the patterns of
    ``environment`` name. ``arguments`` go to pytest. ``marked`` are the tests of ``ci-test`` alone: then none
    at all is no failure. ``build`` says how variants are built; its root and patterns do not count.
    """

    environment: EnvironmentRequest
    build: BuildRequest
    arguments: tuple[str, ...] = ()
    everything: bool = False
    marked: bool = False


class TrialStatus(StrEnum):
    """How the tests of a variant ended."""

    PASSED = "passed"
    FAILED = "failed"
    NONE = "no tests"
    NOT_BUILT = "not built"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """One variant. ``where`` says with what it was tested; ``reason`` why it was not, or what went wrong."""

    variant: str
    status: TrialStatus
    where: str = ""
    reason: str = ""
    report: PytestReport = field(default_factory=PytestReport)
    seconds: float = 0.0
    built: BuildOutcome | None = None
    code: ExitCode = ExitCode.FAILED


@dataclass(frozen=True, kw_only=True)
class Trials:
    """All variants that were asked for, in the order in which they were tested."""

    variants: tuple[TrialOutcome, ...]
    none_is_fine: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """0 when something was tested and nothing failed; for ``ci-test`` also when there was nothing to test."""
        fine = {TrialStatus.PASSED, TrialStatus.NOT_RUN, *([TrialStatus.NONE] if self.none_is_fine else [])}
        bad = [entry.code for entry in self.variants if entry.status not in fine]
        if bad:
            return bad[0] if len(set(bad)) == 1 else ExitCode.FAILED
        tested = any(entry.status is not TrialStatus.NOT_RUN for entry in self.variants)
        return ExitCode.OK if tested else ExitCode.FAILED


def run_trials(request: TrialRequest, run: Run) -> Trials:
    """Build and test. What tests write goes straight to the terminal.

    Raises :class:`ConfigError`, :class:`UsageError`, and what building one variant raises where only one is asked
    for; Ctrl-C leaves no child.
    """
    root = request.environment.root
    project = load_project(root)[0]
    if not (root / TESTS).is_dir():
        if request.marked:
            run.reporter.emit(Notice(message=f"the project has no {TESTS}/ directory, so nothing is tested"))
            return Trials(variants=(TrialOutcome(variant="", status=TrialStatus.NONE),), none_is_fine=True)
        raise ConfigError(
            f"{root / TESTS} does not exist, so there is nothing to test",
            hint=f"write pytest tests in {TESTS}/test_*.py; 'kernel-builder init' writes some for a new kernel",
        )
    here = look_here(project, request.environment, run)
    several = request.everything or bool(request.environment.patterns)
    if not several:
        entries: tuple[Kept, ...] = (best_variant(project, request.environment, here, run),)
    else:
        entries = variants_here(project, request.environment, here, run)
    refuse_named(entries, request.environment, here)
    outcomes = []
    for entry in entries:
        reason = here.why_not(entry)
        if reason is not None:
            outcomes.append(TrialOutcome(variant=entry.name, status=TrialStatus.NOT_RUN, reason=reason))
            continue
        outcomes.append(_tested(project, entry, request, here, run, alone=len(entries) == 1))
    return Trials(variants=tuple(outcomes), none_is_fine=request.marked)


def refuse_named(entries: Sequence[Kept], request: EnvironmentRequest, here: Here) -> None:
    """A variant that was asked for by its full name, and cannot run, is a mistake: raises :class:`UsageError`."""
    named = [entry for entry in entries if entry.name in request.patterns]
    wrong = [f"{entry.name}: {reason}" for entry in named if (reason := here.why_not(entry)) is not None]
    if wrong:
        raise UsageError(
            f"this machine cannot run {'; '.join(wrong)}",
            hint="run 'kernel-builder test --all' to test what it can run, or test on a machine that has the device",
        )


def _tested(project: Project, entry: Kept, request: TrialRequest, here: Here, run: Run, *, alone: bool) -> TrialOutcome:
    """One variant; an error of one among several is a value."""
    try:
        provided = provide_environment(project, entry, request.environment, here, run)
        built = build_variant(entry, provided, request.build, run)
    except KernelBuilderError as error:
        if alone:
            raise
        return TrialOutcome(
            variant=entry.name, status=TrialStatus.NOT_BUILT, reason=error.message, code=error.exit_code
        )
    (variant,) = built.variants
    where = provided.environment.label
    if variant.path is None:
        return TrialOutcome(
            variant=entry.name, status=TrialStatus.NOT_BUILT, where=where, built=built, reason="see above"
        )
    started = time.monotonic()
    place = f"environment {provided.made}" if provided.made else str(provided.python)
    run.reporter.emit(Notice(message=f"testing {entry.name} with {where} ({place})"))
    arguments = pytest_arguments(project.root, request, None if alone else entry.name)
    changes = trial_changes(project, variant.path, provided.python, run.environ)
    with tempfile.TemporaryDirectory(prefix="kernel-builder-test-") as scratch:
        notes = Path(scratch) / "report"
        # What a sanitizer says of a process that it ends is not to end with it in pytest's own file.
        seen = ["--capture=sys"] if built.variables else []
        command = [str(provided.python), "-m", "pytest", *PLUGIN, f"--kernel-builder-report={notes}", *seen, *arguments]
        command = [*with_variables(built.variables), *command]
        run.reporter.emit(Foreground())
        code = run_tests(command, environ=changes.applied(run.environ), cwd=project.root)
        report = read_report(notes)
    status, reason, result = _judged(code, report, provided)
    return TrialOutcome(
        variant=entry.name,
        status=status,
        where=where,
        reason=reason,
        report=report,
        seconds=time.monotonic() - started,
        code=result,
    )


PLUGIN = ("-p", "kernel_builder_report")
"""What makes pytest load our plugin, which lies in :func:`trial_changes`' PYTHONPATH."""


QUIET = Changes(values={"PYTHONDONTWRITEBYTECODE": "1"})
"""Leaves no bytecode in the variant: it would be part of what is checked and uploaded."""


def build_variant(entry: Kept, provided: Workplace, options: BuildRequest, run: Run) -> BuildOutcome:
    """Build ``entry`` as ``options`` say, and prove that ``provided`` loads it. Raises what :func:`build` does."""
    quiet = replace(run, reporter=Unpublished(run.reporter))
    return build(replace(options, patterns=(entry.name,), python=provided.python), quiet)


class Unpublished:
    """A reporter for builds that nobody publishes: that the sources differ from the commit is what work looks like."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def emit(self, event: Event, /) -> None:
        """See :class:`~kernel_builder.events.Reporter`."""
        if not (isinstance(event, Notice) and event.publishing):
            self._reporter.emit(event)


def trial_changes(project: Project, variant: Path, python: Path, environ: Mapping[str, str]) -> Changes:
    """What tests of ``variant`` see: the client takes the kernel from there, and ``import NAME`` finds it too, as in
    the shells of the reference (contract 6.5).
    """
    own = Path(inside.__file__).parent
    kernel = kernel_changes(project.hub.repo_id, variant, environ)
    return together(python_changes(python), kernel, import_changes([own, variant]), QUIET)


def pytest_arguments(root: Path, request: TrialRequest, variant: str | None) -> tuple[str, ...]:
    """The arguments of pytest: those given, ``tests`` where they name no place, and the marker of ``ci-test``.

    With ``variant``, one of several, JUnit files are named after it: each would overwrite the one before.
    """
    arguments = list(request.arguments)
    if not named_places(root, arguments):
        arguments.append(TESTS)
    if request.marked:
        arguments = ["-m", MARKER, *arguments]
    if variant is not None:
        arguments = _junit_per_variant(arguments, variant)
    return tuple(arguments)


def named_places(root: Path, arguments: Sequence[str]) -> bool:
    """Whether ``arguments`` of pytest name a file or a directory of tests; values of options name none."""
    words = [word for before, word in zip(["", *arguments], arguments, strict=False) if before not in _WITH_VALUE]
    return any((root / word.split("::")[0]).exists() for word in words if word and not word.startswith("-"))


def _junit_per_variant(arguments: Sequence[str], variant: str) -> list[str]:
    result, follows, any_file = [], False, False
    for word in arguments:
        option, equals, value = word.partition("=")
        if follows:
            word = _named_after(word, variant)  # noqa: PLW2901
        elif option in _JUNIT and equals:
            word = f"{option}={_named_after(value, variant)}"  # noqa: PLW2901
        follows = word in _JUNIT
        any_file = any_file or option in _JUNIT
        result.append(word)
    return ["-o", f"junit_suite_name={variant}", *result] if any_file else result


def _named_after(file: str, variant: str) -> str:
    path = Path(file)
    return str(path.with_name(f"{path.stem}-{variant}{path.suffix}"))


def _judged(code: int, report: PytestReport, provided: Workplace) -> tuple[TrialStatus, str, ExitCode]:
    """What an exit code of pytest means."""
    if code == 0:
        return TrialStatus.PASSED, "", ExitCode.OK
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        at = f" in {report.running}" if report.running else ""
        return TrialStatus.FAILED, f"Python was killed by {name}{at}", ExitCode.FAILED
    if code == _NONE_SELECTED:
        return TrialStatus.NONE, "no test was selected", ExitCode.FAILED
    if code == _INTERRUPTED and not report.failed:
        return TrialStatus.FAILED, "the tests were interrupted", ExitCode.INTERRUPTED
    if code == _USAGE:
        return TrialStatus.FAILED, "pytest does not accept its arguments; see above", ExitCode.USAGE
    if report.exit is None and not report.tests:
        return (
            TrialStatus.FAILED,
            f"pytest did not run in {provided.python} (exit code {code}); see above",
            ExitCode.FAILED,
        )
    return TrialStatus.FAILED, "", ExitCode.FAILED
