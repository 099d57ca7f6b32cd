"""``kernel-builder bench``: thin; the work is in :mod:`kernel_builder.workflow.bench`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Unpack

import click

from kernel_builder.cli.build import handle_signals, show_failures
from kernel_builder.cli.console import errors_as_json
from kernel_builder.cli.options import PathName, offline_option, source_option
from kernel_builder.cli.session import environment, open_run
from kernel_builder.cli.test import EnvironmentOptions, environment_options, environment_request, trial_build
from kernel_builder.environments.measuring import find_plotter, plot
from kernel_builder.errors import ExitCode
from kernel_builder.measuring.figures import curves
from kernel_builder.measuring.results import BenchResult, Measured, WorkloadResult
from kernel_builder.measuring.statistics import Summary
from kernel_builder.workflow.bench import ROUNDS, Benched, BenchRequest, bench, pythons_to_plot

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATES = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"))


@click.command(name="bench")
@environment_options
@click.option(
    "--against",
    metavar="WHAT",
    help=(
        "Compare with this: 'torch' (the reference of each benchmark), a directory (a project, or built variants), "
        "or a git revision of the project, such as HEAD or main."
    ),
)
@click.option(
    "--workload",
    "workloads",
    metavar="NAME",
    multiple=True,
    help="Measure this workload, or all that match a glob such as 'float32_*'. Can be repeated.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=ROUNDS,
    show_default=True,
    metavar="N",
    help="Rounds to measure, in each of which both sides take a turn; slow workloads get fewer.",
)
@click.option(
    "--plot",
    "figure",
    type=PathName(dir_okay=False),
    metavar="FILE",
    help="Plot time and bandwidth against size to this file (.svg, .png, .pdf). Needs matplotlib.",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Run N compilers in parallel.")
@click.option("-q", "--quiet", is_flag=True, help="Show only warnings and errors of the build.")
@click.option("--json", "as_json", is_flag=True, help="Print everything that was measured as JSON.")
@source_option
@offline_option
def command(
    *,
    against: str | None,
    workloads: tuple[str, ...],
    rounds: int,
    figure: Path | None,
    jobs: int | None,
    quiet: bool,
    as_json: bool,
    **options: Unpack[EnvironmentOptions],
) -> int:
    """Measure the kernel in DIR with its benchmarks/benchmark*.py, which 'kernels benchmark' runs too.

    Builds the variant first, and compares each workload's result with its reference before measuring it. Two builds
    are measured in turns, each in its own process.
    """
    request_of = environment_request(options, quiet=quiet)
    request = BenchRequest(
        environment=request_of,
        build=trial_build(request_of.root, jobs=jobs),
        against=against,
        workloads=workloads,
        rounds=rounds,
    )
    handle_signals()
    done: list[Benched] = []
    with errors_as_json(as_json), open_run(quiet=quiet) as run:
        plotter = find_plotter(pythons_to_plot(request, run), run.environ) if figure is not None else None
        for one in bench(request, run):
            done.append(one)
            for failed in one.failed:
                show_failures(failed)
            if one.result is not None and not as_json:
                for line in _text(one.result):
                    click.echo(line)
        results = [one.result for one in done if one.result is not None]
        if figure is not None and plotter is not None:
            for result in results:
                file = figure if len(results) == 1 else figure.with_stem(f"{figure.stem}-{result.variant}")
                plot(plotter, _figure(result), file, environment())
                if not as_json:
                    click.echo(f"figure: {file}")
    if as_json:
        click.echo(
            json.dumps({"ok": len(results) == len(done), "variants": [one.to_json() for one in results]}, indent=2)
        )
    return ExitCode.OK if len(results) == len(done) else ExitCode.FAILED


def _text(result: BenchResult) -> Iterator[str]:
    """What was measured, as a table."""
    machine = result.machine
    yield f"{result.variant}, {_framework(machine)}, {machine['name']}"
    theirs = result.theirs
    head = ["workload", "here", "", *([theirs.label, "", f"here / {theirs.label}"] if theirs else []), "outliers"]
    rows = [head, *(_row(one, compared=theirs is not None) for one in result.workloads)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    for one in result.workloads:
        if one.problem:
            yield f"note: {one.title} was measured without a comparison: {one.problem}"
    yield "note: times are medians of calls ± half the interquartile range; ratios have 95 % confidence intervals"
    for remark in result.remarks:
        yield f"note: {remark}"
    for when, readings in zip(("before", "after"), result.readings, strict=False):
        told = (f"{name.partition(' [')[0]} {value}" for name, value in readings.items() if name != "uuid")
        yield f"note: {when}: {', '.join(told)}"


def _framework(machine: Mapping[str, object]) -> str:
    return f"torch {machine['torch']}" if machine["torch"] else "without torch"


def _row(one: WorkloadResult, *, compared: bool) -> list[str]:
    sides = [one.ours, *([one.theirs] if compared else [])]
    cells = [cell for side in sides for cell in _side(one, side)]
    ratio = one.ratio
    if compared:
        cells.append(f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] {ratio.verdict}" if ratio else "-")
    cells.append("; ".join(_outliers(side.summary) for side in sides if side is not None))
    return [one.title, *cells]


def _outliers(summary: Summary) -> str:
    return f"{summary.outliers} of {summary.count}, up to {_time(summary.most)}" if summary.outliers else "none"


def _side(one: WorkloadResult, measured: Measured | None) -> list[str]:
    if measured is None:
        return ["-", ""]
    summary, rate = measured.summary, one.bandwidth(measured)
    return [f"{_time(summary.median)} ± {summary.spread:.1%}", "" if rate is None else _rate(rate)]


def _time(seconds: float) -> str:
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if seconds >= scale), _UNITS[-1])
    return f"{seconds / scale:.3g} {unit}" if seconds / scale < 1000 else f"{seconds / scale:.0f} {unit}"


def _rate(rate: float) -> str:
    scale, unit = next(((scale, unit) for scale, unit in _RATES if rate >= scale), _RATES[-1])
    return f"{rate / scale:.3g} {unit}"


def _figure(result: BenchResult) -> dict[str, object]:
    """What is drawn."""
    machine = result.machine
    return {
        "title": f"{result.variant}: {machine['name']}",
        "below": f"{_framework(machine)}; {'; '.join(result.remarks)}",
        "curves": [asdict(curve) for curve in curves(result)],
    }
