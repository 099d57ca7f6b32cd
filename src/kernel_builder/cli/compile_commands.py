"""``kernel-builder compile-commands``."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.completing import VARIANT
from kernel_builder.cli.options import offline_option, project_argument, source_option
from kernel_builder.cli.session import open_run
from kernel_builder.workflow.build import BuildRequest
from kernel_builder.workflow.compile_commands import write_compile_commands


@click.command("compile-commands")
@project_argument("[DIR]", exists=True, file_okay=False)
@click.option(
    "--variant",
    type=VARIANT,
    metavar="NAME",
    help="The variant whose commands are written. Default: the one that the active environment's torch loads.",
)
@source_option
@offline_option
def command(directory: Path, *, variant: str | None) -> None:
    """Write compile_commands.json in DIR, so that clangd and other tools see what the compiler sees.

    Headers are fetched and generated, but nothing is compiled. Run it again after you change build.toml.
    """
    request = BuildRequest(
        root=directory.resolve(), patterns=(variant,) if variant else (), local=variant is None, load=False
    )
    with open_run() as run:
        file, name, count = write_compile_commands(request, run)
    click.echo(f"Wrote {file}: {count} sources of {name}")
