"""What README and docs/ say about the command line is so: every command and option that they name exists."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kernel_builder.cli import cli
from kernel_builder.cli.passing import PassingCommand
from kernel_builder.config.settings import TOP

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src" / "kernel_builder" / "templates" / "skills").glob("*.md")),
]
MADE_OF_COMMANDS = ROOT / "docs" / "reference" / "cli.md"
_CODE = re.compile(r"^(?:```\w*\n(?P<block>.*?)^```)|`(?P<inline>[^`\n]+)`", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"^    (?:\$ )?(kernel-builder .*)$", re.MULTILINE)


def _lines(text: str) -> Iterator[str]:
    for match in _CODE.finditer(text):
        yield from (match["block"] or match["inline"]).replace("\\\n", " ").splitlines()
    yield from _INDENTED.findall(text)


def _commands(page: Path) -> list[str]:
    found = []
    for line in _lines(page.read_text(encoding="utf-8")):
        match = re.search(r"(?:^|run: |\$ |\$\()kernel-builder (.*)", line.strip())
        if match:
            found.append(match[1])
    return found


def _problem(words: str) -> str | None:
    """Why ``kernel-builder <words>`` is no command line of ours; ``None`` when it is one."""
    command: click.Command = cli
    name = ""
    context = click.Context(cli)
    try:
        rest = shlex.split(
            re.split(r"\s#|[|;)>]\s?|\s\\$", words)[0].replace("...", "").replace("[", " ").replace("]", " ")
        )
    except ValueError as error:
        return str(error)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        child = command.get_command(context, name)
        if child is None:
            return f"there is no command {name!r}"
        command = child
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options |= {"-h", "--help"}
    if isinstance(command, PassingCommand) and "--" in rest:  # what follows is another program's
        rest = rest[: rest.index("--")]
    unknown = [word for word in rest if word.startswith("-") and word != "-" and word.split("=")[0] not in options]
    return f"{name} has no {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != MADE_OF_COMMANDS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_commands_on_the_page_exist(page: Path) -> None:
    problems = {words: problem for words in _commands(page) if (problem := _problem(words)) is not None}
    assert problems == {}


def test_there_are_commands_to_find_and_wrong_ones_are_found() -> None:
    assert len(_commands(ROOT / "README.md")) > 10
    assert _problem("build --no-such") == "build has no --no-such"
    assert _problem("bild") == "there is no command 'bild'"
    assert _problem("toolchain nothing") == "there is no command 'nothing'"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [target for target in targets if not (page.parent / target).exists()] == []


def _all_commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from _all_commands(command, f"{path}{name} ")


@pytest.mark.parametrize(
    ("path", "command"), list(_all_commands(cli)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_has_help_and_no_option_twice(path: str, command: click.Command) -> None:
    options = [option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)]
    assert sorted(set(options)) == sorted(options)
    assert command.get_help(click.Context(command, info_name=path)).startswith("Usage: ")
    assert all(parameter.help for parameter in command.params if isinstance(parameter, click.Option))


def test_generated_pages_are_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "generate_reference.py"))["generated"]()
    assert len(made) > 5
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, "run: python scripts/generate_reference.py"


def test_every_table_of_the_settings_file_has_a_section_of_its_own() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## `\[+([\w-]+)\]+`$", page, re.MULTILINE)
    listed = re.findall(r"^- `([\w-]+)`: ", page.split("## `[")[0], re.MULTILINE)
    assert sorted([*sections, *listed]) == sorted(key.name for key in TOP.keys)
