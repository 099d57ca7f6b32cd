"""``kernel-builder clean-pyproject``."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.options import project_argument
from kernel_builder.config.python_project import NAME
from kernel_builder.errors import UsageError
from kernel_builder.scaffold.pyproject import WhatIsThere, clean_pyproject, state_of


@click.command("clean-pyproject")
@project_argument("[DIR]", exists=True, file_okay=False)
@click.option("-d", "--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("-f", "--force", is_flag=True, help="Do not ask, and remove the file even if it was changed.")
def command(directory: Path, *, dry_run: bool, force: bool) -> None:
    """Remove the pyproject.toml that create-pyproject wrote in DIR, and nothing else.

    A file that was changed since is kept.
    """
    root = directory.resolve()
    file = root / NAME
    state = state_of(file)
    removable = state is WhatIsThere.OURS or (state is WhatIsThere.CHANGED and force)
    if dry_run:
        click.echo(f"Would remove {file}" if removable else f"Would keep {file}: it {state.value}")
        return
    if removable and not force and not _confirmed(f"Remove {file}?"):
        click.echo("Nothing was removed")
        return
    clean_pyproject(root, force=force)
    click.echo(f"Removed {file}")


def _confirmed(question: str) -> bool:
    """What was answered. Raises :class:`UsageError` where nobody can answer: in scripts, say."""
    try:
        return click.confirm(question)
    except click.Abort as error:
        if not isinstance(error.__context__, EOFError):  # Ctrl-C
            raise
        click.echo()  # the question has no line end
        raise UsageError(
            "nobody answered, so nothing was removed",
            hint="run kernel-builder clean-pyproject --force, which does not ask",
        ) from None
