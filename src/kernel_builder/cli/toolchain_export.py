"""``kernel-builder toolchain export``: toolchains in one file."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.console import mebibytes
from kernel_builder.cli.session import open_run
from kernel_builder.config.reader import FILE_NAME
from kernel_builder.errors import UsageError
from kernel_builder.store.transfer import export_store
from kernel_builder.workflow.fetch import FetchRequest, everything, portion


@click.command(name="export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("variants", metavar="[VARIANT]...", nargs=-1)
@click.option(
    "--project",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help=f"The project whose variants are meant. Default: here, if there is a {FILE_NAME}.",
)
def command(file: Path, *, variants: tuple[str, ...], project: Path | None) -> None:
    """Write what VARIANTs are compiled with (names or globs; default: all that is in the store) into FILE.

    FILE is a tar archive, packed with gzip if its name ends with .gz. 'toolchain fetch' first, if it is not in the
    store; 'toolchain import' brings it into the store of another machine, where 'build --offline' uses it.
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
                f"there is nothing to export in {store.root}", hint="kernel-builder toolchain fetch brings it there"
            )
        written = export_store(store, wanted.entries, wanted.resolutions, file)
    for name in written.entries:
        click.echo(name)
    click.echo(f"{len(written.entries)} entries in {file} ({mebibytes(written.size)})")
