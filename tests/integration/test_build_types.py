"""Builds for debuggers and sanitizers, with the real compiler: a file of C++ without torch's headers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from conftest import CPU, ProjectMaker, Tool, commit
from kernel_builder.binary.elf import named_sections

SOURCE = """\
#include <cassert>

extern "C" int nth(int n) {
  int *values = new int[4]{1, 2, 3, 4};
  int const found = values[n];
  delete[] values;
  return found;
}

extern "C" int checked(int n) {
  assert(n >= 0);
  return n;
}

extern "C" int doubled(int n) { return n + n; }
"""
TEST = """\
import ctypes
from pathlib import Path

import pytest
import torch  # whose libraries it needs

(library,) = (Path(__file__).parent.parent / "build").glob("*/*.abi3.so")
kernel = ctypes.CDLL(str(library))


@pytest.mark.parametrize("index", [0, 4])
def test_nth(index):
    assert isinstance(kernel.nth(index), int)


def test_doubled():
    kernel.doubled(2**31 - 1)
"""


def library(root: Path) -> bytes:
    (found,) = (root / "build" / CPU).glob("*.abi3.so")
    return found.read_bytes()


def sections(data: bytes) -> set[str]:
    return {section.name for section in named_sections(data)}


def build_type(root: Path) -> object:
    metadata = json.loads((root / "build" / CPU / "metadata.json").read_text(encoding="utf-8"))
    return metadata["provenance"].get("build-type")


def test_neither_is_taken_for_the_other_and_a_debugger_finds_the_sources(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    root = make_project("found", {"src/a.cpp": SOURCE})
    commit(root)
    options = ("--variant", CPU, "--json", "--no-load")
    assert tool("build", root, *options).compiled() == ["src/a.cpp"]
    released = library(root)
    assert not any(name.startswith(".debug_") for name in sections(released))

    debug = tool("build", root, *options, "--debug")
    assert debug.compiled() == ["src/a.cpp"]
    assert "the release build is replaced by one with --debug" in " ".join(debug.stderr.split())
    data = library(root)
    assert {".debug_info", ".debug_line"} <= sections(data)
    assert f"{root}/src/a.cpp".encode() in data
    assert b"n >= 0" in data  # the assertion holds
    assert build_type(root) == {"debug": "full"}

    again = tool("build", root, *options)
    assert again.compiled() == []
    assert again.variant()["status"] == "built"  # not: unchanged
    assert (library(root), build_type(root)) == (released, None)
    back = tool("build", root, *options, "--debug")
    assert (back.compiled(), back.variant()["status"]) == ([], "built")
    assert library(root) == data
    assert tool("build", root, *options, "--debug").variant()["status"] == "unchanged"

    # What the cache has is of another place: a debugger would not find that.
    copied = tmp_path / "elsewhere" / "found"
    shutil.copytree(root, copied, ignore=shutil.ignore_patterns("build", ".kernel-builder"))
    assert tool("build", copied, *options, "--debug").code == 0
    assert f"{copied}/src/a.cpp".encode() in library(copied)
    assert f"{root}/src/a.cpp".encode() not in library(copied)

    refused = tool("upload", root, "--dry-run", "--repo-id", "me/found")
    assert refused.code == 1
    assert f"not for users: {CPU} (--debug); nothing was uploaded" in " ".join(refused.stderr.split())
    checked = tool("check", root / "build" / CPU)
    assert "KB436 no-release" in checked.stdout + checked.stderr


@pytest.mark.torch
@pytest.mark.slow
def test_sanitizers_end_the_test_that_they_find_something_in(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("wrong", {"src/a.cpp": SOURCE, "tests/test_it.py": TEST, "tests/__init__.py": ""})
    address = tool.apart("test", root, "--variant", CPU, "--sanitize", "address", "--", "-q", "-p", "no:cacheprovider")
    told = address.stdout + address.stderr
    assert address.code == 1, told
    assert "AddressSanitizer: heap-buffer-overflow" in told
    assert f"{root}/src/a.cpp:5 in nth" in told
    assert "Python was killed by SIGABRT in tests/test_it.py::test_nth[4]" in told

    undefined = tool.apart("test", root, "--variant", CPU, "--sanitize", "undefined", "--", "-q", "-k", "doubled")
    told = undefined.stdout + undefined.stderr
    assert undefined.code == 1, told
    assert re.search(r"src/a\.cpp:15:\d+: runtime error: signed integer overflow", told), told

    (root / "tests" / "test_it.py").write_text(TEST.replace("[0, 4]", "[0, 3]"), encoding="utf-8")
    right = tool.apart("test", root, "--variant", CPU, "--sanitize", "address", "--", "-q", "-k", "nth")
    assert right.code == 0, right.stdout + right.stderr
