"""``kernel-builder environment``: the Pythons that tests and shells run in."""

from __future__ import annotations

import click

from kernel_builder.cli.lazy import Entry, LazyGroup

COMMANDS: dict[str, Entry] = {
    "list": Entry("environment_list", "List environments: sizes, last use, what is in them."),
    "remove": Entry("environment_remove", "Remove environments."),
}


@click.group(cls=LazyGroup, entries=COMMANDS)
def command() -> None:
    """List and remove the environments that test, ci-test, watch, devshell and testshell made.

    They are kept next to the toolchain store, and shared by all projects. Whenever one is created, those unused for
    60 days are removed, and then the least recently used ones until all of them take at most 40 GiB.
    """
