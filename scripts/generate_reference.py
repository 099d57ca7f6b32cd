"""Write the generated pages of docs/: build.toml and its schema, troubleshooting, and docs/reference/ except
environment.md and hosts.md.

Run it after changing a key, an option, a rule or an exit code: python scripts/generate_reference.py. A test fails while
they differ.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

from kernel_builder import errors
from kernel_builder.check.engine import all_rules
from kernel_builder.check.metadata import KEYS
from kernel_builder.check.model import Rule
from kernel_builder.cli import COMMANDS, TASKS, cli
from kernel_builder.cli.meanings import exit_codes as meanings_of_exit_codes
from kernel_builder.config import settings
from kernel_builder.config.jsonschema import json_schema
from kernel_builder.config.reference import reference, table_section
from kernel_builder.toolchain import settings as toolchain_settings
from kernel_builder.workflow.troubleshooting import topics, topics_ending_with

_CITED = re.compile(r"docs/(?P<page>[\w-]+\.md), '(?P<title>[^']+)'")
"""How a rule's source names a part of a page."""
DOCS = Path(__file__).parent.parent / "docs"
WRITTEN = "<!-- Written by scripts/generate_reference.py: edit {source} instead. -->"


def generated() -> dict[Path, str]:
    """Every generated file with its content."""
    return {
        DOCS / "build-toml.md": reference(),
        DOCS / "build-toml.schema.json": json.dumps(json_schema(), indent=2) + "\n",
        DOCS / "troubleshooting.md": _page(troubleshooting(), "src/kernel_builder/data/troubleshooting.toml"),
        DOCS / "reference" / "cli.md": _page(command_line(), "the commands in src/kernel_builder/cli/"),
        DOCS / "reference" / "settings.md": _page(settings_file(), "the tables in the two modules settings.py"),
        DOCS / "reference" / "rules.md": _page(rules(), "the rules in src/kernel_builder/check/"),
        DOCS / "reference" / "metadata.md": _page(metadata(), "src/kernel_builder/check/metadata.py"),
        DOCS / "reference" / "exit-codes.md": _page(exit_codes(), "src/kernel_builder/errors.py"),
    }


def _page(lines: Iterator[str], source: str) -> str:
    title, *rest = lines
    return "\n".join([title, "", WRITTEN.format(source=source), *rest]).rstrip() + "\n"


# The command line.


def command_line() -> Iterator[str]:
    """Every command with its options, grouped as ``kernel-builder --help`` groups them."""
    yield "# Command line"
    yield from ("", "This page describes all commands; `kernel-builder COMMAND --help`, or `-h`, prints the same.")
    yield "`kernel-builder --version` prints the version. [Exit codes](exit-codes.md) are the same for all commands."
    yield ""
    yield "Commands that work on a kernel take its directory as an argument. Without it, they use the current directory"
    yield "or, if that is neither a project nor contains built variants, the only project directly below it."
    root = click.Context(cli, info_name="kernel-builder")
    first: dict[str, str] = {}
    for task, names in TASKS.items():
        yield from ("", f"## {task}")
        for name in names:
            same = first.setdefault(COMMANDS[name].module, name)
            command = cli.get_command(root, name)
            if same != name:
                yield from ("", f"### {name}", "", f"The same as [`{same}`](#{same}).")
            elif command is not None:
                yield from _command(command, name, root)


def _command(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name.rsplit(maxsplit=1)[-1], parent=parent)
    yield from ("", f"### {name}", "", "```text")
    yield from (command.get_usage(context).removeprefix("Usage: "), "```", "")
    yield from _help(command.help or command.short_help or "")
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [record for record in records if record is not None and record[1]]
    if rows and not isinstance(command, click.Group):
        yield from ("", "| Option | |", "|---|---|")
        yield from (f"| `{_cell(option)}` | {_cell(' '.join(text.split()))} |" for option, text in rows)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from _command(found, f"{name} {child}", context)


def _help(text: str) -> Iterator[str]:
    """Help as click formats it: a paragraph that starts with ``\\b`` keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = [line.rstrip() for line in paragraph.replace("\b", "").split("\n") if line.strip()]
        if paragraph.lstrip(" ").startswith("\b"):
            yield from ("```text", *inspect.cleandoc("\n".join(lines)).split("\n"), "```", "")
        else:
            yield from (re.sub(r"(?<!\w)(--[a-z][a-z-]+)", r"`\1`", _prose(line)) for line in lines)
            yield ""


# kernel-builder.toml.


def settings_file() -> Iterator[str]:
    """Every key of ``kernel-builder.toml``."""
    yield "# kernel-builder.toml"
    yield from (
        "",
        "Settings for toolchains, checks and tests. kernel-builder reads the file next to `build.toml`, and one of the",
    )
    yield "same name in your configuration directory. The project's file takes precedence, key by key. All tables are"
    yield "optional. [Where toolchains come from](../toolchains.md) explains sources and their order."
    tables = (*settings.TABLES, *toolchain_settings.TABLES)
    own = {table.name.strip("[]") for table in tables}
    top = settings.TOP._replace(keys=tuple(key for key in settings.TOP.keys if key.name not in own))
    yield from ("", table_section(top, "Top level").rstrip())
    for table in tables[1:]:
        yield from ("", table_section(table, f"`[{table.name}]`").rstrip())


# Rules.


def rules() -> Iterator[str]:
    """Every rule in full."""
    yield "# Rules"
    yield from (
        "",
        "What `kernel-builder check` looks for, and `build` and `upload` with it. `kernel-builder explain` with",
    )
    yield "its code prints the same. [check](../check.md) says how rules are selected and accepted."
    for rule in all_rules():
        yield from _rule(rule)


def _rule(rule: Rule) -> Iterator[str]:
    yield from ("", f"## {rule.code} `{rule.slug}` {{ #{rule.code.lower()} }}", "")
    accepted = ", can be accepted" if rule.acceptable or rule.severity.value != "error" else ""
    yield f"**{_sentence(rule.summary)}** ({rule.severity.value}{accepted})"
    for title, text in (("Why", rule.rationale), ("What to do", rule.remedy), ("Source", rule.source)):
        first, *others = text.split("\n")
        yield from ("", f"{title}: {_CITED.sub(_link, _sentence(_prose(first)))}")
        if others:
            yield from ("", "```text", *inspect.cleandoc("\n".join(others)).split("\n"), "```")


def _link(cited: re.Match[str]) -> str:
    anchor = re.sub(r"[^a-z0-9 -]", "", cited["title"].lower()).replace(" ", "-")
    return f"[{cited['title']}](../{cited['page']}#{anchor})"


# metadata.json.


def metadata() -> Iterator[str]:
    """Every key of ``metadata.json``."""
    yield "# metadata.json"
    yield from (
        "",
        "Every variant contains this file. A build writes it, and the `kernels` client reads it before it loads the",
    )
    yield "variant. If you change a file of a variant on purpose, `kernel-builder hash` updates the digest."
    yield from ("", "| Key | Value | |", "|---|---|---|")
    for name, key in KEYS.items():
        value = f"{key.expected}{', required' if key.required else ''}"
        yield f"| `{name}` | {value} | {_cell(key.meaning)} |"
    yield from ("", "Clients ignore unknown keys; `check` reports them (KB413).")


# Exit codes.


def exit_codes() -> Iterator[str]:
    """Every exit code with what it means."""
    yield "# Exit codes"
    yield from ("", "Every command exits with one of these codes. They are stable: scripts can rely on them.")
    yield from ("", "| Code | Name | Meaning |", "|---|---|---|")
    meanings = meanings_of_exit_codes()
    for code in errors.ExitCode:
        yield f"| {int(code)} | {code.name.lower()} | {_cell(meanings[code])} |"
    yield from ("", "For details, see the pages of the commands: [test](../testing.md),")
    yield "[upload](../upload.md), [doctor](../doctor.md), [check](../check.md)."


# Troubleshooting.


def troubleshooting() -> Iterator[str]:
    """Every topic, by group."""
    yield "# Troubleshooting"
    yield from (
        "",
        "Find your error message below and read what it means and what to do. `kernel-builder explain` prints the same",
    )
    yield "texts, also offline: pass it the name in the `more:` line below the error, or words of the message. See also"
    yield "[rules](reference/rules.md) and [exit codes](reference/exit-codes.md)."
    groups = dict.fromkeys(topic.group for topic in topics())
    for group in groups:
        yield from ("", f"## {group}")
        for topic in topics():
            if topic.group == group:
                yield from ("", f"### {_prose(topic.title)} {{ #{topic.name} }}", "")
                yield f"`kernel-builder explain {topic.name}`"
                for piece in re.split(r"\n\s*\n(?=\S|    )", topic.text):
                    fenced = piece.startswith("    ")
                    yield from ("", "```text", *inspect.cleandoc(piece).split("\n"), "```") if fenced else ("", piece)
    yield from ("", "## By exit code")
    for code, meaning in meanings_of_exit_codes().items():
        ended = topics_ending_with(code)
        name = errors.ExitCode(code).name.lower()
        yield from ("", f"### Exit code {code}: {name} {{ #exit-code-{code} }}", "", meaning)
        if ended:
            yield ""
            yield from (f"- [{_prose(topic.title)}](#{topic.name})" for topic in ended)


def _sentence(text: str) -> str:
    return text if text.endswith((".", ":")) else f"{text}."


def _prose(text: str) -> str:
    """``text`` so that Markdown takes none of it for markup."""
    return re.sub(r"(?<!`)([<*_\[\]])(?!`)", r"\\\1", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Write what has changed."""
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
