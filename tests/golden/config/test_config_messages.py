"""What is said about a build.toml with mistakes, word by word.

Each directory beside this file has a ``build.toml``, the files that exist beside it (``tree.txt``), and what
is said (``expected.txt``). Run with UPDATE_GOLDEN=1 to write the latter anew; then read it aloud.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_builder.config.known import newest_torch
from kernel_builder.config.reader import load_project
from kernel_builder.errors import ConfigError

HERE = Path(__file__).parent
CASES = sorted(path.parent.name for path in HERE.glob("*/build.toml"))


def said_about(case: Path, project: Path) -> str:
    (project / "build.toml").write_bytes((case / "build.toml").read_bytes())
    tree = case / "tree.txt"
    for name in tree.read_text(encoding="utf-8").split() if tree.exists() else ():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    try:
        _, diagnostics = load_project(Path())
    except ConfigError as error:
        lines = [*(one.render() for one in error.diagnostics), f"error: {error.message}"]
    else:
        lines = [one.render() for one in diagnostics]
    said = "".join(f"{line}\n" for line in lines)
    return said.replace(str(newest_torch()), "<newest torch>")


@pytest.mark.parametrize("case", CASES)
def test_says_exactly_this(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = said_about(HERE / case, tmp_path)
    expected = HERE / case / "expected.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        expected.write_text(said, encoding="utf-8")
    assert said == expected.read_text(encoding="utf-8")
