"""Case T14: what a tree is called, whatever git has to say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from conftest import ProjectMaker, commit
from kernel_builder.config.backends import Backend
from kernel_builder.config.reader import load_project
from kernel_builder.project.identity import Identity, identify
from kernel_builder.project.inputs import build_inputs

FILES = {"src/a.cpp": '#if __has_include("new.h")\n#endif\nint a;\n', "src/a.h": "int h;\n", "README.md": "words\n"}


def identity(root: Path) -> Identity:
    project = load_project(root)[0]
    return identify(project, build_inputs(project), environ=os.environ)


def is_clean(found: Identity, sha: str) -> bool:
    return (found.unique, found.commit, found.dirty, found.reason) == (sha[:7], sha, False, None)


def test_a_clean_commit_is_its_name(make_project: ProjectMaker) -> None:
    root = make_project("some-kernel", FILES)
    sha = commit(root)
    found = identity(root)
    assert is_clean(found, sha)
    assert found.ops_id(load_project(root)[0], Backend("cuda")) == f"_some_kernel_cuda_{sha[:7]}"


def test_an_edit_marks_the_name_and_different_edits_have_different_names(make_project: ProjectMaker) -> None:
    root = make_project("kernel", FILES)
    sha = commit(root)
    names = set()
    for text in ("int b;\n", "int c;\n"):
        (root / "src/a.cpp").write_text(text, encoding="ascii")
        found = identity(root)
        assert (found.commit, found.dirty) == (sha, True)
        assert found.reason is not None
        assert "src/a.cpp" in found.reason
        assert re.fullmatch(rf"{sha[:7]}_dirty_[0-9a-f]{{8}}", found.unique)
        assert identity(root) == found
        names.add(found.unique)
    assert len(names) == 2


def test_a_staged_edit_and_an_edited_readme_are_local_changes_too(make_project: ProjectMaker) -> None:
    root = make_project("kernel", FILES)
    commit(root)
    (root / "README.md").write_text("other words\n", encoding="ascii")
    assert identity(root).dirty


def test_build_outputs_do_not_count(make_project: ProjectMaker) -> None:
    root = make_project("kernel", FILES)
    (root / "build").mkdir()
    (root / "build" / "tracked.txt").write_text("1", encoding="ascii")
    sha = commit(root)
    (root / ".gitignore").write_text("", encoding="ascii")
    sha = commit(root)
    (root / "build" / "tracked.txt").write_text("2", encoding="ascii")
    (root / "build" / "new.txt").write_text("2", encoding="ascii")
    (root / ".kernel-builder").mkdir()
    (root / ".kernel-builder" / "x.h").write_text("2", encoding="ascii")
    (root / "notes.txt").write_text("untracked, but nothing reads it", encoding="ascii")
    assert is_clean(identity(root), sha)


@pytest.mark.parametrize("path", ["src/new.h", "torch-ext/kernel/extra.py"])
def test_an_untracked_file_that_the_build_reads_counts(make_project: ProjectMaker, path: str) -> None:
    root = make_project("kernel", FILES)
    sha = commit(root)
    (root / path).write_text("", encoding="ascii")
    found = identity(root)
    assert (found.commit, found.dirty) == (sha, True)
    assert found.reason is not None
    assert path in found.reason


def test_changes_elsewhere_in_a_larger_repository_do_not_count(make_project: ProjectMaker, tmp_path: Path) -> None:
    root = make_project("kernel", FILES, directory="repo/kernel")
    other = tmp_path / "repo" / "other.txt"
    other.write_text("1", encoding="ascii")
    sha = commit(tmp_path / "repo")
    other.write_text("2", encoding="ascii")
    assert is_clean(identity(root), sha)


def test_without_repository_the_content_is_the_name(make_project: ProjectMaker) -> None:
    first, second = make_project("kernel", FILES, directory="one"), make_project("kernel", FILES, directory="two")
    found = identity(first)
    assert found == identity(second)
    assert (found.commit, found.dirty) == (None, False)
    assert found.reason is not None
    assert "not in a git repository" in found.reason
    (second / "src/a.h").write_text("int other;\n", encoding="ascii")
    assert identity(second).unique != found.unique


def test_a_repository_without_commit(make_project: ProjectMaker) -> None:
    root = make_project("kernel", FILES)
    commit(root)
    head = root / ".git" / "HEAD"
    head.write_text("ref: refs/heads/unborn\n", encoding="ascii")
    found = identity(root)
    assert found.commit is None
    assert found.reason is not None
    assert "no commit" in found.reason


def test_git_missing(make_project: ProjectMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = make_project("kernel", FILES)
    commit(root)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    found = identity(root)
    assert found.commit is None
    assert found.reason is not None
    assert "git is not on PATH" in found.reason


def test_an_ignored_header_does_not_count_but_an_ignored_source_does(make_project: ProjectMaker) -> None:
    root = make_project("kernel", {**FILES, "src/generated.cpp": ""})
    commit(root)
    (root / ".gitignore").write_text("build/\n.kernel-builder/\nscratch/\ntorch-ext/kernel/g.py\n", encoding="ascii")
    sha = commit(root)
    (root / "scratch").mkdir()
    (root / "scratch" / "s.h").touch()
    assert is_clean(identity(root), sha)
    (root / "torch-ext/kernel/g.py").touch()
    assert identity(root).dirty


def test_in_a_git_hook_the_kernels_own_repository_counts(
    make_project: ProjectMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = make_project("kernel", FILES)
    sha = commit(root)
    other = tmp_path / "other"
    other.mkdir()
    commit(other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert identity(root).commit == sha
