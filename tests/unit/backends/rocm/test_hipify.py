"""What torch's own hipify makes of a project's files, as the program that runs it leaves them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.backends.rocm import hipify

SOURCE = """\
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include "cuda_helpers.cuh"
#include "../include/other.h"

__global__ void twice(float *x) { x[threadIdx.x] *= std::max(2.0f, 1.0f); }

void launch(float *x) { twice<<<1, 32, 0, c10::cuda::getCurrentCUDAStream()>>>(x); cudaDeviceSynchronize(); }
"""


def package() -> Path:
    """torch's hipify, without importing torch."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        pytest.skip("needs torch's hipify (pip install torch)")
    return Path(found.origin).parent / "utils" / "hipify"


def run(root: Path, into: Path, *files: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-B", hipify.__file__, str(package()), str(root), str(into), *files]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_each_file_keeps_its_name_its_lines_and_the_projects_own_includes(tmp_path: Path) -> None:
    root, into = tmp_path / "cuda project", tmp_path / "made"
    (root / "src").mkdir(parents=True)
    (root / "src" / "twice.cu").write_text(SOURCE, encoding="utf-8")
    (root / "src" / "cuda_helpers.cuh").write_text("#pragma once\ninline int cudaNothing;\n", encoding="utf-8")
    (root / "src" / "tables.inc").write_text("\ncudaError_t one;\n", encoding="utf-8")
    ended = run(root, into, "src/twice.cu", "src/cuda_helpers.cuh", "src/tables.inc")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    made = (into / "src" / "twice.cu").read_text(encoding="utf-8").splitlines()
    at = made.index('#line 1 "src/twice.cu"')
    assert made[:at] == ['#include "hip/hip_runtime.h"'] or at == 0
    body = made[at + 1 :]
    assert len(body) == len(SOURCE.splitlines())
    assert body[0] in {"#include <c10/hip/HIPStream.h>", "#include <ATen/hip/impl/HIPStreamMasqueradingAsCUDA.h>"}
    assert body[1] == "#include <hip/hip_runtime.h>"
    assert body[2:4] == ['#include "cuda_helpers.cuh"', '#include "../include/other.h"']
    assert "twice<<<1, 32, 0, " in body[7]
    assert "hipDeviceSynchronize" in body[7]
    header = (into / "src" / "cuda_helpers.cuh").read_text(encoding="utf-8")
    assert header.startswith('#line 1 "src/cuda_helpers.cuh"\n')
    assert "hipError_t one;" in (into / "src" / "tables.inc").read_text(encoding="utf-8")
    assert sorted(path.name for path in into.rglob("*") if path.is_file()) == [
        "cuda_helpers.cuh",
        "tables.inc",
        "twice.cu",
    ]
    assert sorted(path.name for path in root.rglob("*") if path.is_file()) == [
        "cuda_helpers.cuh",
        "tables.inc",
        "twice.cu",
    ]


def test_a_torch_without_hipify_is_told(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-I",
        "-B",
        hipify.__file__,
        str(tmp_path / "none"),
        str(tmp_path),
        str(tmp_path),
        "a.cu",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert f"there is no hipify in {tmp_path / 'none'}" in ended.stdout


def test_what_cannot_be_read_as_text_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_bytes(b"// fine\n// \xff\n")
    ended = run(tmp_path, tmp_path / "made", "a.cu", "gone.cu")
    assert ended.returncode == 1
    assert "a.cu:2: error: it is not UTF-8, which hipify needs" in ended.stdout
    assert "gone.cu: error: cannot be read: No such file or directory" in ended.stdout
    assert not list((tmp_path / "made").rglob("*.cu"))
