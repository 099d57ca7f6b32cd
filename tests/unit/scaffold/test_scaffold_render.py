"""The rendered project: valid files, whatever its name and backends."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import jinja2
import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.errors import UsageError
from kernel_builder.scaffold.names import ProjectName
from kernel_builder.scaffold.render import BACKENDS, USUAL, choose_backends, render_project, renderings

CHOICES = ((Backend("cpu"),), (Backend("cuda"),), BACKENDS)
NAMES = (ProjectName(name="scale", owner="me"), ProjectName(name="a-rather-long-name-for-a-kernel"))
PROJECTS = [
    pytest.param(names, backends, id=f"{names.name} {' '.join(backends)}")
    for names, backends in product(NAMES, CHOICES)
]


@pytest.mark.parametrize(("names", "backends"), PROJECTS)
def test_a_minimal_project_is_short_and_has_what_is_needed(names: ProjectName, backends: tuple[Backend, ...]) -> None:
    full = render_project(names, backends=backends, license_id="MIT")
    files = render_project(names, backends=backends, license_id="MIT", minimal=True)
    assert set(files) < set(full)
    assert sum(text.count("\n") for path, text in files.items() if path != "LICENSE") < 150 + 30 * len(backends)
    assert f"torch-ext/{names.python_name}/__init__.py" in files
    assert "https://huggingface.co/docs/kernels" in files["README.md"]
    for path, text in files.items():
        assert not re.search(r"\{\{|\}\}|\{%|%\}|[ \t]$|\n\n\n\n|\n\n\Z", text, re.MULTILINE), path
        assert text.endswith("\n") or not text, path
        if path.endswith(".py"):
            ast.parse(text, path, feature_version=(3, 9))


@pytest.mark.parametrize(("names", "backends"), PROJECTS)
def test_no_template_syntax_is_left_but_in_the_card(names: ProjectName, backends: tuple[Backend, ...]) -> None:
    for path, text in render_project(names, backends=backends, license_id="MIT").items():
        if path != "CARD.md":
            assert not re.search(r"\{\{|\}\}|\{%|%\}", text), path
        assert text == "" or (text.endswith("\n") and not text.endswith("\n\n")), path
        assert "\n\n\n\n" not in text, path
        assert not re.search(r"[ \t]$", text, re.MULTILINE), path


@pytest.mark.parametrize(("names", "backends"), PROJECTS)
def test_build_toml_names_exactly_the_files_that_are_written(names: ProjectName, backends: tuple[Backend, ...]) -> None:
    for minimal in (False, True):
        files = render_project(names, backends=backends, license_id='weird "licence"', minimal=minimal)
        assert_lists_its_files(names, backends, files)


def assert_lists_its_files(names: ProjectName, backends: tuple[Backend, ...], files: Mapping[str, str]) -> None:
    config = tomllib.loads(files["build.toml"])
    assert config["general"] == {
        "name": names.name,
        "version": 1,
        "edition": 5,
        "license": 'weird "licence"',
        "backends": list(backends),
        "hub": {"repo-id": names.repo_id} if names.repo_id else {},
    }
    listed = {source for section in (config["torch"], *config["kernel"].values()) for source in section["src"]}
    assert listed == {path for path in files if path.endswith((".cpp", ".h", ".cu", ".mm", ".metal"))}
    assert {section["backend"] for section in config["kernel"].values()} == set(backends)


@pytest.mark.parametrize(("names", "backends"), PROJECTS)
def test_the_package_is_python_3_9_with_relative_imports_only(
    names: ProjectName, backends: tuple[Backend, ...]
) -> None:
    files = render_project(names, backends=backends, license_id="MIT")
    package = f"torch-ext/{names.python_name}/"
    assert f"{package}__init__.py" in files
    for path, text in files.items():
        if not path.endswith(".py"):
            continue
        tree = ast.parse(text, path, feature_version=(3, 9))
        if path.startswith(package):
            absolute = {
                name.split(".")[0]
                for node in ast.walk(tree)
                for name in (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom) and node.level == 0
                    else []
                )
            }
            assert absolute <= {"torch", "typing"}, path
            assert not any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) for node in ast.walk(tree))


@pytest.mark.parametrize(("names", "backends"), PROJECTS)
def test_sources_include_no_heavy_torch_header_and_no_clock(names: ProjectName, backends: tuple[Backend, ...]) -> None:
    for path, text in render_project(names, backends=backends, license_id="MIT").items():
        if path.endswith((".cpp", ".h", ".cu")):
            assert not re.search(r"torch/(all|torch|extension|types)\.h|__DATE__|__TIME__", text), path
        if path.endswith((".cu", ".h")):
            assert not re.search(r"#include <(torch|ATen|c10)/", text), path


def test_a_project_for_one_backend_does_not_mention_the_other() -> None:
    cpu = "".join(render_project(NAMES[0], backends=(Backend("cpu"),), license_id="MIT").values())
    cuda = render_project(NAMES[0], backends=(Backend("cuda"),), license_id="MIT")
    assert "cuda" not in cpu.lower()
    assert "CPU_KERNEL" not in "".join(cuda.values())
    assert "scale_cpu" not in "".join((*cuda, *cuda.values()))


def test_an_unknown_owner_leaves_repo_id_as_a_comment() -> None:
    text = render_project(ProjectName(name="scale"), backends=BACKENDS, license_id="MIT")["build.toml"]
    assert '# repo-id = "OWNER/scale"' in text


def test_the_card_fills_in_with_and_without_optional_facts() -> None:
    card = render_project(NAMES[0], backends=BACKENDS, license_id="MIT")["CARD.md"]
    template = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined).from_string(card)  # noqa: S701
    facts = {"repo_id": "me/scale", "version": 3, "license": "mit"}
    full = template.render(
        facts, functions=["scale"], layers=["Scale"], has_benchmark=True, upstream="https://u", source="https://s"
    )
    assert full.startswith("---\nlibrary_name: kernels\nlicense: mit\n---\n")
    assert 'get_kernel("me/scale", version=3, backend=device, trust_remote_code=True)' in full
    assert "kernel.scale(" in full
    for text in ("- `Scale`", "kernels benchmark me/scale@v3", "https://u", "https://s"):
        assert text in full
    bare = template.render(facts, functions=None, layers=None, has_benchmark=False, upstream=None, source=None)
    assert "None" not in bare
    assert "##" not in bare


def test_backends_are_chosen_once_each_in_one_order() -> None:
    assert choose_backends(["cuda", "CPU", "cuda"]) == (Backend("cpu"), Backend("cuda"))
    assert choose_backends(["all"]) == BACKENDS


def test_backends_that_come_later_are_told_from_words_that_are_none() -> None:
    with pytest.raises(UsageError, match="does not support tpu yet"):
        choose_backends(["tpu", "cpu"])
    with pytest.raises(UsageError, match="unknown backend 'vulkan', 'gpu'") as caught:
        choose_backends(["vulkan", "metal", "gpu"])
    assert (caught.value.hint or "").startswith("init supports cpu, cuda, metal")
    with pytest.raises(UsageError, match="unknown backend 'cdua'") as caught:
        choose_backends(["cpu", "cdua"])
    assert (caught.value.hint or "").startswith("did you mean cuda? init supports")


def write(parent: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (parent / path).parent.mkdir(parents=True, exist_ok=True)
        (parent / path).write_text(text, encoding="utf-8")


def program(name: str) -> str:
    """A formatter of this environment, else of this machine."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed in this environment")
    return found


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Projects with names of 2 to 60 characters, for each choice of backends, whole and minimal."""
    root = tmp_path_factory.mktemp("trees")
    for length, backends, minimal in product((2, 9, 23, 41, 60), CHOICES, (False, True)):
        names = ProjectName(name=("ab-cd-" * 10)[: length - 1] + "z", owner="me")
        files = render_project(names, backends=backends, license_id="MIT", minimal=minimal)
        write(root / f"{length}-{'-'.join(backends)}-{minimal}", files)
    return root


@pytest.mark.parametrize("columns", [88, 100, 120])
def test_python_is_formatted_whatever_the_length_of_the_name(trees: Path, columns: int) -> None:
    ruff = program("ruff")
    for words in (["format", "--diff"], ["check", "--select=E,F,I,W"]):
        command: list[str | Path] = [ruff, *words, "--isolated", "--no-cache", f"--line-length={columns}", trees]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[:2000] + done.stderr[:2000]


def test_sources_are_formatted_whatever_the_length_of_the_name(trees: Path) -> None:
    sources = [file for file in trees.rglob("*") if file.suffix in {".cpp", ".h", ".cu", ".mm", ".metal"}]
    assert len(sources) > 50
    # Each project brings the settings: .clang-format.
    done = subprocess.run(
        [program("clang-format"), "--dry-run", "--Werror", "--style=file", *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:4000]


def test_no_line_but_a_path_is_longer_than_the_formatters_allow(trees: Path) -> None:
    for file in trees.rglob("*"):
        if file.suffix not in {".toml", ".cpp", ".h", ".cu", ".mm", ".metal", ".py", ".ini"}:
            continue
        for line in file.read_text(encoding="utf-8").splitlines():
            assert len(line) <= 120 or line.strip().startswith('"'), f"{file}: {line}"


@pytest.mark.parametrize(
    ("license_id", "files"),
    [
        ("Apache-2.0", {"LICENSE": "Apache License"}),
        ("mit", {"LICENSE": "Copyright (c) 2027 me"}),
        ("BSD-3-Clause", {"LICENSE": "3. Neither the name"}),
        ("MIT OR Apache-2.0", {"LICENSE-MIT": "MIT License", "LICENSE-Apache-2.0": "Apache License"}),
        ("MIT OR GPL-3.0-only", {}),
        ("openrail", {}),
        ("other", {}),
    ],
)
def test_a_license_whose_text_is_known_is_written(license_id: str, files: Mapping[str, str]) -> None:
    for minimal in (False, True):
        project = render_project(NAMES[0], backends=BACKENDS, license_id=license_id, minimal=minimal, year=2027)
        assert {path for path in project if path.startswith("LICENSE")} == set(files)
        for path, words in files.items():
            assert words in project[path]
            assert f"| `{path}` |" in project["README.md"]
            assert not re.search(r"\{\{|\}\}", project[path])


def test_a_license_is_the_authors_where_nobody_said_whose_the_kernel_is() -> None:
    text = render_project(ProjectName(name="scale"), backends=BACKENDS, license_id="MIT", year=2027)["LICENSE"]
    assert "Copyright (c) 2027 the authors of scale" in text


def test_the_license_of_an_earlier_project_is_known() -> None:
    earlier = renderings(NAMES[0])
    for license_id, path in (("MIT", "LICENSE"), ("Apache-2.0", "LICENSE"), ("MIT OR ISC", "LICENSE-MIT")):
        assert render_project(NAMES[0], backends=BACKENDS, license_id=license_id)[path] in earlier[path]


def test_two_backends_share_one_file_where_it_is_made_for_both() -> None:
    for minimal in (False, True):
        both = (Backend("cuda"), Backend("rocm"))
        files = render_project(NAMES[0], backends=both, license_id="MIT", minimal=minimal)
        (shared,) = (path for path in files if path.endswith((".cu", ".hip")))
        build = files["build.toml"]
        assert build.count(f'"{shared}"') == 2
        assert f"[kernel.{NAMES[0].python_name}_rocm]" in build
        alone = render_project(NAMES[0], backends=both[1:], license_id="MIT", minimal=minimal)
        assert shared in alone
        assert "defined(CUDA_KERNEL)" not in "".join(alone.values())


def test_what_is_written_where_nobody_says_which_backends() -> None:
    assert (Backend("cpu"), Backend("cuda")) == USUAL
    assert set(USUAL) < set(BACKENDS)
