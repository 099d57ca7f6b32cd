"""``kernel-builder toolchain export``: toolchains in one file."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.console import mebibytes
from kernel_builder.cli.options import PathName
from kernel_builder.cli.session import open_run
from kernel_builder.config.reader import FILE_NAME
from kernel_builder.errors import UsageError
from kernel_builder.store.transfer import export_store
from kernel_builder.workflow.fetch import FetchRequest, everything, portion


@click.command(name="export")
@click.argument("file", type=PathName(dir_okay=False))
@click.argument("variants", metavar="[VARIANT]...", nargs=-1)
@click.option(
    "--project",
    type=PathName(exists=True, file_okay=False),
    metavar="DIR",
    help=f"The project whose variants to use. Default: here, if there is a {FILE_NAME}.",
)
def command(file: Path, *, variants: tuple[str, ...], project: Path | None) -> None:
    """Write the toolchains of VARIANTs (names or globs; default: everything in the store) to FILE.

    FILE is a tar archive, compressed with gzip if its name ends in .gz. Run 'toolchain fetch' first if the toolchains
    are not in the store; 'toolchain import' adds them to the store of another machine, for 'build --offline'.
    """
    with open_run() as run:
        store = run.store
        if variants or project is not None:
            root = project or (Path.cwd() if Path(FILE_NAME).is_file() else None)
            wanted = portion(FetchRequest(root=root, settings=Path.cwd(), patterns=variants), run)
        else:
            wanted = everything(store)
        if not wanted.entries:
            raise UsageError(
                f"nothing to export in {store.root}", hint="fetch it first: kernel-builder toolchain fetch"
            )
        written = export_store(store, wanted.entries, wanted.resolutions, file)
    for name in written.entries:
        click.echo(name)
    click.echo(f"{len(written.entries)} entries in {file} ({mebibytes(written.size)})")
