"""``kernel-builder watch``: thin; the work is in :mod:`kernel_builder.workflow.watch`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Unpack

import click

from kernel_builder.cli.build import handle_signals
from kernel_builder.cli.options import offline_option, source_option
from kernel_builder.cli.passing import PassingCommand, passed_on
from kernel_builder.cli.session import open_run
from kernel_builder.cli.test import EnvironmentOptions, environment_options, environment_request, trial_build
from kernel_builder.workflow.watch import Round, WatchRequest, watch

_FEW = 5


@click.command(name="watch", cls=PassingCommand)
@environment_options
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Run N compilers in parallel.")
@source_option
@offline_option
def command(*, jobs: int | None, **options: Unpack[EnvironmentOptions]) -> None:
    """Build and test the kernel in DIR, and again whenever one of its files changes, until Ctrl-C.

    Shows only tests whose result changed: those that fail now, and those that pass again. Arguments after '--' go to
    pytest: 'kernel-builder watch -- tests/test_scale.py -k float32'.
    """
    environment = environment_request(options, quiet=False)
    request = WatchRequest(
        environment=environment, build=trial_build(environment.root, jobs=jobs), arguments=passed_on()
    )
    handle_signals()
    with open_run() as run, contextlib.closing(watch(request, run)) as rounds:
        for number, one in enumerate(rounds):
            if number == 0:
                click.echo(f"watching {environment.root}: {one.variant}, {one.label}; press Ctrl-C to stop")
            for line in round_text(one, time.strftime("%H:%M:%S")):
                click.echo(line)


def round_text(one: Round, now: str) -> Iterator[str]:
    """What a round is told as."""
    names = [*one.changed[:_FEW], *([f"and {len(one.changed) - _FEW} more"] if len(one.changed) > _FEW else [])]
    yield f"[{now}] {', '.join(names) or 'first round'}"
    for problem in one.problems:
        yield _indented(problem)
    for name in one.failing:
        yield f"  FAILS  {name}"
        yield _indented(one.report.tests[name].text, "    ")
    for name in one.passing:
        yield f"  passes {name}"
    if one.text:
        yield _indented(one.text)
    if one.still:
        shown = ", ".join(one.still[:_FEW])
        more = f" and {len(one.still) - _FEW} more" if len(one.still) > _FEW else ""
        yield f"  still failing: {shown}{more}"
    compiled = f", {len(one.compiled)} compiled" if one.compiled else ""
    build = f"{'not built' if one.problems else 'built'} in {one.building:.2f} s{compiled}"
    result = "tests stopped: another file changed" if one.stopped else one.report.summary or "no tests"
    tests = f"{result} in {one.testing:.2f} s" if one.testing else ""
    yield f"  {'; '.join(filter(None, [build, tests]))}"


def _indented(text: str, by: str = "  ") -> str:
    return "\n".join(f"{by}{line}" for line in text.splitlines())
