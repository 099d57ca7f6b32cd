from __future__ import annotations

from pathlib import Path

from conftest import ProjectMaker
from kernel_builder.config.reader import load_project
from kernel_builder.plan.tree import build_inputs, package_files, project_headers

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
    left_out = ["_ops.py", "inc/util.h", "run.sh", "sub/data.bin"]
    ignored = ["__pycache__/x.cpython-311.pyc", "sub/old.pyc"]
    root = make_project("k2", {f"{package}/{path}": "x" for path in [*kept, *left_out, *ignored]}, toml=NOARCH)
    found = package_files(load_project(root)[0])
    assert found.kept == tuple(sorted([*kept, "__init__.py"]))
    assert found.left_out == tuple(left_out)


def test_headers_are_searched_only_in_the_projects_own_directories(make_project: ProjectMaker) -> None:
    headers = ["a.h", "csrc/b.cuh", "deep/er/c.inc"]
    others = [".hidden/x.h", "build/y.h", "env/include/z.h", "d.cpp", "e.md"]
    root = make_project("k2", dict.fromkeys([*headers, *others, "env/pyvenv.cfg"], ""), toml=NOARCH)
    assert project_headers(root) == tuple(headers)


def test_inputs_are_everything_that_decides_the_result(make_project: ProjectMaker) -> None:
    root = make_project("k3", {"a.cpp": "", "./inc/b.h": "", "README.md": "", "tests/test_a.py": ""})
    assert build_inputs(load_project(root)[0]) == ("a.cpp", "build.toml", "inc/b.h", "torch-ext/k3/__init__.py")


def test_links_to_directories_are_not_followed(make_project: ProjectMaker, tmp_path: Path) -> None:
    root = make_project("k2", {"torch-ext/k2/real/x.py": ""}, toml=NOARCH)
    (root / "torch-ext/k2/loop").symlink_to(root / "torch-ext")
    assert package_files(load_project(root)[0]).kept == ("__init__.py", "real/x.py")
