"""What conditions of Python code are while the user has set no environment variable: is that code opt-in?"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kernel_builder.check.syntax import everything

_DEEPEST = 8
_ASKING = frozenset({"get", "pop", "setdefault", "getenv"})
_CONVERTING: Mapping[str, Callable[[Any], object]] = {"bool": bool, "str": str, "int": int, "float": float, "len": len}
_METHODS = frozenset({"lower", "upper", "strip", "casefold", "title", "isdigit"})
_COMPARING: Mapping[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}


class _Unknown(Exception):  # noqa: N818  (no error of anybody)
    """The value depends on something else."""


class Unset:
    """The conditions of one module."""

    def __init__(self, tree: ast.Module) -> None:
        self._values: dict[str, ast.expr | None] = {}
        self._asked = False
        self._is_asking = _asks(tree)
        for node in everything(tree) if self._is_asking else ():
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        """Variables and functions without arguments -> their one value."""
        found: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.Assign):
            found = [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
            found = [(node.target.id, node.value)]
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found = [(node.target.id, None)]
        elif isinstance(node, ast.arg):
            found = [(node.arg, None)]
        elif isinstance(node, ast.FunctionDef):
            last = node.body[-1]
            found = [(node.name, last.value if isinstance(last, ast.Return) and len(node.body) <= 2 else None)]
        for name, value in found:
            self._values[name] = None if name in self._values else value

    def runs(self, test: ast.expr, part: str) -> bool | None:
        """Whether the branch ``part`` (``body`` or ``orelse``) of a condition runs while nothing is set; ``None`` where
        that depends on anything else, or on no environment variable at all.
        """
        if not self._is_asking:
            return None
        self._asked = False
        try:
            value = bool(self._of(test, 0))
        except (_Unknown, TypeError, ValueError, AttributeError, RecursionError):
            return None
        return value == (part == "body") if self._asked else None

    def _of(self, node: ast.expr | None, depth: int) -> object:
        if depth > _DEEPEST or node is None:
            raise _Unknown
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._of(self._values.get(node.id), depth + 1)
            case ast.NamedExpr():
                return self._of(node.value, depth + 1)
            case ast.UnaryOp(op=ast.Not()):
                return not self._of(node.operand, depth + 1)
            case ast.List() | ast.Tuple() | ast.Set():
                return [self._of(part, depth + 1) for part in node.elts]
            case ast.BoolOp():
                return self._of_all(node, depth)
            case ast.Compare(ops=[compared], comparators=[right]):
                return self._compared(node.left, compared, right, depth)
            case ast.Subscript() if _is_environment(node.value):
                self._asked = True
                return None
            case ast.Call():
                return self._of_call(node, depth)
        raise _Unknown

    def _of_all(self, node: ast.BoolOp, depth: int) -> object:
        """``and`` and ``or``: one operand can decide, whatever the others are."""
        deciding = isinstance(node.op, ast.Or)
        known: list[object] = []
        for operand in node.values:
            before = self._asked
            try:
                value = self._of(operand, depth + 1)
            except (_Unknown, TypeError, ValueError, AttributeError):
                self._asked = before
                continue
            if bool(value) is deciding:
                return value
            known.append(value)
        if len(known) < len(node.values):
            raise _Unknown
        return known[-1]

    def _compared(self, left: ast.expr, compared: ast.cmpop, right: ast.expr, depth: int) -> object:
        if isinstance(compared, ast.In | ast.NotIn) and _is_environment(right):
            self._asked = True
            return isinstance(compared, ast.NotIn)
        compare = _COMPARING.get(type(compared))
        if compare is None:
            raise _Unknown
        return compare(self._of(left, depth + 1), self._of(right, depth + 1))

    def _of_call(self, node: ast.Call, depth: int) -> object:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        base = node.func.value if isinstance(node.func, ast.Attribute) else None
        if _asks_for_variable(node):
            self._asked = True
            default = node.args[1:2] or [word.value for word in node.keywords if word.arg == "default"]
            return self._of(default[0], depth + 1) if default else None
        if base is None and name in _CONVERTING and len(node.args) == 1:
            return _CONVERTING[name](self._of(node.args[0], depth + 1))
        if base is None and not node.args and not node.keywords:
            return self._of(self._values.get(name), depth + 1)
        if base is not None and name in _METHODS and not node.args:
            return getattr(self._of(base, depth + 1), name)()
        raise _Unknown


@lru_cache(maxsize=2048)
def unset_in(tree: ast.Module) -> Unset:
    """The conditions of a module, read once."""
    return Unset(tree)


def _asks_for_variable(node: ast.Call) -> bool:
    function = node.func
    if isinstance(function, ast.Name):
        return function.id == "getenv"
    if not isinstance(function, ast.Attribute) or function.attr not in _ASKING:
        return False
    return function.attr == "getenv" or _is_environment(function.value)


def _is_environment(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
    return name == "environ"


def _asks(tree: ast.Module) -> bool:
    for node in everything(tree):
        if isinstance(node, ast.Attribute | ast.Name) and _is_environment(node):
            return True
        if isinstance(node, ast.Call) and _asks_for_variable(node):
            return True
    return False
