"""``kernel-builder man``: the manual page, made of the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from kernel_builder import __version__
from kernel_builder.errors import ExitCode


@click.command("man")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Print the manual page, in man's format.

    \b
      kernel-builder man | man -l -
      kernel-builder man > ~/.local/share/man/man1/kernel-builder.1
    """
    click.echo("\n".join(_page(ctx.find_root())))


def _page(root: click.Context) -> Iterator[str]:
    group = root.command
    yield f'.TH KERNEL\\-BUILDER 1 "" "kernel\\-builder {_text(__version__)}" "User Commands"'
    yield ".SH NAME"
    yield f"kernel\\-builder \\- {_text((group.help or '').rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield ".B kernel\\-builder"
    yield "[OPTIONS] COMMAND [ARGS]..."
    yield ".SH COMMANDS"
    yield from _commands(root, group)
    yield ".SH EXIT STATUS"
    for code in ExitCode:
        yield from (".TP", str(int(code)), _text(code.name.lower()))


def _commands(parent: click.Context, group: click.Command) -> Iterator[str]:
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(parent):
        found = group.get_command(parent, name)
        if found is None or found.hidden:
            continue
        context = click.Context(found, info_name=name, parent=parent)
        yield f".SS {_text(context.command_path)}"
        yield ".PP"
        yield f".B {_text(found.get_usage(context).removeprefix('Usage: '))}"
        yield from _paragraphs(found.help or found.short_help or "")
        for parameter in found.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None:
                yield from (".TP", f".B {_text(record[0])}", _text(" ".join(record[1].split())))
        yield from _commands(context, found)


def _paragraphs(text: str) -> Iterator[str]:
    """Help as click formats it: a paragraph that starts with \\b keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        kept = paragraph.lstrip().startswith("\b")
        lines = [line.rstrip() for line in paragraph.replace("\b", "").split("\n") if line.strip()]
        yield ".PP"
        if kept:
            yield from (".nf", *(_text(line) for line in lines), ".fi")
        else:
            yield _text(" ".join(line.strip() for line in lines))


def _text(text: str) -> str:
    """``text`` as troff takes it: no line is a request, and hyphens can be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
