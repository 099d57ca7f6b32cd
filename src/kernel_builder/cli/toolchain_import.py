"""``kernel-builder toolchain import``: toolchains out of a file that ``toolchain export`` wrote."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.options import PathName
from kernel_builder.cli.session import open_run
from kernel_builder.store.transfer import import_store


@click.command(name="import")
@click.argument("file", type=PathName(dir_okay=False))
def command(file: Path) -> None:
    """Import the toolchains in FILE into the store of this machine.

    Compares every file with the manifest of its entry first; if anything is wrong, imports nothing.
    """
    with open_run() as run:
        brought = import_store(run.store, file)
    for name in brought.entries:
        click.echo(f"{name}  imported")
    for name in brought.present:
        click.echo(f"{name}  already present")
    click.echo(f"{len(brought.entries)} entries imported into {run.store.root}")
