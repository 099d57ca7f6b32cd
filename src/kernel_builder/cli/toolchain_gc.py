"""``kernel-builder toolchain gc``: clean up the store."""

from __future__ import annotations

import click

from kernel_builder.cli.console import mebibytes
from kernel_builder.cli.options import read_duration, read_size
from kernel_builder.cli.session import open_run
from kernel_builder.errors import UsageError
from kernel_builder.store.inventory import collect


@click.command(name="gc")
@click.option(
    "--older-than", metavar="30d", callback=read_duration, help="Remove entries unused for this long (m, h, d, w)."
)
@click.option(
    "--keep-size",
    metavar="5G",
    callback=read_size,
    help="Remove the least recently used entries until the rest fits in this size (K, M, G, T).",
)
@click.option("--all", "everything", is_flag=True, help="Remove everything that no running build uses.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed without removing it.")
def command(*, older_than: float | None, keep_size: int | None, everything: bool, dry_run: bool) -> None:
    """Remove entries from the store that have not been used for a while.

    Without options, removes only leftovers: files of killed processes, and partial downloads not resumed for a week.
    Never removes what a running build uses.
    """
    if everything and (older_than is not None or keep_size is not None):
        raise UsageError(
            "--all cannot be combined with a limit",
            hint="run kernel-builder toolchain gc --all,"
            " or kernel-builder toolchain gc --older-than DAYS --keep-size SIZE",
        )
    with open_run(silent=True) as run:
        removal = collect(run.store, older_than=older_than, keep_size=keep_size, everything=everything, dry_run=dry_run)
    verb = "would remove" if dry_run else "removed"
    for entry in removal.entries:
        click.echo(f"{verb} {entry.name} ({mebibytes(entry.size)})")
    for name in removal.kept:
        click.echo(f"kept {name}: a running build uses it", err=True)
    if removal.debris:
        click.echo(f"{verb} {removal.debris} {'leftover' if removal.debris == 1 else 'leftovers'} of earlier processes")
    click.echo(f"{mebibytes(removal.freed)} {'would be ' if dry_run else ''}freed")
