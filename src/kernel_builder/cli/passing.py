"""Commands that pass what follows ``--`` on to another program."""

from __future__ import annotations

import click

_META = "kernel_builder.passed_on"


class PassingCommand(click.Command):
    """A command with ``[-- WORDS]`` at its end; :func:`passed_on` has the words. ``words`` is what help calls them."""

    words = "PYTEST ARGUMENTS"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See :class:`click.Command`."""
        if "--" in args:
            index = args.index("--")
            args, ctx.meta[_META] = args[:index], tuple(args[index + 1 :])
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            example = f"{ctx.command_path} -- {error.option_name}"
            message = f"{error.message} {self.words.capitalize()} come after '--': {example}"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """See :class:`click.Command`."""
        return [*super().collect_usage_pieces(ctx), f"[-- {self.words}]"]


def passed_on() -> tuple[str, ...]:
    """What stood behind ``--``."""
    words: tuple[str, ...] = click.get_current_context().meta.get(_META, ())
    return words
