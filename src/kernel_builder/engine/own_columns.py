"""What compilers say of a file that was made of one of the project's, told of the project's own.

Such a file has the project's lines under the project's name, but other words in them: columns differ, and so does the
line of the source that compilers show. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from kernel_builder.engine.snippets import BELOW, SHOWN

_PLACE = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?P<column>\d+)(?=: )")
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MARKS = re.compile(r"[~^]+")
_MARKER = re.compile(r'#line 1 "[^"]*"')
_TABS = 8
"""As compilers show them."""


@dataclass(frozen=True)
class Mirrored:
    """A line as it was ``made``, and as it is in the project (``own``)."""

    made: str
    own: str

    @cached_property
    def _starts(self) -> list[tuple[int, int, int, int]]:
        """Blocks of the two lines that correspond: where they begin, and where they end."""
        made, own = _words(self.made), _words(self.own)
        matcher = SequenceMatcher(None, [text for text, _ in made], [text for text, _ in own], autojunk=False)
        made_at, own_at = (
            [*(at for _, at in words), len(line)] for words, line in ((made, self.made), (own, self.own))
        )
        blocks = []
        for tag, one, two, three, four in matcher.get_opcodes():
            if tag == "replace":  # word by word as far as both have some: it is one name for another
                pairs = min(two - one, four - three)
                for at in range(pairs):
                    ends = (two, four) if at == pairs - 1 else (one + at + 1, three + at + 1)
                    blocks.append((made_at[one + at], made_at[ends[0]], own_at[three + at], own_at[ends[1]]))
            else:
                blocks.append((made_at[one], made_at[two], own_at[three], own_at[four]))
        return blocks

    def position(self, at: int) -> int:
        """Where in ``own`` the character is that is number ``at`` (from 0) in ``made``; in a word that was replaced,
        as far from its beginning.
        """
        for made, made_end, own, own_end in self._starts:
            if made <= at < made_end:
                return min(own + at - made, max(own_end - 1, own))
        return at - len(self.made) + len(self.own)

    def column(self, column: int) -> int:
        """The same for columns, which compilers count in bytes, from 1."""
        before = self.made.encode()[: column - 1].decode(errors="ignore")
        return len(self.own[: self.position(len(before))].encode()) + 1

    @property
    def shown(self) -> Mirrored:
        """Both lines as they are shown."""
        return Mirrored(self.made.expandtabs(_TABS), self.own.expandtabs(_TABS))

    def marks(self, marks: str) -> str:
        """What is below a line that is shown: carets, underlines, and words to insert or to replace."""
        found = ""
        for match in re.finditer(r"\S+(?: \S+)*", marks):
            pieces = list(_MARKS.finditer(match[0])) if set(match[0]) <= set("~^ ") else []
            for begin, end in [(match.start() + one.start(), match.start() + one.end()) for one in pieces]:
                first, last = self.position(begin), max(self.position(end - 1), self.position(begin))
                text = marks[begin:end]
                caret = text.find("^")
                drawn = list("~" * (last - first + 1) if "~" in text or caret < 0 else "^")
                if caret >= 0:
                    drawn[min(max(self.position(begin + caret) - first, 0), len(drawn) - 1)] = "^"
                found = f"{found:<{first}}{''.join(drawn)}"
            if not pieces:
                found = f"{found:<{self.position(match.start())}}{match[0]}"
        return found


def _words(line: str) -> list[tuple[str, int]]:
    return [(match[0], match.start()) for match in _WORDS.finditer(line)]


def line_of(made: str, own: str, number: int) -> Mirrored | None:
    """Line ``number``, from 1, of the text that was ``made`` of the project's text ``own``; ``None`` where the one does
    not say where the other's lines begin, or has none of that number.
    """
    made_lines, own_lines = made.splitlines(), own.splitlines()
    markers = (at for at, line in enumerate(made_lines) if _MARKER.fullmatch(line))
    first = next(markers, len(made_lines)) + 1
    if not 0 < number <= min(len(made_lines) - first, len(own_lines)):
        return None
    return Mirrored(made_lines[first + number - 1], own_lines[number - 1])


def told_of_own(lines: Sequence[str], find: Callable[[str, int], Mirrored | None]) -> list[str]:
    """``lines`` of a compiler with the columns and the text of the project's files. ``find`` gives the line of a file
    by its name and number, where that was made of one of the project's.
    """
    return list(_told(lines, find))


def _told(lines: Sequence[str], find: Callable[[str, int], Mirrored | None]) -> Iterator[str]:
    line: Mirrored | None = None
    is_shown = False
    for text in lines:
        place = _PLACE.match(text)
        if place is not None:
            line, is_shown = find(place["file"], int(place["line"])), False
            if line is not None:
                column = line.column(int(place["column"]))
                text = f"{text[: place.start('column')]}{column}{text[place.end() :]}"  # noqa: PLW2901
            yield text
            continue
        shown = SHOWN.fullmatch(text)
        if (
            line is not None
            and not is_shown
            and shown is not None
            and shown["text"].rstrip() == line.shown.made.rstrip()
        ):
            is_shown = True
            yield f"{shown['gutter']}{line.shown.own}"
            continue
        below = BELOW.fullmatch(text)
        if line is not None and is_shown and below is not None and below["text"].strip():
            yield f"{below['gutter']}{line.shown.marks(below['text'])}"
            continue
        yield text
