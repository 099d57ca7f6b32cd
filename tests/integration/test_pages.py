"""The commands on README.md and the pages of docs/, run from top to bottom as their readers run them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from conftest import ROOT, room_to_build
from pages import blocks, run_page, starts_in_a_project

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.torch]


def _runs(page: Path) -> bool:
    return any(block.runs for block in blocks(page.read_text(encoding="utf-8")))


PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if _runs(page)]


@pytest.fixture
def reader(tmp_path: Path, session_store: Path) -> dict[str, str]:
    """The environment of somebody who has installed kernel-builder and the torch that pip brings, which is built for
    CUDA, on a machine without a GPU; with the store of this session.
    """
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, target in (("kernel-builder", "-m kernel_builder"), ("python", ""), ("pytest", "-m pytest")):
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {target} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    (tmp_path / "home").mkdir()
    return {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "PIP_CONFIG_FILE": os.environ.get("PIP_CONFIG_FILE", str(Path.home() / ".config" / "pip" / "pip.conf")),
        "KERNEL_BUILDER_CACHE": str(session_store),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests' / 'cuda_build'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "110",
        **{f"GIT_{who}_{what}": "me@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_the_page_work(
    page: Path, tmp_path: Path, reader: dict[str, str], request: pytest.FixtureRequest
) -> None:
    text = page.read_text(encoding="utf-8")
    place = tmp_path / "work"
    if starts_in_a_project(text):
        pytest.importorskip("torch", reason="torch is not installed in this environment")
        shutil.copytree(request.getfixturevalue("init_project"), place, symlinks=True)
    else:
        place.mkdir()
    with room_to_build():
        ran = list(run_page(text, place, reader))
    assert all("Traceback" not in printed for _, printed in ran)
