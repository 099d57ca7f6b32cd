"""``toolchain explain`` of what is compiled with nothing, or by another version."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import BUILD_TOML, ProjectMaker, Tool
from kernel_builder.errors import ExitCode
from kernel_builder.variants.support import load_support


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


@pytest.mark.parametrize(
    ("framework", "wanted"),
    [
        ("tvm-ffi01", "tvm-ffi 0.1"),
        ("torch-stable-abi210", f"torch {load_support().rows[-1].torch} (cxx11)"),
        ("torch213-cxx11", "torch 2.13 (cxx11)"),
    ],
)
def test_names_of_every_framework_serve_without_a_project(
    framework: str, wanted: str, tool: Tool, tmp_path: Path
) -> None:
    here = ("--platform", "x86_64-linux", "--offline")
    for pattern in (f"{framework}-cpu-x86_64-linux", f"{framework}-cpu-*"):
        fetched = tool("toolchain", "fetch", pattern, *here, cwd=tmp_path, env={"KERNEL_BUILDER_CACHE": str(tmp_path)})
        assert fetched.code == ExitCode.NETWORK, fetched.stderr
        assert f"error: the toolchain for {wanted} is not complete in the store" in fetched.stderr
    near = tool("toolchain", "fetch", framework[:-1], *here, cwd=tmp_path)
    assert near.code == ExitCode.USAGE
    assert f"did you mean '{framework[:-1]}*'? It matches {framework[:-1]}" in near.stderr


@pytest.mark.parametrize("pattern", ["*-cpu-*", "t*-cpu-*", "torch*-cpu-*"])
def test_a_pattern_that_means_builds_of_torch_means_nothing_else(pattern: str, tool: Tool, tmp_path: Path) -> None:
    """Not even on macOS, for which tvm-ffi kernels cannot be compiled."""
    fetched = tool("toolchain", "fetch", pattern, "--platform", "aarch64-darwin", "--offline", cwd=tmp_path)
    assert "tvm-ffi" not in fetched.stderr
    assert "stable-abi" not in fetched.stderr
    alone = tool("toolchain", "fetch", "tvm-ffi*", "--platform", "aarch64-darwin", "--offline", cwd=tmp_path)
    assert "tvm-ffi01-cpu-aarch64-darwin" in alone.stderr
