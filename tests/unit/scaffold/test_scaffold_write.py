"""Writing a project: all or nothing, and nothing of the user's is lost."""

import os
import stat
from pathlib import Path

import pytest

from kernel_builder.errors import UsageError
from kernel_builder.scaffold.write import write_project

FILES = {"build.toml": "one\n", "tests/test_x.py": "two\n", "torch-ext/x/__init__.py": "three\n"}


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_files_are_written_with_ordinary_permissions_and_nothing_else_is_left(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_project(tmp_path / "new" / "project", FILES, overwrite=False)
    finally:
        os.umask(old)
    assert tree(tmp_path / "new" / "project") == FILES
    assert stat.S_IMODE((tmp_path / "new" / "project" / "build.toml").stat().st_mode) == 0o644


def test_all_clashes_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text("mine")
    (tmp_path / "build.toml").write_text("mine too")
    with pytest.raises(UsageError, match=r"build\.toml, tests/test_x\.py") as caught:
        write_project(tmp_path, FILES, overwrite=False)
    assert "--overwrite" in (caught.value.hint or "")
    assert tree(tmp_path) == {"build.toml": "mine too", "tests/test_x.py": "mine"}


def test_overwrite_replaces_those_files_and_keeps_others(tmp_path: Path) -> None:
    (tmp_path / "build.toml").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    write_project(tmp_path, FILES, overwrite=True)
    assert tree(tmp_path) == {**FILES, "notes.txt": "mine"}


def test_overwrite_does_not_write_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "build.toml").symlink_to(tmp_path / "elsewhere")
    write_project(tmp_path / "project", FILES, overwrite=True)
    assert (tmp_path / "elsewhere").read_text() == "mine"
    assert tree(tmp_path / "project") == FILES


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_can_never_be_replaced_is_refused(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "build.toml").mkdir()
    (tmp_path / "tests").write_text("a file where a directory goes")
    with pytest.raises(UsageError, match=r"in the way: build\.toml, .*tests") as caught:
        write_project(tmp_path, FILES, overwrite=overwrite)
    assert "nothing was written" in (caught.value.hint or "")
    assert tree(tmp_path) == {"tests": "a file where a directory goes"}


def test_a_failure_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "build.toml").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_project(tmp_path, {**FILES, "z/last.py": "\ud800"}, overwrite=True)
    assert tree(tmp_path) == {"build.toml": "old"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["build.toml"]
