from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.config.reader import load_project
from kernel_builder.errors import ConfigError
from kernel_builder.project.tree import build_inputs, includable_files, package_files

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


def test_package_files_are_chosen_by_what_they_are(make_project: ProjectMaker) -> None:
    package = "torch-ext/k2"
    kept = [HOSTILE, "LICENSE", "a b.py", "inc/deep.cuh", "py.typed", "sub/NOTICE.txt", "sub/stub.pyi", "ünï.py"]
    left_out = ["_ops.py", "inc/util.h", "metadata.json", "run.sh", "sub/data.bin"]
    ignored = ["__pycache__/x.cpython-311.pyc", "sub/old.pyc"]
    root = make_project("k2", {f"{package}/{path}": "x" for path in [*kept, *left_out, *ignored]}, toml=NOARCH)
    found = package_files(load_project(root)[0])
    assert found.kept == tuple(sorted([*kept, "__init__.py"]))
    assert found.left_out == tuple(left_out)


def test_headers_are_searched_only_in_the_projects_own_directories(make_project: ProjectMaker) -> None:
    found = ["a.h", "csrc/b.cuh", "d.cpp", "deep/er/c.inc"]
    others = [".hidden/x.h", "build/y.h", "dist/v/y.h", "env/include/z.h", "conda/include/z.h", "e.md"]
    marks = ["env/pyvenv.cfg", "conda/conda-meta/history"]
    root = make_project("k2", dict.fromkeys([*found, *others, *marks], ""), toml=NOARCH)
    assert includable_files(root, root / "dist") == tuple(found)


def test_inputs_are_everything_that_decides_the_result(make_project: ProjectMaker) -> None:
    root = make_project("k3", {"a.cpp": "", "./inc/b.h": "", "README.md": "", "tests/test_a.py": ""})
    (root / "other.h").touch()
    inputs = build_inputs(load_project(root)[0])
    assert inputs.declared == ("a.cpp", "build.toml", "inc/b.h", "torch-ext/k3/__init__.py")
    assert inputs.included == ("other.h",)


def test_links_to_directories_are_not_followed(make_project: ProjectMaker, tmp_path: Path) -> None:
    root = make_project("k2", {"torch-ext/k2/real/x.py": ""}, toml=NOARCH)
    (root / "torch-ext/k2/loop").symlink_to(root / "torch-ext")
    (root / "torch-ext/k2/nowhere.py").symlink_to("missing.py")
    (root / "torch-ext/k2/linked.py").symlink_to("real/x.py")
    (root / "torch-ext/k2/passwords.py").symlink_to("/etc/passwd")
    files = package_files(load_project(root)[0])
    assert files.kept == ("__init__.py", "linked.py", "real/x.py")
    assert files.left_out == ("loop", "nowhere.py", "passwords.py")


def test_a_name_that_metadata_cannot_hold_is_refused(make_project: ProjectMaker) -> None:
    root = make_project("k2", {}, toml=NOARCH)
    (Path(os.fsdecode(os.fsencode(root / "torch-ext/k2") + b"/bad\xff.py"))).touch()
    with pytest.raises(ConfigError, match=r"bad\\xff\.py: the file name is not valid UTF-8"):
        package_files(load_project(root)[0])
