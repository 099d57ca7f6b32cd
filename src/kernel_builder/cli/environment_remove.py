"""``kernel-builder environment remove``: delete environments that are kept."""

from __future__ import annotations

import click

from kernel_builder.cli.completing import ENVIRONMENT
from kernel_builder.cli.console import mebibytes
from kernel_builder.cli.options import read_duration, read_size
from kernel_builder.cli.session import open_run
from kernel_builder.environments.kept import Environments
from kernel_builder.errors import ExitCode, UsageError


@click.command(name="remove")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=ENVIRONMENT)
@click.option(
    "--older-than",
    metavar="30d",
    callback=read_duration,
    help="Remove environments unused for this long (m, h, d, w).",
)
@click.option(
    "--keep-size",
    metavar="20G",
    callback=read_size,
    help="Remove the least recently used environments until the rest fits in this size (K, M, G, T).",
)
@click.option("--all", "everything", is_flag=True, help="Remove all environments.")
def command(*, names: tuple[str, ...], older_than: float | None, keep_size: int | None, everything: bool) -> int:
    """Remove environments by NAME, or by the beginning of a name.

    Keeps environments that a running process uses. A removed environment is created again when it is needed.
    """
    limits = older_than is not None or keep_size is not None
    if sum([bool(names), limits, everything]) != 1:
        raise UsageError(
            "no environments to remove were named"
            if not (names or limits or everything)
            else "names, limits and --all cannot be combined",
            hint="run 'kernel-builder environment remove' with names, or --older-than and --keep-size, or --all;"
            " 'kernel-builder environment list' lists them",
        )
    with open_run(silent=True) as run:
        environments = Environments(run.store, run.reporter)
        if names:
            removed = environments.remove(names)
        elif everything:
            removed = environments.remove([entry.name for entry in environments.listed()])
        else:
            never, all_of_it = float("inf"), 1 << 62
            removed = environments.bound(
                seconds=never if older_than is None else older_than, size=all_of_it if keep_size is None else keep_size
            )
    for entry in removed.gone:
        click.echo(f"removed {entry.name} ({mebibytes(entry.size)})")
    for name in removed.busy:
        click.echo(f"kept {name}: a running process uses it", err=True)
    click.echo(f"{mebibytes(sum(entry.size for entry in removed.gone))} freed")
    return ExitCode.FAILED if names and removed.busy else ExitCode.OK
