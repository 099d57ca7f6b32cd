"""Smaller includes for a source: what could stand in place of headers that bring far more than it uses.

Nothing here says that a proposal compiles: whoever gives one has to try it.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parents[1] / "data" / "includes.toml"
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"][^\n]*$', re.MULTILINE)
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|endif)\b")
_SILENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A source with smaller includes: its ``text``, what was ``replaced``, and by which headers."""

    text: str
    replaced: tuple[str, ...]
    headers: tuple[str, ...]

    def patch(self, path: str, before: str) -> str:
        """A unified diff of the file ``path``, relative to the project, that had the text ``before``."""
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), self.text.splitlines(keepends=True), f"a/{path}", f"b/{path}"
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def umbrellas_in(text: str) -> tuple[str, ...]:
    """The headers that ``text`` includes and that are worth replacing, in order."""
    return tuple(dict.fromkeys(name for name in _INCLUDE.findall(text) if name in _table()["umbrellas"]))


def proposals(text: str, exists: Callable[[str], bool]) -> Iterator[Proposal]:
    """What to try for the source ``text``, from little to much. ``exists`` says whether a header can be included."""
    umbrellas = umbrellas_in(text)
    if not umbrellas:
        return
    table = _table()
    code = _SILENT.sub(" ", _INCLUDE.sub("", text))
    wanted = [offer["header"] for offer in table["offer"] if re.search(offer["uses"], code)]
    operators = table["operators"]
    for name in sorted(set(re.findall(operators["uses"], code))):
        wanted.append(operators["header"].format(name=name))
    wanted = [name for name in wanted if exists(name)]
    for more in ([], *table["besides"]):
        if set(more) & set(umbrellas):
            return  # what the source has now
        headers = tuple(dict.fromkeys((*wanted, *filter(exists, more))))
        namespace = None if more else _namespace(table["namespace"], code)
        yield Proposal(text=_replaced(text, umbrellas, headers, namespace), replaced=umbrellas, headers=headers)


def _namespace(table: Mapping[str, str], code: str) -> str | None:
    wanted = re.search(table["uses"], code) and not re.search(table["without"], code)
    return table["line"] if wanted else None


def _replaced(text: str, umbrellas: tuple[str, ...], headers: tuple[str, ...], namespace: str | None) -> str:
    """``text`` with ``headers`` at its first umbrella, without the others. What it includes already stays once.

    Where a condition decides on an umbrella, all of them have the headers: nobody knows which one is read.
    """
    ending = "\r\n" if "\r\n" in text else "\n"
    places = [(depth, line) for depth, line, name in _with_depth(text) if name in umbrellas]
    conditional = any(depth for depth, _ in places)
    kept = {name for depth, _, name in _with_depth(text) if not depth and name and name not in umbrellas}
    lines = [f"#include <{name}>" for name in headers if name not in kept] + ([namespace] if namespace else [])
    instead = "".join(f"{one}{ending}" for one in lines)
    made: list[str] = []
    for _, line, name in _with_depth(text):
        if name not in umbrellas:
            made.append(line)
        elif conditional or instead not in made:
            made.append(instead)
    return "".join(made)


def _with_depth(text: str) -> Iterator[tuple[int, str, str | None]]:
    """Each line with the number of conditions that it depends on, and the header that it includes."""
    depth = 0
    for line in text.splitlines(keepends=True):
        found = _INCLUDE.match(line.rstrip("\r\n"))
        yield depth, line, found[1] if found else None
        condition = _CONDITION.match(line)
        if condition:
            depth += 1 if condition[1].startswith("if") else -1


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(_DATA.read_text(encoding="utf-8"))
