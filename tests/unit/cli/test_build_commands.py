"""``build`` and ``build-and-upload``: what programs get that asked for JSON."""

from __future__ import annotations

import pytest

from conftest import ProjectMaker, Tool
from kernel_builder.cli import build, build_and_upload


@pytest.mark.parametrize("command", ["build", "build-and-upload", "build-and-copy"])
def test_mistakes_are_told_as_json_too(command: str, tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project(
        "wrong", {"a.cpp": ""}, toml='[general]\nname = "wrong"\nedition = 5\nbackends = ["cpu", "gpu"]\n'
    )
    result = tool(command, root, "--json")
    assert result.code == 3
    assert result.json["ok"] is False
    assert result.json["exit-code"] == 3
    assert any("gpu" in line for line in result.json["diagnostics"])  # type: ignore[attr-defined]
    assert "gpu" in result.stderr


def test_building_before_an_upload_has_the_options_of_building() -> None:
    own = {"dry_run", "as_json", "output", "quiet", "ignore", "timing", "timing_to"}
    own |= {"debug", "lineinfo", "sanitizers"}  # what is published is built for users
    of_build = [parameter.name for parameter in build.command.params if parameter.name not in own]
    of_both = [parameter.name for parameter in build_and_upload.command.params]
    assert of_both[: len(of_build)] == of_build


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("build-and-upload", ("--fast",), "build-and-upload publishes complete variants, but --fast leaves"),
        ("build-and-upload", ("--arch", "9.0"), "kernel-builder build --arch 9.0"),
        ("build", ("--fast", "--arch", "9.0"), "--fast builds for the devices of this machine, but --arch"),
    ],
)
def test_what_leaves_architectures_out_is_not_published(
    command: str, options: tuple[str, ...], said: str, tool: Tool, make_project: ProjectMaker
) -> None:
    root = make_project("some", {}, toml='[general]\nname = "some"\nedition = 5\nbackends = ["cpu"]\n')
    result = tool(command, root, *options)
    assert result.code == 2
    assert said in result.stderr.replace("\n", " ")


def test_a_lock_that_does_not_exist_is_not_called_out_of_date(tool: Tool, make_project: ProjectMaker) -> None:
    result = tool("lock", make_project("x", {"a.cpp": ""}), "--check")
    assert result.code == 1
    assert result.stdout == "kernel-builder.lock does not exist\n"
    assert "run 'kernel-builder lock' to write it" in result.stderr
