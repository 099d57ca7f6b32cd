"""The documentation site is built without a warning and fetches nothing; blocks of commands say how they are tested."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import ROOT
from pages import Block, all_pages, anchors, blocks, broken_links, links, problems, prose

PAGES = all_pages()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="the extra 'docs' is not installed")
    folder = tmp_path_factory.mktemp("site")
    completed = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr + completed.stdout
    return folder


class _Asked(HTMLParser):
    """What a browser fetches for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in {"script", "img", "iframe", "source"} and values.get("src"):
            self.fetched.add(values["src"] or "")
        if tag == "link" and values.get("rel") in {"stylesheet", "icon", "preload", "preconnect"}:
            self.fetched.add(values.get("href") or "")


@pytest.mark.slow
def test_pages_fetch_nothing_from_elsewhere_and_search_needs_no_server(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        parser = _Asked()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.fetched
        assert {name for name in parser.fetched if "//" in name} == set(), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style
    options = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    assert '<code><span class="option">--framework</span> [torch|tvm-ffi]</code>' in options
    assert "\\|" not in options
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert "kernel-builder.lock" in index


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_commands_says_whether_it_is_run(page: Path) -> None:
    assert problems(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    """``mkdocs build --strict`` tests those between pages of the site, and no others."""
    assert broken_links(page) == []


def test_links_and_headings_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `name`, and *more*\n## Rule { #kb1 }\n[a](page.md#a-name-and-more) [b](#kb1) ![c](no.svg) [d](#no)\n"
        "`[e](no.md)` [f](https://example.org) [g](other.md)\n\n```md\n# Not a heading\n[h](no.md)\n```\n",
        encoding="utf-8",
    )
    text = page.read_text(encoding="utf-8")
    assert anchors(text) == {"a-name-and-more", "kb1"}
    assert links(text)[-2:] == ["https://example.org", "other.md"]
    assert broken_links(page) == ["no.svg", "#no", "other.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_and_blocks_in_them_are_indented_as_the_site_needs(page: Path) -> None:
    """The site's Markdown takes what has fewer than four spaces before it out of the list that it belongs to."""
    lines = page.read_text(encoding="utf-8").split("\n")
    blocks_of_lists = [number for number, line in enumerate(lines, 1) if re.match(r" {1,3}`{3}", line)]
    text = prose(page.read_text(encoding="utf-8"))
    paragraphs = [line for before, line in pairwise(text) if not before and re.match(r" {1,3}(?![-*] |\d+\. )\S", line)]
    assert (blocks_of_lists, paragraphs) == ([], [])


def test_what_pages_say_about_blocks_is_understood() -> None:
    page = (
        "<!-- run -->\n\n```sh\nls\n```\n\n<!-- not run: it needs a GPU -->\n```console\n$ ls\nfound\n```\n"
        '```toml title="a.toml"\nx = 1\n```\n'
        "<!-- not run: no -->\n```bash\n```\n```sh\n```\n<!-- run: often -->\n```sh\n```\n"
    )
    found = list(blocks(page))
    assert [(block.language, block.mark, block.title) for block in found[:3]] == [
        ("sh", "run", None),
        ("console", "not run", None),
        ("toml", None, "a.toml"),
    ]
    assert isinstance(found[1], Block)
    assert (found[1].commands, found[1].shown) == ("ls\n", ["found"])
    assert [line.split(":")[0] for line in problems(page)] == ["line 16", "line 18", "line 21"]
