"""What a kernel offers to its users, read without importing it: functions, layers and op schemas.

A kernel's interface is its top module: the names of ``__all__``, their signatures, and the classes of its ``layers``
module. Sources and built variants hold the same Python files, so both are read the same way; op schemas come from the
binding sources or from the library's strings.
Reference: interoperability contract 6.3 (which names a card lists) and 5.10 (layers).
"""

from __future__ import annotations

import ast
import mmap
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

LAYERS = "layers"
_OPS = ("ops", "_ops")
_LAYER_FLAGS = ("has_backward", "can_torch_compile")
_LAYER_DEFAULTS = {"has_backward": True, "can_torch_compile": False}
_MAX_HOPS = 16  # imports that are followed to find a definition; more is a circle


class ParameterKind(StrEnum):
    """How an argument can be passed, as :class:`inspect.Parameter` names it."""

    POSITIONAL_ONLY = "positional-only"
    POSITIONAL = "positional or keyword"
    VARIADIC = "*args"
    KEYWORD_ONLY = "keyword-only"
    VARIADIC_KEYWORD = "**kwargs"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter. ``default`` and ``annotation`` are source text, ``None`` where there is none."""

    name: str
    kind: ParameterKind = ParameterKind.POSITIONAL
    default: str | None = None
    annotation: str | None = None

    @property
    def is_required(self) -> bool:
        """Whether a caller must pass it."""
        return self.default is None and self.kind not in {ParameterKind.VARIADIC, ParameterKind.VARIADIC_KEYWORD}


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The parameters of a function in order; ``returns`` is source text."""

    parameters: tuple[Parameter, ...] = ()
    returns: str | None = None

    def __str__(self) -> str:
        parts: list[str] = []
        kinds = [parameter.kind for parameter in self.parameters]
        for place, parameter in enumerate(self.parameters):
            if parameter.kind is ParameterKind.KEYWORD_ONLY and not {
                ParameterKind.VARIADIC,
                ParameterKind.KEYWORD_ONLY,
            } & set(kinds[:place]):
                parts.append("*")
            stars = {ParameterKind.VARIADIC: "*", ParameterKind.VARIADIC_KEYWORD: "**"}.get(parameter.kind, "")
            text = f"{stars}{parameter.name}" + (f": {parameter.annotation}" if parameter.annotation else "")
            if parameter.default is not None:
                text += f" = {parameter.default}" if parameter.annotation else f"={parameter.default}"
            parts.append(text)
            last_positional_only = parameter.kind is ParameterKind.POSITIONAL_ONLY and (
                place + 1 == len(kinds) or kinds[place + 1] is not ParameterKind.POSITIONAL_ONLY
            )
            if last_positional_only:
                parts.append("/")
        return f"({', '.join(parts)})" + (f" -> {self.returns}" if self.returns else "")


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function of the top module. ``signature`` is ``None`` when it cannot be read off; ``op`` names the op that it
    is, when the module only gives an op another name; ``summary`` is the first line of its docstring.
    """

    name: str
    signature: Signature | None = None
    op: str | None = None
    summary: str | None = None


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A class of the ``layers`` module: its ``forward`` and its flags (contract 5.10)."""

    name: str
    forward: Signature | None = None
    flags: Mapping[str, bool] = field(default_factory=dict)
    summary: str | None = None


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What users of a kernel can rely on. ``others`` are names of ``__all__`` that are neither functions nor ``layers``
    (classes, constants, modules). ``ops`` maps an op's name, overload included, to its schema.
    ``declared`` tells whether the top module has an ``__all__``.
    """

    functions: tuple[Function, ...] = ()
    layers: tuple[Layer, ...] = ()
    others: tuple[str, ...] = ()
    ops: Mapping[str, str] = field(default_factory=dict)
    declared: bool = True


def read_interface(package: Path, *, ops: Mapping[str, str] | None = None) -> Interface:
    """The interface of the Python package in ``package``: a source package, or a variant directory.

    Files that are missing or do not parse contribute nothing: whether that is a fault is for the check to say.
    """
    tree = _Package(package)
    top = tree.module("__init__")
    if top is None:
        return Interface(ops=dict(ops or {}), declared=False)
    declared = top.exported
    names = declared if declared is not None else tuple(name for name in top.public_definitions)
    functions: list[Function] = []
    others: list[str] = []
    for name in dict.fromkeys(names):
        if name == LAYERS:
            continue
        found = tree.find(top, name)
        if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append(Function(name=name, signature=_signature(found.args, found.returns), summary=_doc(found)))
        elif (op := _op_of(found)) is not None:
            functions.append(Function(name=name, op=op))
        else:
            others.append(name)
    has_layers = LAYERS in names if declared is not None else tree.module(LAYERS) is not None
    return Interface(
        functions=tuple(functions),
        layers=tuple(_layers(tree)) if has_layers else (),
        others=tuple(others),
        ops=dict(ops or {}),
        declared=declared is not None,
    )


class _Module:
    """A parsed module: what its top level defines, and where the other names come from."""

    def __init__(self, tree: ast.Module, package: tuple[str, ...]) -> None:
        self.package = package  # names of the packages that contain it, outermost first
        self.definitions: dict[str, ast.stmt | ast.expr] = {}
        self.imports: dict[str, tuple[int, str, str]] = {}  # name -> (level, module, name there)
        self.stars: list[tuple[int, str]] = []
        self.exported: tuple[str, ...] | None = None
        for statement in _top_level(tree.body):
            self._read(statement)

    def _read(self, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.definitions[statement.name] = statement
            case ast.ImportFrom(level=level, module=module, names=names) if level:
                for alias in names:
                    if alias.name == "*":
                        self.stars.append((level, module or ""))
                    else:
                        self.imports[alias.asname or alias.name] = (level, module or "", alias.name)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        self._assign(target.id, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._assign(name, value)
            case ast.AugAssign(target=ast.Name(id="__all__"), value=value):
                self.exported = (*(self.exported or ()), *_strings(value))

    def _assign(self, name: str, value: ast.expr) -> None:
        if name == "__all__":
            self.exported = tuple(_strings(value))
        else:
            self.definitions[name] = value

    @property
    def public_definitions(self) -> Iterator[str]:
        """Functions and classes that are defined here under a public name."""
        for name, node in self.definitions.items():
            if not name.startswith("_") and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield name


class _Package:
    """The modules of one package directory, parsed when they are asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, _Module | None] = {}

    def module(self, dotted: str) -> _Module | None:
        """The module ``a.b`` below the package (``__init__``: the package itself); ``None`` if there is none."""
        if dotted not in self._modules:
            self._modules[dotted] = self._parse(dotted)
        return self._modules[dotted]

    def _parse(self, dotted: str) -> _Module | None:
        parts = () if dotted == "__init__" else tuple(dotted.split("."))
        base = self._root.joinpath(*parts)
        for path, package in ((base / "__init__.py", parts), (base.with_suffix(".py"), parts[:-1])):
            try:
                return _Module(ast.parse(path.read_bytes()), package)
            except (OSError, SyntaxError, ValueError, RecursionError):
                continue
        return None

    def _target(self, module: _Module, level: int, name: str) -> str | None:
        """The dotted name, within the package, of what ``from <level dots>name import ...`` names in ``module``."""
        if level - 1 > len(module.package):
            return None
        parent = module.package[: len(module.package) - (level - 1)]
        return ".".join((*parent, *(name.split(".") if name else ()))) or "__init__"

    def find(self, module: _Module, name: str, hops: int = _MAX_HOPS) -> ast.stmt | ast.expr | None:
        """What defines ``name`` in ``module``, imports within the package followed."""
        if name in module.definitions:
            found = module.definitions[name]
            if isinstance(found, ast.Name) and found.id != name and hops:
                return self.find(module, found.id, hops - 1)
            return found
        if not hops:
            return None
        places = [module.imports[name]] if name in module.imports else [(*star, name) for star in module.stars]
        for level, source, original in places:
            dotted = self._target(module, level, source)
            other = self.module(dotted) if dotted is not None else None
            if other is not None and other is not module:
                found_there = self.find(other, original, hops - 1)
                if found_there is not None:
                    return found_there
        return None

    def exported(self, module: _Module) -> tuple[str, ...]:
        """Names that ``from module import *`` brings, star imports of its own included."""
        if module.exported is not None:
            return module.exported
        names = [*module.definitions, *module.imports]
        for level, source in module.stars:
            dotted = self._target(module, level, source)
            other = self.module(dotted) if dotted is not None else None
            if other is not None and other is not module:
                names += self.exported(other)
        return tuple(name for name in dict.fromkeys(names) if not name.startswith("_"))


def _top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported, the branches of ``if`` and ``try`` included."""
    for statement in body:
        match statement:
            case ast.If(body=then, orelse=other):
                yield from _top_level([*then, *other])
            case ast.Try(body=tried, handlers=handlers, orelse=other, finalbody=final):
                for part in (tried, *(handler.body for handler in handlers), other, final):
                    yield from _top_level(part)
            case ast.With(body=inner):
                yield from _top_level(inner)
            case _:
                yield statement


def _strings(value: ast.expr) -> list[str]:
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_strings(left), *_strings(right)]
    return []


def _doc(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str | None:
    text = ast.get_docstring(node)
    return text.strip().splitlines()[0].strip() if text and text.strip() else None


def _op_of(node: ast.stmt | ast.expr | None) -> str | None:
    """``relu`` for ``ops.relu``, ``ops.relu.default`` and ``_ops.ops.relu``."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    names.append(node.id)
    names.reverse()
    while names and names[0] in _OPS:
        names.pop(0)
        if names and names[0] not in _OPS:
            return ".".join(name for name in names if name != "default")
    return None


def _text(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)


def _signature(arguments: ast.arguments, returns: ast.expr | None, *, skip_first: bool = False) -> Signature:
    positional = [
        *((argument, ParameterKind.POSITIONAL_ONLY) for argument in arguments.posonlyargs),
        *((argument, ParameterKind.POSITIONAL) for argument in arguments.args),
    ]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    parameters = [
        Parameter(name=argument.arg, kind=kind, default=_text(default), annotation=_text(argument.annotation))
        for (argument, kind), default in zip(positional, defaults, strict=True)
    ]
    if skip_first:
        parameters = parameters[1:]
    if arguments.vararg is not None:
        parameters.append(_variadic(arguments.vararg, ParameterKind.VARIADIC))
    parameters += [
        Parameter(
            name=argument.arg,
            kind=ParameterKind.KEYWORD_ONLY,
            default=_text(default),
            annotation=_text(argument.annotation),
        )
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        parameters.append(_variadic(arguments.kwarg, ParameterKind.VARIADIC_KEYWORD))
    return Signature(parameters=tuple(parameters), returns=_text(returns))


def _variadic(argument: ast.arg, kind: ParameterKind) -> Parameter:
    return Parameter(name=argument.arg, kind=kind, annotation=_text(argument.annotation))


def _layers(tree: _Package) -> Iterator[Layer]:
    module = tree.module(LAYERS)
    if module is None:
        return
    for name in tree.exported(module):
        found = tree.find(module, name)
        if isinstance(found, ast.ClassDef):
            yield _layer(tree, module, name, found)


def _layer(tree: _Package, module: _Module, name: str, node: ast.ClassDef) -> Layer:
    forward: Signature | None = None
    flags = dict(_LAYER_DEFAULTS)
    for base in reversed(_bases(tree, module, node)):
        for statement in base.body:
            match statement:
                case ast.FunctionDef(name="forward", args=arguments, returns=returns):
                    forward = _signature(arguments, returns, skip_first=True)
                case (
                    ast.Assign(targets=[ast.Name(id=flag)], value=ast.Constant(value=bool() as value))
                    | ast.AnnAssign(target=ast.Name(id=flag), value=ast.Constant(value=bool() as value))
                ) if flag in _LAYER_FLAGS:
                    flags[flag] = value
    return Layer(name=name, forward=forward, flags=flags, summary=_doc(node))


def _bases(tree: _Package, module: _Module, node: ast.ClassDef) -> list[ast.ClassDef]:
    """The class and those it inherits from within the package, the class first."""
    found = [node]
    for current in found:
        for base in current.bases:
            other = tree.find(module, base.id) if isinstance(base, ast.Name) else None
            if isinstance(other, ast.ClassDef) and other not in found and len(found) < _MAX_HOPS:
                found.append(other)
    return found


_SCHEMA = re.compile(r"(?:[A-Za-z_]\w*::)?([A-Za-z_]\w*(?:\.\w+)?)(\(.*\) ?-> ?\S.*)")
_LONGEST_SCHEMA = 4096  # bytes
_STRING = re.compile(
    r'\s*(?:u8)?(?:R"(?P<mark>[^()\\\s]{0,16})\((?P<raw>.*?)\)(?P=mark)"|"(?P<plain>(?:[^"\\\n]|\\.)*)")', re.DOTALL
)
_DEFINITION = re.compile(r"\bdef\s*\(")
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*")', re.DOTALL)
_ESCAPES = {r"\"": '"', r"\n": "\n", r"\t": "\t", r"\\": "\\"}


def _add_schema(found: dict[str, str], text: str) -> None:
    match = _SCHEMA.fullmatch(" ".join(text.split()))
    if match:
        found[match[1]] = f"{match[1]}{match[2]}"


def ops_of_library(path: Path) -> dict[str, str]:
    """Op schemas found as text in a shared library, by name; empty for an empty file.

    The file is searched where it lies on disk, so its size does not matter. Raises ``OSError``.
    """
    found: dict[str, str] = {}
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return found
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            place = data.find(b"->")
            while place >= 0:
                start = data.rfind(b"\0", max(0, place - _LONGEST_SCHEMA), place) + 1
                end = data.find(b"\0", place, place + _LONGEST_SCHEMA)
                if start and end > 0:
                    _add_schema(found, data[start:end].decode("utf-8", "replace"))
                place = data.find(b"->", max(end, place + 2))
    return dict(sorted(found.items()))


def ops_of_sources(sources: Iterable[Path]) -> dict[str, str]:
    """Op schemas in the ``def("...")`` calls of binding sources, by name; adjacent literals are joined."""
    found: dict[str, str] = {}
    for path in sources:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        text = _COMMENT.sub(lambda match: match[1] or " ", text)
        for match in _DEFINITION.finditer(text):
            _add_schema(found, _literals(text, match.end()))
    return dict(sorted(found.items()))


def _literals(text: str, place: int) -> str:
    """The value of the string literals that stand at ``place``, which C++ joins."""
    value = ""
    while match := _STRING.match(text, place):
        place = match.end()
        if match["raw"] is not None:
            value += match["raw"]
        else:
            value += re.sub(r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), match["plain"])
    return value
