"""``kernel-builder toolchain gc``: clean up the store."""

from __future__ import annotations

import re

import click

from kernel_builder.cli.console import mebibytes
from kernel_builder.cli.session import open_run
from kernel_builder.errors import UsageError
from kernel_builder.store.inventory import collect

_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _duration(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    match = re.fullmatch(r"(\d+)([mhdw])", value.strip().lower())
    if match is None:
        raise click.BadParameter(f"{value!r} is no span of time; write 30d, 12h, 90m or 2w")
    return int(match[1]) * _SECONDS[match[2]]


def _size(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = re.fullmatch(r"(\d+)([KMGT]?)(?:IB|B)?", value.strip().upper())
    if match is None:
        raise click.BadParameter(f"{value!r} is no size; write 5G or 800M")
    return int(match[1]) * _BYTES[match[2]]


@click.command(name="gc")
@click.option("--older-than", metavar="30d", callback=_duration, help="What was not used for so long (m, h, d, w).")
@click.option(
    "--keep-size",
    metavar="5G",
    callback=_size,
    help="The least recently used entries, until the rest is no larger (K, M, G, T).",
)
@click.option("--all", "everything", is_flag=True, help="Everything that no running build uses.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
def command(*, older_than: float | None, keep_size: int | None, everything: bool, dry_run: bool) -> None:
    """Remove from the store what has not been used for long.

    Without an option only debris goes: what killed processes left, and beginnings of downloads that nobody went on with
    for a week. What a running build uses is never removed.
    """
    if everything and (older_than is not None or keep_size is not None):
        raise UsageError("--all and a limit do not go together", hint="give --all alone, or --older-than, --keep-size")
    with open_run(silent=True) as run:
        removal = collect(run.store, older_than=older_than, keep_size=keep_size, everything=everything, dry_run=dry_run)
    verb = "would remove" if dry_run else "removed"
    for entry in removal.entries:
        click.echo(f"{verb} {entry.name} ({mebibytes(entry.size)})")
    for name in removal.kept:
        click.echo(f"kept {name}: a running build uses it", err=True)
    if removal.debris:
        click.echo(f"{verb} {removal.debris} {'thing' if removal.debris == 1 else 'things'} that processes left behind")
    click.echo(f"{mebibytes(removal.freed)} {'would be ' if dry_run else ''}freed")
