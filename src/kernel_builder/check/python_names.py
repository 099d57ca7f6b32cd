"""What a name in a module means, whatever its spelling: ``torch.ops.load_library`` may be written in many ways.

Followed are imports with and without other names, star imports, variables with one value, attributes of a class that
get one value, functions that return one, ``getattr`` and ``attrgetter``, ``functools.partial``, modules that are
imported by a string and those in ``sys.modules``.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from kernel_builder.check.python_facts import PythonSource, dotted_name, pairs
from kernel_builder.check.python_texts import Texts
from kernel_builder.check.syntax import children, everything, walk

_DEEPEST = 8
_ASKING = frozenset({"__getattr__", "__getattribute__"})
_PROPERTIES = frozenset({"property", "cached_property"})


class FullNames:
    """The full names behind the expressions of one module. ``texts`` are those that its expressions can be."""

    def __init__(self, source: PythonSource) -> None:
        self._source = source
        self.texts = Texts(source)

    @cached_property
    def _imported(self) -> dict[str, str]:
        """Local name -> what an absolute import makes it."""
        found: dict[str, str] = {}
        for node, _place in self._source.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.split(".", 1)[0]] = (
                        alias.name if alias.asname else alias.name.split(".", 1)[0]
                    )
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        found.pop("*", None)
        return found

    @cached_property
    def _stars(self) -> tuple[str, ...]:
        return tuple(
            entry.module for entry in self._source.imports if entry.names == ("*",) and not entry.level and entry.module
        )

    @cached_property
    def values(self) -> dict[str, ast.expr]:
        """Variables that get one value in the whole file."""
        return {name: values[0] for name, values in self._source.values.items() if len(values) == 1}

    @cached_property
    def _parameters(self) -> frozenset[str]:
        """Names that stand for many values."""
        found: set[str] = set()
        for node in everything(self._source.tree):
            if isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                found.update(inner.id for inner in walk(node.target) if isinstance(inner, ast.Name))
        return frozenset(found)

    @cached_property
    def _returned(self) -> Mapping[str, ast.expr]:
        """Functions of one name each that return one thing -> what they return."""
        found: dict[str, list[ast.expr | None]] = {}
        for node in everything(self._source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, []).append(_returns(node))
        return {name: only[0] for name, only in found.items() if len(only) == 1 and only[0] is not None}

    @cached_property
    def _members(self) -> tuple[Mapping[int, ast.expr], Mapping[int, ast.expr]]:
        """Attributes of an object's own class (``self.x``), as nodes -> the one value that the class gives them; and
        methods -> the one thing that they return.
        """
        nodes = everything(self._source.tree)
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        known = {node.name: _Members.of(node) for node in classes}
        values: dict[int, ast.expr] = {}
        results: dict[int, ast.expr] = {}
        for node in classes:
            bases = [known.get(dotted_name(base) or "", _Members({}, {})) for base in reversed(node.bases)]
            own = _Members({}, {})
            for one in (*bases, known[node.name]):
                own.values.update(one.values)
                own.results.update(one.results)
            selves = {"cls", *(_first_parameter(method) for method in _methods(node))}
            for inner in walk(node):
                own.note(inner, selves, values, results)
        for inner in nodes if classes else ():
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in known:
                known[inner.value.id].note(inner, {inner.value.id}, values, results)
        return values, results

    def behind(self, node: ast.AST | None) -> ast.expr | None:
        """What an expression stands for, one step further: the value of a variable or of an attribute, what a function
        returns. ``None`` where it stands for itself, or for many things.
        """
        if isinstance(node, ast.Name):
            return None if node.id in self._parameters or node.id in self._imported else self.values.get(node.id)
        if isinstance(node, ast.NamedExpr):
            return node.value
        if isinstance(node, ast.Attribute):
            return self._members[0].get(id(node))
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            if isinstance(node.func, ast.Name) and node.func.id not in self._parameters:
                return self._returned.get(node.func.id)
            return self._members[1].get(id(node.func))
        return None

    def of(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """The full name of an expression; ``None`` where it means nothing that is imported."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, ast.Name) and node.id in self._imported:
            return self._imported[node.id]
        behind = self.behind(node)
        if behind is not None:
            return self.of(behind, depth + 1)
        if isinstance(node, ast.Attribute):
            base = self.of(node.value, depth + 1)
            return None if base is None else f"{base}.{node.attr}"
        if isinstance(node, ast.Call):
            return self._of_call(node, depth)
        if isinstance(node, ast.Subscript):
            return self._of_item(node, depth)
        return None

    def candidates(self, node: ast.AST | None) -> tuple[str, ...]:
        """The full names that an expression can have: one, or with star imports one for each of them."""
        found = self.of(node)
        if found is not None:
            return (found,)
        rest: list[str] = []
        while isinstance(node, ast.Attribute):
            rest.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self._source.definitions or node.id in self._parameters:
            return ()
        return tuple(".".join((star, node.id, *rest)) for star in self._stars)

    def _of_call(self, node: ast.Call, depth: int) -> str | None:
        """A module that is imported by a string, an attribute that is, and ``partial``."""
        function = (
            node.func.id if isinstance(node.func, ast.Name) and node.func.id in {"getattr", "__import__"} else None
        )
        function = function or self.of(node.func, depth + 1)
        if function in {"importlib.import_module", "importlib.__import__", "__import__"} and node.args:
            text = self.texts.one(node.args[0])
            if text is None or text.startswith("."):
                return None
            return text if function == "importlib.import_module" else text.split(".", 1)[0]
        if function == "getattr" and len(node.args) >= 2:
            return self._attribute(node.args[0], node.args[1], depth)
        if function == "sys.modules.get" and node.args:
            return self.texts.one(node.args[0])
        if function == "functools.partial" and node.args:
            return self.of(node.args[0], depth + 1)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _ASKING and len(node.args) == 1:
            return self._attribute(node.func.value, node.args[0], depth)
        getter = self.behind(node.func) or node.func
        if isinstance(getter, ast.Call) and len(getter.args) == len(node.args) == 1:
            is_getter = self.of(getter.func, depth + 1) == "operator.attrgetter"
            return self._attribute(node.args[0], getter.args[0], depth) if is_getter else None
        return None

    def _of_item(self, node: ast.Subscript, depth: int) -> str | None:
        """A module in ``sys.modules``, and what is in the ``__dict__`` of something."""
        if self.of(node.value, depth + 1) == "sys.modules":
            return self.texts.one(node.slice)
        if isinstance(node.value, ast.Attribute) and node.value.attr == "__dict__":
            return self._attribute(node.value.value, node.slice, depth)
        if isinstance(node.value, ast.Call) and dotted_name(node.value.func) == "vars" and len(node.value.args) == 1:
            return self._attribute(node.value.args[0], node.slice, depth)
        return None

    def _attribute(self, base: ast.expr, name: ast.expr, depth: int) -> str | None:
        text, known = self.texts.one(name), self.of(base, depth + 1)
        return None if known is None or text is None else f"{known}.{text}"


def _methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement


def _first_parameter(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    every = (*method.args.posonlyargs, *method.args.args)
    is_static = any(dotted_name(decorator) == "staticmethod" for decorator in method.decorator_list)
    return every[0].arg if every and not is_static else "self"


@dataclass(frozen=True)
class _Members:
    """What a class gives its objects or itself: attributes and properties -> their value, other methods -> what they
    return; ``None`` where that is not one thing. ``x = None`` beside another value is none.
    """

    values: dict[str, ast.expr | None]
    results: dict[str, ast.expr | None]

    @classmethod
    def of(cls, node: ast.ClassDef) -> _Members:
        values: dict[str, list[ast.expr | None]] = {}
        results: dict[str, ast.expr | None] = {}
        for statement in node.body:
            for target, value in _assignments(statement):
                for name, given in pairs(target, value) if value is not None else ():
                    values.setdefault(name, []).append(given)
        for method in _methods(node):
            decorators = {(dotted_name(one) or "").rsplit(".", 1)[-1] for one in method.decorator_list}
            if decorators & _PROPERTIES:
                values.setdefault(method.name, []).append(_returns(method))
            else:
                results[method.name] = _returns(method)
            own = _first_parameter(method)
            for inner in walk(method):
                for target, value in _assignments(inner):
                    if isinstance(target, ast.Attribute) and dotted_name(target.value) == own:
                        values.setdefault(target.attr, []).append(value)
        return cls({name: _only(every) for name, every in values.items()}, results)

    def note(
        self, node: ast.AST, objects: Collection[str], values: dict[int, ast.expr], results: dict[int, ast.expr]
    ) -> None:
        """Add ``node`` to ``values`` or ``results`` if it is an attribute, that is known, of one of ``objects``."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in objects:
            for known, found in ((self.values, values), (self.results, results)):
                value = known.get(node.attr)
                if value is not None:
                    found[id(node)] = value


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """``(target, value)`` of an assignment; of ``x += 1``, no value."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield target, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.AugAssign):
        yield node.target, None


def _only(values: list[ast.expr | None]) -> ast.expr | None:
    said = [value for value in values if not (isinstance(value, ast.Constant) and value.value is None)]
    return said[0] if len({None if value is None else ast.dump(value) for value in said}) == 1 else None


def _returns(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    """What a function returns, if that is one thing and nothing decorates it but ``property`` and the like."""
    for decorator in function.decorator_list:
        name = (dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator) or "").rsplit(".", 1)[-1]
        if name not in {*_PROPERTIES, "staticmethod", "classmethod", "cache", "lru_cache"}:
            return None
    found: list[ast.expr | None] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return None
        if isinstance(node, ast.Return):
            found.append(node.value)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += children(node)
    return _only(found) if found else None
