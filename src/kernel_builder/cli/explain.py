"""``kernel-builder explain``: what is behind a rule's code, an exit code or a message, without a network."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.completing import EXPLAINED
from kernel_builder.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from kernel_builder.workflow.troubleshooting import Topic


@click.command("explain")
@click.argument("what", nargs=-1, type=EXPLAINED, metavar="[CODE|WORDS...]")
def command(what: tuple[str, ...]) -> int:
    """Explain a rule, an exit code or a message: what it means, and what to do. Needs no network.

    \b
      kernel-builder explain KB103                    # a rule, by its code or name
      kernel-builder explain cannot-be-built-here     # what a line 'more:' below an error names
      kernel-builder explain needs the network        # words of a message, as they were printed
      kernel-builder explain 4                        # an exit code
      kernel-builder explain                          # the list of messages
    """
    words = " ".join(what).strip()
    if not words:
        _list()
    elif words.isdecimal():
        _exit_code(int(words))
    elif not _rule(words):
        _messages(words)
    return ExitCode.OK


def _list() -> None:
    from kernel_builder.workflow.troubleshooting import topics  # noqa: PLC0415  (start-up time)

    _table(topics())
    click.echo("\nRules: kernel-builder check --list")


def _table(listed: Sequence[Topic]) -> None:
    width = max(len(topic.name) for topic in listed)
    for topic in listed:
        click.echo(f"{topic.name.ljust(width)}  {topic.title}")


def _exit_code(number: int) -> None:
    from kernel_builder.cli.meanings import exit_codes  # noqa: PLC0415  (start-up time)
    from kernel_builder.workflow.troubleshooting import topics_ending_with  # noqa: PLC0415

    known = exit_codes()
    if number not in known:
        raise UsageError(f"no exit code is {number}", hint=f"exit codes are: {', '.join(map(str, known))}")
    click.echo(f"{number}: {known[number]}")
    ended = topics_ending_with(number)
    if ended:
        click.echo("\nMessages with it; kernel-builder explain NAME says more:\n")
        _table(ended)


def _rule(name: str) -> bool:
    """Show the rule with that code or name; whether there is one."""
    from kernel_builder.check.engine import all_rules  # noqa: PLC0415  (start-up time)
    from kernel_builder.cli.check_view import show_rule  # noqa: PLC0415

    found = next((rule for rule in all_rules() if name.upper() == rule.code or name.lower() == rule.slug), None)
    if found is not None:
        show_rule(found)
    elif re.fullmatch(r"KB\d*", name, re.IGNORECASE):
        codes = [rule.code for rule in all_rules()]
        begun = [code for code in codes if code.startswith(name.upper())]
        near = (begun or get_close_matches(name.upper(), codes, n=3))[:5]
        raise UsageError(
            f"no rule is called {name.upper()}",
            hint=f"close to it: {', '.join(near)}" if near else "see them with: kernel-builder check --list",
        )
    return found is not None


def _messages(words: str) -> None:
    from kernel_builder.workflow.troubleshooting import topics, topics_like  # noqa: PLC0415  (start-up time)

    named = [topic for topic in topics() if topic.name == words.lower()]
    found = named or topics_like(words)
    if not found:
        raise UsageError(
            f"nothing matches {words!r}",
            hint=(
                "use a rule's code, or words of the message as it was printed; to list all messages, run "
                "kernel-builder explain"
            ),
        )
    click.echo("\n\n".join(_shown(topic) for topic in found))


def _shown(topic: Topic) -> str:
    """The topic as a terminal shows it: paragraphs are wrapped, commands are left as they are."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    lines = [
        line if line.startswith(" ") else textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in topic.text.split("\n")
    ]
    return "\n".join((f"{topic.name}: {topic.title}", "", *lines))
