"""What ``mkdocs`` does to pages besides: ``mkdocs.yml`` names this file.

Pages are read in the repository, too, where links may lead to files that the site does not have: README.md becomes the
site's first page, and any other file is named by its path. Comments that say how tests run a block are left out.
Pages fetch nothing from elsewhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_CELL = re.compile(r"<t[dh][ >].*?</t[dh]>", re.DOTALL)
_CODE = re.compile(r"<code>((?:[^<\n]|<wbr>)*)</code>")
_JOINT = re.compile(r"(?<=[_/])(?=[A-Za-z0-9])")
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
_COMMENT = re.compile(r"^[ ]*<!-- (?:run|not run|page)\b.*? -->\n", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """``config`` with pages that have no line in ``nav`` yet, below Reference: no page is out of reach."""
    listed = set(_leaves(config.nav))
    root = Path(config.docs_dir)
    rest = sorted({path.relative_to(root).as_posix() for path in root.rglob("*.md")} - listed)
    if rest:
        reference = next(entry["Reference"] for entry in config.nav if isinstance(entry, dict) and "Reference" in entry)
        reference.append({"More": rest})
    return config


def _leaves(nav: object) -> Iterator[str]:
    """The pages that are named anywhere in ``nav``."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for inner in nav.values():
            yield from _leaves(inner)
    elif isinstance(nav, list):
        for inner in nav:
            yield from _leaves(inner)


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """The page as the site shows it."""
    folder = posixpath.dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, found["target"]))
        if target.startswith("docs/"):
            return found[0]
        if target == "README.md":
            return f"[{found['text']}]({posixpath.relpath('index.md', folder or '.')})"
        return f"{found['text']} (`{target}`)"

    return _LINK.sub(link, _COMMENT.sub("", markdown))


def on_page_content(html: str, **_: object) -> str:
    """The page with what a narrow screen needs: code that breaks at the joints of names and never inside an option, and
    in tables the bars that had to be escaped."""

    def cell(found: re.Match[str]) -> str:
        text = found[0].replace("\\|", "|")
        return _CODE.sub(lambda code: f"<code>{_JOINT.sub(r'<wbr>', code[1])}</code>", text)

    def whole(code: re.Match[str]) -> str:
        return _OPTION.sub(r'<span class="option">\g<0></span>', code[0])

    return _CODE.sub(whole, _CELL.sub(cell, html))


def on_post_page(output: str, *, page: Any, **_: object) -> str:
    """The page with docs/site-worker.js in the place of the script of that purpose that would be fetched."""
    own = posixpath.relpath("site-worker.js", posixpath.dirname(page.url) or ".")
    return output.replace("https://unpkg.com/iframe-worker/shim", own)


def on_post_template(output_content: str, **_: object) -> str:
    """The same for the page that says that there is none."""
    return output_content.replace("https://unpkg.com/iframe-worker/shim", "site-worker.js")
