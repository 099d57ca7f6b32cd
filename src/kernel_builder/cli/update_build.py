"""``kernel-builder update-build``: bring a project's build.toml to the current edition."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from kernel_builder.cli.options import project_argument
from kernel_builder.config.known import read_license
from kernel_builder.config.migrate import Update, update, write
from kernel_builder.config.reader import FILE_NAME, read_file
from kernel_builder.config.schema import CURRENT_EDITION
from kernel_builder.errors import ExitCode


@click.command(name="update-build")
@project_argument()
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if an update is due.")
@click.option("--diff", is_flag=True, help="Change nothing; show what would change.")
@click.option("--license", "license_", metavar="ID", help="License to add to a file that has none.")
def command(directory: Path, *, check: bool, diff: bool, license_: str | None) -> int:
    """Update build.toml in DIRECTORY to the current edition, in place.

    Keeps comments, order and layout; changes only what must change. A file that cannot be updated is left unchanged.
    """
    license_ = None if license_ is None else read_license(license_)
    file = directory / FILE_NAME
    change = update(read_file(file), file=file, root=directory, license_=license_)
    if diff:
        click.echo(_difference(change, file), nl=False)
    if not change.is_due:
        click.echo(f"{file} already uses edition {CURRENT_EDITION}", err=True)
        return ExitCode.OK
    if check or diff:
        click.echo(f"{file} uses edition {change.edition}; an update to {CURRENT_EDITION} is due", err=True)
        return ExitCode.FAILED if check else ExitCode.OK
    write(file, change)
    click.echo(f"updated {file} from edition {change.edition} to {CURRENT_EDITION}", err=True)
    return ExitCode.OK


def _difference(change: Update, file: Path) -> str:
    before, after = (side.decode("utf-8-sig").splitlines(keepends=True) for side in (change.before, change.after))
    lines = difflib.unified_diff(before, after, fromfile=str(file), tofile=f"{file} (edition {CURRENT_EDITION})")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
