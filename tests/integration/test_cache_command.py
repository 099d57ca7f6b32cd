"""The cache as people meet it: a clean checkout, another one, a comment, and the commands that look after it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conftest import CPU, ProjectMaker, Result, Tool

pytestmark = pytest.mark.usefixtures("unloaded")

SOURCES = {"a.cpp": 'extern "C" int a() { return 1; } // one\n', "b.c": "int b(void) { return 2; }\n"}


def checked(result: Result) -> Result:
    assert result.code == 0, result.stderr
    return result


def test_what_was_made_before_is_taken(tool: Tool, make_project: ProjectMaker, tmp_path: Path) -> None:
    own = {"KERNEL_BUILDER_ACTIONS_SIZE": "1G", "KERNEL_BUILDER_SHARED_CACHE": ""}
    shared = {"KERNEL_BUILDER_SHARED_CACHE": str(tmp_path / "shared"), "KERNEL_BUILDER_SHARED_CACHE_MODE": "write"}
    root = make_project("cached", SOURCES)
    arguments = ("build", root, "--variant", CPU)
    checked(tool(*arguments, "--no-cache", env=own))
    (root / "a.cpp").write_text('extern "C" int a() { return 3; }\n', encoding="ascii")
    first = checked(tool(*arguments, env=own | shared))
    assert "1 compiled" in first.stdout
    before = {path.name: path.read_bytes() for path in (root / "build" / CPU).iterdir() if path.is_file()}
    for folder in ("build", ".kernel-builder"):
        shutil.rmtree(root / folder)
    again = checked(tool(*arguments, env=own))
    assert "1 compiled; 1 from the cache" in again.stdout  # b.c was made without the cache
    assert {path.name: path.read_bytes() for path in (root / "build" / CPU).iterdir() if path.is_file()} == before
    log = next((root / ".kernel-builder" / CPU / "log").glob("a.cpp*.log")).read_text(encoding="utf-8")
    assert str(root) in log.splitlines()[0]

    shown = json.loads(checked(tool("cache", "show", "--json", env=own)).stdout)
    assert shown["results"] >= 3
    assert shown["limit"] == 1 << 30
    assert shown["path"] in checked(tool("cache", "show", env=own)).stdout
    assert list((tmp_path / "shared").rglob("*.json"))


def test_a_cache_is_looked_after(tool: Tool, tmp_path: Path) -> None:
    env = {"KERNEL_BUILDER_CACHE": str(tmp_path)}
    blob = tmp_path / "actions" / "blobs" / "ab" / ("ab" * 20)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"x" * 5_000_000)
    told = tool("cache", "verify", env=env)
    assert (told.code, "1 damaged" in told.stdout, str(blob) in told.stderr) == (1, True, True)
    assert checked(tool("cache", "verify", env=env)).stdout == "0 files verified; none damaged\n"
    blob.write_bytes(b"x" * 5_000_000)
    assert "0.0 MiB freed" in checked(tool("cache", "gc", env=env)).stdout
    assert "4.8 MiB freed" in checked(tool("cache", "gc", "--keep-size", "1M", env=env)).stdout
    wrong = tool("cache", "show", env=env | {"KERNEL_BUILDER_ACTIONS_SIZE": "lots"})
    assert (wrong.code, "'lots', which is not a size" in wrong.stderr) == (2, True)
