"""Advice is written into sources as a whole or not at all, and nothing of the user's is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import commit
from kernel_builder.errors import BuildError, MachineError
from kernel_builder.files import write_bytes
from kernel_builder.timing.smaller import Proposal
from kernel_builder.workflow.advising import Advice
from kernel_builder.workflow.applying import apply_advice

BEFORE, AFTER = "#include <torch/all.h>\n// \udce9\n", "#include <ATen/core/Tensor.h>\n// \udce9\n"


def advice(*names: str) -> list[Advice]:
    proposal = Proposal(text=AFTER, replaced=("torch/all.h",), headers=("ATen/core/Tensor.h",))
    return [*(Advice(source=name, text=BEFORE, proposal=proposal) for name in names), Advice(source="none.cu")]


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "k"
    (root / "src").mkdir(parents=True)
    for name in ("a.cu", "src/b.cu", "none.cu"):
        (root / name).write_text(BEFORE, encoding="utf-8", errors="surrogateescape")
    return root


def apply(root: Path, *names: str, force: bool = False) -> tuple[str, ...]:
    return apply_advice(root, advice(*names), os.environ, root.parent / "backup", force=force)


def test_sources_are_changed_and_what_they_were_is_kept(root: Path) -> None:
    (root / "a.cu").chmod(0o640)
    assert apply(root, "a.cu", "src/b.cu") == ("a.cu", "src/b.cu")
    assert {text(root / name) for name in ("a.cu", "src/b.cu")} == {AFTER}
    assert text(root / "none.cu") == BEFORE
    assert {text(root.parent / "backup" / name) for name in ("a.cu", "src/b.cu")} == {BEFORE}
    assert (root / "a.cu").stat().st_mode & 0o777 == 0o640


def test_a_source_that_changed_meanwhile_stops_all(root: Path) -> None:
    (root / "src" / "b.cu").write_text("int mine;\n")
    with pytest.raises(BuildError, match=r"src/b\.cu changed since smaller includes were tried"):
        apply(root, "a.cu", "src/b.cu", force=True)
    assert (text(root / "a.cu"), text(root / "src" / "b.cu")) == (BEFORE, "int mine;\n")


def test_what_git_does_not_have_is_only_changed_by_force(root: Path) -> None:
    commit(root)
    assert apply(root, "a.cu") == ("a.cu",)
    # Another proposal for a source that has just been changed, and one that nobody added.
    (root / "a.cu").write_text(BEFORE + "int mine;\n", encoding="utf-8", errors="surrogateescape")
    (root / "new.cu").write_text(BEFORE, encoding="utf-8", errors="surrogateescape")
    proposal = Proposal(text=AFTER, replaced=(), headers=())
    found = [Advice(source=name, text=text(root / name), proposal=proposal) for name in ("a.cu", "src/b.cu", "new.cu")]
    backup = root.parent / "backup"
    with pytest.raises(BuildError, match=r"^a\.cu, new\.cu has changes that are not committed") as refused:
        apply_advice(root, found, os.environ, backup)
    assert "--force" in str(refused.value.hint)
    assert text(root / "src" / "b.cu") == BEFORE
    assert apply_advice(root, found, os.environ, backup, force=True) == ("a.cu", "src/b.cu", "new.cu")
    assert text(backup / "a.cu") == BEFORE + "int mine;\n"


def test_a_project_below_the_top_of_a_repository_is_asked_about_by_its_own_paths(root: Path) -> None:
    (root.parent / ".gitignore").write_text("backup\n")
    commit(root.parent)
    (root / "src" / "b.cu").write_text(BEFORE + "\n", encoding="utf-8", errors="surrogateescape")
    found = [Advice(source="src/b.cu", text=BEFORE + "\n", proposal=advice("x")[0].proposal)]
    with pytest.raises(BuildError, match="not committed"):
        apply_advice(root, found, os.environ, root.parent / "backup")
    assert apply(root, "a.cu") == ("a.cu",)


def test_where_one_cannot_be_written_none_is_changed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, data: bytes) -> None:
        if path == root / "src" / "b.cu":
            raise OSError(28, "No space left on device", str(path))
        write_bytes(path, data)

    monkeypatch.setattr("kernel_builder.workflow.applying.write_bytes", write)
    with pytest.raises(MachineError, match=r"b\.cu: No space left on device; no source was changed"):
        apply(root, "a.cu", "src/b.cu")
    assert {text(root / name) for name in ("a.cu", "src/b.cu")} == {BEFORE}
