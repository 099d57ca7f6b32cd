"""``toolchain explain`` of what is compiled with nothing, or by another version."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import BUILD_TOML, ProjectMaker, Tool


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("torch213-cpu-aarch64-darwin", "compiles only for Linux, not for darwin"),
        ("torch-tpu", "of listed is Python only: nothing is compiled for it"),
        ("torch99-cxx11-cpu-x86_64-linux", "variant 'torch99-cxx11-cpu-x86_64-linux' is neither in the support table"),
    ],
)
def test_a_variant_without_a_toolchain_is_refused_with_the_reason(
    variant: str, reason: str, tool: Tool, make_project: ProjectMaker
) -> None:
    toml = BUILD_TOML.format(name="listed", sources='"a.cpp"').replace('["cpu"]', '["cpu", "tpu"]')
    root = make_project("listed", {"a.cpp": ""}, toml=toml)
    result = tool("toolchain", "explain", variant, "--project", root, "--offline")
    assert result.code == 2
    assert reason in result.stderr


@pytest.mark.parametrize("given", ["torch213", "2.13", "torch213-*", "torch213-cxx11-cp-x86_64-linux"])
def test_a_part_of_a_name_brings_the_names_that_have_it(given: str, tool: Tool, tmp_path: Path) -> None:
    result = tool("toolchain", "explain", given, "--project", tmp_path, "--offline")
    assert result.code == 2
    assert "did you mean one of torch213-" in result.stderr
    fetched = tool("toolchain", "fetch", "torch213", "--offline", cwd=tmp_path)
    assert fetched.code == 2
    assert "did you mean 'torch213-*'? It matches torch213-" in fetched.stderr
