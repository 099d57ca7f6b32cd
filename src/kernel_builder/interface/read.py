"""What a kernel offers to its users, read without importing it: functions, classes, layers and op schemas.

A kernel's interface is its top module: the names of ``__all__``, their signatures, and the classes of its ``layers``
module. Sources and built variants hold the same Python files, so both are read the same way; op schemas come from the
binding sources or from the library's strings.
Reference: interoperability contract 6.3 (which names a card lists) and 5.10 (layers).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kernel_builder.binary.elf import ElfError, mapped, read_elf_file
from kernel_builder.binary.tvm_ffi import SYMBOL_PREFIX, functions_in
from kernel_builder.config.model import FrameworkKind, Project
from kernel_builder.interface.modules import PublicModule, PublicPackage, top_level
from kernel_builder.interface.native import compiled_files, literal_at, read_native

LAYERS = "layers"
_OPS = ("ops", "_ops")
_BINDING_SUFFIXES = (".cpp", ".cc", ".cxx", ".cu", ".mm")
_LAYER_FLAGS = ("has_backward", "can_torch_compile")
_LAYER_DEFAULTS = {"has_backward": True, "can_torch_compile": False}
_MAX_FAMILY = 16  # classes


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
class Class:
    """A class of the top module. ``call`` is what it takes when it is called, ``None`` when that cannot be read off.

    ``members`` are its public methods with their signatures, and its other public names with ``None``.
    ``is_whole`` tells whether all that it inherits is in the package, so that these are all of its members.
    """

    name: str
    call: Signature | None = None
    members: Mapping[str, Signature | None] = field(default_factory=dict)
    is_whole: bool = True


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
    (classes, constants, modules); ``classes`` describes those that are classes. ``ops`` maps an op's name, overload
    included, to its schema; ``library`` are the functions that its compiled library offers through tvm-ffi, sorted.
    ``declared`` tells whether the top module has an ``__all__``.
    """

    functions: tuple[Function, ...] = ()
    classes: tuple[Class, ...] = ()
    layers: tuple[Layer, ...] = ()
    others: tuple[str, ...] = ()
    ops: Mapping[str, str] = field(default_factory=dict)
    library: tuple[str, ...] = ()
    declared: bool = True


def read_interface(package: Path, *, ops: Mapping[str, str] | None = None, library: tuple[str, ...] = ()) -> Interface:
    """The interface of the Python package in ``package``: a source package, or a variant directory.

    Files that are missing or do not parse contribute nothing: whether that is a fault is for the check to say.
    """
    tree = PublicPackage(package)
    top = tree.module("__init__")
    if top is None:
        return Interface(ops=dict(ops or {}), library=library, declared=False)
    declared = tree.declared(top)
    names = declared if declared is not None else tuple(name for name in top.public_definitions)
    functions: list[Function] = []
    classes: list[Class] = []
    others: list[str] = []
    for name in dict.fromkeys(names):
        if name == LAYERS:
            continue
        found = tree.find(top, name)
        node = found.node if found is not None else None
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append(Function(name=name, signature=signature_of(node), summary=_doc(node)))
        elif (op := _op_of(node)) is not None:
            functions.append(Function(name=name, op=op))
        else:
            others.append(name)
            if found is not None and isinstance(node, ast.ClassDef):
                classes.append(_class(tree, found.module, name, node))
    has_layers = LAYERS in names if declared is not None else tree.module(LAYERS) is not None
    return Interface(
        functions=tuple(functions),
        classes=tuple(classes),
        layers=tuple(_layers(tree)) if has_layers else (),
        others=tuple(others),
        ops=dict(ops or {}),
        library=library,
        declared=declared is not None,
    )


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


def signature_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    """The signature of a function, as it is written."""
    return _signature(node.args, node.returns)


def _variadic(argument: ast.arg, kind: ParameterKind) -> Parameter:
    return Parameter(name=argument.arg, kind=kind, annotation=_text(argument.annotation))


def _layers(tree: PublicPackage) -> Iterator[Layer]:
    module = tree.module(LAYERS)
    if module is None:
        return
    for name in tree.exported(module):
        found = tree.find(module, name)
        if found is not None and isinstance(found.node, ast.ClassDef):
            yield _layer(tree, found.module, name, found.node)


def _layer(tree: PublicPackage, module: PublicModule, name: str, node: ast.ClassDef) -> Layer:
    forward: Signature | None = None
    flags = dict(_LAYER_DEFAULTS)
    for base in reversed(_family(tree, module, node)[0]):
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


def _family(tree: PublicPackage, module: PublicModule, node: ast.ClassDef) -> tuple[list[ast.ClassDef], bool]:
    """The class and those it inherits from within the package, the class first; and whether it has no other bases."""
    found, is_whole = [(module, node)], True
    for place, current in found:
        for base in current.bases:
            other = tree.find(place, base.id) if isinstance(base, ast.Name) else None
            if other is None or not isinstance(other.node, ast.ClassDef):
                is_whole &= isinstance(base, ast.Name) and base.id == "object"
            elif all(other.node is not known for _, known in found) and len(found) < _MAX_FAMILY:
                found.append((other.module, other.node))
    return [known for _, known in found], is_whole


def _class(tree: PublicPackage, module: PublicModule, name: str, node: ast.ClassDef) -> Class:
    family, is_whole = _family(tree, module, node)
    call: Signature | None = Signature() if is_whole else None
    members: dict[str, Signature | None] = {}
    fields: dict[str, Parameter] = {}
    for owner in reversed(family):
        made = _keywords(owner.decorator_list, "dataclass")
        if made is not None:
            fields.update(_fields(owner, keyword_only=made.get("kw_only") == "True"))
            if made.get("init") != "False":
                call = Signature(parameters=tuple(fields.values()))
        elif owner.decorator_list:
            call = None  # it may give the class another __init__
        for statement in top_level(owner.body):
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef() if statement.name == "__init__":
                    call = _signature(statement.args, None, skip_first=True)
                case ast.FunctionDef(name=member) | ast.AsyncFunctionDef(name=member) if _is_offered(member):
                    members[member] = _method(statement)
                case ast.Assign(targets=[ast.Name(id=member)]) | ast.AnnAssign(target=ast.Name(id=member)):
                    if _is_offered(member):
                        members[member] = None
    return Class(name=name, call=call, members=members, is_whole=is_whole)


def _is_offered(member: str) -> bool:
    return not member.startswith("_") or member == "__call__"


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature | None:
    """How callers see it; ``None`` where a decorator makes something else of it, such as a property."""
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    if decorators - {"staticmethod", "classmethod", "overload", "typing.overload", "abstractmethod"}:
        return None
    return _signature(node.args, node.returns, skip_first="staticmethod" not in decorators)


def _keywords(nodes: Iterable[ast.expr], name: str) -> dict[str, str] | None:
    """The keyword arguments, as source text, of ``name`` or ``module.name`` among ``nodes``; ``None`` without it."""
    for node in nodes:
        function = node.func if isinstance(node, ast.Call) else node
        if ast.unparse(function).rpartition(".")[2] == name:
            given = node.keywords if isinstance(node, ast.Call) else []
            return {keyword.arg: ast.unparse(keyword.value) for keyword in given if keyword.arg is not None}
    return None


def _fields(node: ast.ClassDef, *, keyword_only: bool) -> Iterator[tuple[str, Parameter]]:
    """What the ``__init__`` of a dataclass takes for the fields that ``node`` declares (Python's ``dataclasses``)."""
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                kind = ast.unparse(annotation)
                if "ClassVar" in kind:
                    continue
                if kind.rpartition(".")[2] == "KW_ONLY":
                    keyword_only = True
                    continue
                given = _keywords([value], "field") if isinstance(value, ast.Call) else None
                default = _text(value) if given is None else given.get("default") or given.get("default_factory")
                if given is not None and given.get("init") == "False":
                    continue
                by_name = keyword_only if given is None else given.get("kw_only", str(keyword_only)) == "True"
                way = ParameterKind.KEYWORD_ONLY if by_name else ParameterKind.POSITIONAL
                yield name, Parameter(name=name, kind=way, default=default, annotation=kind)


_SCHEMA = re.compile(r"(?:[A-Za-z_]\w*::)?([A-Za-z_]\w*(?:\.\w+)?)(\(.*\) ?-> ?\S.*)")
_LONGEST_SCHEMA = 4096  # bytes
_OFFERED = re.compile(
    r"\bTVM_FFI_DLL_EXPORT_TYPED_FUNC\s*\(\s*(?P<macro>[A-Za-z_]\w*)\s*,"
    rf"|\bint\s+{SYMBOL_PREFIX}(?P<c>\w+)\s*\([^;{{]*{{"
)
_DEFINITION = re.compile(r"\bdef\s*\(")


def _add_schema(found: dict[str, str], text: str) -> None:
    match = _SCHEMA.fullmatch(" ".join(text.split()))
    if match:
        found[match[1]] = f"{match[1]}{match[2]}"


def ops_of_library(path: Path) -> dict[str, str]:
    """Op schemas found as text in a shared library, by name; empty for an empty file.

    The file is searched where it lies on disk, so its size does not matter. Raises ``OSError``.
    """
    found: dict[str, str] = {}
    with mapped(path) as data:
        place = data.find(b"->")
        while place >= 0:
            start = data.rfind(b"\0", max(0, place - _LONGEST_SCHEMA), place) + 1
            end = data.find(b"\0", place, place + _LONGEST_SCHEMA)
            if start and end > 0:
                _add_schema(found, data[start:end].decode("utf-8", "replace"))
            place = data.find(b"->", max(end, place + 2))
    return dict(sorted(found.items()))


def functions_of_library(path: Path) -> tuple[str, ...]:
    """The functions that a shared library offers through tvm-ffi, sorted; none for what is no library of Linux. Raises
    ``OSError``.
    """
    try:
        return functions_in(symbol.name for symbol in read_elf_file(path).exports)
    except ElfError:
        return ()


def functions_of_project(project: Project) -> tuple[str, ...]:
    """The functions that the sources of a project offer through tvm-ffi, sorted: by its macro, or written out in C."""
    if project.framework.kind is not FrameworkKind.TVM_FFI:
        return ()
    offered = [found for file in compiled_files(project) for found in _OFFERED.finditer(file.native.bare)]
    return functions_in(f"{SYMBOL_PREFIX}{found['macro'] or found['c']}" for found in offered)


def ops_of_project(project: Project) -> dict[str, str]:
    """Op schemas in the binding sources of a project, by name."""
    return ops_of_sources(project.root / path for path in project.framework.src if path.endswith(_BINDING_SUFFIXES))


def ops_of_sources(sources: Iterable[Path]) -> dict[str, str]:
    """Op schemas in the ``def("...")`` calls of binding sources, by name; adjacent literals are joined."""
    found: dict[str, str] = {}
    for path in sources:
        try:
            native = read_native(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        for match in _DEFINITION.finditer(native.bare):
            _add_schema(found, literal_at(native.code, match.end(), native.macros)[0])
    return dict(sorted(found.items()))
