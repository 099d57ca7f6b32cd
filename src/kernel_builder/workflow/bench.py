"""``bench``: measures builds of a kernel with the project's own benchmarks, in turns, once their results are right.

Each build is in a process of its own, since two of one kernel may have the same name. Only one of them works at a time.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kernel_builder.config.model import Project
from kernel_builder.config.reader import load_project
from kernel_builder.environments.measuring import BenchProblemError, BenchProcess
from kernel_builder.errors import BuildError, ConfigError, UsageError
from kernel_builder.events import Notice
from kernel_builder.hub.plan import BENCHMARK_FILES, BENCHMARKS
from kernel_builder.load.client import Environment
from kernel_builder.measuring.results import BenchResult, BenchSide, Measured, WorkloadResult
from kernel_builder.variants.matrix import Kept
from kernel_builder.workflow.baseline import TORCH, Baseline, open_baseline
from kernel_builder.workflow.build import BuildRequest
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
from kernel_builder.workflow.testing import build_variant, refuse_named, trial_changes

ROUNDS, FEWEST_ROUNDS = 20, 5
_BATCH_SECONDS = 0.05
"""How long one side is measured before it is the other's turn."""
_SAMPLE_SECONDS = 200e-6
"""What is faster is called several times for one sample: the clock itself takes its time."""
_WORKLOAD_SECONDS = 15.0
"""A workload that is slow gets fewer rounds."""
_BUSY = 0.5


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """What ``kernel-builder bench`` was asked for: ``against`` is as in
    :func:`~kernel_builder.workflow.baseline.open_baseline`, ``workloads`` are globs over their names (empty: all).
    """

    environment: EnvironmentRequest
    build: BuildRequest
    against: str | None = None
    workloads: tuple[str, ...] = ()
    rounds: int = ROUNDS


@dataclass(frozen=True, kw_only=True)
class Benched:
    """One variant: ``result``, or the builds that failed. ``python`` is what it was measured with."""

    variant: str
    python: Path
    result: BenchResult | None = None
    failed: tuple[BuildOutcome, ...] = ()


def bench(request: BenchRequest, run: Run) -> Iterator[Benched]:
    """Build and measure the variants that are asked for, one after the other; without a pattern the best one.

    Raises :class:`UsageError`, :class:`ConfigError`, what building raises, and :class:`BuildError` for a benchmark that
    fails, or whose result is wrong: then nothing was measured. Ctrl-C leaves no child.
    """
    root = request.environment.root
    project = load_project(root)[0]
    scripts = tuple(sorted((root / BENCHMARKS).glob(BENCHMARK_FILES)))
    if not scripts:
        raise ConfigError(
            f"{root / BENCHMARKS} has no {BENCHMARK_FILES}, so there is nothing to measure",
            hint="write a subclass of kernels.benchmark.Benchmark in it (docs/measuring.md); 'kernel-builder init'"
            " without --minimal writes one",
        )
    here = look_here(project, request.environment, run)
    for entry in _variants(project, request, here, run):
        yield _Bench(project=project, entry=entry, request=request, here=here, run=run, scripts=scripts).measured()


def pythons_to_plot(request: BenchRequest, run: Run) -> tuple[Path, ...]:
    """Where matplotlib is looked for: what runs this, whose extra brings it, and what measures."""
    active = look_here(load_project(request.environment.root)[0], request.environment, run).active
    own = Path(sys.executable)
    return (own, active.python) if isinstance(active, Environment) else (own,)


def _variants(project: Project, request: BenchRequest, here: Here, run: Run) -> tuple[Kept, ...]:
    if not request.environment.patterns:
        return (best_variant(project, request.environment, here, run),)
    entries = variants_here(project, request.environment, here, run)
    refuse_named(entries, request.environment, here)
    able = tuple(entry for entry in entries if here.why_not(entry) is None)
    return able or (best_variant(project, request.environment, here, run),)


@dataclass(kw_only=True)
class _Bench:
    """One variant."""

    project: Project
    entry: Kept
    request: BenchRequest
    here: Here
    run: Run
    scripts: tuple[Path, ...]
    remarks: list[str] = field(default_factory=list)

    def measured(self) -> Benched:
        entry, run, request = self.entry, self.run, self.request
        workplace = provide_environment(self.project, entry, request.environment, self.here, run)
        built = build_variant(entry, workplace, request.build, run)
        (variant,) = built.variants
        if variant.path is None:
            return Benched(variant=entry.name, python=workplace.python, failed=(built,))
        with ExitStack() as stack:
            baseline = None
            if request.against is not None:
                opened = open_baseline(request.against, self.project, entry, workplace, request.build, run)
                baseline = stack.enter_context(opened)
                if baseline.failed is not None:
                    return Benched(variant=entry.name, python=workplace.python, failed=(baseline.failed,))
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-builder-bench-")))
            sides = [stack.enter_context(self._process("here", variant.path, workplace, scratch))]
            if baseline is not None:
                path = baseline.path or variant.path
                sides.append(stack.enter_context(self._process(baseline.label, path, workplace, scratch)))
            result = self._compared(sides, variant.path, baseline)
        return Benched(variant=entry.name, python=workplace.python, result=result)

    def _process(self, label: str, path: Path, workplace: Workplace, scratch: Path) -> BenchProcess:
        changes = trial_changes(self.project, path, workplace.python, self.run.environ)
        return BenchProcess(
            label,
            workplace.python,
            environ=changes.applied(self.run.environ),
            cwd=self.project.root,
            log=scratch / f"{len(list(scratch.iterdir()))}.log",
        )

    def _compared(self, sides: Sequence[BenchProcess], ours: Path, baseline: Baseline | None) -> BenchResult:
        theirs = baseline.path if baseline is not None else None
        told = [
            self._load(side, path, reference=baseline is not None and theirs is None and side is not sides[0])
            for side, path in zip(sides, (ours, theirs or ours), strict=False)
        ]
        chosen = self._chosen(told[0]["workloads"])
        usable = self._checked(sides, chosen, reference=baseline is not None and theirs is None)
        self._tell(told[0]["facts"])
        before = self._readings(sides[0])
        count = len(chosen)
        found = []
        for place, (index, title) in enumerate(chosen, 1):
            self.run.reporter.emit(Notice(message=f"measuring {title} ({place} of {count})"))
            found.append(self._workload(index, title, sides, usable[index]))
        return BenchResult(
            variant=self.entry.name,
            ours=BenchSide(label="here", facts={"path": str(ours)}),
            theirs=_side(baseline) if baseline is not None else None,
            machine=told[0]["facts"],
            workloads=tuple(found),
            readings=tuple(filter(None, (before, self._readings(sides[0])))),
            remarks=tuple(self.remarks),
            scripts=tuple(script.relative_to(self.project.root).as_posix() for script in self.scripts),
        )

    def _load(self, side: BenchProcess, path: Path, *, reference: bool) -> Mapping[str, Any]:
        backend = self.entry.backend
        try:
            return side.ask(
                "load",
                kernel=str(path),
                # The client chooses by the devices that it sees; that it is the host's it must be told.
                backend=backend.value if backend.is_host else None,
                host=backend.is_host,
                device=backend.torch.device,
                scripts=list(map(str, self.scripts)),
                reference=reference,
                readings=list(backend.runtime.readings),
            )
        except BenchProblemError as error:
            raise BuildError(f"{side.label}: the benchmarks cannot be loaded: {error}") from error

    def _chosen(self, workloads: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
        """The workloads to measure, with their place in the scripts. Raises :class:`UsageError` when there are none."""
        everything = [(index, str(one["title"])) for index, one in enumerate(workloads)]
        patterns = self.request.workloads
        chosen = [
            (index, title)
            for index, title in everything
            if not patterns or any(fnmatchcase(title, one) or fnmatchcase(_name(title), one) for one in patterns)
        ]
        if not everything:
            raise ConfigError(
                f"no class in {BENCHMARKS}/{BENCHMARK_FILES} has a method benchmark_<workload>",
                hint="add a subclass of kernels.benchmark.Benchmark that has one (docs/measuring.md)",
            )
        if not chosen:
            raise UsageError(
                f"no workload matches {' or '.join(patterns)}", hint=f"there are {', '.join(t for _, t in everything)}"
            )
        return chosen

    def _checked(
        self, sides: Sequence[BenchProcess], chosen: Sequence[tuple[int, str]], *, reference: bool
    ) -> Mapping[int, str]:
        """Why the other side has not each workload (``""``: it has), once all results are right.

        Raises :class:`BuildError` with every workload that is wrong, or that does not work here.
        """
        wrong: list[str] = []
        lacking: dict[int, str] = {}
        unchecked: list[str] = []
        for index, title in chosen:
            lacking[index] = ""
            for side in sides:
                try:
                    answer = side.ask("prepare", workload=index)
                except BenchProblemError as error:
                    if side is sides[0]:
                        wrong.append(f"{title} fails: {error}")
                    else:
                        lacking[index] = f"{side.label}: {error}"
                    continue
                checked = answer["checked"]
                if checked is None and side is sides[0]:
                    unchecked.append(title)
                    lacking[index] = "it has no verify method, so there is no reference" if reference else ""
                elif checked is not None and not checked["right"]:
                    wrong.append(f"{title} of {side.label} is wrong: {_how_far(checked)}")
                if side is sides[0] and lacking[index]:
                    break
        if wrong:
            raise BuildError("nothing was measured:\n  " + "\n  ".join(wrong))
        if unchecked:
            self.remarks.append(f"not compared with a reference (no verify method): {', '.join(unchecked)}")
        return lacking

    def _workload(self, index: int, title: str, sides: Sequence[BenchProcess], lacking: str) -> WorkloadResult:
        active = sides[:1] if lacking else sides
        answers = [side.ask("prepare", workload=index) for side in active]
        slowest, fastest = (pick(float(one["estimate"]) for one in answers) for pick in (max, min))
        calls = max(1, math.ceil(_SAMPLE_SECONDS / fastest)) if self.entry.backend.is_host else 1
        turn = max(_BATCH_SECONDS, calls * slowest) + slowest
        rounds = max(FEWEST_ROUNDS, min(self.request.rounds, int(_WORKLOAD_SECONDS / (turn * len(active)))))
        rounds = min(rounds, self.request.rounds)
        times: list[list[tuple[float, ...]]] = [[] for _ in active]
        for number in range(rounds):
            order = range(len(active))
            for place in order if number % 2 == 0 else reversed(order):  # who goes first has no advantage
                answer = active[place].ask("measure", calls=calls, seconds=_BATCH_SECONDS)
                times[place].append(tuple(answer["times"]))
        found = [
            Measured(
                rounds=tuple(rows),
                calls=calls,
                right=None if answer["checked"] is None else True,
                difference=answer["checked"]["difference"] if answer["checked"] else None,
            )
            for rows, answer in zip(times, answers, strict=True)
        ]
        return WorkloadResult(
            title=title,
            size=answers[0]["size"],
            bytes_moved=answers[0]["bytes"],
            ours=found[0],
            theirs=found[1] if len(found) > 1 else None,
            problem=lacking,
        )

    def _tell(self, facts: Mapping[str, Any]) -> None:
        """How it is measured, and what may disturb it."""
        if self.entry.backend.is_host:
            threads = facts["threads"]
            self.remarks.append(f"wall-clock time of calls{f'; torch uses {threads} threads' if threads else ''}")
            load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0  # Windows has none
            if load > _BUSY * facts["processors"]:
                message = f"the machine is busy: load {load:.1f} on {facts['processors']} processors"
                self.remarks.append(message)
                self.run.reporter.emit(Notice(message=message, warning=True))
            return
        cache = (
            f"its cache ({facts['cache'] / 1e6:.0f} MB) is flushed before each call"
            if facts["flushes"]
            else ("its cache is not flushed between calls")
        )
        self.remarks.append(f"device time between events around each call; {cache}")

    @staticmethod
    def _readings(side: BenchProcess) -> Mapping[str, str]:
        with contextlib.suppress(BenchProblemError):
            readings: Mapping[str, str] = side.ask("readings")["readings"]
            return readings
        return {}


def _name(title: str) -> str:
    """A workload's name without its class."""
    return title.partition(".")[2]


def _side(baseline: Baseline) -> BenchSide:
    facts = {"path": str(baseline.path) if baseline.path else None, "commit": baseline.commit}
    return BenchSide(label=baseline.label, facts={} if baseline.label == TORCH else facts)


def _how_far(checked: Mapping[str, Any]) -> str:
    difference = checked["difference"]
    far = f"it differs by {difference:.3g} at most" if difference is not None else "only one of the two has NaN there"
    return f"{far} (allowed: atol {checked['atol']:g}, rtol {checked['rtol']:g})"
