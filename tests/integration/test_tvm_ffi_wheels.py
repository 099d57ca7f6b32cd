"""Where tvm-ffi comes from: a wheel that does not fit is refused in one message, and an installed one is used."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from loopback_index import make_wheel

from conftest import ProjectMaker, Tool

TOML = """\
[general]
name = "answer-it"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[tvm-ffi]
src = []

[kernel.host]
backend = "cpu"
depends = []
src = ["answer.cpp"]
"""
SOURCE = """\
#include <tvm/ffi/c_api.h>
extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_answer(void *, const TVMFFIAny *, int32_t, TVMFFIAny *result) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = 42;
  return 0;
}
"""
FILES = {
    "answer.cpp": SOURCE,
    "tvm-ffi-ext/answer_it/__init__.py": 'from ._ops import ops\n\n__all__ = ["answer"]\nanswer = ops.answer\n',
}
VARIANT = "tvm-ffi01-cpu-x86_64-linux"
HEADER, LIBRARY = "tvm_ffi/include/tvm/ffi/c_api.h", "tvm_ffi/lib/libtvm_ffi.so"
WHOLE = {HEADER: b"// a header\n", "tvm_ffi/_version.py": b"__version__ = '0.1.15'\n", LIBRARY: b"not a library"}
LINUX = "cp311-cp311-manylinux_2_24_x86_64"


def without(*names: str) -> dict[str, bytes]:
    return {name: data for name, data in WHOLE.items() if name not in names}


@pytest.mark.parametrize(
    ("version", "tag", "files", "said"),
    [
        pytest.param(None, "", {}, "the index 'mine' has no such project", id="missing"),
        pytest.param("0.0.9", LINUX, WHOLE, "==0.1.*: newest versions available: 0.0.9", id="too old"),
        pytest.param("0.2.0", LINUX, WHOLE, "==0.1.*: newest versions available: 0.2.0", id="too new"),
        pytest.param("0.1.16rc1", LINUX, WHOLE, "0.1.16rc1 is a pre-release", id="pre-release"),
        pytest.param(
            "0.1.15",
            "cp311-cp311-manylinux_2_24_aarch64",
            WHOLE,
            "built for manylinux_2_24_aarch64, not for Linux on x86_64",
            id="another machine",
        ),
        pytest.param(
            "0.1.15",
            "cp311-cp311-musllinux_1_2_x86_64",
            WHOLE,
            "built for musllinux_1_2_x86_64, not",
            id="another libc",
        ),
        pytest.param("0.1.15", LINUX, without(HEADER), "of the index 'mine' has no C++ headers", id="no headers"),
        pytest.param("0.1.15", LINUX, without(LIBRARY), f"of the index 'mine' has no {LIBRARY}", id="no library"),
        pytest.param(
            "0.1.15", LINUX, without(HEADER, LIBRARY), f"has no C++ headers and no {LIBRARY}", id="nothing in it"
        ),
        pytest.param("0.1.15", LINUX, WHOLE, f"cannot read the names of {LIBRARY}: not an ELF file", id="damaged"),
    ],
)
def test_a_wheel_that_does_not_fit_is_refused_in_one_message(
    tool: Tool,
    make_project: ProjectMaker,
    tmp_path: Path,
    version: str | None,
    tag: str,
    files: Mapping[str, bytes],
    said: str,
) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    if version is not None:
        wheel = make_wheel("apache-tvm-ffi", version, files)
        (shelf / f"apache_tvm_ffi-{version}-{tag}.whl").write_bytes(wheel)
    settings = tmp_path / "kernel-builder.toml"
    settings.write_text(f'sources = ["mine"]\n[[index]]\nname = "mine"\npath = "{shelf}"\n', encoding="utf-8")
    root = make_project("answer-it", FILES, toml=TOML)
    result = tool("build", root, "--variant", VARIANT, env={"KERNEL_BUILDER_CONFIG": str(settings)})
    assert result.code not in {0, 1}  # which would be the kernel's fault
    message, _, hint = result.stderr.partition("error: ")[2].partition("\n  hint: ")
    assert said in message
    assert "error: " not in hint
    assert "index" in hint
    assert not (root / "build").exists()


@pytest.mark.slow
@pytest.mark.parametrize("change", ["", "no headers", "no library", "older"])
def test_an_installed_one_is_used_where_it_lies(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    found = importlib.util.find_spec("tvm_ffi")
    if found is None or found.origin is None:
        pytest.skip("tvm-ffi is not installed")
    installed = Path(found.origin).parent
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    package = site / "tvm_ffi"
    package.mkdir(parents=True)
    shutil.copy(installed / "_version.py", package)
    if change != "no headers":
        shutil.copytree(installed / "include", package / "include")
    if change != "no library":
        (package / "lib").mkdir()
        shutil.copy(installed / "lib" / "libtvm_ffi.so", package / "lib")
    if change == "older":
        (package / "_version.py").write_text("__version__ = version = '0.0.9'\n", encoding="ascii")
    root = make_project("answer-it", FILES, toml=TOML)
    # The Python that runs this is an environment as well, and may have a whole one.
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    here = {"VIRTUAL_ENV": str(tmp_path / "venv"), "KERNEL_BUILDER_SOURCES": "local"}
    result = tool("build", root, "--variant", VARIANT, "--json", env=here)
    said = {
        "no headers": f"local: {package}: it has no C++ headers",
        "no library": f"local: {package}: it lacks {LIBRARY}",
        "older": f"local: {package}: it is tvm-ffi 0.0.9",
    }
    if change:
        assert result.code == 4, result.stderr
        assert said[change] in result.stderr
        return
    assert result.code == 0, result.stderr
    log = (root / ".kernel-builder" / VARIANT / "log" / "answer.cpp.log").read_text(encoding="utf-8")
    assert f"-isystem {package / 'include'}" in log
    for place in (root, tmp_path):  # also where there is no project
        explained = tool("toolchain", "explain", VARIANT, "--json", cwd=place, env=here)
        assert explained.code == 0, explained.stderr
        [taken] = cast("list[dict[str, str]]", explained.json["taken"])
        assert (taken["part"], taken["source"]) == ("tvm-ffi", "local")
        fetched = tool("toolchain", "fetch", "tvm-ffi01-cpu-*", "--json", cwd=place, env=here)
        assert fetched.code == 0, fetched.stderr
        assert fetched.json["variants"] == [VARIANT]
    (package / "include" / "tvm" / "ffi" / "c_api.h").write_text("#error changed\n", encoding="ascii")
    changed = tool("build", root, "--variant", VARIANT, env=here)
    assert changed.code == 1
    assert "#error changed" in changed.stderr
