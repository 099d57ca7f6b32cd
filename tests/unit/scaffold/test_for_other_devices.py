"""What ``init`` writes for devices whose compilers are not to be had here, judged by clang as far as it can be.

For XPU that is the host's half of SYCL, for Metal the Objective-C++, each with headers that have the vendor's types;
shaders are read as OpenCL C++, whose address spaces are those of Metal's language.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.scaffold.names import ProjectName
from kernel_builder.scaffold.render import BACKENDS, render_project

STUBS = Path(__file__).parents[2] / "projects" / "other-devices"
STRICT = ("-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{STUBS / 'torch'}")
SYCL = ("-x", "c++", *STRICT, f"-I{STUBS / 'sycl'}")
OBJECTIVE = (
    *("-x", "objective-c++", "-fobjc-runtime=macosx-15", "-fblocks", *STRICT, f"-I{STUBS / 'sdk'}"),
    *('-DEMBEDDED_METALLIB_HEADER="shaders.h"', "-DEMBEDDED_METALLIB_NAMESPACE=embedded"),
)
SHADERS = (
    *("-x", "clcpp", "-cl-std=clc++", "-target", "spir64", "-Xclang", "-cl-ext=+cl_khr_fp16"),
    *(f"-I{STUBS / 'shaders'}", "-Wno-ignored-attributes", "-Wno-unknown-attributes", "-Werror"),
)
CASES = {
    "{py}_xpu/{py}.cpp": (SYCL, "static_cast<T>(", "static_cast<void *>("),
    "{py}_metal/{py}.mm": (OBJECTIVE, "[encoder endEncoding]", "[encoder endEncodings]"),
    "{py}_metal/{py}.metal": (SHADERS, "out[i] = ", "input[i] = "),
}
NAMES = ProjectName(name="scale-it", owner="me")


def complaints(flags: tuple[str, ...], file: Path) -> str:
    clang = shutil.which("clang++")
    if clang is None:
        pytest.skip("needs clang++ (apt-get install clang)")
    command: list[str | Path] = [clang, "-fsyntax-only", *flags, file]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("pattern", CASES)
@pytest.mark.parametrize("alone", [True, False])
def test_it_compiles(pattern: str, alone: bool, tmp_path: Path) -> None:
    flags, right, wrong = CASES[pattern]
    name = pattern.format(py=NAMES.python_name)
    (own,) = (one for one in BACKENDS if f"_{one.value}/" in name)
    backends = (own,) if alone else BACKENDS
    for path, text in render_project(NAMES, backends=backends, license_id="MIT").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    file = tmp_path / name
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".metal":  # the name that Metal gives an instance is an attribute where C++ has none
        text = re.sub(r"template \[\[host_name\([^]]*\)\]\]", "template", text)
        file.write_text(text, encoding="utf-8")
    assert complaints(flags, file) == ""
    assert right in text
    file.write_text(text.replace(right, wrong), encoding="utf-8")
    assert "error" in complaints(flags, file)


def test_every_backend_that_init_offers_is_compiled_by_some_test() -> None:
    """The others have compilers here, which other tests run."""
    judged = {one for one in BACKENDS if any(f"_{one.value}/" in pattern for pattern in CASES)}
    assert {*BACKENDS} - judged == {Backend("cpu"), Backend("cuda"), Backend("rocm")}
