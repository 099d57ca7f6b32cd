"""What Python code uses of a kernel that it loads with the ``kernels`` client, and whether the package has it.

Examples and cards are read, never run: a name is taken to be the kernel where it is assigned from ``get_kernel`` and
the like. What cannot be told by reading is passed over.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kernel_builder.files import read_small
from kernel_builder.interface.modules import PublicModule, PublicPackage, top_level
from kernel_builder.interface.read import LAYERS, ParameterKind, Signature, signature_of

_LOADERS = frozenset({"get_kernel", "get_locked_kernel", "load_kernel"})
_LOCAL_LOADERS = frozenset({"get_local_kernel"})
_BLOCK = re.compile(
    r"^(?P<fence>```+|~~~+)[ \t]*(?:python3?|py)\b[^\n]*\n(?P<code>.*?)^(?P=fence)", re.DOTALL | re.MULTILINE
)
_STATEMENT = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_EXPRESSION = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_ANY = "_filled_in_"
_GENERATED = "_ops"  # a module that every build adds
_DYNAMIC = frozenset({"globals", "locals", "vars", "setattr", "exec", "eval"})


@dataclass(frozen=True, kw_only=True)
class Misuse:
    """A use of ``name``, an attribute of the kernel, that fails: ``reason`` says how, ``near`` what exists instead."""

    line: int
    name: str
    reason: str
    near: tuple[str, ...] = ()


def python_blocks(markdown: str, *, repo_id: str | None, functions: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Python code blocks of a page or of a card's template: the line before each, and its text.

    Of a template, what names the repository and the functions is filled in; the rest becomes names of no meaning.
    """

    def fill(match: re.Match[str]) -> str:
        if match[1] == "repo_id":
            return repo_id or _ANY
        index = re.fullmatch(r"functions\[(\d)\]", match[1])
        return functions[int(index[1])] if index and int(index[1]) < len(functions) else _ANY

    for match in _BLOCK.finditer(markdown):
        code = _STATEMENT.sub(lambda found: "\n" * found[0].count("\n"), match["code"])
        code = re.sub(r"^(>>>|\.\.\.) ?", "", _EXPRESSION.sub(fill, code), flags=re.MULTILINE)
        yield markdown.count("\n", 0, match.start("code")), code


class KernelPackage:
    """The Python package of a kernel, as its users see the module that the client returns."""

    def __init__(self, root: Path) -> None:
        self._tree = PublicPackage(root)
        self._top = self._tree.module("__init__")
        self.names = _names(root, self._tree, self._top)

    def misuses(self, code: ast.Module, *, is_own: Callable[[str], bool], module: str) -> Iterator[Misuse]:
        """What ``code`` gets wrong about this kernel. ``is_own`` tells which repositories are the kernel's; ``module``
        is the name of the package, under which it may be imported.
        """
        if self.names is None:
            return
        kernels = _Kernels(code, is_own, module)
        calls = {id(node.func): node for node in ast.walk(code) if isinstance(node, ast.Call)}
        for node in ast.walk(code):
            if isinstance(node, ast.Attribute) and kernels.is_kernel(node.value):
                yield from self._use(node.attr, node.lineno, calls.get(id(node)))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
                if node.value.attr == LAYERS and kernels.is_kernel(node.value.value):
                    yield from self._layer(node)
            elif isinstance(node, ast.ImportFrom) and node.module == module and not node.level:
                for alias in node.names:
                    if alias.name != "*":
                        yield from self._use(alias.name, node.lineno, None)

    def _use(self, name: str, line: int, call: ast.Call | None) -> Iterator[Misuse]:
        names = self.names or frozenset()
        if name == _ANY or name.startswith("__"):
            return
        if name not in names:
            public = sorted(other for other in names if not other.startswith("_"))
            yield Misuse(
                line=line,
                name=name,
                reason=f"the kernel has no {name}",
                near=tuple(get_close_matches(name, public, n=2)),
            )
            return
        signature = self._signature(name)
        reason = None if call is None or signature is None else _why_not_called(call, signature)
        if reason is not None:
            yield Misuse(line=line, name=name, reason=f"{name}{signature} {reason}")

    def _signature(self, name: str) -> Signature | None:
        found = self._tree.find(self._top, name) if self._top is not None else None
        if found is None or not isinstance(found.node, ast.FunctionDef) or found.node.decorator_list:
            return None
        return signature_of(found.node)

    def _layer(self, node: ast.Attribute) -> Iterator[Misuse]:
        module = self._tree.module(LAYERS)
        if module is None or "__getattr__" in module.definitions or any(not level for level, _ in module.stars):
            return
        names = {*module.definitions, *module.imports, *self._tree.exported(module)}
        if node.attr[:1].isupper() and node.attr not in names:
            near = get_close_matches(node.attr, sorted(names), n=2)
            yield Misuse(
                line=node.lineno, name=node.attr, reason=f"the kernel's layers have no {node.attr}", near=tuple(near)
            )


def _names(root: Path, tree: PublicPackage, top: PublicModule | None) -> frozenset[str] | None:
    """Every name that the top module has; ``None`` where that cannot be told by reading."""
    try:
        code = ast.parse(read_small(root / "__init__.py"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    if top is None or "__getattr__" in top.definitions:
        return None
    if any(isinstance(node, ast.Name) and node.id in _DYNAMIC for node in ast.walk(code)):
        return None
    names: set[str] = (
        {_GENERATED} | {path.stem for path in root.glob("*.py")} | {path.parent.name for path in root.glob("*/*.py")}
    )
    for statement in top_level(code.body):
        if isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names):
            if not statement.level:
                return None
            continue
        names |= set(_bound(statement))
    return frozenset(names | set(tree.exported(top)) | _starred(tree, top))


def _starred(tree: PublicPackage, top: PublicModule) -> set[str]:
    """Names that star imports bring, whatever ``__all__`` of the top module lists."""
    found: set[str] = set()
    for level, source in top.stars:
        other = tree.module(source) if level == 1 and source else None
        if other is not None:
            found |= set(tree.exported(other))
    return found


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement of the module's top level binds; loops are looked into, functions are not."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name


class _Kernels:
    """Which expressions of some code are the kernel."""

    def __init__(self, code: ast.Module, is_own: Callable[[str], bool], module: str) -> None:
        self._is_own = is_own
        self._values: dict[str, list[ast.expr]] = {}
        self._imported: set[str] = set()
        for node in ast.walk(code):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._values.setdefault(name, []).append(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._values.setdefault(name, []).append(value)
                case ast.Import(names=names):
                    self._imported |= {alias.asname or alias.name for alias in names if alias.name == module}

    def is_kernel(self, node: ast.expr) -> bool:
        """Whether ``node`` is surely the kernel."""
        if isinstance(node, ast.Call):
            return self._loads(node)
        if isinstance(node, ast.Attribute):  # in a benchmark of the client
            return node.attr == "kernel" and isinstance(node.value, ast.Name) and node.value.id == "self"
        if not isinstance(node, ast.Name):
            return False
        values = self._values.get(node.id, [])
        if node.id in self._imported:
            return not values
        return bool(values) and all(isinstance(value, ast.Call) and self._loads(value) for value in values)

    def _loads(self, call: ast.Call) -> bool:
        function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
        if function in _LOCAL_LOADERS:
            return True
        if function not in _LOADERS:
            return False
        given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "repo_id")]
        text = self._text(given[0]) if given else None
        return text is not None and self._is_own(text.partition("@")[0])

    def _text(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name) and len(self._values.get(node.id, ())) == 1:
            node = self._values[node.id][0]
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _why_not_called(call: ast.Call, signature: Signature) -> str | None:
    """Why a function of this signature refuses the call; ``None`` when it takes it, or when that cannot be told."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(isinstance(value, ast.Starred) or _is_ellipsis(value) for value in given):
        return None
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    kinds = {parameter.kind for parameter in signature.parameters}
    positional = [
        p for p in signature.parameters if p.kind in {ParameterKind.POSITIONAL_ONLY, ParameterKind.POSITIONAL}
    ]
    if len(call.args) > len(positional) and ParameterKind.VARIADIC not in kinds:
        return f"takes at most {len(positional)} positional arguments, but gets {len(call.args)}"
    named = {str(keyword.arg) for keyword in call.keywords}
    by_name = {p.name for p in signature.parameters if p.kind in {ParameterKind.POSITIONAL, ParameterKind.KEYWORD_ONLY}}
    unknown = sorted(named - by_name)
    if unknown and ParameterKind.VARIADIC_KEYWORD not in kinds:
        return f"does not take {', '.join(unknown)}"
    taken = {p.name for p in positional[: len(call.args)]} | named
    missing = [p.name for p in signature.parameters if p.is_required and p.name not in taken]
    return f"also needs {', '.join(missing)}" if missing else None


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis
