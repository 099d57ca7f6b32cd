"""A group of commands that imports one only when it runs, so that ``--help`` and ``--version`` answer at once."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import click
from click.shell_completion import CompletionItem


@dataclass(frozen=True)
class Entry:
    """A command: the module in :mod:`kernel_builder.cli` that defines ``command``, and its line in ``--help``."""

    module: str
    summary: str


class LazyGroup(click.Group):
    """Knows the names of its commands (``entries``), in the order in which ``--help`` shows them, or grouped by
    ``tasks``.
    """

    def __init__(
        self,
        *args: object,
        entries: Mapping[str, Entry],
        tasks: Mapping[str, Sequence[str]] = MappingProxyType({}),
        **kwargs: object,
    ) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # what click.group() passes on
        self.entries, self.tasks = entries, tasks

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """See :class:`click.Group`."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """See :class:`click.Group`."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = importlib.import_module(f"kernel_builder.cli.{entry.module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See :class:`click.Group`; a name that is not there is answered with a similar one."""
        if args and args[0] not in self.entries and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415  (start-up time)

            from kernel_builder.config.intents import instead_of  # noqa: PLC0415

            # The name of the group's commands in the table of intents is for the topmost group alone.
            meant = instead_of("commands", args[0]) if ctx.parent is None else None
            near = get_close_matches(args[0], self.entries, n=1, cutoff=0.7)
            if meant is not None:
                hint = f" {meant[0].upper()}{meant[1:]}."
            else:
                hint = f" Did you mean '{near[0]}'?" if near else f" Commands: {', '.join(self.entries)}."
            raise click.UsageError(f"No such command: '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """See :class:`click.Group`; nothing is imported for it."""
        width = max(map(len, self.entries))
        for title, names in (self.tasks or {"Commands": tuple(self.entries)}).items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self.entries[name].summary) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See :class:`click.Group`; nothing is imported for names of commands."""
        found = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.entries.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)
