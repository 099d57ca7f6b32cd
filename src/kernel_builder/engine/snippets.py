"""Lines of sources that compilers show, with what they draw below them; cut around what is marked. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

SHOWN = re.compile(r"(?P<gutter> *\d+ \| |)(?P<text>.*)")
"""A line of a source, with its number or without."""
BELOW = re.compile(r"(?P<gutter> *\| |)(?P<text>.*)")
"""What may be below such a line: carets, underlines, and words to insert or to replace."""

_UNDERLINES = re.compile(r"\s*[~^][~^ ]*")
_MORE = "..."


def fitted(lines: Sequence[str], widest: int) -> Iterator[str]:
    """``lines`` with at most ``widest`` columns each. A line of a source is cut on both sides of what is marked in it,
    and what is below it the same way; every other one is cut at its end.
    """
    at = 0
    while at < len(lines):
        below = _below(lines, at)
        wide = [line for line in lines[at : at + 1 + below] if _columns(line) > widest]
        yield from _window(lines[at : at + 1 + below], widest) if wide and below else _ends(lines[at], widest)
        at += 1 + (below if wide else 0)


def _ends(line: str, widest: int) -> Iterator[str]:
    room = widest - len(_MORE) - 1
    yield line if _columns(line) <= widest else f"{_piece(line, 0, room)} {_MORE}"


def _below(lines: Sequence[str], at: int) -> int:
    """How many lines from ``at`` + 1 on are about the text of line ``at``."""
    gutter = SHOWN.fullmatch(lines[at])
    if gutter is None or at + 1 == len(lines) or not gutter["text"].strip():
        return 0
    if not gutter["gutter"]:
        return int(_UNDERLINES.fullmatch(lines[at + 1]) is not None)
    bar = f"{' ' * (len(gutter['gutter']) - 2)}| "
    count = 0
    while at + 1 + count < len(lines) and lines[at + 1 + count].startswith(bar.rstrip()):
        count += 1
    return count


def _window(group: Sequence[str], widest: int) -> Iterator[str]:
    """A line of a source and those below it, the same columns of each."""
    head = SHOWN.fullmatch(group[0])
    gutter = head["gutter"] if head is not None else ""
    texts = [line[len(gutter) :] for line in group]
    marked = next((text for text in texts[1:] if "^" in text or "~" in text), "")
    caret = marked.find("^") if "^" in marked else max(marked.find("~"), 0)
    room = max(widest - len(gutter) - 2 * (len(_MORE) + 1), 1)
    most = max(map(_columns, texts))
    first = max(min(caret - room // 2, most - room), 0)
    for number, (line, text) in enumerate(zip(group, texts, strict=True)):
        before, after = ("", "") if not first else (f"{_MORE} " if not number else " " * (len(_MORE) + 1), "")
        if not number and _columns(text) > first + room:
            after = f" {_MORE}"
        yield f"{line[: len(gutter)]}{before}{_piece(text, first, first + room)}{after}".rstrip()


def _piece(text: str, first: int, end: int) -> str:
    """The characters of ``text`` in the columns from ``first`` up to ``end``; half of a wide one is a blank."""
    piece, column = "", 0
    for character in text:
        width = _width(character)
        if first <= column and column + width <= end:
            piece += character
        elif column < first < column + width:
            piece += " " * (column + width - first)
        column += width
        if column >= end:
            break
    return piece


def _columns(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
