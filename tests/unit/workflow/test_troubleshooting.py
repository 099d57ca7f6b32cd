"""What `explain` knows is about messages that there are, and errors say how to read on."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import kernel_builder
from conftest import ROOT, ProjectMaker
from kernel_builder.check.engine import all_rules
from kernel_builder.cli import run
from kernel_builder.cli.meanings import exit_codes
from kernel_builder.errors import ExitCode
from kernel_builder.workflow.troubleshooting import Topic, topic_of, topics, topics_like
from pages import anchors

PACKAGE = Path(kernel_builder.__file__).parent


@cache
def said() -> str:
    """All text in the package's code and templates, with a gap where values are put in."""
    parts = [path.read_text(encoding="utf-8") for path in (PACKAGE / "templates").rglob("*.h")]
    for path in PACKAGE.rglob("*.py"):
        if "templates" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts.append("".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values))
    return "\n".join(parts)


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: topic.name)
def test_every_piece_is_in_a_message_of_ours(topic: Topic) -> None:
    assert topic.says or topic.others
    assert [piece for piece in topic.says if piece not in said()] == []
    assert all(topic_of(f"x{piece}y") == topic for piece in topic.says)
    assert topic in topics_like(f"error: {[*topic.says, *topic.others][0]} ...")


def test_names_are_unique_also_among_rules() -> None:
    names = [topic.name for topic in topics()] + [rule.slug for rule in all_rules()]
    assert len(set(names)) == len(names)


def test_whatever_can_be_explained_has_a_section_that_links_can_name() -> None:
    """Links end in the code or the name in small letters: they stay when a heading is worded differently."""
    codes = [f"exit-code-{int(code)}" for code in ExitCode]
    for page, names in (
        ("reference/rules.md", [rule.code.lower() for rule in all_rules()]),
        ("troubleshooting.md", [*(topic.name for topic in topics()), *codes]),
    ):
        sections = anchors((ROOT / "docs" / page).read_text(encoding="utf-8"))
        assert set(names) <= sections, page


@pytest.mark.parametrize("what", [rule.code for rule in all_rules()] + [topic.name for topic in topics()])
def test_every_code_and_name_is_explained(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", what]) == ExitCode.OK
    first, *rest = capfd.readouterr().out.splitlines()
    assert what in first
    assert any(line.strip() for line in rest)


def test_whatever_a_message_points_at_is_there() -> None:
    """Pages, their sections, names for `explain`, rules: in every text of the package."""
    text = said()
    pages = set(re.findall(r"\bdocs/([\w/-]+\.md)(?:#([\w-]+))?", text))
    assert pages
    for page, section in pages:
        path = ROOT / "docs" / page
        assert path.is_file(), page
        assert not section or section in anchors(path.read_text(encoding="utf-8")), f"{page}#{section}"
    known = {topic.name for topic in topics()} | {rule.slug for rule in all_rules()}
    named = set(re.findall(r"\bkernel-builder explain ([a-z]+(?:-[a-z]+)+)", text))
    assert named <= known
    codes = set(re.findall(r"\bKB\d{3}\b", text))
    assert codes
    assert codes <= {rule.code for rule in all_rules()}


def test_messages_are_found_by_the_code_that_a_command_ended_with(capfd: pytest.CaptureFixture[str]) -> None:
    for topic in topics():
        assert set(topic.exit_codes) <= {int(code) for code in ExitCode}
        assert topic.exit_codes or topic.others
    assert run(["explain", "4"]) == ExitCode.OK
    printed = capfd.readouterr().out
    assert "no-compiler " in printed
    assert "no-token " not in printed


def test_an_error_names_what_explains_it(make_project: ProjectMaker, capfd: pytest.CaptureFixture[str]) -> None:
    project = make_project("ab", {"a.cpp": ""})
    (project / "build.toml").write_text((project / "build.toml").read_text().replace("a.cpp", "b.cpp"))
    assert run(["check-config", str(project)]) == ExitCode.CONFIG
    name = capfd.readouterr().err.split("more: kernel-builder explain ")[1].split()[0]
    assert run(["explain", name]) == ExitCode.OK
    assert "kernel-builder update-build" in capfd.readouterr().out


def test_an_error_that_nothing_is_known_of_names_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["explain", "gibberish qwertz"]) == ExitCode.USAGE
    assert "more:" not in capfd.readouterr().err


@pytest.mark.parametrize("words", ["KB103", "kb103", "runtime-version"])
def test_rules_are_explained_as_check_explains_them(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", words]) == ExitCode.OK
    printed = capfd.readouterr().out
    assert run(["check", "--explain", "KB103"]) == ExitCode.OK
    assert capfd.readouterr().out == printed


def test_pasted_words_find_the_message(capfd: pytest.CaptureFixture[str]) -> None:
    pasted = "ImportError: /x/_relu.abi3.so: undefined symbol: _ZN2at6detail"
    assert run(["explain", *pasted.split()]) == ExitCode.OK
    assert capfd.readouterr().out.startswith("undefined-names: ")
    assert [topic.name for topic in topics_like("no space left, the disk seems full")][:1] == ["disk-full"]


def test_exit_codes_and_wrong_codes(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "4"]) == ExitCode.OK
    assert "A part of a toolchain is missing" in capfd.readouterr().out
    assert exit_codes().keys() == {int(code) for code in ExitCode}
    assert run(["explain", "99"]) == ExitCode.USAGE
    assert "exit codes are: 0, 1, 2" in capfd.readouterr().err
    assert run(["explain", "KB10"]) == ExitCode.USAGE
    assert "KB101" in capfd.readouterr().err


def test_without_words_all_messages_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == ExitCode.OK
    printed = capfd.readouterr().out
    assert all(topic.name in printed for topic in topics())
