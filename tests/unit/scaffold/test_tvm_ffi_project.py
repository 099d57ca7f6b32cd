"""The project of ``init --framework tvm-ffi``: valid, formatted, and of nothing but tvm-ffi."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.config.reader import load_project
from kernel_builder.errors import UsageError
from kernel_builder.scaffold.names import ProjectName
from kernel_builder.scaffold.render import backends_for, choose_backends, render_project, renderings

TVM_FFI = FrameworkKind.TVM_FFI
CHOICES = ((Backend("cpu"),), (Backend("cuda"),), backends_for(TVM_FFI))
NAMES = tuple(ProjectName(name=("ab-cd-" * 10)[: length - 1] + "z", owner="me") for length in (2, 23, 60))


def write(root: Path, names: ProjectName, backends: tuple[Backend, ...], *, minimal: bool = False) -> Path:
    files = render_project(names, backends=backends, license_id="MIT", minimal=minimal, framework=TVM_FFI)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


def program(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed in this environment")
    return found


@pytest.mark.parametrize(("names", "backends", "minimal"), list(product(NAMES, CHOICES, (False, True))))
def test_build_toml_lists_the_sources_that_are_there(
    tmp_path: Path, names: ProjectName, backends: tuple[Backend, ...], minimal: bool
) -> None:
    root = write(tmp_path, names, backends, minimal=minimal)
    project, warnings = load_project(root)
    assert (warnings, project.framework.kind, project.backends) == ((), TVM_FFI, backends)
    listed = {*project.framework.src, *(source for section in project.sections for source in section.src)}
    sources = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.suffix in {".cpp", ".h", ".cu"}}
    assert listed == sources
    assert all(section.depends == () for section in project.sections)
    for whole in ("CARD.md", "benchmarks/benchmark.py"):
        assert (root / whole).exists() is not minimal
        assert ("`benchmarks/`" in (root / "README.md").read_text(encoding="utf-8")) is not minimal


@pytest.mark.parametrize("backends", CHOICES, ids=str)
def test_nothing_of_torch_is_in_what_users_load(tmp_path: Path, backends: tuple[Backend, ...]) -> None:
    root = write(tmp_path, NAMES[0], backends)
    for path in root.rglob("*"):
        if path.is_file() and path.suffix in {".cpp", ".h", ".cu", ".toml"}:
            assert not re.search(r"torch/|ATen|TORCH_", path.read_text(encoding="utf-8")), path
    package = (root / "tvm-ffi-ext" / NAMES[0].python_name / "__init__.py").read_text(encoding="utf-8")
    assert "import torch" not in package
    for path in root.rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))


def test_the_project_is_formatted_whatever_the_length_of_its_name(tmp_path: Path) -> None:
    for index, (names, backends) in enumerate(product(NAMES, CHOICES)):
        write(tmp_path / str(index), names, backends)
    for words in (["format", "--diff"], ["check", "--select=E,F,I,W"]):
        command = [program("ruff"), *words, "--isolated", "--no-cache", "--line-length=88", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[:2000] + done.stderr[:2000]
    sources = [str(file) for file in tmp_path.rglob("*") if file.suffix in {".cpp", ".h", ".cu"}]
    command = [program("clang-format"), "--dry-run", "--Werror", "--style=file", *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


def test_backends_without_a_template_are_refused_by_name() -> None:
    assert choose_backends(["all"], TVM_FFI) == backends_for(TVM_FFI)
    with pytest.raises(UsageError, match="does not support metal yet") as caught:
        choose_backends(["cpu", "metal"], TVM_FFI)
    assert "cpu and cuda" in (caught.value.hint or "")


def test_what_an_earlier_init_wrote_is_known() -> None:
    earlier = renderings(NAMES[0])
    files = render_project(NAMES[0], backends=backends_for(TVM_FFI), license_id="", framework=TVM_FFI)
    assert all(text in earlier[path] for path, text in files.items() if path not in {"build.toml", "README.md"})
