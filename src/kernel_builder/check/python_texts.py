"""Which texts an expression in a module can be: constants, variables that only get known values, loops over literals,
and whatever builds a text of such parts, in every spelling.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from kernel_builder.check.python_facts import PythonSource, dotted_name, pairs
from kernel_builder.check.syntax import everything, walk

HOLE = "\0"
"""Stands for a part of a text that is not known."""

Known = Callable[[ast.expr], Sequence[str] | None]
"""What the caller knows of an expression: the texts that it can be; ``None`` for nothing."""

_MOST = 64
_DEEPEST = 10
_METHODS = frozenset(
    {"lower", "upper", "strip", "lstrip", "rstrip", "title", "capitalize", "replace", "removeprefix", "removesuffix"}
)
_SAME = frozenset({"str", "Path", "PurePath", "PosixPath", "fspath", "realpath", "abspath", "expanduser", "resolve"})
"""Functions whose result is their argument, as far as it matters here."""
_COPIES = frozenset({"sorted", "list", "tuple", "set", "frozenset", "reversed"})
_PERCENT = re.compile(r"%(\(\w*\))?[#0\- +]*\d*(?:\.\d+)?([sdiruxf%])")
_FORMATTER = string.Formatter()


class Texts:
    """The texts behind the expressions of one module."""

    def __init__(self, source: PythonSource) -> None:
        self._tree = source.tree

    def of(self, node: ast.AST | None, known: Known | None = None) -> tuple[str, ...]:
        """Every text that ``node`` can be, with :data:`HOLE` for each part that is not known. Nothing where it can be
        anything.
        """
        return tuple(dict.fromkeys(self._of(node, known or _nothing, 0)))

    def exact(self, node: ast.AST | None, known: Known | None = None) -> tuple[str, ...]:
        """The same where all of it is known; else nothing."""
        found = self.of(node, known)
        return () if any(HOLE in text for text in found) else found

    def one(self, node: ast.AST | None) -> str | None:
        """The one text that ``node`` is."""
        found = self.exact(node)
        return found[0] if len(found) == 1 else None

    @cached_property
    def _values(self) -> dict[str, list[ast.expr] | None]:
        """Variable -> whatever it is ever set to, ``None`` for what cannot be told. All scopes of the file are one."""
        found: dict[str, list[ast.expr] | None] = {}
        loops: list[tuple[ast.expr, ast.expr, bool]] = []
        for node in everything(self._tree):
            for name, value in _bound(node):
                entries = found.setdefault(name, [])
                if value is None:
                    found[name] = None
                elif entries is not None:
                    entries.append(value)
            if isinstance(node, ast.For | ast.AsyncFor):
                loops.append((node.target, node.iter, _is_selective(node)))
            elif isinstance(node, ast.comprehension):
                loops.append((node.target, node.iter, bool(node.ifs)))
        for target, iterated, selective in loops:
            elements = None if selective else _elements(iterated, found)
            for name, value in _each(target, elements):
                entries = found.setdefault(name, [])
                if value is None:
                    found[name] = None
                elif entries is not None:
                    entries.append(value)
        return found

    def _of(self, node: ast.AST | None, known: Known, depth: int) -> tuple[str, ...]:
        if depth > _DEEPEST or not isinstance(node, ast.expr):
            return ()
        told = known(node)
        if told is not None:
            return tuple(told)
        if isinstance(node, ast.Constant):
            is_text = isinstance(node.value, str | int) and not isinstance(node.value, bool)
            return (str(node.value),) if is_text else ()
        if isinstance(node, ast.Name):
            values = self._values.get(node.id)
            every = [self._of(value, known, depth + 1) for value in values or ()]
            return () if not all(every) else tuple(text for texts in every for text in texts)[:_MOST]
        if isinstance(node, ast.IfExp):
            every = [self._of(branch, known, depth + 1) for branch in (node.body, node.orelse)]
            return (*every[0], *every[1]) if all(every) else ()
        if isinstance(node, ast.NamedExpr):
            return self._of(node.value, known, depth + 1)
        parts = self._parts(node, known, depth)
        return _joined(parts) if parts is not None else ()

    def _parts(self, node: ast.expr, known: Known, depth: int) -> list[tuple[str, ...]] | None:
        """The parts of a text in order, each with all that it can be."""

        def inner(part: ast.AST | None) -> tuple[str, ...]:
            return self._of(part, known, depth + 1)

        if isinstance(node, ast.JoinedStr):
            return [inner(_formatted(part)) for part in node.values]
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Add):
                return [inner(node.left), inner(node.right)]
            if isinstance(node.op, ast.Div):  # of paths
                return [inner(node.left), ("/",), inner(node.right)]
            if isinstance(node.op, ast.Mod):
                given = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
                return _percent(self.one(node.left), [inner(part) for part in given])
            return None
        if isinstance(node, ast.Call):
            return self._called(node, inner)
        return None

    def _called(
        self, node: ast.Call, inner: Callable[[ast.AST | None], tuple[str, ...]]
    ) -> list[tuple[str, ...]] | None:
        name = (dotted_name(node.func) or "").rsplit(".", 1)[-1]
        if name in _SAME and len(node.args) == 1:
            return [inner(node.args[0])]
        if dotted_name(node.func) in {"os.path.join", "path.join", "osp.join"}:
            return _between(("/",), [inner(part) for part in node.args])
        if not isinstance(node.func, ast.Attribute):
            return None
        base, method = node.func.value, node.func.attr
        if method == "format":
            words = {word.arg: inner(word.value) for word in node.keywords if word.arg}
            return _braces(self.one(base), [inner(part) for part in node.args], words)
        if method == "join" and len(node.args) == 1 and isinstance(node.args[0], ast.List | ast.Tuple):
            return _between(inner(base), [inner(part) for part in node.args[0].elts])
        given = [part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        texts = inner(base)
        if method in _METHODS and len(given) == len(node.args) and not any(HOLE in text for text in texts):
            try:
                return [tuple(getattr(text, method)(*given) for text in texts)]
            except TypeError:
                return None
        return None


def _nothing(_node: ast.expr) -> None:
    return None


def _joined(parts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """All texts of some parts in a row; nothing where none of them is known or these are too many."""
    if not any(parts):
        return ()
    found = [""]
    for part in parts:
        found = [before + text for before in found for text in (part or (HOLE,))]
        if len(found) > _MOST:
            return ()
    return tuple(found)


def _between(separator: tuple[str, ...], parts: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for part in parts:
        found += [separator, part] if found else [part]
    return found


def _formatted(part: ast.expr) -> ast.expr | None:
    """What stands in the braces of an f-string; ``None`` where it is changed on the way."""
    if not isinstance(part, ast.FormattedValue):
        return part
    return part.value if part.format_spec is None and part.conversion in {-1, ord("s")} else None


def _percent(text: str | None, given: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]] | None:
    """The parts of ``text % given``."""
    if text is None:
        return None
    found: list[tuple[str, ...]] = []
    at, number = 0, 0
    for match in _PERCENT.finditer(text):
        found.append((text[at : match.start()],))
        at = match.end()
        if match[2] == "%":
            found.append(("%",))
            continue
        plain = match[0] in {"%s", "%d", "%i"} and number < len(given)
        found.append(given[number] if plain else ())
        number += 1
    return [*found, (text[at:],)]


def _braces(
    text: str | None, given: Sequence[tuple[str, ...]], words: dict[str, tuple[str, ...]]
) -> list[tuple[str, ...]] | None:
    """The parts of ``text.format(*given, **words)``."""
    if text is None:
        return None
    found: list[tuple[str, ...]] = []
    number = 0
    try:
        for literal, name, spec, conversion in _FORMATTER.parse(text):
            found.append((literal,))
            if name is None:
                continue
            place = name or str(number)
            number += not name
            index = int(place) if place.isdecimal() else -1
            value = given[index] if 0 <= index < len(given) else words.get(place, ())
            found.append(() if spec or conversion else value)
    except ValueError:
        return None
    return found


# --- variables ---


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Names that a node binds, loops left out, with what they are bound to where that is an expression."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from pairs(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        if node.value is not None:
            yield from pairs(node.target, node.value)
    elif isinstance(node, ast.AugAssign):
        yield from _each(node.target, None)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _each(node.optional_vars, None)
    elif isinstance(node, ast.arg):
        yield node.arg, None
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, None
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".", 1)[0], None
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name, None


def _each(target: ast.expr, elements: Iterable[ast.expr] | None) -> Iterator[tuple[str, ast.expr | None]]:
    """Names of ``target``, each with every one of ``elements`` in turn."""
    if elements is not None:
        for element in elements:
            yield from pairs(target, element)
        return
    for inner in walk(target):
        if isinstance(inner, ast.Name):
            yield inner.id, None


def _elements(node: ast.expr, values: dict[str, list[ast.expr] | None], depth: int = 0) -> list[ast.expr] | None:
    """What a loop over ``node`` gives, where that is written out."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return None if any(isinstance(part, ast.Starred) for part in node.elts) else node.elts
    if isinstance(node, ast.Dict):
        return None if None in node.keys else [key for key in node.keys if key is not None]
    if isinstance(node, ast.Name):
        known = values.get(node.id)
        return _elements(known[0], values, depth + 1) if known is not None and len(known) == 1 else None
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _COPIES
        and len(node.args) == 1
    ):
        return _elements(node.args[0], values, depth + 1)
    return None


def _is_selective(loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop may pass over what it is given: it tests it, or goes on before its end."""
    names = {inner.id for inner in walk(loop.target) if isinstance(inner, ast.Name)}
    for statement in loop.body:
        for node in walk(statement):
            if isinstance(node, ast.Continue | ast.Break | ast.Return | ast.Try):
                return True
            test = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else None
            if test is not None and any(isinstance(inner, ast.Name) and inner.id in names for inner in walk(test)):
                return True
    return False
