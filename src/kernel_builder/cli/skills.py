"""``kernel-builder skills``: short texts for coding assistants."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.completing import OneOf
from kernel_builder.cli.options import PathName
from kernel_builder.errors import ExitCode
from kernel_builder.scaffold.skills import DIRECTORY, add_skills, find_skills, skills

_SKILL = OneOf(lambda _: [(skill.name, skill.description) for skill in skills()])


@click.group(name="skills")
def command() -> None:
    """List and add short texts for coding assistants: how to write, port, check and measure a kernel.

    An assistant that reads SKILL.md files finds them in .agents/skills of a project.
    """


@command.command(name="list")
def list_command() -> int:
    """List the skills, with what each is for."""
    for skill in skills():
        click.echo(f"{skill.name:<18}{skill.description}")
    return ExitCode.OK


@command.command(name="show")
@click.argument("name", type=_SKILL)
def show(name: str) -> int:
    """Print a skill."""
    click.echo(find_skills([name])[0].text, nl=False)
    return ExitCode.OK


@command.command(name="add")
@click.argument("names", nargs=-1, type=_SKILL, metavar="[NAME]...")
@click.option("--to", "directory", type=PathName(), metavar="DIR", default=DIRECTORY, show_default=True,
              help="Directory to add them to, as NAME/SKILL.md; ~/.agents/skills is for all projects.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace files that differ.")
def add(names: tuple[str, ...], *, directory: Path, overwrite: bool) -> int:
    """Add skills to a project: those named, or all of them. Skills that the project already has are updated."""
    for path, placed in add_skills(directory.expanduser(), find_skills(names), overwrite=overwrite):
        click.echo(f"{path}  {placed.value}")
    return ExitCode.OK
