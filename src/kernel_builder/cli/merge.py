"""``kernel-builder merge``: variants that several jobs built, in one directory."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.options import PathName
from kernel_builder.errors import ExitCode


@click.command(name="merge")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=PathName())
@click.option(
    "--output",
    "-o",
    type=PathName(),
    default="build",
    show_default=True,
    help="Directory to add the variants to.",
)
def command(directories: tuple[Path, ...], *, output: Path) -> int:
    """Merge the variants that several jobs built into one directory.

    Each DIR contains variants, or is a project with a build directory. Nothing is written unless every file is
    unchanged since the build and all variants, including those already in the output, come from the same sources.
    """
    from kernel_builder.workflow.merge import merge  # noqa: PLC0415  (start-up time)

    merged = merge(directories, output)
    for name in merged.taken:
        click.echo(name)
    for note in merged.notes:
        click.echo(f"note: {note}", err=True)
    count = len(merged.taken)
    there = f"; {len(merged.present)} already there" if merged.present else ""
    click.echo(f"{count} variant{'s' if count != 1 else ''} merged into {merged.output}{there}", err=True)
    return ExitCode.OK
