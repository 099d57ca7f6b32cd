"""``kernel-builder timing``: thin; the work is in :mod:`kernel_builder.workflow.timing`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.build import project_root
from kernel_builder.cli.options import PathName, offline_option, source_option
from kernel_builder.cli.session import open_run
from kernel_builder.workflow.build import BuildRequest

if TYPE_CHECKING:
    from kernel_builder.timing.figures import Figures

_SHOWN = 5


@click.command(name="timing", short_help="Show where the time of the last build went.")
@click.argument("directory", metavar="[DIR]", type=PathName(), required=False)
@click.option(
    "-o",
    "--output",
    type=PathName(file_okay=False),
    metavar="DIR",
    help="Where to write page and trace. Default: .kernel-builder/timing/ in the project.",
)
@click.option("--no-headers", is_flag=True, help="Do not run preprocessors to measure what the sources read.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON, and write nothing.")
@source_option
@offline_option
def command(directory: Path | None, *, output: Path | None, no_headers: bool, as_json: bool) -> None:
    """Show where the time of the last build of the kernel in DIR (default: here) that compiled anything went.

    Writes a page for browsers, timing.html, and a trace for Perfetto, trace.json.
    """
    request = BuildRequest(root=project_root(directory, quiet=as_json))
    if as_json:
        from kernel_builder.workflow.timing import time_last_build  # noqa: PLC0415  (start-up time)

        with open_run(quiet=True) as run:
            timing = time_last_build(request, run, headers=not no_headers)
        click.echo(json.dumps(timing.to_json(), indent=2))
        return
    show_timing(request, output, headers=not no_headers)


def show_timing(request: BuildRequest, output: Path | None, *, headers: bool = True, quiet: bool = False) -> None:
    """Write page and trace of the last build in the root of ``request``, and say the most important of it.

    Raises what :func:`~kernel_builder.workflow.timing.time_last_build` does.
    """
    from kernel_builder.workflow.timing import time_last_build, write_timing  # noqa: PLC0415  (start-up time)

    with open_run(quiet=quiet) as run:
        timing = time_last_build(request, run, headers=headers)
        page, trace = write_timing(timing, output.resolve() if output is not None else None)
    if not quiet:
        for line in _summary(timing.figures):
            click.echo(line)
        click.echo(f"page: {page}\ntrace, for Perfetto: {trace}")


def _summary(figures: Figures) -> list[str]:
    from kernel_builder.timing.page import seconds  # noqa: PLC0415  (start-up time)

    wall, engine, floor, busy = map(seconds, (figures.wall, figures.engine, figures.floor, figures.busy))
    cached = f"; the cache saved {seconds(figures.saved)}" if figures.recalled else ""
    chain = " -> ".join(f"{link.bar.span.kind} {link.bar.span.source}" for link in figures.critical[-_SHOWN:])
    lines = [
        f"build: {wall}, {engine} of it in actions, {figures.jobs} at once{cached}",
        f"floor: {floor} (all actions {busy}, longest chain {seconds(figures.longest)})",
        f"critical path: {chain}",
    ]
    costs = [cost for cost in figures.costs["source"] if cost.ran]
    lines += [f"  {seconds(cost.seconds):>8}  {cost.name}" for cost in costs[:_SHOWN]]
    return lines
