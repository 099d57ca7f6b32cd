"""``kernel-builder schema``: the JSON schema of build.toml."""

from __future__ import annotations

import json

import click

from kernel_builder.config.jsonschema import json_schema


@click.command(name="schema")
def command() -> None:
    """Print the JSON schema of the current edition of build.toml, for completion and validation in editors."""
    click.echo(json.dumps(json_schema(), indent=2))
