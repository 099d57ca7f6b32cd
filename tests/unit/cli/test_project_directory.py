"""Which directory commands work on when none is named: one rule for all of them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kernel_builder.cli import run
from kernel_builder.cli.build import project_root
from kernel_builder.cli.options import project_directory
from kernel_builder.errors import ExitCode

NOTE = "note: using my-scale, the only kernel project here\n"
READING = ["check", "check-config", "card", "list-variants", "api-diff --against my-scale", "update-build --check"]
READING += ["lock --check", "create-pyproject", "clean-pyproject", "compile-commands", "doctor"]
BUILT = ["check-builds", "check-abi", "hash", "attest", "upload --dry-run"]


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNEL_BUILDER_OFFLINE", "1")
    assert run(["init", "my-scale", "--backends", "cpu"]) == ExitCode.OK
    return tmp_path


@pytest.mark.parametrize("line", [*READING, *BUILT])
def test_every_command_takes_the_only_project_below(
    parent: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run(line.split())
    printed = capsys.readouterr()
    assert NOTE in printed.err
    assert "build.toml does not exist" not in printed.err + printed.out
    assert "contains no kernel: neither build.toml" not in printed.err + printed.out


@pytest.mark.parametrize("line", ["check-config", "card", "list-variants", "check"])
def test_it_is_as_if_it_had_been_named(parent: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    code = run([*line.split(), "my-scale"])
    named = capsys.readouterr()
    assert run(line.split()) == code
    found = capsys.readouterr()
    assert found.out == named.out
    assert found.err == NOTE + named.err


def test_of_two_projects_none_is_taken(parent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "other", "--backends", "cpu"]) == ExitCode.OK
    capsys.readouterr()
    assert run(["check-config"]) == ExitCode.CONFIG
    assert "build.toml does not exist" in capsys.readouterr().err
    assert project_directory(None) == Path()


@pytest.mark.parametrize(
    "own", ["build.toml", "metadata.json", "torch-cpu/metadata.json", "build/torch-cpu/metadata.json"]
)
def test_what_is_here_comes_first(parent: Path, own: str) -> None:
    assert project_directory(None) == Path("my-scale")
    (parent / own).parent.mkdir(parents=True, exist_ok=True)
    (parent / own).write_text("{}")
    assert project_directory(None) == Path()
    assert project_directory(Path("my-scale")) == Path("my-scale")


def test_quiet_commands_do_not_say_it(parent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert project_root(None, quiet=True) == parent / "my-scale"
    assert capsys.readouterr().err == ""
    with click.Context(click.Command("any")):
        assert project_root(None, quiet=False) == parent / "my-scale"
    assert capsys.readouterr().err == NOTE
