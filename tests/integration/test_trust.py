"""Commands that look at a project run nothing that comes with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import CPU, ROOT, ProjectMaker, Tool, commit, copy_project
from kernel_builder.errors import ExitCode

PROGRAMS = (
    *(
        "git",
        "g++",
        "c++",
        "gcc",
        "cc",
        "clang++",
        "as",
        "ld",
        "ar",
        "nm",
        "c++filt",
        "nvcc",
        "ninja",
        "gpgv",
        "python",
    ),
    *("python", "python3", "nvidia-smi", "apt-cache", "apt-get", "qemu-aarch64", "dpkg", "ldconfig", "sh"),
)
MODULES = ("sitecustomize", "usercustomize", "json", "argparse", "conftest", "setup", "click", "torch", "kernels")
LOOKS = (
    ("build", "--dry-run", "--variant", CPU),
    ("build", "--dry-run", "--json", "--variant", CPU, "--output", "elsewhere"),
    ("doctor",),
    ("toolchain", "explain", CPU),
    ("check",),
    ("check", "--explain", "KB302"),
    ("check-config",),
    ("check-builds",),
    ("check-abi",),
    ("list-variants",),
    ("hash",),
    ("card",),
    ("api-diff",),
    ("attest",),
    ("update-build",),
    ("lock", "--check"),
)


@pytest.fixture(scope="module")
def hostile(init_project: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A kernel that was built, with everything in it that somebody may run by mistake; and the mark of that."""
    parent = tmp_path_factory.mktemp("hostile")
    root, marker = copy_project(init_project, parent / "kernel"), parent / "marker"
    script = f'#!/bin/sh\necho "$0 $*" >>{marker}\n'
    module = f"open({str(marker)!r}, 'a').write(__name__ + '\\n')\n"
    folders = ["bin", ".venv/bin", "venv/bin", ".kernel-builder", "toolkit/bin", "build", "hooks"]
    for name in (*PROGRAMS, *(f"{folder}/{program}" for folder in folders for program in PROGRAMS)):
        program = root / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(script, encoding="ascii")
        program.chmod(0o755)
    for name in (*MODULES, *(f".kernel-builder/{module}" for module in MODULES), "json/__init__"):
        path = root / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(module, encoding="ascii")
    born = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    (root / ".kernel-builder" / "processes").write_text(f"{os.getpid()} {born}\n", encoding="ascii")
    for name in ("hooks/post-index-change", "hooks/fsmonitor-watchman"):
        (root / name).write_text(script, encoding="ascii")
        (root / name).chmod(0o755)
    (root / ".envrc").write_text(script, encoding="ascii")
    (root / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9/\n", encoding="ascii")
    (root / ".gitattributes").write_text("* filter=x diff=x\n", encoding="ascii")
    commit(root)
    with (root / ".git" / "config").open("a", encoding="ascii") as config:
        config.write(
            f"[core]\n\tfsmonitor = {root}/git\n\thooksPath = {root}/hooks\n\tpager = {root}/git\n"
            f'[filter "x"]\n\tclean = {root}/git\n\tprocess = {root}/git\n[diff]\n\texternal = {root}/git\n'
            f'[diff "x"]\n\ttextconv = {root}/git\n'
        )
    for path in root.rglob("*.cpp"):
        os.utime(path, (1, 1))
    return root, marker


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_looking_at_a_project_runs_nothing_of_it(
    words: tuple[str, ...], hostile: tuple[Path, Path], tool: Tool
) -> None:
    root, marker = hostile
    path = os.pathsep.join([".", "", "bin", os.environ["PATH"], ""])
    tool(*words, cwd=root, env={"PATH": path})
    assert not marker.exists(), marker.read_text(encoding="utf-8")


SEVEN = 'extern "C" __attribute__((visibility("default"))) int seven() { return %d; }\n'


def test_objects_that_come_with_a_project_are_not_linked(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    """Somebody builds other sources, and sends what came of them with innocent ones in their place."""
    root = make_project("sent", {"a.cpp": SEVEN % 666})
    evil = tool("build", root, "--variant", CPU, "--json")
    (root / ".kernel-builder" / "made-by").write_text("0" * 64, encoding="ascii")  # by a store of theirs
    assert evil.compiled() == ["a.cpp"], evil.stderr
    before = (root / "a.cpp").stat()
    (root / "a.cpp").write_text(SEVEN % 7, encoding="ascii")
    os.utime(root / "a.cpp", ns=(before.st_atime_ns, before.st_mtime_ns))
    stray = root / ".kernel-builder" / "generated" / "stray.h"
    stray.write_text("", encoding="ascii")
    built = tool("build", root, "--variant", CPU, "--json")
    assert built.compiled() == ["a.cpp"]
    refusal = f"{root}/.kernel-builder was not created by builds on this machine, so its contents are not used"
    assert refusal in built.stderr
    assert not stray.exists()
    again = tool("build", root, "--variant", CPU, "--json")
    assert (again.compiled(), refusal in again.stderr) == ([], False)


def test_a_work_directory_that_leads_elsewhere_is_not_cleared(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    root, mine = make_project("linked", {"a.cpp": SEVEN % 7}), tmp_path / "mine"
    mine.mkdir()
    (mine / "precious").touch()
    (root / ".kernel-builder").symlink_to(mine)
    refused = tool("build", root, "--variant", CPU)
    assert refused.code == ExitCode.SYSTEM
    assert f".kernel-builder is a link to {mine}, which has files that no build on this machine made" in refused.stderr
    assert [path.name for path in mine.iterdir()] == ["precious"]
    (mine / "precious").unlink()
    assert tool("build", root, "--variant", CPU).code == 0  # somebody's own scratch disk, say


def test_the_page_lists_these_commands() -> None:
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8").partition("\n**`build` runs")[0]
    listed = re.findall(r"^    kernel-builder (.+)$", page, re.MULTILINE)
    shown = [" ".join(word for word in words if word != CPU) for words in LOOKS]
    assert listed == sorted(listed)
    assert [words for words in listed if not any(given.startswith(words) for given in shown)] == []
    assert {words[0] for words in LOOKS} == {words.split()[0] for words in listed}


def test_the_project_is_hostile(hostile: tuple[Path, Path]) -> None:
    root, marker = hostile
    subprocess.run(["git", "-C", str(root), "status"], check=False, capture_output=True)
    assert marker.exists()
    marker.unlink()


def test_a_module_of_the_project_does_not_replace_pythons(hostile: tuple[Path, Path]) -> None:
    root, marker = hostile
    command = [sys.executable, "-m", "kernel_builder", "list-variants"]
    completed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert CPU in completed.stdout
    assert not marker.exists(), marker.read_text(encoding="utf-8")
