"""Words with placeholders, and the directories of this machine that they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.actions.model import Action, Tool, Tree

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{((?:tool|tree):[^}]*|project|work|store)\}")


def literal(text: str) -> str:
    """A word that means ``text``, braces and all."""
    return text.replace("{", "{{").replace("}", "}}")


def tool_word(tool: Tool) -> str:
    """The word for a program."""
    return f"{{tool:{tool.name}}}"


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a build reads and writes, all absolute: project, work directory, output directory, store."""

    root: Path
    work: Path
    output: Path
    store: Path

    def word(self, path: Path, trees: Iterable[Tree] = ()) -> str:
        """The word for ``path``. One that lies in none of the directories, nor in ``trees``, is its own word."""
        known = [
            (self.work, "{work}"),
            (self.store, "{store}"),
            (self.root, "{project}"),
            *((tree.root, f"{{tree:{tree.name}}}") for tree in trees if tree.root is not None),
        ]
        # The innermost directory first: the store may lie in the project, and the project in a tree.
        for place, placeholder in sorted(known, key=lambda entry: len(entry[0].parts), reverse=True):
            if path == place:
                return placeholder
            if path.is_relative_to(place):
                return f"{placeholder}/{literal(path.relative_to(place).as_posix())}"
        return literal(str(path))

    def text(self, word: str, action: Action | None = None) -> str:
        """What ``word`` stands for on this machine. Raises ``KeyError`` for a tool or tree that ``action`` lacks."""
        if action is None:
            return expand(word, self)
        return expand(word, self, tools=action.tools, trees=action.trees)

    def path(self, word: str, action: Action | None = None) -> Path:
        """The path that ``word`` stands for."""
        return Path(self.text(word, action))

    def command(self, action: Action) -> tuple[str, ...]:
        """The command of ``action`` for this machine."""
        return self.expanded(action, action.command)

    def expanded(self, action: Action, command: Iterable[str]) -> tuple[str, ...]:
        """A command of ``action`` for this machine."""
        return tuple(self.text(word, action) for word in command)


def expand(word: str, places: Places, *, tools: Iterable[Tool] = (), trees: Iterable[Tree] = ()) -> str:
    """``word`` with its placeholders replaced. Raises ``KeyError`` for a tool or tree that is not among those given."""
    values = {"project": str(places.root), "work": str(places.work), "store": str(places.store)}
    values |= {f"tool:{tool.name}": str(tool.path) for tool in tools}
    values |= {f"tree:{tree.name}": str(tree.root) for tree in trees if tree.root is not None}

    def replaced(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else values[match[1]]

    return _PLACEHOLDER.sub(replaced, word)
