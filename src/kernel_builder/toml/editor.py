"""Small changes to a TOML text that leave every other character as it is: comments, order, layout, line ends.

A library that rewrites a parsed document (tomlkit) was not enough here: it puts new keys at the end of a
table, behind its blank lines and comments, and cannot rename a table in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from kernel_builder.toml.scan import Source, Statement, Where, last_part


class CannotEditError(Exception):
    """The text is written in a way that this change has no place in. The message says what to write
    instead.
    """


class Editor:
    """Collects changes to ``text``, a good TOML document with ``\\n`` line ends; :meth:`changes` are in
    order.

    Paths are those of the document before any change. A change is asked for at most once for each place.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.source = Source(text)
        self._changes: list[tuple[int, int, str]] = []
        # Whole tables go behind keys that are added at the same place.
        self._tables: list[tuple[int, int, str]] = []

    def changes(self) -> list[tuple[int, int, str]]:
        """Begin, end and new text of every change, in file order; insertions at one place as they were asked
        for.
        """
        return sorted([*self._changes, *self._tables], key=lambda change: change[:2])

    def result(self) -> str:
        """The text with all changes made."""
        pieces: list[str] = []
        position = 0
        for start, end, new in self.changes():
            pieces += [self.text[position:start], new]
            position = max(position, end)
        return "".join([*pieces, self.text[position:]])

    def header(self, table: Where) -> Statement | None:
        """The ``[table]`` line of that path."""
        return next((s for s, path in self._paths if s.header == "[" and path == table), None)

    def pairs(self, table: Where) -> list[tuple[Statement, Where]]:
        """The ``key = value`` statements directly in a table, be it under its header or with dotted keys."""
        return [(s, path) for s, path in self._paths if not s.header and path[:-1] == table]

    def value_span(self, path: Where) -> tuple[int, int]:
        """Begin and end of the value at ``path``."""
        start = self.source.value(path)
        return start, self.source.end_of_value(start)

    def rest_of_line(self, path: Where) -> str:
        """The value at ``path`` with the comment behind it, if it has a line of its own."""
        start, end = self.value_span(path)
        if any(found == path for _, found in self._paths):
            end = self._line_end(end)
        return self.text[start:end].rstrip()

    def set_value(self, path: Where, value: str) -> None:
        """Replace the value at ``path``."""
        self._changes.append((*self.value_span(path), value))

    def set_pair(self, path: Where, key: str, value: str) -> None:
        """Replace key and value at ``path``."""
        self._changes.append((*last_part(self.text, self.source.key(path)), key))
        self.set_value(path, value)

    def rename_table(self, table: Where, name: str) -> None:
        """Give a table another name (its last part), in its header or where it stands as an inline table."""
        header = self.header(table)
        if header is not None:
            self._changes.append((*last_part(self.text, header.start + 1), name))
        elif any(path == table for _, path in self._paths):
            self._changes.append((*last_part(self.text, self.source.key(table)), name))
        else:
            raise CannotEditError(f"write the keys of '{_dotted(table)}' under a header: [{_dotted(table)}]")

    def insert(self, table: Where, line: str, *, after: Sequence[str] = ()) -> None:
        """Add ``line`` (``key = value``) to a table: behind the first key of ``after`` that it has, else at
        its end.

        Without ``after``, it becomes the first line of the table.
        """
        pairs = self.pairs(table)
        header = self.header(table)
        anchors = [statement for name in after for statement, path in pairs if path[-1] == name]
        if pairs and (anchors or after or header is None):
            anchor = (anchors or [pairs[-1][0]])[0]
            line_start = self.text.rfind("\n", 0, anchor.start) + 1
            prefix = self.text[line_start : last_part(self.text, anchor.start)[0]]
            self._insert_line(anchor.end, prefix + line)
        elif header is not None:
            self._insert_line(header.end, line)
        else:
            self._insert_inline(table, line)

    def append_table(self, lines: Sequence[str]) -> None:
        """Add a table, with its header, to the end of the text."""
        gap = "" if self.text.endswith("\n") or not self.text else "\n"
        self._tables.append((len(self.text), len(self.text), gap + "\n" + "".join(f"{line}\n" for line in lines)))

    def insert_table(self, after: Where, lines: Sequence[str]) -> None:
        """Add a table, with its header, behind the keys of the table ``after``, which has a header."""
        pairs = self.pairs(after)
        anchor = pairs[-1][0] if pairs else self.header(after)
        if anchor is None:
            raise CannotEditError(f"write the keys of '{_dotted(after)}' under a header: [{_dotted(after)}]")
        follows = self.text[self._line_end(anchor.end) :]
        gap = "\n" if follows and not follows.startswith("\n") else ""
        self._tables.append(self._new_line(anchor.end, "\n" + "\n".join(lines) + gap))

    def remove(self, path: Where) -> None:
        """Take out the entry at ``path``: its whole lines, or its part of an inline table or list."""
        statement = next((s for s, found in self._paths if not s.header and found == path), None)
        if statement is not None:
            self._changes.append((self._line_start(statement.start), self._line_end(statement.end), ""))
            return
        parent, step = self.source.value(path[:-1]), path[-1]
        entries = self.source.inside(parent)
        if step not in entries:
            raise CannotEditError(f"write '{_dotted(path)}' on a line of its own")
        places = [(key, self.source.end_of_value(value)) for key, value in entries.values()]
        index = list(entries).index(step)
        if index:
            self._changes.append((places[index - 1][1], places[index][1], ""))
        elif len(places) > 1:
            self._changes.append((places[0][0], places[1][0], ""))
        else:
            self._changes.append((*places[0], ""))

    def block(self, table: Where) -> tuple[int, int]:
        """Begin and end of the whole lines from a table's header to its last key."""
        header, pairs = self.header(table), self.pairs(table)
        if header is None or any(statement.start < header.start for statement, _ in pairs):
            raise CannotEditError(f"write the keys of '{_dotted(table)}' under a header: [{_dotted(table)}]")
        last = pairs[-1][0] if pairs else header
        return self._line_start(header.start), self._line_end(last.end)

    def insert_text(self, offset: int, text: str) -> None:
        """Add ``text``, a whole table, at the beginning of a line."""
        gap = "\n" if offset and self.text[offset - 1] != "\n" else ""
        self._tables.append((offset, offset, gap + text))

    @cached_property
    def _paths(self) -> list[tuple[Statement, Where]]:
        return list(self.source.paths())

    def _line_start(self, offset: int) -> int:
        return self.text.rfind("\n", 0, offset) + 1

    def _line_end(self, offset: int) -> int:
        """Where the next line begins."""
        end = self.text.find("\n", offset)
        return len(self.text) if end < 0 else end + 1

    def _insert_line(self, offset: int, line: str) -> None:
        self._changes.append(self._new_line(offset, line))

    def _new_line(self, offset: int, line: str) -> tuple[int, int, str]:
        """The change that adds ``line`` behind the line of ``offset``."""
        end = self._line_end(offset)
        if end and self.text[end - 1] == "\n":
            return end, end, f"{line}\n"
        return end, end, f"\n{line}"

    def _insert_inline(self, table: Where, line: str) -> None:
        start, end = self.value_span(table)
        if self.text[start : start + 1] != "{" or not any(path == table for _, path in self._paths):
            raise CannotEditError(f"write the keys of '{_dotted(table)}' under a header: [{_dotted(table)}]")
        entries = self.source.inside(start)
        if entries:
            last = max(self.source.end_of_value(value) for _, value in entries.values())
            self._changes.append((last, last, f", {line}"))
        else:
            self._changes.append((start + 1, end - 1, f" {line} "))


def _dotted(path: Where) -> str:
    return ".".join(str(step) for step in path)
