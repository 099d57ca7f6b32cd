"""Where things stand in a TOML text, and what is wrong with a text that is not TOML.

The values of a good document come from :mod:`tomllib`. This module adds what tomllib does not give: the place
of every key and value, limits that keep hostile input cheap, and *all* mistakes of a broken document instead
of the first. To that end the text is cut into statements (a table header, or a key with its value), which
stand or fall one by one.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

Where = tuple[str | int, ...]
"""The way to a value: table and key names, and positions in lists (from 0)."""

MAX_DEPTH = 32
"""How deeply lists, inline tables and dotted keys may be nested; ``build.toml`` needs five."""
_MAX_PROBLEMS = 50
_MAX_UNCLOSED = 10

_STRING = (
    r'"""[^"\\]*+(?:(?:\\.|"{1,2}(?!"))[^"\\]*+)*+"{3,5}'
    r"|'''[^']*+(?:'{1,2}(?!')[^']*+)*+'{3,5}"
    r'|"(?:[^"\\\n]|\\[^\n])*+"'
    r"|'[^'\n]*+'"
)
_BRACKETS = r"(?P<open>[\[{])|(?P<close>[\]}])"
_TOKEN = re.compile(
    rf"(?P<string>{_STRING})|(?P<comment>#[^\n]*+)|{_BRACKETS}|(?P<newline>\n)|(?P<lone>[\"'])",
    re.DOTALL,
)
_ITEM = re.compile(
    rf"(?P<skip>[ \t\n]++|#[^\n]*+)|(?P<string>{_STRING})|{_BRACKETS}|(?P<comma>,)|(?P<equals>=)"
    r"|(?P<bare>[^\s,\[\]{}\"'#=]++)|(?P<lone>.)",
    re.DOTALL,
)
_KEY_PART = re.compile(r"[ \t]*+(?P<text>[A-Za-z0-9_-]++|\"(?:[^\"\\\n]|\\[^\n])*+\"|'[^'\n]*+')[ \t]*+(?P<dot>\.?)")
_BLANK = re.compile(r"(?:[ \t\n]++|#[^\n]*+)*+")
_HEADER_LINE = r"\[{1,2}[ \t]*+[A-Za-z0-9_.-]++[ \t]*+\]{1,2}[ \t]*+(?:#[^\n]*+)?(?:\n|\Z)"
_NEXT_STATEMENT = re.compile(rf"\n(?=[ \t]*+(?:{_HEADER_LINE}|[A-Za-z0-9_.-]++[ \t]*+=))")
_PLAIN_ITEM = r'[ \t\n]*+"[^"\\\x00-\x1f\x7f]*+"[ \t\n]*+'
_PLAIN_LIST = re.compile(rf"\[(?:{_PLAIN_ITEM}(?:,{_PLAIN_ITEM})*+,?+)?+[ \t\n]*+\]")
_PLAIN_TEXT = re.compile(r'"([^"]*)"')
"""Lists of text without escapes or comments: nearly all of a large file. Finding their end and their values
with one expression each is many times faster than reading them character by character.
"""
_LONG = 2048
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class Problem(NamedTuple):
    """One thing that keeps the text from being TOML; ``offset`` counts characters from 0."""

    offset: int
    message: str
    path: Where = ()
    hint: str | None = None


class Statement(NamedTuple):
    """``[key]``, ``[[key]]`` or ``key = value``. ``key`` is ``None`` when it cannot be read; ``plain_end`` is
    where a value that is a plain list ends, else 0.
    """

    start: int
    end: int
    header: str
    key: tuple[str, ...] | None
    value: int
    depth: int
    closed: bool
    plain_end: int = 0


def _key(text: str, start: int) -> tuple[tuple[str, ...] | None, int]:
    """Read a dotted key at ``start``: its parts (``None`` when there is none) and where it ends."""
    parts: list[str] = []
    position = start
    while match := _KEY_PART.match(text, position):
        part = match["text"]
        if part[0] == '"':
            try:
                part = tomllib.loads(f"k = {part}")["k"]
            except ValueError:
                return None, match.end()
        elif part[0] == "'":
            part = part[1:-1]
        parts.append(part)
        position = match.end()
        if not match["dot"]:
            return tuple(parts), position
    return None, position


def last_part(text: str, start: int) -> tuple[int, int]:
    """Where the last part of the dotted key at ``start`` begins and ends: ``name`` of ``general.name``."""
    position = start
    while match := _KEY_PART.match(text, position):
        position = match.end()
        if not match["dot"]:
            return match.span("text")
    return start, start


def _statements(text: str) -> Iterator[Statement]:
    position = unclosed = 0
    while (position := _end_of_blank(text, position)) < len(text):
        start = position
        if text[start] == "[":
            header = "[[" if text.startswith("[[", start) else "["
            key, after = _key(text, start + len(header))
            line_end = text.find("\n", after)
            position = len(text) if line_end < 0 else line_end
            depth = len(key) if key else 0
            yield Statement(start, position, header, key, after, depth, closed=True)
            continue
        key, after = _key(text, start)
        if key is None or not text.startswith("=", after):
            line_end = text.find("\n", after)
            position = len(text) if line_end < 0 else line_end
            yield Statement(start, position, "", key, after, len(key or ()), closed=True)
            continue
        value = _end_of_spaces(text, after + 1)
        plain = _PLAIN_LIST.match(text, value)
        end = plain.end() if plain else after + 1
        position, depth, closed = _end_of_value(text, end, hasty=unclosed > _MAX_UNCLOSED)
        unclosed += not closed
        plain_end = plain.end() if plain else 0
        yield Statement(start, position, "", key, value, depth + len(key), closed, plain_end)


def _end_of_spaces(text: str, position: int) -> int:
    while text.startswith((" ", "\t"), position):
        position += 1
    return position


def _end_of_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def _end_of_value(text: str, start: int, *, hasty: bool) -> tuple[int, int, bool]:
    """Where the value at ``start`` ends, how deeply it is nested, and whether all its brackets are closed.

    A ``hasty`` search ends where the next statement seems to begin; else that is looked for when nothing closes it.
    """
    depth = deepest = 0
    position = start
    while match := _TOKEN.search(text, position):
        position = match.end()
        kind = match.lastgroup
        if kind == "open":
            depth += 1
            deepest = max(deepest, depth)
        elif kind == "close":
            depth -= 1
        elif kind == "newline" and depth <= 0:
            return match.start(), deepest, depth == 0
        elif kind == "newline" and hasty and _NEXT_STATEMENT.match(text, match.start()):
            return match.start(), deepest, False
        elif kind == "lone":
            # A quote that does not end on its line: nothing on the rest of the line can be trusted.
            line_end = text.find("\n", position)
            position = len(text) if line_end < 0 else line_end
    if depth <= 0:
        return len(text), deepest, depth == 0
    # Never closed. What looks like the next statement ends it, so that the rest of the file is judged too.
    following = _NEXT_STATEMENT.search(text, start)
    return (following.start() if following else len(text)), deepest, False


@dataclass
class _Places:
    """Offsets of keys and values that stand in statements; the inside of a value is looked into when asked
    for.
    """

    keys: dict[Where, int] = field(default_factory=dict)
    values: dict[Where, int] = field(default_factory=dict)


class Source:
    """A text of TOML, cut into ``statements``. It has no byte-order mark, and ``\\n`` for line ends."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.statements = list(_statements(text))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1; columns count characters."""
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def key(self, path: Where) -> int:
        """Offset of the key at ``path``, or of what comes nearest to it: the table that it should be in."""
        return self._find(path, keys=True)

    def value(self, path: Where) -> int:
        """Offset of the value at ``path``, or of what comes nearest to it."""
        return self._find(path, keys=False)

    def paths(self) -> Iterator[tuple[Statement, Where]]:
        """Every statement with the way to what it is about; those without a readable key are left out."""
        counts: dict[Where, int] = {}
        table: Where = ()
        for statement in self.statements:
            if statement.key is None or statement.depth > MAX_DEPTH:
                continue
            if statement.header:
                table = self._resolve(statement.key, counts, array=statement.header == "[[")
                yield statement, table
            else:
                yield statement, table + statement.key

    def inside(self, offset: int) -> dict[str | int, tuple[int, int]]:
        """Key and value offsets of everything directly inside the list or inline table at ``offset``."""
        found = self._cache.get(offset)
        if found is None:
            opening = self.text[offset : offset + 1]
            if opening == "[":
                found = dict(enumerate((place, place) for place in self._elements(offset + 1)))
            elif opening == "{":
                found = self._entries(offset + 1)
            else:
                found = {}
            self._cache[offset] = found
        return found

    def end_of_value(self, offset: int) -> int:
        """Where the value that begins at ``offset`` ends, in a good document."""
        depth = 0
        end = offset
        for match in _ITEM.finditer(self.text, offset):
            kind = match.lastgroup
            if kind == "skip" and depth == 0:
                return end
            depth += (kind == "open") - (kind == "close")
            if depth < 0 or (depth == 0 and kind == "comma"):
                return end
            end = match.end()
            if depth == 0 and kind != "bare":
                return end
        return end

    def parse(self) -> tuple[dict[str, object], tuple[Problem, ...]]:
        """All values of the text, and everything that keeps it from being TOML.

        With problems, the values are those of the statements that are right.
        """
        too_deep = [s for s in self.statements if s.depth > MAX_DEPTH]
        if not too_deep:
            try:
                return self._loads(), ()
            except (ValueError, RecursionError):
                pass  # said in better words below
        data, problems = _Merge(self).run()
        if not problems and not too_deep:
            # The statements are right one by one, yet not together, in a way that the merge has no words for.
            try:
                return tomllib.loads(self.text), ()
            except (ValueError, RecursionError) as error:
                problems = [_translate(str(error), 0, self.text)]
        return data, tuple(problems)

    def _loads(self) -> dict[str, object]:
        """The values of a good document. Long plain lists are kept from tomllib and put in afterwards."""
        pieces: list[str] = []
        lists: list[tuple[Where, list[str]]] = []
        position = 0
        for statement, path in self.paths():
            if statement.plain_end - statement.value > _LONG:
                pieces += [self.text[position : statement.value], "[]"]
                position = statement.plain_end
                lists.append((path, _PLAIN_TEXT.findall(self.text, statement.value, position)))
        data = tomllib.loads("".join([*pieces, self.text[position:]]))
        for path, texts in lists:
            table: object = data
            for step in path[:-1]:
                if isinstance(table, dict) or (isinstance(table, list) and isinstance(step, int)):
                    table = table[step]  # type: ignore[index]
            if isinstance(table, dict):
                table[path[-1]] = texts
        return data

    @cached_property
    def _lines(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    @cached_property
    def _places(self) -> _Places:
        places = _Places()
        for statement, path in self.paths():
            own = len(statement.key or ())
            self._note(places, path, own, statement.start, statement.start if statement.header else statement.value)
        return places

    @staticmethod
    def _resolve(key: tuple[str, ...], counts: dict[Where, int], *, array: bool) -> Where:
        path: Where = ()
        for index, part in enumerate(key):
            path += (part,)
            if array and index == len(key) - 1:
                counts[path] = counts.get(path, -1) + 1
            if path in counts:
                path += (counts[path],)
        return path

    @staticmethod
    def _note(places: _Places, path: Where, own: int, key: int, value: int) -> None:
        places.keys.setdefault(path, key)
        places.values.setdefault(path, value)
        for length in range(len(path) - own + 1, len(path)):
            places.keys.setdefault(path[:length], key)
            places.values.setdefault(path[:length], value)

    def _find(self, path: Where, *, keys: bool) -> int:
        places = self._places
        for length in range(len(path), 0, -1):
            known = path[:length]
            if known not in places.values:
                continue
            key, value = places.keys[known], places.values[known]
            for step in path[length:]:
                inside = self.inside(value).get(step)
                if inside is None:
                    # Something missing is best shown by the key or header of the table it is missing from.
                    return key
                key, value = inside
            return key if keys else value
        return 0

    @cached_property
    def _cache(self) -> dict[int, dict[str | int, tuple[int, int]]]:
        return {}

    def _elements(self, start: int) -> Iterator[int]:
        depth, fresh = 0, True
        for match in _ITEM.finditer(self.text, start):
            kind = match.lastgroup
            if kind == "skip":
                continue
            if kind == "close":
                depth -= 1
                if depth < 0:
                    return
                continue
            if depth == 0 and kind == "comma":
                fresh = True
            elif depth == 0 and fresh:
                fresh = False
                yield match.start()
            if kind == "open":
                depth += 1

    def _entries(self, start: int) -> dict[str | int, tuple[int, int]]:
        entries: dict[str | int, tuple[int, int]] = {}
        position = start
        while True:
            position = _end_of_blank(self.text, position)
            key, after = _key(self.text, position)
            if key is None or not self.text.startswith("=", after):
                return entries
            value = _end_of_blank(self.text, after + 1)
            # A dotted key inside an inline table: its first part is enough to point at.
            entries.setdefault(key[0], (position, value))
            depth = 0
            for match in _ITEM.finditer(self.text, value):
                kind = match.lastgroup
                depth += (kind == "open") - (kind == "close")
                if depth < 0:
                    return entries
                if depth == 0 and kind == "comma":
                    position = match.end()
                    break
            else:
                return entries


class _Merge:
    """Puts the good statements of a broken text together and says what is wrong with the others."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._data: dict[str, object] = {}
        self._problems: list[Problem] = []
        self._headers: dict[Where, int] = {}
        self._values: dict[Where, int] = {}
        self._again = False

    def run(self) -> tuple[dict[str, object], list[Problem]]:
        table, path = self._data, Where()
        for statement in self._source.statements:
            if len(self._problems) >= _MAX_PROBLEMS:
                self._problems.append(
                    Problem(
                        offset=statement.start,
                        message=f"more than {_MAX_PROBLEMS} errors; stopped reading here",
                    )
                )
                break
            if statement.depth > MAX_DEPTH:
                self._problem(
                    statement.start,
                    f"nested more than {MAX_DEPTH} levels deep",
                    path + (statement.key or ())[:1],
                )
                continue
            parsed = self._parse(statement, path)
            if statement.header:
                if statement.key is None or parsed is None:
                    table, path = {}, ("?",)  # what follows belongs to a table that nobody can name
                else:
                    table, path = self._open(statement, statement.key)
            elif parsed is not None and statement.key is not None:
                value: object = parsed
                for part in statement.key:
                    value = value[part] if isinstance(value, dict) else value
                self._put(table, path, statement, statement.key, value)
        return self._data, self._problems

    def _problem(self, offset: int, message: str, path: Where, hint: str | None = None) -> None:
        self._problems.append(Problem(offset=offset, message=message, path=path, hint=hint))

    def _parse(self, statement: Statement, path: Where) -> dict[str, object] | None:
        text = self._source.text[statement.start : statement.end]
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            problem = _translate(str(error), statement.start, text, closed=statement.closed)
            table = () if path == ("?",) or statement.header else path
            self._problem(problem.offset, problem.message, table + (statement.key or ()), problem.hint)
            return None

    def _open(self, statement: Statement, key: tuple[str, ...]) -> tuple[dict[str, object], Where]:
        array = statement.header == "[["
        table = self._data
        for index, part in enumerate(key):
            last = index == len(key) - 1
            found = table.get(part)
            if found is None:
                fresh: dict[str, object] = {}
                table[part] = [fresh] if array and last else fresh
                table = fresh
                continue
            if isinstance(found, list) and found and isinstance(found[-1], dict):
                if last and array:
                    found.append({})
                table = found[-1]
            elif isinstance(found, dict):
                table = found
            else:
                first = self._line(self._values.get(key[: index + 1]))
                self._problem(statement.start, f"cannot be a table: it already has a value{first}", key[: index + 1])
                return {}, ("?",)
        if not array:
            if key in self._headers:
                name = ".".join(key)
                self._problem(
                    statement.start,
                    f"the table [{name}] appears twice{self._line(self._headers[key])}",
                    key,
                    "put its keys under one header, or rename one of the two",
                )
                self._again = True
                return table, key
            self._headers[key] = statement.start
        self._again = False
        return table, key

    def _put(
        self,
        table: dict[str, object],
        path: Where,
        statement: Statement,
        key: tuple[str, ...],
        value: object,
    ) -> None:
        for index, part in enumerate(key[:-1]):
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                where = path + key[: index + 1]
                self._problem(
                    statement.start,
                    f"cannot be a table: it already has a value{self._line(self._values.get(where))}",
                    where,
                )
                return
            table = inner
        where = path + key
        if key[-1] in table:
            # Under a header that appears twice, one report is enough.
            if not self._again:
                first = self._values.get(where, self._headers.get(where))
                self._problem(statement.start, f"given twice{self._line(first)}", where, "keep one of the two")
            return
        table[key[-1]] = value
        self._values[where] = statement.start

    def _line(self, offset: int | None) -> str:
        return "" if offset is None else f"; first on line {self._source.position(offset)[0]}"


_WORDS: tuple[tuple[str, str, str | None], ...] = (
    ("expected '=' after", "missing '=' after the key", "write: key = value"),
    ("invalid initial character for a key part", "expected a key", None),
    ("invalid statement", "expected 'key = value' or a [table]", None),
    (
        "expected newline or end of document",
        "unexpected text after the statement",
        "write one key or table header per line",
    ),
    ("unclosed array", "the list that starts here is missing a ']' or a comma", None),
    ("unclosed inline table", "the table that starts here is missing a '}' or a comma", None),
    ("expected ']'", "the table header is missing a ']'", None),
    ("unterminated string", "the string that starts here has no closing quote", None),
    ("illegal character '\\n'", "the string that starts on this line has no closing quote", None),
    ('expected "\'"', "the string has no closing quote", None),
    ("expected '\"", "the string has no closing quote", None),
    ("invalid value", "not a valid value", 'put strings in quotes: "text"; lists in brackets: ["a", "b"]'),
    (
        "unescaped '\\'",
        "unknown escape after the backslash",
        "write paths with '/', or '\\\\' for a backslash",
    ),
    ("duplicate inline table key", "duplicate key in the inline table", None),
    ("exceeds the limit", "the number has too many digits", None),
    ("invalid date", "not a valid date", None),
)


def _translate(error: str, start: int, text: str, *, closed: bool = True) -> Problem:
    """What tomllib said, in words for people, with the place counted from the beginning of the file."""
    place = _PLACE.search(error)
    message = error[: place.start()] if place else error
    offset = start
    if place and place[1]:
        lines = text.split("\n")
        offset += sum(len(line) + 1 for line in lines[: int(place[1]) - 1]) + int(place[2]) - 1
    elif place:
        offset += len(text.rstrip())
    lowered = message.lower()
    for begins, words, hint in _WORDS:
        if begins in lowered:
            if not closed and "[" in text:
                return Problem(
                    offset=start,
                    message="the value that starts here is not closed: missing ']', '}' or ','",
                )
            return Problem(offset=offset, message=words, hint=hint)
    if "recursion" in lowered:
        message = "nested too deeply"
    return Problem(offset=offset, message=f"not TOML: {message[:1].lower()}{message[1:]}")
