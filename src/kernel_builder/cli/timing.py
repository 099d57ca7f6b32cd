"""``kernel-builder timing``: thin; the work is in :mod:`kernel_builder.workflow.timing`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.build import handle_signals, project_root
from kernel_builder.cli.options import PathName, offline_option, source_option
from kernel_builder.cli.session import open_run
from kernel_builder.errors import UsageError
from kernel_builder.project.tree import WORK_DIRECTORY
from kernel_builder.workflow.build import BuildRequest

if TYPE_CHECKING:
    from kernel_builder.timing.figures import Figures
    from kernel_builder.workflow.advising import Advice

_SHOWN = 5


@click.command(name="timing", short_help="Show where the time of the last build went.")
@click.argument("paths", metavar="[DIR] [SOURCE]...", type=PathName(), nargs=-1)
@click.option(
    "-o",
    "--output",
    type=PathName(file_okay=False),
    metavar="DIR",
    help="Where to write the page and the trace. Default: .kernel-builder/timing/ in the project.",
)
@click.option(
    "--no-headers", is_flag=True, help=("Do not run preprocessors to measure which headers the sources include.")
)
@click.option(
    "--advise",
    is_flag=True,
    help="Compile each SOURCE (default: all) with smaller includes, and print a patch where that is faster.",
)
@click.option("--apply", "to_apply", is_flag=True, help="With --advise: also change the sources.")
@click.option("--force", is_flag=True, help="With --apply: also change sources with changes that are not committed.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures, or the advice, as JSON.")
@source_option
@offline_option
def command(
    paths: tuple[Path, ...],
    *,
    output: Path | None,
    no_headers: bool,
    advise: bool,
    to_apply: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Show where the time of the last build of the kernel in DIR (default: here) that compiled anything went.

    Writes a page for browsers, timing.html, and a trace for Perfetto, trace.json.
    """
    if to_apply and not advise:
        raise UsageError("--apply changes what --advise found", hint="run kernel-builder timing --advise --apply")
    if force and not to_apply:
        raise UsageError("--force is for --apply", hint="run kernel-builder timing --advise --apply --force")
    if output is not None and (advise or as_json):
        raise UsageError(
            "-o names the directory for the page and the trace, but --json and --advise write neither",
            hint="run kernel-builder timing without -o, or without --json and --advise",
        )
    if advise and no_headers:
        raise UsageError("--advise measures no headers", hint="run kernel-builder timing --advise without --no-headers")
    sources = tuple(path for path in paths if not path.is_dir())
    directories = [path for path in paths if path.is_dir()]
    if len(directories) > 1 or (sources and not advise):
        wrong = directories[1] if len(directories) > 1 else sources[0]
        raise UsageError(
            f"unexpected argument {wrong}",
            hint="run kernel-builder timing with one directory; sources go with kernel-builder timing --advise",
        )
    request = BuildRequest(root=project_root(directories[0] if directories else None, quiet=as_json))
    if advise:
        _show_advice(request, sources, to_apply=to_apply, force=force, as_json=as_json)
    elif as_json:
        from kernel_builder.workflow.timing import time_last_build  # noqa: PLC0415  (start-up time)

        with open_run(quiet=True) as run:
            timing = time_last_build(request, run, headers=not no_headers)
        click.echo(json.dumps(timing.to_json(), indent=2))
    else:
        show_timing(request, output, headers=not no_headers)


def _show_advice(
    request: BuildRequest, sources: tuple[Path, ...], *, to_apply: bool, force: bool, as_json: bool
) -> None:
    from kernel_builder.workflow.advising import advise  # noqa: PLC0415  (start-up time)

    handle_signals()
    with open_run(quiet=as_json) as run:
        found = advise(request, run, sources, everywhere=to_apply)
    if as_json:
        click.echo(json.dumps([one.to_json() for one in found], indent=2))
    else:
        for one in found:
            click.echo("\n".join(_advice_text(one)))
    if to_apply:
        from kernel_builder.workflow.applying import apply_advice  # noqa: PLC0415  (start-up time)

        backup = request.root / WORK_DIRECTORY / "timing" / "before"
        for name in apply_advice(request.root, found, run.environ, backup, force=force):
            click.echo(f"changed {name}; the original is in {backup / name}", err=True)


def _advice_text(advice: Advice) -> list[str]:
    if advice.proposal is None or advice.before is None or advice.after is None:
        return [f"{advice.source}: {advice.reason}"]
    replaced = ", ".join(f"<{name}>" for name in advice.proposal.replaced)
    headers = ", ".join(f"<{name}>" for name in advice.proposal.headers) or "nothing"
    seconds = f"{advice.before:.2f} s -> {advice.after:.2f} s of processor time"
    variants = ", ".join((*advice.variants, *advice.architectures))
    return [
        f"{advice.source} compiles with {headers} in place of {replaced}: {seconds} (tried for {variants})",
        *(f"  note: {remark}" for remark in advice.remarks),
        advice.patch,
    ]


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
    spent = f"; {seconds(figures.processor)} of processor time" if figures.processor else ""
    lines = [
        f"build: {wall}, {engine} of it in actions, {figures.jobs} at once{cached}",
        f"lower bound: {floor} (all actions {busy}, longest chain {seconds(figures.longest)}{spent})",
        f"critical path: {chain}",
    ]
    costs = [cost for cost in figures.costs["source"] if cost.ran]
    lines += [f"  {seconds(cost.seconds):>8}  {cost.name}" for cost in costs[:_SHOWN]]
    return lines
