from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.config.model import Project
from kernel_builder.config.reader import load_project, read_project
from kernel_builder.errors import ConfigError
from kernel_builder.project.tree import package_files

NOARCH = """\
[general]
name = "k2"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
pyext = ["json", "cuh"]
"""
HOSTILE = "configs/N=7168,K=128,device_name=X,block_shape=[128, 128].json"


def project_at(root: Path) -> Project:
    """The project, whatever its links lead to."""
    file = root / "build.toml"
    return read_project(file.read_bytes(), file=file, root=root, tree=False)[0]


def test_package_files_are_chosen_by_what_they_are(make_project: ProjectMaker) -> None:
    package = "torch-ext/k2"
    kept = [HOSTILE, "LICENSE", "a b.py", "inc/deep.cuh", "py.typed", "sub/NOTICE.txt", "sub/stub.pyi", "ünï.py"]
    left_out = ["_ops.py", "inc/util.h", "metadata.json", "run.sh", "sub/data.bin"]
    ignored = ["__pycache__/x.cpython-311.pyc", "sub/old.pyc"]
    root = make_project("k2", {f"{package}/{path}": "x" for path in [*kept, *left_out, *ignored]}, toml=NOARCH)
    found = package_files(load_project(root)[0])
    assert found.kept == tuple(sorted([*kept, "__init__.py"]))
    assert found.left_out == tuple(left_out)


def test_links_are_followed_inside_the_project_and_never_round_in_circles(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    root = make_project("k2", {"torch-ext/k2/real/x.py": "", "shared/y.py": "", "shared/z.txt": ""}, toml=NOARCH)
    package = root / "torch-ext/k2"
    (package / "loop").symlink_to(root / "torch-ext")
    (package / "nowhere.py").symlink_to("missing.py")
    (package / "linked.py").symlink_to("real/x.py")
    (package / "common").symlink_to("../../shared")
    (root / "shared/back").symlink_to(package)
    (tmp_path / "other.py").touch()
    (package / "other.py").symlink_to(tmp_path / "other.py")
    files = package_files(project_at(root))
    assert files.kept == ("__init__.py", "common/y.py", "linked.py", "real/x.py")
    assert set(files.left_out) == {"common/back", "common/z.txt", "loop/k2", "nowhere.py", "other.py"}


def test_a_name_that_metadata_cannot_hold_is_refused(make_project: ProjectMaker) -> None:
    root = make_project("k2", {}, toml=NOARCH)
    (Path(os.fsdecode(os.fsencode(root / "torch-ext/k2") + b"/bad\xff.py"))).touch()
    with pytest.raises(ConfigError, match=r"bad\\xff\.py: the file name is not valid UTF-8"):
        package_files(load_project(root)[0])
