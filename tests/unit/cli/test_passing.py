"""Commands that pass words on to pytest."""

from __future__ import annotations

import pytest

from kernel_builder.cli import run
from kernel_builder.errors import ExitCode


@pytest.mark.parametrize("command", ["test", "watch", "ci-test"])
@pytest.mark.parametrize("option", ["-k", "--maxfail"])
def test_an_option_of_pytest_is_told_where_to_stand(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, option, "x"]) == ExitCode.USAGE
    assert f"come after '--': kernel-builder {command} -- {option}" in capsys.readouterr().err


def test_a_misspelled_option_of_ours_is_not_taken_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["test", "--varaint", "x"]) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "--variant" in told
    assert "come after" not in told
