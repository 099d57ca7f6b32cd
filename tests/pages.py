"""The blocks of README.md and docs/, and how they are run.

A page is read as its readers read it, from top to bottom. A comment above a block of shell commands says what a test
does with it::

    <!-- run -->              it is run, after those above it on the page, in the directory where they ended
    <!-- run: exit 1 -->      the same; it ends with this code
    <!-- not run: because --> it is not run, for this reason

``<!-- page: in a project -->`` at the top of a page: its blocks start in a project that ``init`` wrote, with its CPU
variant built. A block whose fence has a ``title`` is a file; on a page that is run it is written. Lines of a
``console`` block that do not start with ``$`` must be in what the commands print, in this order; ``...`` is whatever
there is.

``python tests/pages.py`` prints the blocks that are not run, with the reasons, where pages link to elsewhere, and links
within the repository that lead nowhere.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHELLS = frozenset({"sh", "bash", "console", "shell"})
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
_MARK = re.compile(r"^ *<!-- (?P<word>run|not run|page)(?:: (?P<text>.*?))? -->$")
_TITLE = re.compile(r'title="([^"]+)"')
IN_A_PROJECT = "in a project"
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"``.+?``|`[^`\n]*`")
_HEADING = re.compile(r"^#+ +(?P<text>.+?)(?: +\{ *#(?P<name>[\w-]+) *\})?$")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block. ``line`` counts from 1; ``mark`` and ``said`` are the comment above it, split at the colon."""

    line: int
    language: str
    title: str | None
    text: str
    mark: str | None
    said: str | None

    @property
    def is_shell(self) -> bool:
        """Whether it holds commands."""
        return self.language in SHELLS

    @property
    def runs(self) -> bool:
        """Whether a test runs it."""
        return self.mark == "run"

    @property
    def exit_code(self) -> int:
        """What it ends with."""
        match = re.fullmatch(r"exit (\d+)", self.said or "")
        return int(match[1]) if match else 0

    @property
    def commands(self) -> str:
        """What a reader types."""
        if self.language != "console":
            return self.text
        return "\n".join(line[2:] for line in self.text.split("\n") if line.startswith("$ ")) + "\n"

    @property
    def shown(self) -> list[str]:
        """What the page says is printed, line by line."""
        if self.language != "console":
            return []
        return [line for line in self.text.split("\n") if line.strip() and not line.startswith("$ ")]


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = text.split("\n")
    at = 0
    mark: re.Match[str] | None = None
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            if lines[at].strip():
                mark = _MARK.match(lines[at])
            at += 1
            continue
        begin = at
        closing = f"{fence['indent']}{fence['ticks']}"
        while (at := at + 1) < len(lines) and lines[at].rstrip() != closing:
            pass
        inside = [line.removeprefix(fence["indent"]) for line in lines[begin + 1 : at]]
        title = _TITLE.search(fence["info"])
        yield Block(
            line=begin + 1,
            language=fence["info"].strip().split(" ")[0],
            title=title[1] if title else None,
            text="\n".join(inside) + "\n",
            mark=mark["word"] if mark else None,
            said=mark["text"] if mark else None,
        )
        mark = None
        at += 1


def starts_in_a_project(text: str) -> bool:
    """Whether the page says so."""
    marks = [match for line in text.split("\n")[:5] if (match := _MARK.match(line)) and match["word"] == "page"]
    return any(match["text"] == IN_A_PROJECT for match in marks)


def problems(text: str) -> list[str]:
    """Blocks of commands that do not say whether they are run, and comments that mean nothing."""
    found = []
    for block in blocks(text):
        if block.is_shell and block.mark not in {"run", "not run"}:
            found.append(f"line {block.line}: say whether this block is run (see tests/pages.py)")
        elif block.mark == "not run" and len((block.said or "").split()) < 2:
            found.append(f"line {block.line}: say why it is not run")
        elif block.mark == "run" and block.said is not None and not re.fullmatch(r"exit \d+", block.said):
            found.append(f"line {block.line}: 'run: {block.said}' means nothing")
        elif block.mark in {"run", "not run"} and not block.is_shell:
            found.append(f"line {block.line}: this block has no commands")
    return found


def run_page(text: str, place: Path, environment: Mapping[str, str]) -> Iterator[tuple[Block, str]]:
    """Write the files of a page and run its blocks, from ``place`` on; yields each block with what it printed.

    Raises :class:`AssertionError` that names the line of the block that did not do what the page says.
    """
    here = place
    after = place / ".directory-after-the-block"
    for block in blocks(text):
        if block.title is not None and not block.is_shell:
            (here / block.title).parent.mkdir(parents=True, exist_ok=True)
            (here / block.title).write_text(block.text, encoding="utf-8")
        if not block.runs:
            continue
        script = f"set -euo pipefail\ntrap 'pwd > {shlex.quote(str(after))}' EXIT\n{block.commands}"
        completed = subprocess.run(
            ["bash", "-c", script],
            cwd=here,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
            timeout=600,
        )
        printed = completed.stdout
        here = Path(after.read_text(encoding="utf-8").strip())
        after.unlink()
        assert completed.returncode == block.exit_code, f"line {block.line}: {completed.returncode}\n{printed}"
        missing = _missing(block.shown, printed)
        assert missing is None, f"line {block.line}: {missing!r} is not printed there:\n{printed}"
        yield block, printed


def _missing(shown: list[str], printed: str) -> str | None:
    """The first line that is shown and not printed after those before it."""
    rest = [" ".join(line.split()) for line in printed.split("\n")]
    for line in shown:
        pattern = re.compile(".*".join(re.escape(" ".join(part.split())) for part in line.split("...")))
        at = next((number for number, found in enumerate(rest) if pattern.search(found)), None)
        if at is None:
            return line
        rest = rest[at + 1 :]
    return None


def all_pages() -> list[Path]:
    """Every page of the repository that people read."""
    folders = ("docs", "examples", "terraform", "src/kernel_builder/templates/skills")
    inside = (path for folder in folders for path in (ROOT / folder).rglob("*.md") if path.name != "CARD.md")
    return sorted([*ROOT.glob("*.md"), *inside])


def prose(text: str) -> list[str]:
    """The lines of a page outside of blocks, without code."""
    lines: list[str] = []
    closing: str | None = None
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if closing is None and fence is not None:
            closing = f"{fence['indent']}{fence['ticks']}"
        elif closing is not None:
            closing = None if line.rstrip() == closing else closing
        else:
            lines.append(line)
    return lines


def anchors(text: str) -> set[str]:
    """The names that links to a page may end with, as the site and GitHub make them of its headings."""
    found: set[str] = set()
    for heading in filter(None, map(_HEADING.match, prose(text))):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["text"]).replace("`", "")
        plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        found.add(heading["name"] or re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return found


def links(text: str) -> list[str]:
    """Where a page links to, in order."""
    return [target for line in prose(text) for target in _LINK.findall(_CODE.sub("", line))]


def broken_links(page: Path) -> list[str]:
    """Links of a page to files and headings of the repository that are not there."""
    broken = []
    for target in links(page.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (
            anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8"))
        ):
            broken.append(target)
    return broken


def main() -> int:
    """Print what is not run, and where links lead; 1 if one leads nowhere."""
    not_run: list[str] = []
    elsewhere: dict[str, list[str]] = {}
    broken: list[str] = []
    run = 0
    for page in all_pages():
        name, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
        run += sum(block.runs for block in blocks(text))
        not_run += [f"{name}:{block.line}: {block.said}" for block in blocks(text) if block.mark == "not run"]
        broken += [f"{name}: {target}" for target in broken_links(page)]
        for target in links(text):
            if "://" in target:
                elsewhere.setdefault(target, []).append(name)
    print(f"{run} blocks are run, {len(not_run)} are not:", *not_run, sep="\n  ")
    print(
        "\nlinks to elsewhere, which were not followed:",
        *(f"{url}  {pages[0]}" for url, pages in sorted(elsewhere.items())),
        sep="\n  ",
    )
    print(f"\n{len(broken)} links lead nowhere", *broken, sep="\n  ")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
