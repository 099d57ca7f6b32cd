"""``kernel-builder environment list``: the environments that are kept."""

from __future__ import annotations

import json

import click

from kernel_builder.cli.console import ago, mebibytes
from kernel_builder.cli.session import open_run
from kernel_builder.environments.kept import Environments


@click.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(*, as_json: bool) -> None:
    """List the environments: size, last use, and what is in them."""
    with open_run(silent=True) as run:
        environments = Environments(run.store, run.reporter)
        found = environments.listed()
    if as_json:
        entries = [
            {
                "name": entry.name,
                "path": str(entry.path),
                "size": entry.size,
                "torch": entry.torch or None,
                "requirements": list(entry.requirements),
                "made-with": entry.made_with or None,
                "complete": entry.complete,
            }
            for entry in found
        ]
        click.echo(json.dumps({"environments": entries}, indent=2))
        return
    width = max((len(entry.name) for entry in found), default=0)
    for entry in found:
        contents = (
            ", ".join(filter(None, [entry.torch, *entry.requirements]))
            if entry.complete
            else "incomplete: being created, or left over"
        )
        click.echo(f"{entry.name:<{width}}  {mebibytes(entry.size):>10}  {ago(entry.last_used):<14}  {contents}")
    total = mebibytes(sum(entry.size for entry in found))
    click.echo(f"{len(found)} {'environment' if len(found) == 1 else 'environments'}, {total}, in {environments.root}")
