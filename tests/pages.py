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
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SHELLS = frozenset({"sh", "bash", "console", "shell"})
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
_MARK = re.compile(r"^ *<!-- (?P<word>run|not run|page)(?:: (?P<text>.*?))? -->$")
_TITLE = re.compile(r'title="([^"]+)"')
IN_A_PROJECT = "in a project"


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
