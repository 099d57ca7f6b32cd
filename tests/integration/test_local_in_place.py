"""A torch that is used where it lies, and changes there: what was compiled with it before is compiled again."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from conftest import ProjectMaker, Tool, commit

pytestmark = [pytest.mark.slow, pytest.mark.torch]

NAME = "torch213-cxx11-cpu-x86_64-linux"
HEADER = "torch/headeronly/macros/Macros.h"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment whose torch may be changed: the headers of the real one, and its libraries."""
    torch = pytest.importorskip("torch", reason="torch is not installed in this environment")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "venv" / "lib" / version / "site-packages"
    original, copy = Path(torch.__file__).parent, packages / "torch"
    copy.mkdir(parents=True)
    shutil.copytree(original / "include", copy / "include")
    shutil.copy2(original / "version.py", copy / "version.py")
    (copy / "lib").symlink_to(original / "lib")
    return tmp_path / "venv"


def test_a_header_that_changes_in_place_recompiles(
    make_project: ProjectMaker, environment: Path, session_store: Path
) -> None:
    source = f'#include <{HEADER}>\nextern "C" int {{name}}() {{{{ return 1; }}}}\n'
    root = make_project("in-place", {f"{name}.cpp": source.format(name=name) for name in ("one", "two")})
    commit(root)
    tool = Tool({**os.environ, "KERNEL_BUILDER_CACHE": str(session_store), "VIRTUAL_ENV": str(environment)})
    command = ("build", root, "--variant", NAME, "--source", "local", "--json")
    first = tool(*command)
    assert first.code == 0, first.stderr
    assert sorted(first.compiled(NAME)) == ["one.cpp", "two.cpp"]
    assert tool(*command).compiled(NAME) == []

    # Also one that no source reads: which those are, only the compiler knows, and it is not asked of system headers.
    for changed in (HEADER, "c10/util/Exception.h"):
        (header,) = environment.glob(f"lib/python3*/site-packages/torch/include/{changed}")
        header.write_text(header.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        assert sorted(tool(*command).compiled(NAME)) == ["one.cpp", "two.cpp"]
