"""What the rules about Python look at: modules, what they import and when, which names they define.

Pure facts, no opinions, read off syntax trees; nothing is executed. The same for a package in a source tree
(``torch-ext/<name>``) and for a built variant.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

from kernel_builder.check.python_unset import Unset, unset_in
from kernel_builder.check.subject import PythonFile, PythonTree, is_library_name
from kernel_builder.check.syntax import children, everything, fields, walk
from kernel_builder.config.model import FrameworkKind

Dotted = tuple[str, ...]
"""A module's name below the package: ``()`` is the package itself, ``("ops", "norm")`` is ``ops/norm.py``."""

GENERATED_OPS = "_ops"
"""The module that every build adds to the package."""
GENERATED_NAMES = frozenset({"add_op_namespace_prefix", "ops", "torch"})
"""What it defines for torch (contract 3.3)."""


class Guard(IntEnum):
    """Under which circumstances a statement runs, from 'always on import' to 'never'."""

    IMPORT = 0
    """Whenever the module is imported."""
    TRY = 1
    """On import, and an ImportError is caught."""
    CONDITION = 2
    """On import, where a condition holds."""
    FUNCTION = 3
    """When some function is called."""
    TYPING = 4
    """For type checkers only."""


class Position(NamedTuple):
    """Where a node stands: under which ``guard``, whether an ImportError there is ``caught``, whether a test of
    ``sys.version_info`` decides on it (``versioned``), whether it is in a function's own scope (``local``), whether
    an AttributeError or an OSError there is ``handled``, and whether it only runs when the user sets an environment
    variable (``asked``).
    """

    guard: Guard = Guard.IMPORT
    caught: bool = False
    versioned: bool = False
    local: bool = False
    handled: bool = False
    asked: bool = False


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import, whatever its spelling.

    ``level`` counts the dots; ``module`` is what follows them (``""`` for ``from . import x``), ``names`` what is taken
    from it (empty for ``import module``). ``dynamic`` marks imports by a string; ``open_ended`` a string whose end is
    not known, such as ``f"pkg.{name}"``. ``node`` is what imports.
    """

    line: int
    column: int
    level: int
    module: str
    names: tuple[str, ...] = ()
    guard: Guard
    caught: bool = False
    versioned: bool = False
    dynamic: bool = False
    open_ended: bool = False
    indirect: bool = False
    node: ast.AST = field(repr=False, compare=False)

    @property
    def statement(self) -> str:
        """The text of the import as written."""
        return ast.unparse(self.node)

    @property
    def top(self) -> str:
        """The first component of an absolute import."""
        return self.module.split(".", 1)[0]


@dataclass(frozen=True, eq=False)
class PythonSource:
    """What can be read off one syntax tree; ``None`` for a file that does not parse."""

    tree: ast.Module | None

    @cached_property
    def nodes(self) -> tuple[tuple[ast.AST, Position], ...]:
        """The statements and those expressions that rules ask for (see :func:`placed`), with their places.

        What stands in a function that an import of the module calls stands where it is called.
        """
        return () if self.tree is None else tuple(placed(self.tree, self._called))

    @cached_property
    def _called(self) -> Called:
        """The functions that an import of the module calls, one by way of another too."""
        called: Called = {}
        for _ in range(_LONGEST_CALLS if self.tree is not None else 0):
            further = _called_on_import(self.tree, placed(self.tree, called, on_import=True))  # type: ignore[arg-type]
            if further == called:
                break
            called = further
        return called

    @cached_property
    def by_line(self) -> Mapping[int, Sequence[tuple[ast.AST, Position]]]:
        """Line -> what begins there: every node, expressions too, outer first, with its place."""
        found: dict[int, list[tuple[ast.AST, Position]]] = {}
        for node, place in () if self.tree is None else placed(self.tree, self._called, asked_for=ast.AST):
            line = getattr(node, "lineno", None)
            if line is not None:
                found.setdefault(line, []).append((node, place))
        return found

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """All imports, in file order."""
        return tuple(_imports(self))

    @cached_property
    def values(self) -> Mapping[str, Sequence[ast.expr]]:
        """Simple variable -> the expressions that are assigned to it, anywhere in the file."""
        return _assigned_values(self.nodes)

    @cached_property
    def lines(self) -> Mapping[int, Position]:
        """Line of every statement -> where it stands; of two statements on a line the inner one counts."""
        return {
            line: place
            for node, place in self.nodes
            if isinstance(node, ast.stmt)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }

    @cached_property
    def definitions(self) -> frozenset[str]:
        """Names that the module's top level binds, wherever on it; star imports are not followed."""
        return frozenset(_bindings(self.tree)) if self.tree is not None else frozenset()

    @cached_property
    def is_open(self) -> bool:
        """Whether it may define further names in ways that cannot be read off."""
        return self.tree is None or any(_opens(node, place) for node, place in self.nodes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Module:
    """One module of the package."""

    name: Dotted
    is_package: bool
    file: PythonFile
    source: PythonSource

    @property
    def package(self) -> Dotted:
        """The package that relative imports start from."""
        return self.name if self.is_package else self.name[:-1]

    def resolve(self, entry: Import) -> Dotted | None:
        """What a relative import names, below the kernel's package. ``None`` when it leaves the package."""
        up = entry.level - 1
        if up > len(self.package):
            return None
        base = self.package[: len(self.package) - up] if up else self.package
        return (*base, *entry.module.split(".")) if entry.module else base


@dataclass(frozen=True, kw_only=True, eq=False)
class Package:
    """A kernel's Python package: its modules by name.

    ``others`` are importable things that are no Python source: libraries, directories, modules that the build makes.
    ``name`` is the kernel's name as a Python identifier, ``None`` where nothing says it. ``generated`` are the names in
    the module that a build will add; ``None`` where it is there, or where that cannot be told.
    """

    name: str | None
    modules: Mapping[Dotted, Module]
    others: frozenset[Dotted]
    generated: frozenset[str] | None = None

    def exists(self, name: Dotted) -> bool:
        """Whether an import of ``name`` finds something."""
        return name in self.modules or name in self.others

    @cached_property
    def reached(self) -> Mapping[Dotted, Guard]:
        """Modules that ``import kernel`` runs -> the tightest circumstances: ``IMPORT``, ``TRY`` or ``CONDITION``."""
        return _reach(self)

    def always_runs(self, module: Module, guard: Guard) -> bool:
        """Whether a statement of ``module`` under ``guard`` runs on every import of the kernel."""
        return guard is Guard.IMPORT and self.reached.get(module.name) is Guard.IMPORT

    def names_of(self, name: Dotted) -> frozenset[str] | None:
        """All names that module ``name`` may define, star imports followed; ``None`` where that cannot be told."""
        return _names(self, name, set())


@lru_cache(maxsize=2048)
def _source(tree: ast.Module) -> PythonSource:
    return PythonSource(tree)


_LOCK = threading.Lock()
_PACKAGES: WeakKeyDictionary[PythonTree, Package] = WeakKeyDictionary()


def package_of(tree: PythonTree) -> Package:
    """The package in ``tree``, read once."""
    with _LOCK:
        known = _PACKAGES.get(tree)
    if known is None:
        known = _read(tree)
        with _LOCK:
            _PACKAGES[tree] = known
    return known


def _read(tree: PythonTree) -> Package:
    modules: dict[Dotted, Module] = {}
    others: set[Dotted] = set()
    # Variants of before 2026 may hold the package one level down.
    below = () if tree.variant is None else tree.variant.package.relative_to(tree.variant.path).parts
    if tree.variant is None:
        others.add((GENERATED_OPS,))
    for entry in tree.listing.files:
        parts = tuple(entry.relative.split("/"))
        if parts[: len(below)] != below or len(parts) == len(below):
            continue
        *directories, last = parts[len(below) :]
        if is_library_name(last):
            others.add((*directories, last.split(".", 1)[0]))
        file = tree.by_path.get(entry.relative) if last.endswith(".py") else None
        if file is None:
            continue
        is_package = last == "__init__.py"
        name = tuple(directories) if is_package else (*directories, last.removesuffix(".py"))
        if name not in modules or is_package:
            source = PythonSource(None) if file.tree is None else _source(file.tree)
            modules[name] = Module(name=name, is_package=is_package, file=file, source=source)
    for name in [*modules, *others]:
        # A directory without __init__.py can be imported, too, as soon as something in it can.
        others.update(name[:length] for length in range(len(name)) if name[:length] not in modules)
    generated = _generated(tree) if (GENERATED_OPS,) not in modules else None
    return Package(name=tree.name, modules=modules, others=frozenset(others), generated=generated)


def _generated(tree: PythonTree) -> frozenset[str] | None:
    """The names in the module that a build of a source tree adds."""
    project = tree.source.draft if tree.source is not None and tree.variant is None else None
    if project is None:
        return None
    return None if project.framework.kind is FrameworkKind.TVM_FFI else GENERATED_NAMES


_ASKED_FOR = (ast.stmt, ast.Call, ast.Subscript, ast.BinOp, ast.NamedExpr)
_PLACING = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.If, ast.IfExp, ast.While, ast.BoolOp),
    *(ast.Try, ast.ExceptHandler, ast.With, ast.AsyncWith),
)


Called = Mapping[ast.AST, Position]
"""Functions that an import runs -> where they are called."""

_LONGEST_CALLS = 4


def placed(
    tree: ast.Module,
    called: Called | None = None,
    asked_for: type[ast.AST] | tuple[type[ast.AST], ...] = _ASKED_FOR,
    *,
    on_import: bool = False,
) -> Iterator[tuple[ast.AST, Position]]:
    """Statements, calls, subscripts and binary operations with the place they stand at, in file order, outer first.

    The bodies of functions in ``called`` stand where these are called; with ``on_import``, there are no others.
    """
    waiting: list[tuple[ast.AST, Position]] = [(tree, Position())]
    unset = unset_in(tree)
    while waiting:
        node, place = waiting.pop()
        if isinstance(node, asked_for):
            yield node, place
        if not isinstance(node, _PLACING):
            waiting += [(child, place) for child in reversed(children(node))]
            continue
        inside: list[tuple[ast.AST, Position]] = []
        for part in fields(node):
            value = getattr(node, part, None)
            inner = _inside(node, part, place, unset)
            caller = called.get(node) if called and part == "body" else None
            is_body = part == "body" and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            if on_import and is_body and caller is None:
                continue
            if caller is not None:
                guard = max(place.guard, caller.guard)
                inner = caller._replace(
                    guard=guard,
                    local=True,
                    versioned=caller.versioned or place.versioned,
                    asked=caller.asked or place.asked,
                )
            if isinstance(value, ast.AST):
                inside.append((value, inner))
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        inside.append((item, inner))
                        inner = _after(node, item, inner, unset, is_called=caller is not None)
        waiting += reversed(inside)


_COMPOUND = (ast.If, ast.Try, ast.For, ast.While, ast.With, ast.Match)


def _may_leave(statement: ast.AST) -> bool:
    """Whether what follows a statement of a function may not run: there is a ``return`` or ``raise`` in it."""
    waiting: list[ast.AST] = [statement] if isinstance(statement, _COMPOUND) else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Return, ast.Raise)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting += children(node)
    return False


def _called_on_import(tree: ast.Module, nodes: Iterable[tuple[ast.AST, Position]]) -> Called:
    """The functions at the module's top level, and the ``__init__`` of its classes, that an import of it calls."""
    functions: dict[str, ast.FunctionDef] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            functions[statement.name] = statement
        for inner in statement.body if isinstance(statement, ast.ClassDef) else ():
            if isinstance(statement, ast.ClassDef) and isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                functions[statement.name] = inner
    found: dict[ast.AST, Position] = {}
    for node, place in nodes:
        if place.guard >= Guard.FUNCTION:
            continue
        callees: list[ast.expr] = [node.func] if isinstance(node, ast.Call) else []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            callees += node.decorator_list
        for callee in callees:
            function = functions.get(callee.id) if isinstance(callee, ast.Name) else None
            if function is not None and not _is_generator(function):
                known = found.get(function)
                if known is None or _tightness(place) < _tightness(known):
                    found[function] = place
    return found


def _tightness(place: Position) -> tuple[Guard, bool, bool]:
    return place.guard, place.caught, place.asked


def _is_generator(function: ast.FunctionDef) -> bool:
    """Whether calling it runs nothing yet."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting += children(node)
    return False


def _after(node: ast.AST, item: ast.AST, place: Position, unset: Unset, *, is_called: bool) -> Position:
    """The place of what stands behind ``item``, a part of ``node``: an operand of ``and`` and ``or``, or a statement of
    a function that is called.
    """
    if isinstance(node, ast.BoolOp):
        part = "body" if isinstance(node.op, ast.And) else "orelse"
        skips = isinstance(item, ast.expr) and unset.runs(item, part) is False
    elif is_called and _may_leave(item):
        leaves = isinstance(item, ast.If) and isinstance(item.body[-1], ast.Return | ast.Raise)
        skips = leaves and isinstance(item, ast.If) and unset.runs(item.test, "orelse") is False
    else:
        return place
    return place._replace(guard=max(place.guard, Guard.CONDITION), asked=place.asked or skips)


def _inside(node: ast.AST, part: str, place: Position, unset: Unset) -> Position:
    """The place of what stands in field ``part`` of ``node``, which itself stands at ``place``."""
    guard, caught, versioned, local, handled, asked = place
    found = Guard.IMPORT
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and part == "body":
        found, local = Guard.FUNCTION, True
        # What a function does when it is called is no concern of a try around its definition.
        caught = handled = False
    elif isinstance(node, ast.ClassDef) and part == "body":
        local = False
    elif isinstance(node, ast.If) and part in {"body", "orelse"}:
        found = _branch(node, part)
        versioned = versioned or _tests_version(node.test)
        asked = asked or unset.runs(node.test, part) is False
    elif isinstance(node, ast.IfExp) and part in {"body", "orelse"}:
        found = Guard.CONDITION
        versioned = versioned or _tests_version(node.test)
        asked = asked or unset.runs(node.test, part) is False
    elif isinstance(node, ast.While) and part in {"body", "orelse"}:
        found = Guard.CONDITION
    elif isinstance(node, ast.Try) and part == "body" and _catches(node, _IMPORT_ERRORS):
        found, caught = Guard.TRY, True
        handled = handled or _catches(node, _ATTRIBUTE_ERRORS)
    elif isinstance(node, ast.Try) and part == "body" and _catches(node, _LOOKUP_ERRORS):
        found = Guard.TRY
        handled = handled or _catches(node, _ATTRIBUTE_ERRORS)
    elif isinstance(node, ast.ExceptHandler) and part == "body":
        found = Guard.CONDITION
    elif isinstance(node, (ast.With, ast.AsyncWith)) and part == "body" and _suppress_any(node, _IMPORT_ERRORS):
        found, caught = Guard.TRY, True
        handled = handled or _suppress_any(node, _ATTRIBUTE_ERRORS)
    elif isinstance(node, (ast.With, ast.AsyncWith)) and part == "body" and _suppress_any(node, _LOOKUP_ERRORS):
        found = Guard.TRY
        handled = handled or _suppress_any(node, _ATTRIBUTE_ERRORS)
    return Position(max(guard, found), caught, versioned, local, handled, asked)


def _tests_version(test: ast.expr) -> bool:
    return any(dotted_name(node) in {"sys.version_info", "version_info"} for node in walk(test)) or any(
        isinstance(node, ast.Call) and dotted_name(node.func) == "hasattr" for node in walk(test)
    )


def _branch(node: ast.If, part: str) -> Guard:
    test = node.test
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    inner = test.operand if isinstance(test, ast.UnaryOp) and negated else test
    name = dotted_name(inner)
    if name is not None and name.rsplit(".", 1)[-1] == "TYPE_CHECKING":
        return Guard.TYPING if (part == "body") != negated else Guard.IMPORT
    if isinstance(test, ast.Compare) and dotted_name(test.left) == "__name__":
        return Guard.TYPING if part == "body" else Guard.IMPORT  # never runs in a kernel that is loaded
    if isinstance(test, ast.Constant):
        return Guard.IMPORT if bool(test.value) == (part == "body") else Guard.TYPING
    return Guard.CONDITION


_IMPORT_ERRORS = frozenset(
    {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "PackageNotFoundError", "DistributionNotFound"}
)
_ATTRIBUTE_ERRORS = frozenset({"AttributeError", "RuntimeError", "OSError", "Exception", "BaseException"})
"""What torch raises where an op or a library does not exist, and what contains it."""
_LOOKUP_ERRORS = frozenset(
    {"AttributeError", "TypeError", "NameError", "RuntimeError", "OSError", "FileNotFoundError", "SubprocessError"}
)


def _catches(node: ast.Try, errors: frozenset[str]) -> bool:
    """Whether one of ``errors`` in the body is caught and not simply raised again."""
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        names = {(dotted_name(kind) or "").rsplit(".", 1)[-1] for kind in kinds if kind is not None}
        if handler.type is None or names & errors:
            return not any(isinstance(statement, ast.Raise) for statement in handler.body)
    return False


def _suppress_any(node: ast.With | ast.AsyncWith, errors: frozenset[str]) -> bool:
    return any(_suppresses(item, errors) for item in node.items)


def _suppresses(item: ast.withitem, errors: frozenset[str]) -> bool:
    call = item.context_expr
    if not isinstance(call, ast.Call) or (dotted_name(call.func) or "").rsplit(".", 1)[-1] != "suppress":
        return False
    return any((dotted_name(kind) or "").rsplit(".", 1)[-1] in errors for kind in call.args)


def dotted_name(node: ast.AST | None) -> str | None:
    """``a.b.c`` of a chain of attributes; ``None`` for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.append(node.id)
    return ".".join(reversed(parts))


# --- imports ---


def _imports(source: PythonSource) -> Iterator[Import]:
    nodes = source.nodes
    importers = {"__import__", "importlib.import_module", "importlib.__import__"}
    for node, _place in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "importlib" and not node.level:
            importers.update(
                alias.asname or alias.name for alias in node.names if alias.name in {"import_module", "__import__"}
            )
        elif isinstance(node, ast.Import):
            importers.update(
                f"{alias.asname}.import_module" for alias in node.names if alias.name == "importlib" and alias.asname
            )
    values = source.values
    for node, place in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(
                    line=node.lineno,
                    column=node.col_offset + 1,
                    level=0,
                    module=alias.name,
                    guard=place.guard,
                    caught=place.caught,
                    versioned=place.versioned,
                    node=ast.Import(names=[alias]),
                )
        elif isinstance(node, ast.ImportFrom):
            yield Import(
                line=node.lineno,
                column=node.col_offset + 1,
                level=node.level,
                module=node.module or "",
                names=tuple(alias.name for alias in node.names),
                guard=place.guard,
                caught=place.caught,
                versioned=place.versioned,
                node=node,
            )
        elif isinstance(node, ast.Call) and dotted_name(node.func) in importers:
            yield from _by_string(node, place, values)
        else:
            name = _from_sys_modules(node)
            if name is not None and isinstance(node, ast.expr):
                yield _dynamic(node, name[0], place, open_ended=name[1], indirect=True)


def _assigned_values(nodes: Sequence[tuple[ast.AST, Position]]) -> Mapping[str, Sequence[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for node, _place in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign | ast.NamedExpr):
            targets = [node.target]
        for target in targets:
            value = node.value  # type: ignore[attr-defined]
            for name, given in pairs(target, value) if value is not None else ():
                if given is not None:
                    found.setdefault(name, []).append(given)
    return found


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    """``(name, value)`` of an assignment; ``a, b = x, y`` is two of them."""
    if isinstance(target, ast.Name):
        yield target.id, value
        return
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        starred = any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
        if len(target.elts) == len(value.elts) and not starred:
            for one, other in zip(target.elts, value.elts, strict=True):
                yield from pairs(one, other)
            return
    if isinstance(target, ast.Tuple | ast.List | ast.Starred):
        yield from ((inner.id, None) for inner in walk(target) if isinstance(inner, ast.Name))


def _by_string(node: ast.Call, place: Position, values: Mapping[str, Sequence[ast.expr]]) -> Iterator[Import]:
    argument = node.args[0] if node.args else next((word.value for word in node.keywords if word.arg == "name"), None)
    if argument is None:
        return
    found = leading_text(argument)
    if found is not None:
        text, is_whole = found
        level = _given(node, 4, "level")
        if level is not None:
            yield from _by_level(node, found, level, place)
        elif text.lstrip("."):
            yield _dynamic(node, text, place, open_ended=not is_whole)
        return
    seen: set[str] = set()
    for text in sorted(set(_texts_in(argument, values, seen))):
        if "." in text and text.strip(".").replace(".", "").isidentifier():
            yield _dynamic(node, text, place, open_ended=True, indirect=True)


def _given(node: ast.Call, index: int, name: str) -> ast.expr | None:
    """An argument by place or by name."""
    by_name = next((word.value for word in node.keywords if word.arg == name), None)
    return node.args[index] if len(node.args) > index else by_name


def _by_level(node: ast.Call, text: tuple[str, bool], level: ast.expr, place: Position) -> Iterator[Import]:
    """``__import__("name", globals(), locals(), ["x"], 1)``: ``from .name import x``."""
    if not isinstance(level, ast.Constant) or not isinstance(level.value, int) or level.value < 0:
        return
    taken = _given(node, 3, "fromlist")
    names = [leading_text(item) for item in taken.elts] if isinstance(taken, ast.List | ast.Tuple) else []
    found = _dynamic(node, "." * level.value + text[0], place, open_ended=not text[1])
    yield replace(found, names=tuple(name[0] for name in names if name is not None and name[1]))


def _texts_in(node: ast.expr, values: Mapping[str, Sequence[ast.expr]], seen: set[str]) -> Iterator[str]:
    """Beginnings of all strings in an expression, and in what is assigned to the variables it uses."""
    for inner in walk(node):
        if isinstance(inner, ast.expr):
            found = leading_text(inner)
            if found is not None:
                yield found[0]
        if isinstance(inner, ast.Name) and inner.id not in seen:
            seen.add(inner.id)
            for value in values.get(inner.id, ()):
                yield from _texts_in(value, values, seen)


def _dynamic(node: ast.expr, text: str, place: Position, *, open_ended: bool, indirect: bool = False) -> Import:
    stripped = text.lstrip(".")
    return Import(
        line=node.lineno,
        column=node.col_offset + 1,
        level=len(text) - len(stripped),
        module=stripped.rstrip(".") if open_ended else stripped,
        guard=place.guard,
        caught=place.caught,
        versioned=place.versioned,
        dynamic=True,
        open_ended=open_ended,
        indirect=indirect,
        node=node,
    )


def _from_sys_modules(node: ast.AST) -> tuple[str, bool] | None:
    """The name that ``sys.modules[...]`` or ``sys.modules.get(...)`` looks for, and whether its end is open."""
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and dotted_name(node.value) == "sys.modules":
        key = node.slice
    elif isinstance(node, ast.Call) and dotted_name(node.func) == "sys.modules.get" and node.args:
        key = node.args[0]
    found = leading_text(key)
    return (found[0], not found[1]) if found is not None and found[0] and found[0] != "__main__" else None


def leading_text(node: ast.AST | None) -> tuple[str, bool] | None:
    """``(constant beginning, whether that is all)`` of a string expression; ``None`` for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, True
    if isinstance(node, ast.JoinedStr):
        text = ""
        for part in node.values:
            if not isinstance(part, ast.Constant):
                return text, False
            text += str(part.value)
        return text, True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = leading_text(node.left), leading_text(node.right)
        if left is None:
            return None
        if not left[1] or right is None:
            return left[0], False
        return left[0] + right[0], right[1]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        left = leading_text(node.left)
        return None if left is None else (left[0].split("%", 1)[0], False)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "format"
        and isinstance(node.func.value, ast.Constant)
        and isinstance(node.func.value.value, str)
    ):
        return node.func.value.value.split("{", 1)[0], False
    return None


# --- what a module defines ---


def _bindings(tree: ast.Module) -> Iterator[str]:
    yield from ("__name__", "__file__", "__doc__", "__package__", "__spec__", "__loader__", "__builtins__", "__dict__")
    yield from ("__path__", "__cached__", "__annotations__")
    yield from _bound(tree.body)
    for node in everything(tree):
        if isinstance(node, ast.Global):
            yield from node.names


def _bound(body: Iterable[ast.AST]) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.split(".", 1)[0]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name != "*":
                    yield alias.asname or alias.name
            if node.level and node.module:
                yield node.module.split(".", 1)[0]  # importing a submodule binds it in its package, too
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        yield from _bound(children(node))


def _opens(node: ast.AST, place: Position) -> bool:
    """Whether a node lets its module define names that cannot be read off."""
    if isinstance(node, ast.FunctionDef) and node.name == "__getattr__" and not place.local:
        return True
    if isinstance(node, ast.Subscript):
        return dotted_name(node.value) == "sys.modules"  # a module that puts something else in its place
    if not isinstance(node, ast.Call):
        return False
    name = dotted_name(node.func)
    if name == "setattr" and node.args:
        return not isinstance(node.args[0], ast.Name)
    return name in {"globals", "vars", "locals", "exec"}


def _names(tree: Package, name: Dotted, seen: set[Dotted]) -> frozenset[str] | None:
    module = tree.modules.get(name)
    if name == (GENERATED_OPS,) and tree.generated is not None:
        return tree.generated
    if module is None or module.source.is_open:
        return None
    if name in seen:
        return frozenset()
    seen.add(name)
    found = set(module.source.definitions)
    for entry in module.source.imports:
        if entry.level == 1 and not entry.module and module.is_package:
            found -= set(entry.names)  # "from . import x" of a package itself takes a submodule, and defines nothing
        if entry.names != ("*",):
            continue
        target = module.resolve(entry) if entry.level else None
        taken = _names(tree, target, seen) if target is not None else None
        if taken is None:
            return None
        found |= taken
    if module.is_package:
        found |= {other[len(name)] for other in (*tree.modules, *tree.others) if _is_below(other, name)}
    return frozenset(found)


def _is_below(other: Dotted, name: Dotted) -> bool:
    return len(other) == len(name) + 1 and other[: len(name)] == name


# --- what an import of the kernel runs ---


def targets(tree: Package, module: Module, entry: Import) -> Iterator[Dotted]:
    """The kernel's own modules that a relative import runs: the one it names, and the submodules it takes from it."""
    if not entry.level:
        return
    base = module.resolve(entry)
    if base is None:
        return
    yield from (base[:length] for length in range(len(base) + 1))
    for name in entry.names:
        if (*base, name) in tree.modules:
            yield (*base, name)


def _reach(tree: Package) -> Mapping[Dotted, Guard]:
    found: dict[Dotted, Guard] = {}
    waiting: list[tuple[Dotted, Guard]] = [((), Guard.IMPORT)]
    while waiting:
        name, guard = waiting.pop()
        module = tree.modules.get(name)
        if module is None or found.get(name, Guard.TYPING) <= guard:
            continue
        found[name] = guard
        for entry in module.source.imports:
            together = max(guard, entry.guard)
            if together < Guard.FUNCTION:
                waiting.extend((target, together) for target in targets(tree, module, entry))
    return found
