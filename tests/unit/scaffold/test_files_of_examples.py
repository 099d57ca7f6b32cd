"""What each example has in common with a new project is what ``init`` writes for its backends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import ROOT
from kernel_builder.config.reader import load_project
from kernel_builder.scaffold.names import parse_repo_id
from kernel_builder.scaffold.render import BACKENDS, render_project

EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/build.toml"))
SHARED = ("pytest.ini", "tests/__init__.py", "tests/conftest.py")
# Those of Triton have no tests/conftest.py: nothing of them runs on a CPU.
FILES = [(example, name) for example in EXAMPLES for name in SHARED if (example / name).exists()]


@pytest.mark.parametrize(("example", "name"), FILES, ids=lambda value: getattr(value, "name", value))
def test_what_all_projects_share_is_what_init_writes(example: Path, name: str) -> None:
    """``KERNEL_BUILDER_UPDATE_GOLDEN=1`` writes it again."""
    project, _ = load_project(example)
    backends = tuple(backend for backend in BACKENDS if backend in project.backends)
    expected = render_project(parse_repo_id(f"me/{example.name}")[0], backends=backends, license_id="")[name]
    if os.environ.get("KERNEL_BUILDER_UPDATE_GOLDEN"):
        (example / name).write_text(expected, encoding="utf-8")
    assert (example / name).read_text(encoding="utf-8") == expected


def test_the_table_names_every_example() -> None:
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES if f"]({path.name})" not in listed] == []
