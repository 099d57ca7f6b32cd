"""What rules cite exists, and the commands that their texts name are ones that work."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from kernel_builder.check.engine import all_rules
from kernel_builder.check.model import Rule
from kernel_builder.cli import cli

ROOT = Path(__file__).parents[3]
_COMMAND = re.compile(r"kernel-builder ([a-z][a-z-]*(?: (?:--?[\w-]+|[\w./*=-]+))*)")
RULES = pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)


@RULES
def test_sources_are_public_and_exist(rule: Rule) -> None:
    assert not re.search(r"\bcontract\b|\bcases? T|DESIGN|sharp edge", rule.source), rule.source
    for path, title in re.findall(r"(docs/[\w-]+\.md)(?:, '([^']+)')?", rule.source):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not title or re.search(rf"^#+ {re.escape(title)}$", text, re.MULTILINE), f"{path} has no section {title}"


@RULES
def test_commands_in_the_texts_work(rule: Rule) -> None:
    for words in _COMMAND.findall(" ".join((rule.summary, rule.rationale, rule.remedy))):
        assert _problem(shlex.split(words)) is None, words


def _problem(words: list[str]) -> str | None:
    """Why the command line does not parse; a name by itself, in a sentence, is no command line."""
    command = cli.get_command(click.Context(cli), words[0])
    if isinstance(command, click.Group) and len(words) > 1:
        command, words = command.get_command(click.Context(command), words[1]), words[1:]
    if command is None:
        return None if words[0] not in {"build", "check"} else f"no command {words[0]}"
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in words[1:] if word.startswith("--") and word.partition("=")[0] not in options]
    return f"{words[0]} has no {', '.join(unknown)}" if unknown else None


def test_a_command_that_does_not_work_is_found() -> None:
    assert _problem(["build", "--no-such"]) == "build has no --no-such"
    assert _problem(["build", "--backend", "cpu"]) is None


def test_hints_name_whole_commands_that_work() -> None:
    """Every ``kernel-builder ...`` in a hint or a remedy of the source code parses."""
    wrong: list[str] = []
    count = 0
    for path in sorted((ROOT / "src" / "kernel_builder").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg in {"hint", "remedy", "others"}:
                parts = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
                text = " ".join(part if isinstance(part, str) else "" for part in parts)
                for words in _COMMAND.findall(text):
                    count += 1
                    problem = _problem(words.split())
                    wrong += [f"{path.name}: {words}: {problem}"] if problem else []
    assert wrong == []
    assert count > 30
