"""``list-variants``: what a project would be built into, for people, programs and workflows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import BUILD_TOML, ProjectMaker, Tool
from kernel_builder.variants.support import load_support

TOML = """\
[general]
name = "listed"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda", "rocm", "metal", "tpu"]

[general.cuda]
minver = "13.0"

[torch]
src = []
minver = "2.13"

[torch.stable-abi]
cuda = "2.11"

[kernel.host]
backend = "cpu"
depends = []
src = ["a.cpp"]

[kernel.device]
backend = "cuda"
depends = []
src = ["a.cpp"]

[kernel.hip]
backend = "rocm"
depends = []
src = ["a.cpp"]

[kernel.shader]
backend = "metal"
depends = []
src = ["a.cpp"]
"""


@pytest.fixture
def project(make_project: ProjectMaker) -> Path:
    return make_project("listed", {"a.cpp": ""}, toml=TOML)


def names(text: str) -> list[str]:
    return text.split("\n\n", maxsplit=1)[0].split()


def test_the_required_variants_that_can_be_compiled_are_listed(tool: Tool, project: Path) -> None:
    result = tool("list-variants", project)
    assert result.code == 0
    found = names(result.stdout)
    machine = found[0].removeprefix("torch213-cxx11-cpu-").removesuffix("-linux")
    assert found == [
        f"torch213-cxx11-cpu-{machine}-linux",
        f"torch-stable-abi211-cu130-{machine}-linux",
        f"torch-stable-abi211-cu132-{machine}-linux",
        *(f"torch213-cxx11-rocm{release}-x86_64-linux" for release in ("71", "72") if machine == "x86_64"),
        "torch-tpu",
    ]


def test_what_is_missing_from_the_list_is_told_to_people_alone(tool: Tool, project: Path) -> None:
    result = tool("list-variants", project)
    assert "note: nothing to build for metal: its variants are for aarch64-darwin" in result.stderr.splitlines()
    matrix = tool("list-variants", project, "--format", "github", "--backend", "metal", "--all-platforms")
    assert json.loads(matrix.stdout) == {"include": []}
    assert "1 variant is excluded: this version of kernel-builder compiles only for Linux" in matrix.stderr
    assert tool("list-variants", project, "--json").stderr == ""
    empty = tool("list-variants", project, "--set", "legacy", "--backend", "cpu")
    assert (empty.stdout, empty.code) == ("", 0)
    assert "note: nothing to build for cpu: it does not belong to the set 'legacy'" in empty.stderr


def test_sets_backends_and_platforms_narrow_or_widen_the_list(tool: Tool, project: Path) -> None:
    result = tool("list-variants", project, "--set", "latest", "--backend", "cpu", "--all-platforms")
    assert names(result.stdout) == [
        f"torch{release}-cxx11-cpu-{machine}-linux" for release in (213, 214, 215) for machine in ("aarch64", "x86_64")
    ]
    assert tool("list-variants", project, "--set", "legacy", "--backend", "cpu").stdout == ""


def test_each_variant_that_is_left_out_has_its_reason(tool: Tool, project: Path) -> None:
    lines = tool("list-variants", project, "--all-platforms", "--why").stdout.split("\n\n")[1].splitlines()
    why = dict(line.split(maxsplit=1) for line in lines[1:])
    assert "only for Linux" in why["torch213-metal-aarch64-darwin"]
    assert why["torch213-cxx11-cu126-x86_64-linux"] == "cuda 12.6 is below general.cuda.minver = 13.0"
    assert why["torch212-cxx11-cpu-x86_64-linux"] == "torch 2.12 is below torch.minver = 2.13"
    assert why["torch213-cxx11-cu130-x86_64-linux"].startswith("torch-stable-abi211-cu130-x86_64-linux covers it")
    assert why["torch214-cxx11-cpu-x86_64-linux"].startswith("it is not required")


def test_json_has_facts_and_reasons(tool: Tool, project: Path) -> None:
    document = json.loads(tool("list-variants", project, "--all-platforms", "--json").stdout)
    variants = {entry["variant"]: entry for entry in document["variants"]}
    cuda = variants["torch-stable-abi211-cu130-x86_64-linux"]
    assert (cuda["torch"], cuda["compute"], cuda["required"], cuda["cxx-standard"]) == ("2.14", "cu130", True, 20)
    assert (cuda["abi"], cuda["toolkit"], variants["torch-tpu"]["abi"]) == ("cxx11", "13.0", None)
    assert variants["torch213-cxx11-cpu-x86_64-linux"]["since"] == "2026-07-01"
    assert variants["torch-tpu"]["machine"] is None
    assert all(entry["reason"] for entry in document["dropped"])


def test_a_workflow_gets_a_matrix_with_a_runner_for_each(tool: Tool, project: Path) -> None:
    result = tool("list-variants", project, "--all-platforms", "--format", "github")
    (line,) = result.stdout.splitlines()
    jobs = {job["variant"]: job for job in json.loads(line)["include"]}
    assert jobs["torch213-cxx11-cpu-aarch64-linux"] == {
        "variant": "torch213-cxx11-cpu-aarch64-linux",
        "backend": "cpu",
        "torch": "2.13",
        "compute": "cpu",
        "machine": "aarch64",
        "os": "linux",
        "runner": "ubuntu-24.04-arm",
    }
    assert jobs["torch-tpu"]["runner"] == "ubuntu-latest"
    assert all("runner" in job for job in jobs.values())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--set", "newest"), 2, "newest"),
        (("--backend", "xpu"), 2, "this kernel has no backend xpu"),
        (("--format", "github", "--why"), 2, "--format github cannot be combined"),
        (("--json", "--why"), 2, "remove --why"),
        (("--arch", "--json"), 2, "--arch cannot be combined"),
        (("--arch", "--format", "github"), 2, "--arch cannot be combined"),
    ],
)
def test_mistakes_are_said(tool: Tool, project: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    result = tool("list-variants", project, *arguments)
    assert (result.code, words in result.stderr) == (code, True), result


def test_build_says_first_what_cannot_be_built_and_builds_nothing(tool: Tool, project: Path) -> None:
    """Nothing on this machine has torch's headers for ROCm, and nobody else is asked."""
    result = tool("build", project, "--backend", "rocm", "--source", "local", "--json")
    assert result.code == 4
    assert "2 of the 2 variants that Hub kernels must have cannot be built here" in result.stderr
    unavailable = result.json["unavailable"]
    assert isinstance(unavailable, list)
    assert [entry["name"][:22] for entry in unavailable] == ["torch213-cxx11-rocm71-", "torch213-cxx11-rocm72-"]
    assert not (project / "build").exists()


def test_full_names_are_those_of_the_builds_behind_the_variants(tool: Tool, make_project: ProjectMaker) -> None:
    """As the reference's list of arch variants: never a name on the stable ABI, nor one of Python alone."""
    required = [f"torch{release}-cxx11-cpu-x86_64-linux" for release in ("212", "213")]
    plain = make_project("plain", {"a.cpp": ""})
    assert tool("list-variants", plain, "--arch").stdout.split() == required
    toml = (plain / "build.toml").read_text()
    on_abi = toml.replace("src = []", 'stable-abi = "2.11"').replace('"plain"', '"stable"')
    stable = make_project("stable", {"a.cpp": ""}, toml=on_abi)
    assert tool("list-variants", stable).stdout.split() == ["torch-stable-abi211-cpu-x86_64-linux"]
    newest = max(row.torch for row in load_support().rows if row.name.endswith("-cpu-x86_64-linux"))
    compiled_with = f"torch{newest.major}{newest.minor}-cxx11-cpu-x86_64-linux"
    assert tool("list-variants", stable, "--arch").stdout.split() == [compiled_with]
    python = toml.partition("[torch]")[0] + "[torch-noarch]\n"
    alone = make_project("alone", {}, toml=python.replace('"plain"', '"alone"'))
    assert tool("list-variants", alone).stdout.split() == ["torch-cpu"]
    assert tool("list-variants", alone, "--arch").stdout.split() == required
    assert "torch213-cpu-aarch64-darwin" in tool("list-variants", alone, "--arch", "--all-platforms").stdout
    listed = tool("list-variants", alone, "--json").json["variants"]
    assert isinstance(listed, list)
    assert listed[0]["arch"] == required


@pytest.mark.parametrize("command", [("build", "--dry-run"), ("doctor",), ("lock",), ("toolchain", "fetch")])
def test_sources_can_be_named_for_one_run(
    tool: Tool, make_project: ProjectMaker, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_BUILDER_SOURCES", "index")
    root = make_project("sourced", {"a.cpp": "int a;\n"})
    result = tool(*command, "--source", "local", "--source", "nowhere", "--offline", cwd=root)
    assert (result.code, "unknown source 'nowhere'" in result.stderr) == (2, True), result
    assert "sources are: index, debian, redistrib, local" in result.stderr


def test_names_of_another_platform_lead_to_the_option(tool: Tool, project: Path) -> None:
    wrong = tool("build", project, "--variant", "torch213-*", "--platform", "x86_64-mars")
    assert (wrong.code, "--platform 'x86_64-mars' is not a platform" in wrong.stderr) == (2, True), wrong
    here = names(tool("list-variants", project).stdout)[0]
    other = here.replace("x86_64", "arm").replace("aarch64", "x86_64").replace("arm", "aarch64")
    result = tool("build", project, "--variant", other, "--platform", "-".join(here.rsplit("-", 2)[1:]))
    assert result.code == 2
    assert f"run the same command with --platform {'-'.join(other.rsplit('-', 2)[1:])} to build for it" in result.stderr
    both = tool("build", project, "--local", "--set", "latest")
    assert (both.code, "run kernel-builder build --local without --set and --platform" in both.stderr) == (2, True)


def test_a_backend_of_another_platform_is_the_reason_for_nothing(tool: Tool, project: Path) -> None:
    result = tool("build", project, "--backend", "metal")
    assert result.code == 3
    assert "no variant is left\n  metal: its variants are for aarch64-darwin" in result.stderr
    assert "was not requested" not in result.stderr


def test_a_misspelt_name_leads_to_those_that_look_like_it(tool: Tool, make_project: ProjectMaker) -> None:
    toml = BUILD_TOML.format(name="many", sources='"a.cpp"').replace('["cpu"]', '["cpu", "rocm"]')
    toml += '\n[kernel.hip]\nbackend = "rocm"\ndepends = []\nsrc = ["a.cpp"]\n'
    root = make_project("many", {"a.cpp": ""}, toml=toml)
    result = tool("build", root, "--variant", "torch213-cxx11-rocm7.2-x86_64-linux")
    assert result.code == 2
    assert "did you mean torch213-cxx11-rocm72-x86_64-linux or" in result.stderr
    assert "list-variants --set all' to list its" in result.stderr
    assert len(result.stderr) < 600


def test_toolchains_for_other_systems_are_not_fetched(tool: Tool, tmp_path: Path) -> None:
    arguments = ("toolchain", "fetch", "torch213-cpu-aarch64-darwin", "--platform", "aarch64-darwin")
    result = tool(*arguments, "--offline", cwd=tmp_path)
    assert (result.code, "compiles only for Linux, not for darwin" in result.stderr) == (4, True), result


def test_nothing_to_build_is_explained(tool: Tool, make_project: ProjectMaker) -> None:
    toml = BUILD_TOML.format(name="narrow", sources='"a.cpp"').replace("src = []", 'minver = "2.12"\nmaxver = "2.12"')
    root = make_project("narrow", {"a.cpp": ""}, toml=toml)
    result = tool("build", root, "--set", "legacy")
    assert result.code == 3
    assert "nothing to build" in result.stderr
    assert "torch 2.13 is above torch.maxver = 2.12" in result.stderr
    assert "list-variants --set all --why" in result.stderr
