"""``kernel-builder test`` and ``ci-test``: thin; the work is in :mod:`kernel_builder.workflow.testing`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict, Unpack

import click

from kernel_builder.cli.build import handle_signals, project_root, show_failures
from kernel_builder.cli.build_types import BuildTypeOptions, build_type_of, build_type_options
from kernel_builder.cli.completing import VARIANT
from kernel_builder.cli.console import errors_as_json, show_error
from kernel_builder.cli.options import offline_option, source_option, together
from kernel_builder.cli.passing import PassingCommand, passed_on
from kernel_builder.cli.session import open_run
from kernel_builder.config.backends import order_of_devices
from kernel_builder.errors import UsageError
from kernel_builder.variants.build_type import RELEASE, BuildType
from kernel_builder.workflow.build import BuildRequest
from kernel_builder.workflow.environments import EnvironmentRequest
from kernel_builder.workflow.testing import TrialOutcome, TrialRequest, Trials, TrialStatus, run_trials

_ORDER = ", ".join(backend.label for backend in order_of_devices())


class EnvironmentOptions(TypedDict):
    """What :data:`environment_options` gives a command's function."""

    directory: Path | None
    variants: tuple[str, ...]
    python: Path | None
    isolated: bool


environment_options = together(
    click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False),
    click.option(
        "--variant",
        "variants",
        type=VARIANT,
        metavar="NAME",
        multiple=True,
        help="This variant, or all that match a glob such as 'torch213-*'. Can be repeated. Default: the first that"
        f" this machine can run, in the order {_ORDER}.",
    ),
    click.option(
        "--python",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=(
            "Use this Python interpreter; it needs torch, kernels, pytest and what the tests import. Default: the "
            "active environment's if it has all of these, else an environment that is created and kept."
        ),
    ),
    click.option(
        "--isolated", is_flag=True, help="Create an environment even if the active one has everything that is needed."
    ),
)
"""The options of everything that runs in an environment."""

trial_options = together(
    environment_options,
    click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Run N compilers in parallel."),
    click.option(
        "-v", "-L", "--verbose", is_flag=True, help="Show every command and all compiler output of the build."
    ),
    click.option("-q", "--quiet", is_flag=True, help="Show only warnings and errors of the build."),
    click.option("--all", "everything", is_flag=True, help="Test every variant that this machine can run."),
    click.option("--json", "as_json", is_flag=True, help="Print the test result of each variant as JSON, at the end."),
    build_type_options,
    source_option,
    offline_option,
)


class TrialOptions(EnvironmentOptions, BuildTypeOptions):
    """What :data:`trial_options` gives a command's function."""

    jobs: int | None
    verbose: bool
    quiet: bool
    everything: bool
    as_json: bool


def environment_request(options: EnvironmentOptions, *, quiet: bool) -> EnvironmentRequest:
    """What the options ask for. Raises :class:`UsageError` for those that contradict each other."""
    python = options["python"]
    if python is not None and options["isolated"]:
        raise UsageError("--python names an environment, and --isolated creates one; remove one of them")
    return EnvironmentRequest(
        root=project_root(options["directory"], quiet=quiet),
        patterns=options["variants"],
        # Not resolved: a virtual environment's python is a link, and what it is depends on where it lies.
        python=python.absolute() if python else None,
        isolated=options["isolated"],
    )


def trial_build(
    root: Path, *, jobs: int | None = None, verbose: bool = False, build_type: BuildType = RELEASE
) -> BuildRequest:
    """How a variant is built to be tested."""
    return BuildRequest(
        root=root,
        jobs=jobs,
        verbose=verbose,
        list_unreachable=True,
        recall=True,
        build_type=build_type,
    )


def run_command(options: TrialOptions, *, marked: bool) -> int:
    """Run the tests that ``options`` ask for and tell how they ended. The exit code."""
    quiet, as_json = options["quiet"], options["as_json"]
    environment = environment_request(options, quiet=quiet)
    if options["everything"] and environment.patterns:
        raise UsageError("--all tests every variant, and --variant names some; remove one of them")
    request = TrialRequest(
        environment=environment,
        build=trial_build(
            environment.root, jobs=options["jobs"], verbose=options["verbose"], build_type=build_type_of(options)
        ),
        arguments=passed_on(),
        everything=options["everything"],
        marked=marked,
    )
    handle_signals()
    with errors_as_json(as_json), open_run(quiet=quiet) as run:
        trials = run_trials(request, run)
    for entry in trials.variants:
        if entry.built is not None:
            show_failures(entry.built)
    if as_json:
        click.echo(json.dumps(_json(trials), indent=2))
    else:
        _show(trials)
    return trials.exit_code


def _show(trials: Trials) -> None:
    """One variant: what pytest did not say itself. Several: a table."""
    if len(trials.variants) == 1:
        (entry,) = trials.variants
        if entry.status is TrialStatus.NONE and entry.reason:
            if trials.none_is_fine:
                click.echo("no test is marked kernels_ci, so nothing was tested (this is not a failure)")
            else:
                show_error(f"error: {entry.variant}: {entry.reason}")
        elif entry.reason and entry.status is not TrialStatus.NOT_BUILT:
            show_error(f"error: {entry.variant}: {entry.reason}")
        return
    for line in _table(trials.variants):
        click.echo(line)


def _table(entries: Iterable[TrialOutcome]) -> list[str]:
    rows = [(entry.variant, entry.status.value, entry.where or "-", _details(entry)) for entry in entries]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(f"{row[i]:<{widths[i]}}" for i in range(3)), row[3]]).rstrip() for row in rows]


def _details(entry: TrialOutcome) -> str:
    seconds = f"{entry.seconds:.1f} s" if entry.seconds else ""
    return "; ".join(filter(None, [entry.report.summary, entry.reason.partition("\n")[0], seconds]))


def _json(trials: Trials) -> dict[str, object]:
    return {
        "ok": trials.exit_code == 0,
        "variants": [
            {
                "name": entry.variant,
                "status": entry.status.value,
                "environment": entry.where or None,
                "passed": entry.report.count("passed"),
                "failed": entry.report.failed,
                "skipped": entry.report.count("skipped"),
                "failures": [name for name, one in entry.report.tests.items() if one.outcome in {"failed", "error"}],
                "reason": entry.reason or None,
                "seconds": round(entry.seconds, 3),
            }
            for entry in trials.variants
        ],
    }


@click.command(name="test", cls=PassingCommand)
@trial_options
def command(**options: Unpack[TrialOptions]) -> int:
    """Build what is out of date, and run the tests of the kernel in DIR against the build.

    Tests load the kernel through the kernels client (LOCAL_KERNELS names the build), or import it by its name.
    Arguments after '--' go to pytest: 'kernel-builder test -- -k layout -x', '-- --junitxml=report.xml'.
    """
    return run_command(options, marked=False)
