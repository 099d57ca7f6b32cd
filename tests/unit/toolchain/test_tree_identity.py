"""What is measured of trees that are used where they lie."""

from __future__ import annotations

from pathlib import Path

from kernel_builder.toolchain.identity import tree_identity


def test_links_that_lead_nowhere_or_to_themselves_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.h").touch()
    before = tree_identity((), [tmp_path])
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "above").symlink_to(tmp_path)
    assert tree_identity((), [tmp_path]) == before
    (tmp_path / "b.h").touch()
    assert tree_identity((), [tmp_path]) != before
