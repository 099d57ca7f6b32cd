"""Whatever backends init is told: the project is valid, its variants are planned, and its parts do not mix."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.config.reader import load_project
from kernel_builder.scaffold.names import ProjectName
from kernel_builder.scaffold.render import BACKENDS, render_project
from planned import APPLE_CLANG, CUDA, GXX, amd, make_plan, oneapi

SUBSETS = [some for count in range(1, len(BACKENDS) + 1) for some in combinations(BACKENDS, count)]
NAME = ProjectName(name="scale", owner="me")
VARIANTS = {
    "cpu": "torch213-cxx11-cpu-x86_64-linux",
    "cuda": "torch213-cxx11-cu130-x86_64-linux",
    "rocm": "torch213-cxx11-rocm72-x86_64-linux",
    "xpu": "torch213-cxx11-xpu20260-x86_64-linux",
}
MACOS = {"cpu": "torch213-cpu-aarch64-darwin", "metal": "torch213-metal-aarch64-darwin"}
_INCLUDE = re.compile(r"^#(include|import) .*$", re.MULTILINE)


def write(root: Path, backends: Sequence[Backend], *, minimal: bool = False) -> Path:
    for path, text in render_project(NAME, backends=backends, license_id="MIT", minimal=minimal).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize("minimal", [False, True])
def test_it_is_valid_without_a_warning(tmp_path: Path, minimal: bool) -> None:
    for number, backends in enumerate(SUBSETS):
        project, warnings = load_project(write(tmp_path / str(number), backends, minimal=minimal))
        assert project.backends == backends
        assert warnings == (), backends


@pytest.mark.parametrize("backends", [BACKENDS, *((one,) for one in BACKENDS)], ids=" ".join)
@pytest.mark.parametrize("minimal", [False, True])
def test_every_variant_is_planned(tmp_path: Path, backends: Sequence[Backend], minimal: bool) -> None:
    root = write(tmp_path / "scale", backends, minimal=minimal)
    linux = tuple(VARIANTS[one] for one in backends if one in VARIANTS)
    macos = tuple(MACOS[one] for one in backends if one in MACOS)
    toolkits = [CUDA, oneapi(), amd()]
    plans = [make_plan(root, linux, GXX, toolkits=toolkits)] if linux else []
    plans += [make_plan(root, macos, APPLE_CLANG, platform="aarch64-darwin")] if macos else []
    planned = {variant.name: variant for plan in plans for variant in plan.variants}
    assert set(planned) == {*linux, *macos}
    files = render_project(NAME, backends=backends, license_id="MIT", minimal=minimal)
    compiled = {action.source for variant in planned.values() for action in variant.actions}
    assert {path for path in files if path.endswith((".cpp", ".cu", ".mm", ".metal"))} <= compiled


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("minimal", [False, True])
def test_each_backend_sees_the_same_binding_whatever_the_others(tmp_path: Path, minimal: bool) -> None:
    def seen(backends: Sequence[Backend], backend: Backend, path: str) -> str:
        text = render_project(NAME, backends=backends, license_id="MIT", minimal=minimal)[path]
        source = tmp_path / "a.cpp"
        source.write_text(_INCLUDE.sub("", text), encoding="utf-8")
        command = ["g++", "-E", "-P", f"-D{backend.value.upper()}_KERNEL", str(source)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    for backend in BACKENDS:
        for path in ("torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"):
            alone = seen((backend,), backend, path)
            if backend != "cuda":  # its names of errors and streams are ROCm's too, where both are there
                assert seen(BACKENDS, backend, path) == alone, (backend, path)
            assert not {other for other in BACKENDS if f"multiply_{other.value}(" in alone} - {
                backend,
                *_sharing(backend),
            }


def _sharing(backend: Backend) -> set[str]:
    """The backends whose file it shares."""
    assert backend.scaffold is not None
    return {one.value for one in BACKENDS if one.scaffold is not None and one.scaffold.file == backend.scaffold.file}
