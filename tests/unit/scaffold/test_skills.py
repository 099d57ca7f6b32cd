"""Skills: what they say of themselves, and how they are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernel_builder.check.engine import all_rules
from kernel_builder.cli import run
from kernel_builder.errors import ExitCode
from kernel_builder.scaffold.skills import skills


def test_each_has_a_name_and_says_when_to_read_it() -> None:
    assert {skill.name for skill in skills()} == {"benchmark-kernel", "check-kernel", "port-kernel", "write-kernel"}
    for skill in skills():
        assert 40 < len(skill.description) < 300
        assert len(skill.text.split()) < 900, "an assistant reads all of it"
        assert skill.text.startswith("---\nname: ")


def test_they_name_rules_that_there_are() -> None:
    codes = {rule.code for rule in all_rules()}
    named = {code for skill in skills() for code in re.findall(r"\bKB\d{3}\b", skill.text)}
    assert named
    assert named <= codes


def test_add_writes_all_and_the_same_again_changes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "a" / "skills"
    assert run(["skills", "add", "--to", str(target)]) == ExitCode.OK
    assert capfd.readouterr().out.count("  added\n") == len(skills())
    assert run(["skills", "show", "port-kernel"]) == ExitCode.OK
    assert (target / "port-kernel" / "SKILL.md").read_text(encoding="utf-8") == capfd.readouterr().out
    assert run(["skills", "add", "port-kernel", "--to", str(target)]) == ExitCode.OK
    assert capfd.readouterr().out.endswith("SKILL.md  up to date\n")


def test_add_replaces_what_was_changed_only_when_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    changed = tmp_path / "port-kernel" / "SKILL.md"
    changed.parent.mkdir()
    changed.write_text("mine", encoding="utf-8")
    assert run(["skills", "add", "--to", str(tmp_path)]) == ExitCode.USAGE
    assert "nothing was written" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["port-kernel"]
    assert run(["skills", "add", "--to", str(tmp_path), "--overwrite"]) == ExitCode.OK
    assert "port-kernel/SKILL.md  replaced" in capfd.readouterr().out
    assert changed.read_text(encoding="utf-8") != "mine"


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_what_is_no_file_is_in_the_way(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "write-kernel" / "SKILL.md"
    if kind == "directory":
        place.mkdir(parents=True)
    else:
        place.parent.mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    assert run(["skills", "add", "--to", str(tmp_path), "--overwrite"]) == ExitCode.USAGE
    assert "in the way" in capfd.readouterr().err
    assert not (tmp_path / "port-kernel").exists()


def test_unknown_names_are_told_with_those_that_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["skills", "add", "port", "measure"]) == ExitCode.USAGE
    told = capfd.readouterr().err
    assert "no skill is called port, measure" in told
    assert "write-kernel" in told
