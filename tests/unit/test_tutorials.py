"""Pages that show an example show it as it is."""

from __future__ import annotations

import pytest

from conftest import ROOT
from pages import blocks

SHOWN = {"tutorial/rmsnorm.md": "rmsnorm", "howto/stable-abi.md": "double", "howto/noarch.md": "swish"}


@pytest.mark.parametrize("page", SHOWN)
def test_the_page_shows_the_files_of_the_example(page: str) -> None:
    example = ROOT / "examples" / SHOWN[page]
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    shown = {block.title: block.text for block in blocks(text) if block.title not in {None, "try.py"}}
    assert shown == {name: (example / str(name)).read_text(encoding="utf-8") for name in shown}
    ours = {path.relative_to(example).as_posix() for path in example.rglob("*.*") if not path.name.startswith(".")}
    sources = {name for name in ours if not name.startswith(("tests/", "benchmarks/", "build/", "__pycache__"))}
    assert sources - shown.keys() <= {"CARD.md", "pytest.ini"}
