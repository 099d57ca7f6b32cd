"""``kernel-builder check-builds``: the rules about layout and metadata of built variants alone."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.check import run_check
from kernel_builder.cli.options import project_argument


@click.command(name="check-builds")
@project_argument()
@click.option("-v", "--verbose", is_flag=True, help="Show notes: what was not or could not be checked.")
def command(directory: Path, *, verbose: bool) -> int:
    """Check names, files and metadata of the variants in DIRECTORY: like 'check --select KB0 --select KB4'."""
    from kernel_builder.check.model import Settings  # noqa: PLC0415  (start-up time)
    from kernel_builder.project.inputs import follow_links, sources_of  # noqa: PLC0415

    return run_check(
        (directory,), Settings(sources_of=sources_of, follow_links=follow_links), select=("KB0", "KB4"), verbose=verbose
    )
