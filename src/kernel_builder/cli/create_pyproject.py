"""``kernel-builder create-pyproject``."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.options import project_argument
from kernel_builder.config.reader import load_project
from kernel_builder.scaffold.pyproject import create_pyproject


@click.command("create-pyproject")
@project_argument("[DIR]", exists=True, file_okay=False)
@click.option("-f", "--force", is_flag=True, help="Replace a pyproject.toml that already exists.")
def command(directory: Path, *, force: bool) -> None:
    """Write a pyproject.toml with which pip and build install the kernel in DIR as a Python package.

    \b
      pip install -e .     # uses Python files in place; run it again after changes to native code
      python -m build      # makes a wheel of the variant that the active environment's torch loads
    """
    root = directory.resolve()
    project, _ = load_project(root)
    file, requirement = create_pyproject(project, root, force=force)
    click.echo(f"Wrote {file}")
    if " @ file:" in requirement:
        click.echo(
            f"note: the file requires {requirement}, where this kernel-builder was installed from; change that "
            "before you share the file, or use pip install --no-build-isolation",
            err=True,
        )
