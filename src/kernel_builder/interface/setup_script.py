"""What a ``setup.py`` would do, followed statement by statement without running any of it.

Its own functions are entered, loops over known lists are walked, and conditions are decided where that is possible:
the machine is a Linux machine, and no variable of the environment is set, as in most builds. Whatever else a value
depends on makes it :data:`UNKNOWN`. Lists remember what was left out of them and what was assumed.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from kernel_builder.interface.setup_values import (
    CONSTANTS,
    UNKNOWN,
    NotedDict,
    NotedList,
    called_builtin,
    called_method,
    combined,
    compared,
    joined,
    noted,
    truth,
)

Construct = Callable[[str, ast.Call, tuple[object, ...], Mapping[str, object]], object]
"""Is told of each call of a function that has a special meaning: its name, the call, and its arguments."""
_STEPS = 100_000
"""Statements and expressions that are looked at, at most: a file that builds lists of all sizes comes to an end."""
_DEEPEST = 24
"""Calls of the file's own functions within each other."""
_SYSTEM = re.compile(r"\bos\.name\b|platform|windows|darwin|macos|__name__", re.IGNORECASE)
"""What asks for the system: what is for another one is left out."""
_LONGEST_LOOP = 2_000
_LONGEST_LIST = 20_000
_LONGEST_TEXT = 100_000


@dataclass(frozen=True)
class Special:
    """A function with a special meaning, or one of several that a condition chooses between."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class _Function:
    """A function of the file, and the scope it was defined in."""

    node: ast.FunctionDef | ast.Lambda
    scope: _Scope


@dataclass(frozen=True)
class _Partial:
    """What ``functools.partial`` returns."""

    function: object
    given: tuple[object, ...]
    words: Mapping[str, object]


@dataclass
class _Scope:
    """Names and what they are bound to; ``conditions`` are those under which each was bound last, ``base`` those under
    which all of it happens.
    """

    outer: _Scope | None = None
    base: tuple[int, ...] = ()
    values: dict[str, object] = field(default_factory=dict)
    conditions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def find(self, name: str) -> _Scope | None:
        """The scope that has a name."""
        return self if name in self.values else self.outer.find(name) if self.outer else None


class _Return(Exception):  # noqa: N818  (control flow)
    """A function has returned, whatever the conditions."""


class _LoopEnd(Exception):  # noqa: N818  (control flow)
    """``break``, or ``continue`` where ``again`` is set."""

    def __init__(self, *, again: bool) -> None:
        self.again = again


class Script:
    """Follows one file, and the files of the same directory that it imports from.

    ``special`` are the names of functions that ``construct`` is told of; ``counts_anyway`` says of an item
    of a list that it is taken whatever the condition under which it is added.
    """

    def __init__(
        self, root: Path, special: frozenset[str], construct: Construct, counts_anyway: Callable[[object], bool]
    ) -> None:
        self.root = root
        self.special = special
        self.construct = construct
        self.counts_anyway = counts_anyway
        self.steps = 0
        self.depth = 0
        self.conditions: tuple[int, ...] = ()
        self.base: tuple[int, ...] = ()
        self.loop: tuple[int, ...] = ()
        self.returned: list[object] = []
        self.entered: set[int] = set()
        self.seen_calls: set[int] = set()

    def run(self, tree: ast.Module, file: Path) -> None:
        """Follow the whole file, and then the functions that nothing called but that call a special one."""
        scope = _Scope(values={"__file__": str(file), "__name__": "__main__"})
        with contextlib.suppress(_Return, _LoopEnd):  # the text may have them where no program can
            self._statements(tree.body, scope)
        self.steps = 0
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and id(node) not in self.entered and self._is_special_inside(node):
                names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                defaults = self._defaults(_Function(node, scope))
                words = {name: defaults.get(name, UNKNOWN) for name in names}
                self._enter(_Function(node, scope), (), words)
        self.steps = 0
        for node in ast.walk(tree):  # what stands in a class, or behind a condition that does not hold here
            if isinstance(node, ast.Call) and id(node) not in self.seen_calls and self._is_special(node.func, scope):
                self.value(node, scope)

    def _is_special(self, function: ast.expr, scope: _Scope) -> bool:
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return name in self.special or isinstance(scope.values.get(name), Special)

    def _is_special_inside(self, node: ast.stmt) -> bool:
        """Whether it calls a special function, by its own name."""
        calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
        names = {getattr(one, "attr", getattr(one, "id", "")) for one in calls}
        return not names.isdisjoint(self.special)

    # --- statements ---

    def _statements(self, body: Iterable[ast.stmt], scope: _Scope) -> None:
        for node in body:
            self.steps += 1
            if self.steps > _STEPS:
                return
            self._statement(node, scope)

    def _statement(self, node: ast.stmt, scope: _Scope) -> None:  # noqa: C901, PLR0912  (one line a statement)
        match node:
            case ast.Expr():
                self.value(node.value, scope)
            case ast.Assign():
                value = self.value(node.value, scope)
                for target in node.targets:
                    self._bind(target, value, scope)
            case ast.AnnAssign() if node.value is not None:
                self._bind(node.target, self.value(node.value, scope), scope)
            case ast.AugAssign():
                self._add_to(node, scope)
            case ast.If():
                self._if(node, scope)
            case ast.For():
                self._for(node, scope)
            case ast.While():
                self._unsure(node.body, scope)
            case ast.With():
                for item in node.items:
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, self.value(item.context_expr, scope), scope)
                self._statements(node.body, scope)
            case ast.Try():
                self._statements((*node.body, *node.orelse), scope)
                for handler in node.handlers:
                    self._unsure(handler.body, scope)
                self._statements(node.finalbody, scope)
            case ast.FunctionDef():
                self._set(node.name, _Function(node, scope), scope)
            case ast.Return():
                self.returned.append(self.value(node.value, scope) if node.value else None)
                if self.conditions == self.base:
                    raise _Return
            case ast.Break() | ast.Continue() if self.conditions == self.loop:
                raise _LoopEnd(again=isinstance(node, ast.Continue))
            case ast.ImportFrom() | ast.Import():
                self._import(node, scope)

    def _unsure(self, body: Iterable[ast.stmt], scope: _Scope) -> None:
        """Statements that may run or not."""
        before, self.conditions = self.conditions, (*self.conditions, self.steps)
        self._statements(body, scope)
        self.conditions = before

    def _if(self, node: ast.If, scope: _Scope) -> None:
        known = truth(self.value(node.test, scope))
        if known is None:
            self._unsure(node.body, scope)
            self._unsure(node.orelse, scope)
            return
        self._statements(node.body if known else node.orelse, scope)
        other = node.orelse if known else node.body
        if _SYSTEM.search(ast.unparse(node.test)) is None and any(map(self._is_special_inside, other)):
            self._unsure(other, scope)  # an extension that is not built unless somebody asks for it
        else:
            self._left_out(other, scope)

    def _left_out(self, body: Iterable[ast.stmt], scope: _Scope) -> None:
        """Statements that do not run in the usual build: what they would add to lists that there are is noted."""
        for node in (one for statement in body for one in ast.walk(statement)):
            if isinstance(node, ast.Call):
                self.seen_calls.add(id(node))
            target, added = _added(node)
            if isinstance(target, ast.Name | ast.Subscript) and added is not None:
                value = self.value(target, scope)
                if isinstance(value, NotedList):
                    value.left.append(ast.unparse(added))

    def _for(self, node: ast.For, scope: _Scope) -> None:
        items = _iterated(self.value(node.iter, scope))
        if items is None:
            self._bind(node.target, UNKNOWN, scope)
            self._unsure(node.body, scope)
            return
        before, self.loop = self.loop, self.conditions
        is_whole = True
        for item in items[:_LONGEST_LOOP]:
            self._bind(node.target, item, scope)
            try:
                self._statements(node.body, scope)
            except _LoopEnd as end:
                if not end.again:
                    is_whole = False
                    break
        self.loop = before
        self._statements(node.orelse if is_whole else (), scope)

    def _import(self, node: ast.ImportFrom | ast.Import, scope: _Scope) -> None:
        """Special functions under other names, and functions of files beside this one."""
        if isinstance(node, ast.Import):
            return
        file = self.root.joinpath(*(node.module or "").split(".")).with_suffix(".py")
        theirs = None
        if node.module and file.is_file() and self.depth < _DEEPEST:
            theirs = self._module(file)
        for alias in node.names:
            name = alias.asname or alias.name
            if theirs is not None and alias.name in theirs.values:
                self._set(name, theirs.values[alias.name], scope)
            elif alias.name in self.special:
                self._set(name, Special((alias.name,)), scope)

    def _module(self, file: Path) -> _Scope | None:
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError, RecursionError):
            return None
        scope = _Scope(values={"__file__": str(file), "__name__": file.stem})
        self.depth += 1
        with contextlib.suppress(_Return, _LoopEnd):
            self._statements(tree.body, scope)
        self.depth -= 1
        return scope

    # --- names ---

    def _bind(self, target: ast.expr, value: object, scope: _Scope) -> None:
        if isinstance(target, ast.Name):
            self._set(target.id, value, scope)
        elif isinstance(target, ast.Tuple | ast.List):
            items = value if isinstance(value, list | tuple) else None
            for index, one in enumerate(target.elts):
                known = items is not None and len(items) == len(target.elts)
                self._bind(one, items[index] if items is not None and known else UNKNOWN, scope)
        elif isinstance(target, ast.Subscript):
            self._set_item(target, value, scope)

    def _set(self, name: str, value: object, scope: _Scope) -> None:
        """Bind a name. Where a condition decides, the last value counts, and that is noted in it."""
        if name in scope.values and self.conditions not in (scope.base, scope.conditions.get(name, scope.base)):
            former = scope.values[name]
            scope.counts[name] = scope.counts.get(name, 1) + 1
            if isinstance(value, Special) and isinstance(former, Special):
                value = Special(tuple(dict.fromkeys((*former.names, *value.names))))
            elif isinstance(value, Special) or (isinstance(former, Special) and value is UNKNOWN):
                value = value if isinstance(value, Special) else former  # which ones there are besides is not known
            elif isinstance(value, NotedList | NotedDict):
                value.assumed = [text for text in value.assumed if not text.startswith(f"{name} is set in ")]
                value.assumed.append(f"{name} is set in {scope.counts[name]} places: the last value was used")
            elif value != former:
                value = UNKNOWN
        elif self.conditions == scope.base:
            scope.counts[name] = 1
        scope.values[name] = value
        scope.conditions[name] = self.conditions

    def _set_item(self, target: ast.Subscript, value: object, scope: _Scope) -> None:
        owner, key = self.value(target.value, scope), self.value(target.slice, scope)
        if not isinstance(owner, NotedDict) or not isinstance(key, str | int):
            return
        if self._is_conditional(owner):
            said = f"{ast.unparse(target)} is set under a condition: it was used"
            (value if isinstance(value, NotedList) else owner).assumed.append(said)
        owner[key] = value

    def _is_conditional(self, owner: NotedList | NotedDict) -> bool:
        """Whether what happens to it now depends on more than its own existence does."""
        return owner.conditions[: len(self.conditions)] != self.conditions

    def _add_to(self, node: ast.AugAssign, scope: _Scope) -> None:
        value = self.value(node.value, scope)
        if isinstance(node.target, ast.Attribute) or not isinstance(node.op, ast.Add):
            return
        former = self.value(node.target, scope)
        if isinstance(former, NotedList):
            self._extend(former, value, node.value)
        elif isinstance(former, str) and isinstance(value, str) and self.conditions == scope.base:
            self._bind(node.target, former + value if len(former) < _LONGEST_TEXT else UNKNOWN, scope)
        else:
            self._bind(node.target, UNKNOWN, scope)

    def _extend(self, items: NotedList, value: object, said: ast.expr) -> None:
        """Add to a list; under a condition, only what counts anyway."""
        more = list(value) if isinstance(value, list | tuple) else None
        if more is not None and len(items) + len(more) > _LONGEST_LIST:
            more = None
        if more is None and not self._is_conditional(items):
            items.miss(ast.unparse(said))
        elif more is None:
            items.left.append(ast.unparse(said))
        elif not self._is_conditional(items):
            items.extend(more)
            items.take_notes(value)
        elif more and all(self.counts_anyway(one) for one in more):
            items.extend(more)
            items.assumed.append(f"{ast.unparse(said)} is added under a condition: it was used")
        else:
            items.left.append(ast.unparse(said))

    # --- values ---

    def value(self, node: ast.expr | None, scope: _Scope) -> object:
        """The value of an expression; :data:`UNKNOWN` where it cannot be told."""
        self.steps += 1
        if node is None or self.steps > _STEPS:
            return UNKNOWN
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._name(node.id, scope)
            case ast.List() | ast.Tuple() | ast.Set():
                return self._items(node, scope)
            case ast.Dict():
                return self._dict(node, scope)
            case ast.JoinedStr():
                parts = [
                    self.value(one.value if isinstance(one, ast.FormattedValue) else one, scope) for one in node.values
                ]
                return UNKNOWN if UNKNOWN in parts else "".join(map(str, parts))
            case ast.BinOp():
                return self._operation(node, scope)
            case ast.BoolOp() | ast.UnaryOp() | ast.Compare() | ast.IfExp():
                return self._decided(node, scope)
            case ast.NamedExpr():
                value = self.value(node.value, scope)
                self._bind(node.target, value, scope)
                return value
            case _:
                return self._compound(node, scope)

    def _decided(self, node: ast.BoolOp | ast.UnaryOp | ast.Compare | ast.IfExp, scope: _Scope) -> object:
        match node:
            case ast.BoolOp():
                return self._any_or_all(node, scope)
            case ast.UnaryOp():
                return self._unary(node, scope)
            case ast.IfExp():
                return self._choice(node, scope)
        values = [self.value(one, scope) for one in (node.left, *node.comparators)]
        return compared(values, node.ops, ast.unparse(node))

    def _compound(self, node: ast.expr, scope: _Scope) -> object:
        match node:
            case ast.Lambda():
                return _Function(node, scope)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._comprehension(node, scope)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Subscript():
                return self._subscript(node, scope)
            case ast.Call():
                return self._call(node, scope)
        return UNKNOWN

    def _name(self, name: str, scope: _Scope) -> object:
        owner = scope.find(name)
        if owner is not None:
            return owner.values[name]
        return Special((name,)) if name in self.special else CONSTANTS.get(name, UNKNOWN)

    def _items(self, node: ast.List | ast.Tuple | ast.Set, scope: _Scope) -> object:
        """A list without the items that cannot be told, which it names; a tuple keeps their places."""
        found = NotedList(conditions=self.conditions)
        for one in node.elts:
            value = self.value(one.value if isinstance(one, ast.Starred) else one, scope)
            if isinstance(one, ast.Starred) and isinstance(value, list | tuple):
                found.extend(value)
                found.take_notes(value)
            elif value is UNKNOWN and not isinstance(node, ast.Tuple):
                found.miss(ast.unparse(one))
            else:
                found.append(value)
        return tuple(found) if isinstance(node, ast.Tuple) else found

    def _dict(self, node: ast.Dict, scope: _Scope) -> object:
        found = NotedDict(conditions=self.conditions)
        for key, one in zip(node.keys, node.values, strict=True):
            value = self.value(one, scope)
            if key is None:
                found.update(value if isinstance(value, dict) else {})
            elif isinstance(name := self.value(key, scope), str | int):
                found[name] = value
        return found

    def _operation(self, node: ast.BinOp, scope: _Scope) -> object:
        """A sum, a path (``HERE / "csrc"``), or a text with places (``"%s.cu" % name``)."""
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if isinstance(node.op, ast.Div) and isinstance(left, str) and isinstance(right, str):
            return joined(left, right)
        if isinstance(node.op, ast.Mod) and isinstance(left, str) and not re.search(r"%[^%sd]", left):
            given = right if isinstance(right, tuple) else (right,)
            plain = UNKNOWN not in given and left.count("%s") + left.count("%d") == len(given)
            return left % given if plain and all(isinstance(one, str | int) for one in given) else UNKNOWN
        if not isinstance(node.op, ast.Add):
            return combined(left, type(node.op), right) if isinstance(left, NotedList) else UNKNOWN
        if isinstance(left, str) and isinstance(right, str):
            return left + right if len(left) + len(right) < _LONGEST_TEXT else UNKNOWN
        if isinstance(left, tuple) and isinstance(right, tuple):
            return left + right if len(left) + len(right) < _LONGEST_LIST else UNKNOWN
        if not isinstance(left, NotedList) and not isinstance(right, NotedList):
            return UNKNOWN
        found = NotedList(conditions=self.conditions)
        for value, said in ((left, node.left), (right, node.right)):
            self._extend(found, value, said)
        return found

    def _any_or_all(self, node: ast.BoolOp, scope: _Scope) -> object:
        decides = isinstance(node.op, ast.Or)
        is_open = False
        value: object = UNKNOWN
        for one in node.values:
            value = self.value(one, scope)
            known = truth(value)
            if known is decides:
                return value if not is_open else (decides if isinstance(value, bool) else UNKNOWN)
            is_open = is_open or known is None
        return UNKNOWN if is_open else value

    def _unary(self, node: ast.UnaryOp, scope: _Scope) -> object:
        value = self.value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            known = truth(value)
            return UNKNOWN if known is None else not known
        return -value if isinstance(node.op, ast.USub) and isinstance(value, int | float) else UNKNOWN

    def _choice(self, node: ast.IfExp, scope: _Scope) -> object:
        known = truth(self.value(node.test, scope))
        if known is not None:
            return self.value(node.body if known else node.orelse, scope)
        body, other = self.value(node.body, scope), self.value(node.orelse, scope)
        if isinstance(body, Special) and isinstance(other, Special):
            return Special(tuple(dict.fromkeys((*body.names, *other.names))))
        if isinstance(body, list) and isinstance(other, list):
            found = NotedList(conditions=self.conditions)
            found.extend(one for one in body if one in other)
            found.left += [ast.unparse(node)] if list(body) != list(other) else []
            return found
        return body if body == other else UNKNOWN

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: _Scope) -> object:
        found = NotedList(conditions=self.conditions)

        def walk(index: int, inside: _Scope) -> None:
            if self.steps > _STEPS:
                return
            if index == len(node.generators):
                self._extend(found, NotedList([value]) if (value := self.value(node.elt, inside)) is not UNKNOWN
                             else UNKNOWN, node.elt)  # fmt: skip
                return
            generator = node.generators[index]
            source = self.value(generator.iter, inside)
            items = _iterated(source)
            if items is None:
                found.miss(ast.unparse(node))
                return
            found.take_notes(source)
            for item in items[:_LONGEST_LOOP]:
                self._bind(generator.target, item, inside)
                kept = [truth(self.value(test, inside)) for test in generator.ifs]
                if False in kept:
                    continue
                if None in kept:
                    found.assumed.append(f"{ast.unparse(node)} leaves out some values: all were used")
                walk(index + 1, inside)

        walk(0, _Scope(outer=scope, base=self.conditions))
        return found

    def _attribute(self, node: ast.Attribute, scope: _Scope) -> object:
        written = ast.unparse(node)
        if written in CONSTANTS and scope.find(written.partition(".")[0]) is None:
            return CONSTANTS[written]
        value = self.value(node.value, scope)
        if isinstance(value, str) and node.attr in {"parent", "name", "stem", "suffix"}:
            return str(getattr(Path(value), node.attr))
        return Special((node.attr,)) if node.attr in self.special else UNKNOWN

    def _subscript(self, node: ast.Subscript, scope: _Scope) -> object:
        owner = self.value(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            low, high = (self.value(one, scope) if one else None for one in (node.slice.lower, node.slice.upper))
            if isinstance(owner, str | list) and node.slice.step is None and UNKNOWN not in (low, high):
                cut = owner[cast("int | None", low) : cast("int | None", high)]
                return NotedList(cut, conditions=self.conditions) if isinstance(cut, list) else cut
            return UNKNOWN
        key = self.value(node.slice, scope)
        if isinstance(owner, dict) and isinstance(key, str | int):
            return owner.get(key, UNKNOWN)
        if isinstance(owner, list | tuple | str) and isinstance(key, int) and -len(owner) <= key < len(owner):
            return owner[key]
        return UNKNOWN

    # --- calls ---

    def _call(self, node: ast.Call, scope: _Scope) -> object:
        given: list[object] = []
        for one in node.args:
            value = self.value(one.value if isinstance(one, ast.Starred) else one, scope)
            if isinstance(one, ast.Starred) and isinstance(value, list | tuple):
                given += value
            else:
                given.append(value)
        words: dict[str, object] = {}
        for word in node.keywords:
            value = self.value(word.value, scope)
            if word.arg is not None:
                words[word.arg] = value
            elif isinstance(value, dict):
                words.update({str(key): its for key, its in value.items()})
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = self.value(node.func.value, scope) if isinstance(node.func, ast.Attribute) else UNKNOWN
        if isinstance(owner, NotedList) and name in {"append", "extend", "insert", "add", "update"} and node.args:
            added = node.args[-1]
            value = given[-1]
            if name not in {"extend", "update"}:
                added, value = _listed(added), UNKNOWN if value is UNKNOWN else NotedList([value])
            self._extend(owner, value, added)
            return None
        if owner is not UNKNOWN and not isinstance(owner, Special):
            return noted(called_method(owner, name, given, words, self.root), self.conditions)
        function = self.value(node.func, scope)
        if isinstance(function, Special | _Function | _Partial):
            return self._apply(function, node, tuple(given), words)
        return self._of_library(node, name, given, words, scope)

    def _apply(self, function: object, node: ast.Call, given: tuple[object, ...], words: dict[str, object]) -> object:
        if isinstance(function, _Partial):
            return self._apply(function.function, node, (*function.given, *given), {**function.words, **words})
        if isinstance(function, _Function):
            return self._enter(function, given, words)
        if isinstance(function, Special):
            self.seen_calls.add(id(node))
            results = [self.construct(name, node, given, words) for name in function.names]
            return results[-1]
        return UNKNOWN

    def _of_library(
        self, node: ast.Call, name: str, given: list[object], words: dict[str, object], scope: _Scope
    ) -> object:
        """A function of Python, or of some library: one that gets a list and nothing else returns it, more or less."""
        if name == "partial" and given:
            return _Partial(given[0], tuple(given[1:]), words)
        if name == "map" and len(node.args) == 2 and isinstance(given[1], list):
            found = NotedList(conditions=self.conditions)
            found.take_notes(given[1])
            for item in given[1]:
                scope_of_item = _Scope(outer=scope, base=self.conditions, values={"item": item})
                call = ast.copy_location(
                    ast.Call(func=node.args[0], args=[ast.Name(id="item", ctx=ast.Load())], keywords=[]), node
                )
                found.append(self.value(ast.fix_missing_locations(call), scope_of_item))
            return found if UNKNOWN not in found else UNKNOWN
        if ast.unparse(node.func).endswith("environ.get"):
            name = "getenv"
        value = called_builtin(name, given, words, self.root)
        if value is UNKNOWN and len(given) == 1 and not words and isinstance(given[0], NotedList):
            copy = NotedList(given[0], conditions=self.conditions)
            copy.take_notes(given[0])
            copy.assumed.append(f"{name}(...) adds to a list: only the list as written was used")
            return copy
        return noted(value, self.conditions, given)

    def _defaults(self, function: _Function) -> dict[str, object]:
        arguments = function.node.args
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        at = len(names) - len(arguments.defaults)
        found = {
            name: self.value(one, function.scope) for name, one in zip(names[at:], arguments.defaults, strict=True)
        }
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if default is not None:
                found[argument.arg] = self.value(default, function.scope)
        return found

    def _enter(self, function: _Function, given: tuple[object, ...], words: Mapping[str, object]) -> object:
        """What a function of the file returns: what it returns in any case, else what it returned last."""
        self.entered.add(id(function.node))
        if self.depth >= _DEEPEST:
            return UNKNOWN
        arguments = function.node.args
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        kept = {*names, *(one.arg for one in arguments.kwonlyargs)}
        bound = self._defaults(function) | dict(zip(names, given, strict=False))
        bound |= {name: value for name, value in words.items() if name in kept}
        if arguments.vararg is not None:
            bound[arguments.vararg.arg] = NotedList(given[len(names) :])
        if arguments.kwarg is not None:
            bound[arguments.kwarg.arg] = NotedDict({name: one for name, one in words.items() if name not in kept})
        scope = _Scope(outer=function.scope, base=self.conditions, values={**dict.fromkeys(kept, UNKNOWN), **bound})
        before = self.conditions, self.base, self.returned
        self.base, self.returned = self.conditions, []
        self.depth += 1
        try:
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, scope)
            self._statements(function.node.body, scope)
        except _Return:
            pass
        finally:
            found = self.returned
            self.conditions, self.base, self.returned = before
            self.depth -= 1
        return found[-1] if found else None


def _added(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """A list, and what a statement or call adds to it, as a list."""
    if isinstance(node, ast.AugAssign):
        return node.target, node.value
    function = node.func if isinstance(node, ast.Call) and len(node.args) == 1 else None
    if not isinstance(node, ast.Call) or not isinstance(function, ast.Attribute):
        return None, None
    if function.attr == "extend":
        return function.value, node.args[0]
    return (function.value, _listed(node.args[0])) if function.attr == "append" else (None, None)


def _iterated(value: object) -> list[object] | None:
    """The items that a loop takes; ``None`` where that is not known."""
    if isinstance(value, dict):
        return list(value)
    return list(value) if isinstance(value, list | tuple) else None


def _listed(node: ast.expr) -> ast.expr:
    return ast.copy_location(ast.List(elts=[node], ctx=ast.Load()), node)
