"""Whatever a repository's configuration names, looking at the repository starts none of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from conftest import ProjectMaker, commit
from kernel_builder.config.reader import load_project
from kernel_builder.git import GitError, filters_of, run_git
from kernel_builder.project.identity import Identity, identify
from kernel_builder.project.inputs import build_inputs

FILES = {"src/a.cpp": "int a;\n", "src/a.h": "int h;\n", "README.md": "words\n"}


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that the program of :func:`trap` writes."""
    return tmp_path / "marker"


@pytest.fixture
def trap(tmp_path: Path, marker: Path) -> Path:
    """A program that leaves a mark, and otherwise does what a filter does."""
    program = tmp_path / "trap"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >>{marker}\ncat\n', encoding="ascii")
    program.chmod(0o755)
    return program


def settings_of(trap: Path) -> str:
    """All settings of git that name a program."""
    single = (
        *("core.fsmonitor", "core.sshCommand", "core.askPass", "core.pager", "core.editor", "core.gitProxy"),
        *("core.alternateRefsCommand", "sequence.editor", "diff.external", "credential.helper", "gpg.program"),
        *("gpg.ssh.defaultKeyCommand", "interactive.diffFilter", "uploadpack.packObjectsHook"),
    )
    lines = [
        f"[{key.rpartition('.')[0]}]\n\t{key.rpartition('.')[2]} = {trap}\n" for key in single if key.count(".") < 2
    ]
    lines.append(f'[gpg "ssh"]\n\tdefaultKeyCommand = {trap}\n')
    for name in ("x", "UPPER", "with space", "dotted.name", "lfs", ""):
        lines.append(f'[filter "{name}"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n\trequired\n')
    for name in ("status", "config", "rev-parse", "ls-files"):
        lines.append(f"[alias]\n\t{name} = !{trap}\n")
    lines.append(f'[diff "x"]\n\ttextconv = {trap}\n\tcommand = {trap}\n[merge "x"]\n\tdriver = {trap}\n')
    lines.append(f"[core]\n\thooksPath = {trap.parent}/hooks\n[status]\n\tsubmoduleSummary\n[log]\n\tshowSignature\n")
    return "".join(lines)


def attributes() -> str:
    """Every kind of file has a filter of :func:`settings_of`."""
    return (
        "* diff=x merge=x\n*.cpp filter=x\n*.h filter=UPPER\n*.md filter=dotted.name\n*.py filter=lfs\n*.toml filter=\n"
    )


def arm(git_directory: Path, trap: Path) -> None:
    """Let everything in a repository's directory call ``trap``."""
    with (git_directory / "config").open("a", encoding="utf-8") as config:
        config.write(settings_of(trap))
    for folder in (git_directory / "hooks", trap.parent / "hooks"):
        folder.mkdir(exist_ok=True)
        for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction", "post-checkout", "pre-commit"):
            shutil.copy(trap, folder / name)


def touch(root: Path) -> None:
    """Let git see that files have changed, so that it looks into them."""
    for path in root.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            os.utime(path, (1, 1))


def plain_git(root: Path, *arguments: str) -> str:
    """git as anybody runs it."""
    completed = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return completed.stdout


def identity(root: Path, environ: Mapping[str, str] = os.environ) -> Identity:
    project = load_project(root)[0]
    return identify(project, build_inputs(project), environ=environ)


def test_nothing_that_a_repository_names_runs(make_project: ProjectMaker, trap: Path, marker: Path) -> None:
    root = make_project("kernel", {**FILES, ".gitattributes": attributes()})
    sha = commit(root)
    arm(root / ".git", trap)
    touch(root)
    found = identity(root)
    assert not marker.exists(), marker.read_text(encoding="utf-8")
    assert (found.unique, found.commit, found.dirty) == (sha[:7], sha, False)
    plain_git(root, "status")
    assert marker.exists()  # the trap works


@pytest.mark.parametrize("include", ["path = ../more", "path = {root}/more"])
def test_nor_what_an_included_configuration_names(
    include: str, make_project: ProjectMaker, trap: Path, marker: Path
) -> None:
    root = make_project("kernel", {**FILES, ".gitattributes": attributes()})
    commit(root)
    (root / "more").write_text(settings_of(trap), encoding="utf-8")
    with (root / ".git" / "config").open("a", encoding="utf-8") as config:
        config.write(f'[includeIf "gitdir:**"]\n\t{include.format(root=root)}\n')
    touch(root)
    assert not identity(root).dirty
    assert not marker.exists()
    plain_git(root, "status")
    assert marker.exists()


def test_nor_what_a_submodule_names(make_project: ProjectMaker, tmp_path: Path, trap: Path, marker: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "lib.h").write_text("int lib;\n", encoding="ascii")
    (library / ".gitattributes").write_text("* filter=mine\n", encoding="ascii")
    commit(library)
    root = make_project("kernel", {**FILES, "src/b.cpp": '#if __has_include("library/new.h")\n#endif\n'})
    plain_git(root, "init", "-q")
    plain_git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "src/library")
    sha = commit(root)
    (root / ".gitignore").write_text("build/\n.kernel-builder/\n", encoding="ascii")
    sha = commit(root)
    own = root / ".git" / "modules" / "src" / "library"
    assert own.is_dir()
    arm(own, trap)
    with (own / "config").open("a", encoding="utf-8") as config:
        config.write(f'[filter "mine"]\n\tclean = {trap}\n')
    touch(root)
    assert identity(root).unique == sha[:7]
    assert not marker.exists(), marker.read_text(encoding="utf-8")
    (root / "src/library/lib.h").write_text("int other;\n", encoding="ascii")
    reason = identity(root).reason
    assert reason is not None
    assert "src/library/lib.h has uncommitted changes" in reason
    plain_git(root / "src/library", "checkout", "lib.h")
    (root / "src/library/new.h").write_text("int new;\n", encoding="ascii")
    marker.unlink(missing_ok=True)
    reason = identity(root).reason
    assert reason is not None
    assert "src/library/new.h is not in git" in reason
    assert not marker.exists()
    plain_git(root, "status")
    assert marker.exists()


def test_nor_what_a_bare_repository_inside_names(make_project: ProjectMaker, trap: Path, marker: Path) -> None:
    root = make_project("kernel", FILES)
    plain_git(root.parent, "init", "-q", "--bare", str(root / "bare"))
    for path in (root / "bare").iterdir():
        path.rename(root / path.name)
    with (root / "config").open("a", encoding="utf-8") as config:
        config.write(f"[core]\n\tbare = false\n\tworktree = {root}\n")
    arm(root, trap)
    found = identity(root)
    assert found.commit is None
    assert not marker.exists(), marker.read_text(encoding="utf-8")
    plain_git(root, "status")
    assert marker.exists()


@pytest.mark.parametrize("url", ["ext::{trap} %S", "ssh://host.invalid/x", "{root}"])
def test_nothing_is_fetched_for_a_partial_clone(url: str, make_project: ProjectMaker, trap: Path, marker: Path) -> None:
    root = make_project("kernel", FILES)
    commit(root)
    trap.write_text(f"#!/bin/sh\necho transport >>{marker}\n", encoding="ascii")
    with (root / ".git" / "config").open("a", encoding="utf-8") as config:
        config.write(
            f"[core]\n\trepositoryformatversion = 1\n\tsshCommand = {trap}\n[extensions]\n\tpartialClone = origin\n"
            f'[remote "origin"]\n\turl = {url.format(trap=trap, root=root)}\n\tpromisor\n\tuploadpack = {trap}\n'
            "[protocol]\n\tallow = always\n"
        )
    tree = plain_git(root, "rev-parse", "HEAD^{tree}").strip()
    (root / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    assert identity(root).commit is None
    assert not marker.exists(), marker.read_text(encoding="utf-8")
    plain_git(root, "status")
    assert marker.exists()


def test_a_filter_that_cannot_be_named_on_a_command_line_is_not_trusted(
    make_project: ProjectMaker, trap: Path, marker: Path
) -> None:
    root = make_project("kernel", {**FILES, ".gitattributes": "* filter=a=b\n"})
    commit(root)
    with (root / ".git" / "config").open("a", encoding="utf-8") as config:
        config.write(f'[filter "a=b"]\n\tclean = {trap}\n')
    touch(root)
    found = identity(root)
    assert (found.commit, marker.exists()) == (None, False)
    assert found.reason is not None
    assert "a filter that cannot be switched off" in found.reason
    with pytest.raises(GitError):
        filters_of(root, os.environ)


def test_files_that_git_lfs_stores_are_compared_without_it(
    make_project: ProjectMaker, trap: Path, marker: Path
) -> None:
    content = b"\x00weights" * 1000
    pointer = f"oid sha256:{hashlib.sha256(content).hexdigest()}\nsize {len(content)}\n"
    pointer = f"version https://git-lfs.github.com/spec/v1\n{pointer}"
    root = make_project("kernel", {**FILES, "data.bin": pointer})
    sha = commit(root)
    (root / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n", encoding="ascii")
    sha = commit(root)
    arm(root / ".git", trap)
    (root / "data.bin").write_bytes(content)
    assert identity(root).unique == sha[:7]
    (root / "data.bin").write_bytes(content[::-1])
    reason = identity(root).reason
    assert reason is not None
    assert "data.bin has uncommitted changes" in reason
    assert not marker.exists()


def test_git_says_why(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="not a git repository"):
        run_git(tmp_path, {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}, "rev-parse", "HEAD")
