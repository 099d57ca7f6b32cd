"""Reading one table of ``build.toml`` as :mod:`schema` describes it, with every mistake noticed and none
raised.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kernel_builder.config.backends import Backend
from kernel_builder.config.editions.retired import RETIRED
from kernel_builder.config.intents import instead_of
from kernel_builder.config.schema import EXAMPLES, Kind, Table
from kernel_builder.toml.nodes import Leaf, ListNode, Node, TableNode, describe, quoted, shortened
from kernel_builder.toml.report import Report, same_word
from kernel_builder.toml.scan import Where
from kernel_builder.versions import Version

MAX_UINT = 2**32 - 1
"""The largest number that the reference reads (interoperability contract 1.1)."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class TextEntry(NamedTuple):
    """A piece of text and its place."""

    text: str
    path: Where


class TableReader:
    """Takes the values of one table. Unknown keys and missing required ones are noticed at once.

    Every getter returns ``None`` where the key is not written or its value is wrong; the latter is noticed.
    """

    def __init__(
        self,
        node: TableNode,
        table: Table,
        report: Report,
        *,
        backend: Backend | None = None,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self._node = node
        self._table = table
        self._report = report
        self.path = node.path
        self._allowed = [key for key in table.keys if backend is None or not key.only or backend in key.only]
        meant = {self._judge_name(name, backend) for name in node.items}
        for key in table.keys:
            path = (*self.path, key.name)
            # What has a typing mistake in its name, or cannot be read, has been noticed; it is not missing as well.
            noticed = key.name in meant or path in report.broken or key.name in optional
            if key.required and not noticed and self.node(key.name) is None:
                hint = f"add: {key.name} = {key.example}"
                report.error(path, "is missing", hint=hint, at_key=True)

    def node(self, name: str) -> Node | None:
        """The value of that key, whatever it is."""
        return next((self._node.items[s] for s in self._spellings(name) if s in self._node.items), None)

    def text(self, name: str) -> TextEntry | None:
        """A text that is not empty."""
        node = self.node(name)
        return None if node is None else text_of(node, self._report, example=self.example(name))

    def uint(self, name: str) -> int | None:
        """A whole number, 0 or more."""
        node = self.node(name)
        if node is None:
            return None
        if not isinstance(node, Leaf) or not isinstance(node.value, int) or isinstance(node.value, bool):
            self._report.error(node.path, f"must be an integer, not {describe(node)}", hint=f"write: {name} = 1")
            return None
        if not 0 <= node.value <= MAX_UINT:
            self._report.error(node.path, f"must be an integer from 0 to {MAX_UINT}", hint=f"write: {name} = 1")
            return None
        return node.value

    def flag(self, name: str) -> bool | None:
        """true or false."""
        node = self.node(name)
        if node is None:
            return None
        if not isinstance(node, Leaf) or not isinstance(node.value, bool):
            said = f"must be true or false, not {describe(node)}"
            self._report.error(node.path, said, hint=f"write: {name} = {self.example(name)}")
            return None
        return node.value

    def version(self, name: str) -> Version | None:
        """A version, written as text."""
        node = self.node(name)
        return None if node is None else version_of(node, self._report)

    def texts(self, name: str) -> tuple[TextEntry, ...] | None:
        """A list of texts, none of them empty; those that are wrong are left out."""
        node = self.node(name)
        if node is None:
            return None
        example = self.example(name)
        if not isinstance(node, ListNode):
            if isinstance(node, Leaf) and isinstance(node.value, str):
                example = f"[{self._report.written(node.path)}]"
            self._report.error(
                node.path, f"must be a list of strings, not {describe(node)}", hint=f"write: {name} = {example}"
            )
            return None
        found = (text_of(item, self._report, example=example) for item in node.items)
        return tuple(entry for entry in found if entry is not None)

    def example(self, name: str) -> str:
        """A value of that key, as it is written."""
        return self._table.key(name).example

    def _spellings(self, name: str) -> tuple[str, ...]:
        key = self._table.key(name)
        return (key.name, *key.aliases)

    def _judge_name(self, name: str, backend: Backend | None) -> str | None:
        """Notice a key that should not be there. Returns the key that was meant by one that nobody knows."""
        key = self._table.find(name)
        path = (*self.path, name)
        if key is None:
            return self._unknown(name, path)
        if key not in self._allowed and backend is not None:
            owners = " and ".join(owner.value for owner in key.only)
            self._report.error(
                path,
                f"belongs to kernel sections for {owners}; this one is for {backend.value}",
                hint="it would have no effect here: remove it, or move it to a section of that backend",
                at_key=True,
            )
        elif name != key.name and key.name in self._node.items:
            self._report.error(path, f"is given twice, also as '{key.name}'", hint="keep one of the two", at_key=True)
        return None

    def _unknown(self, name: str, path: Where) -> str | None:
        where = f"[{self._table.name}]"
        names = [key.name for key in self._allowed]
        # A key of this very table that is written in another way is not one that belongs elsewhere.
        elsewhere = instead_of("keys", name) if same_word(name, names) is None else None
        hint, near = RETIRED.get((self._table.name, name)) or elsewhere, None
        if hint is None:
            near = self._report.near(name, names)
            hint = f"did you mean '{near}'?" if near else f"keys of {where}: {', '.join(names)}"
        self._report.error(path, f"unknown key in {where}", hint=hint, at_key=True)
        return near


def text_of(node: Node, report: Report, *, example: str) -> TextEntry | None:
    """The text in ``node``; ``None``, noticed, when it is none, is empty, or has control characters in it."""
    if not isinstance(node, Leaf) or not isinstance(node.value, str):
        hint = f"write: {example}"
        if is_number(node):
            hint = f"put it in quotes, such as {example}"
        report.error(node.path, f"must be a string, not {describe(node)}", hint=hint)
        return None
    if not node.value.strip():
        report.error(node.path, "must not be empty", hint=f"write something like {example}, or remove it")
        return None
    if _CONTROL.search(node.value):
        report.error(
            node.path,
            f"must not contain control characters: {quoted(node.value)}",
            hint="remove them; in double quotes, a backslash starts an escape",
        )
        return None
    return TextEntry(node.value, node.path)


def is_number(node: Node) -> bool:
    """Whether the value is a number, which true and false are not."""
    return isinstance(node, Leaf) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def version_of(node: Node, report: Report) -> Version | None:
    """The version in ``node``, which must be text: as a number, 2.10 would be 2.1."""
    if is_number(node):
        written = shortened(report.written(node.path))
        report.error(
            node.path,
            f"must be a string, not the number {written}: numbers lose zeros, and 2.10 is not 2.1",
            hint=f'put it in quotes: "{written}"',
        )
        return None
    entry = text_of(node, report, example=EXAMPLES[Kind.VERSION])
    if entry is None:
        return None
    try:
        return Version.parse(entry.text)
    except ValueError:
        report.error(
            node.path,
            f"{quoted(entry.text)} is not a version",
            hint='write numbers joined by dots, such as "2.10"',
        )
        return None
