"""A TOML document as values that know their place in the file.

A node's ``path`` is its origin: moving a node elsewhere (as reading an older edition does) keeps it, so that
messages always point at what the user wrote. Nodes are named tuples because a large file has thousands of
them, and making a frozen dataclass takes four times as long.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kernel_builder.toml.scan import Where

Scalar = str | int | float | bool | dt.datetime | dt.date | dt.time


class Leaf(NamedTuple):
    """A single value."""

    path: Where
    value: Scalar


class ListNode(NamedTuple):
    """A list."""

    path: Where
    items: tuple[Node, ...]


class TableNode(NamedTuple):
    """A table, inline or not; entries in file order."""

    path: Where
    items: Mapping[str, Node]

    def get(self, name: str) -> Node | None:
        """The entry of that name."""
        return self.items.get(name)

    def table(self, name: str) -> TableNode:
        """The table of that name; an empty one when there is none (or something else)."""
        found = self.items.get(name)
        return found if isinstance(found, TableNode) else TableNode((*self.path, name), {})

    def but(self, changes: Mapping[str, Node], without: tuple[str, ...] = ()) -> TableNode:
        """This table with some entries set (new ones behind the others) and some left out."""
        items = {name: node for name, node in self.items.items() if name not in without}
        return TableNode(self.path, {**items, **changes})


Node = Leaf | ListNode | TableNode


def node_of(value: object, path: Where = ()) -> Node:
    """Wrap what tomllib made."""
    if isinstance(value, dict):
        return TableNode(path, {name: node_of(inner, (*path, name)) for name, inner in value.items()})
    if isinstance(value, list):
        return ListNode(path, tuple(node_of(inner, (*path, index)) for index, inner in enumerate(value)))
    if not isinstance(value, Scalar):
        raise TypeError(f"TOML has no {type(value).__name__}")
    return Leaf(path, value)


def table_of(data: Mapping[str, object]) -> TableNode:
    """Wrap a whole document."""
    return TableNode((), {name: node_of(value, (name,)) for name, value in data.items()})


def describe(node: Node) -> str:
    """What a message calls this value: ``the number 3``, ``the text 'x'``, ``a table``."""
    if isinstance(node, TableNode):
        return "a table"
    if isinstance(node, ListNode):
        return "a list"
    match node.value:
        case bool() as value:
            text = "true" if value else "false"
        case str() as value:
            text = f"the string {quoted(value)}"
        case int() as value if abs(value) >= 2**63:
            text = "a number too large for TOML"
        case int() | float() as value:
            text = f"the number {value}"
        case value:
            text = f"the date or time {value}"
    return text


def in_words(names: Iterable[str]) -> str:
    """Names as a sentence has them: ``a``, ``a and b``, ``a, b and c``."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def quoted(text: str) -> str:
    """Text as messages show it: in single quotes, shortened, control characters escaped."""
    return f"'{shortened(printable(text))}'"


def shortened(text: str, limit: int = 60) -> str:
    """At most ``limit`` characters of ``text``."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def printable(text: str) -> str:
    """Text with everything that would upset a terminal written as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_lines(text: str) -> str:
    """:func:`printable` for text of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))


def dotted(path: Where) -> str:
    """A path as people write it: ``kernel.relu.src[2]``; keys that need quotes get them."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        bare = bool(step) and all(char.isascii() and (char.isalnum() or char in "-_") for char in step)
        shown = shortened(step) if bare else '"' + shortened(printable(step)).replace('"', '\\"') + '"'
        text += f".{shown}" if text else shown
    return text
