"""Rules about the op namespace: everything that a kernel registers with torch lies in a namespace of its own.

Several versions of a kernel can be loaded in one process, and torch has one table of ops; so the namespace differs for
every version. In Python ``add_op_namespace_prefix`` of the generated ``_ops`` gives it, in C++ ``TORCH_EXTENSION_NAME``
with the macros of ``registration.h``. Names in Python are read off the syntax tree: comments and docstrings do not
count, aliases do, and variables are followed where they are simple. What that cannot follow (a wrapper that is called
with the name) shows when the kernel is loaded: see ``load``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kernel_builder.check.model import Finding, Settings, Severity, checks, few, rule
from kernel_builder.check.native_schemas import BoundOp
from kernel_builder.check.python_facts import Module, Position, dotted_name, package_of
from kernel_builder.check.registering import registration
from kernel_builder.check.scan import pieces
from kernel_builder.check.subject import LibraryFile, PythonTree, SourceTree, join
from kernel_builder.check.syntax import walk
from kernel_builder.interface.native import listed_sources, without_comments

FIXED_NAMESPACE = rule(
    "KB201",
    "fixed-op-namespace",
    Severity.ERROR,
    summary="Python code registers ops in the kernel's own namespace only",
    rationale="Two versions of the kernel in one process would register the same op twice, which aborts the process or"
    " makes one version run the other's code.",
    remedy="Call add_op_namespace_prefix('name') from ._ops in the registration itself.",
    source="docs/requirements.md, 'Op namespace'",
)
PREFIX_FALLBACK = rule(
    "KB202",
    "op-namespace-fallback",
    Severity.ERROR,
    summary="The import of add_op_namespace_prefix has no fallback",
    rationale="A wrong import path then goes unnoticed, and the ops end up in a namespace that all versions share.",
    remedy="Import it directly: from ._ops import add_op_namespace_prefix.",
    source="builder's guide, registering Torch ops from Python",
)
PREFIX_WRAPPED = rule(
    "KB203",
    "op-namespace-wrapped",
    Severity.WARNING,
    summary="add_op_namespace_prefix is called where ops are registered, not wrapped in another function",
    rationale=(
        "The builder's guide requires it: a checker that reads the code cannot follow wrappers, and a wrapper with "
        "the same name hides what it does."
    ),
    remedy="Call add_op_namespace_prefix from ._ops in the registration, with the complete op name.",
    source="builder's guide, registering Torch ops from Python",
)
FIXED_NAMESPACE_NATIVE = rule(
    "KB204",
    "fixed-op-namespace-source",
    Severity.ERROR,
    summary="C++ code registers ops in the namespace set by the build",
    rationale="Two versions of the kernel in one process would define the same op twice, which aborts the process.",
    remedy="Include registration.h and write TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops), and"
    " TORCH_LIBRARY_IMPL_EXPAND for implementations.",
    source="docs/requirements.md, 'Op namespace'",
)
FOREIGN_NAMESPACE = rule(
    "KB205",
    "foreign-op-namespace",
    Severity.ERROR,
    summary="A library registers ops in its own namespace only",
    rationale="Two versions of the kernel in one process would define the same op twice, which aborts the process.",
    remedy="Register with TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) and rebuild.",
    source="docs/requirements.md, 'Op namespace'",
)

# --- Python ---

_PREFIX = "add_op_namespace_prefix"

_REGISTRATIONS: Mapping[str, str] = {
    "custom_op": "name",
    "triton_op": "name",
    "register_kernel": "op",
    "register_fake": "op",
    "register_autograd": "op",
    "register_autocast": "op",
    "register_vmap": "op",
    "register_torch_dispatch": "op",
    "impl_abstract": "qualname",
    "impl": "qualname",
    "define": "qualname",
    "Library": "ns",
    "_scoped_library": "ns",
}
"""Functions of ``torch.library`` that register something -> the parameter that names it, which comes first."""

_HOMES = ("torch.library", "torch._library", "torch._custom_op", "torch._custom_ops")


class _Kind(StrEnum):
    OWN = "own"
    FIXED = "fixed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class _Value:
    """What is known of the name in a registration; ``namespace`` where it is fixed."""

    kind: _Kind
    namespace: str = ""


_UNKNOWN, _OWN = _Value(_Kind.UNKNOWN), _Value(_Kind.OWN)


@dataclass
class _Names:
    """What the names of one file mean: torch's functions, the generated module's, variables."""

    own_id: str | None
    torch: dict[str, str] = field(default_factory=dict)
    """Local name -> torch's own, ``torch.library.custom_op``."""
    prefixes: set[str] = field(default_factory=lambda: {_PREFIX})
    """Names of the generated function."""
    ops: set[str] = field(default_factory=set)
    """Names of the generated ``ops``, or of the module that holds it."""
    values: dict[str, Sequence[ast.expr]] = field(default_factory=dict)
    """Variable -> what is assigned to it."""
    parameters: set[str] = field(default_factory=set)
    """Names that stand for many values."""

    def torch_name(self, node: ast.AST | None) -> str | None:
        """The full name, ``torch.library.custom_op``, of an expression that means something of torch's."""
        name = dotted_name(node)
        if name is None:
            return None
        head, _, rest = name.partition(".")
        known = self.torch.get(head)
        return None if known is None else f"{known}.{rest}" if rest else known


def _read_names(module: Module, own_id: str | None) -> _Names:
    names = _Names(own_id)
    for node, _place in module.source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".", 1)[0] == "torch":
                    names.torch[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom):
            _read_import(node, names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            names.parameters.update(argument.arg for argument in every)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            names.parameters.update(inner.id for inner in walk(node.target) if isinstance(inner, ast.Name))
    names.values.update(module.source.values)
    for name, values in names.values.items():
        known = names.torch_name(_partial_of(values[0]) or values[0]) if len(values) == 1 else None
        if known is not None:
            names.torch.setdefault(name, known)
        elif len(values) == 1 and dotted_name(values[0]) in names.prefixes:
            names.prefixes.add(name)
    return names


def _read_import(node: ast.ImportFrom, names: _Names) -> None:
    source = (node.module or "").rsplit(".", 1)[-1]
    for alias in node.names:
        local = alias.asname or alias.name
        if not node.level and (node.module or "").split(".", 1)[0] == "torch":
            names.torch[local] = f"{node.module}.{alias.name}"
        elif alias.name == _PREFIX:
            names.prefixes.add(local)
        elif alias.name == "_ops" or (alias.name == "ops" and source in {"_ops", ""}):
            names.ops.add(local)


def _partial_of(node: ast.expr) -> ast.expr | None:
    """``f`` of ``functools.partial(f, ...)`` without further positional arguments."""
    if isinstance(node, ast.Call) and (dotted_name(node.func) or "").rsplit(".", 1)[-1] == "partial":
        return node.args[0] if len(node.args) == 1 else None
    return None


def _evaluate(node: ast.expr | None, names: _Names, seen: frozenset[str] = frozenset()) -> _Value:
    """What is known of an op's name, or of the text that it begins with."""
    if node is None:
        return _UNKNOWN
    if isinstance(node, ast.Constant):
        return _of_text(node.value, names) if isinstance(node.value, str) else _UNKNOWN
    if isinstance(node, ast.JoinedStr):
        return _of_parts(
            [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values], names, seen
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _of_parts([node.left, node.right], names, seen)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _evaluate(node.left, names, seen)
    if isinstance(node, ast.Call):
        return _of_call(node, names, seen)
    if isinstance(node, ast.IfExp):
        return _worst([_evaluate(node.body, names, seen), _evaluate(node.orelse, names, seen)])
    if isinstance(node, ast.Name) and node.id not in seen:
        if node.id in names.parameters:
            return _UNKNOWN
        return _worst([_evaluate(value, names, seen | {node.id}) for value in names.values.get(node.id, [])])
    if isinstance(node, ast.Attribute):
        return _of_op(node, names)
    return _UNKNOWN


def _of_call(node: ast.Call, names: _Names, seen: frozenset[str]) -> _Value:
    function = dotted_name(node.func)
    if function is not None and (function in names.prefixes or function.endswith(f".{_PREFIX}")):
        return _OWN
    if isinstance(node.func, ast.Attribute) and node.func.attr in {"format", "removeprefix", "strip", "lower"}:
        return _evaluate(node.func.value, names, seen)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "join" and isinstance(node.func.value, ast.Constant):
        parts = node.args[0].elts if node.args and isinstance(node.args[0], ast.List | ast.Tuple) else []
        if node.func.value.value == "::" and parts and isinstance(parts[0], ast.Constant):
            return _Value(_Kind.FIXED, str(parts[0].value))
    return _UNKNOWN


def _of_op(node: ast.Attribute, names: _Names) -> _Value:
    """``torch.ops.namespace.op``: an op as an object."""
    name = names.torch_name(node)
    if name is not None and name.startswith("torch.ops.") and name.count(".") >= 3:
        return _of_text(f"{name.split('.')[2]}::", names)
    return _UNKNOWN


def _worst(values: list[_Value]) -> _Value:
    for value in values:
        if value.kind is _Kind.FIXED:
            return value
    return _OWN if values and all(value.kind is _Kind.OWN for value in values) else _UNKNOWN


def _text_of(node: ast.expr, names: _Names, seen: frozenset[str]) -> str | None:
    """The constant text of an expression, simple variables followed."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.Name) and node.id not in seen and node.id not in names.parameters:
        values = names.values.get(node.id, [])
        return _text_of(values[0], names, seen | {node.id}) if len(values) == 1 else None
    return None


def _of_parts(parts: list[ast.expr], names: _Names, seen: frozenset[str]) -> _Value:
    """Parts of a text in order. The namespace is what stands before ``::``; an unknown part before that decides."""
    text = ""
    for part in parts:
        known = _text_of(part, names, seen)
        if known is None:
            return _evaluate(part, names, seen) if not text else _UNKNOWN
        text += known
        if "::" in text:
            break
    return _of_text(text, names)


def _of_text(text: str, names: _Names) -> _Value:
    namespace, separator, _ = text.partition("::")
    if not separator:
        return _UNKNOWN
    return _OWN if namespace == names.own_id else _Value(_Kind.FIXED, namespace)


@checks(PythonTree, FIXED_NAMESPACE)
def python_registrations(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """Registrations by decorator or by call, at any depth."""
    own_id = tree.variant.id if tree.variant is not None else None
    for module in package_of(tree).modules.values():
        if b"torch" not in module.file.source:
            continue
        names = _read_names(module, own_id)
        for node, _place in module.source.nodes:
            if isinstance(node, ast.Call):
                yield from _registration(node, names, module)


def _registration(node: ast.Call, names: _Names, module: Module) -> Iterator[Finding]:
    callee = names.torch_name(node.func)
    if callee is None:
        return
    home, _, function = callee.rpartition(".")
    if callee == "torch._C._dispatch_library" and len(node.args) > 1:
        named: ast.expr | None = node.args[1]
        whole = True
    elif function in _REGISTRATIONS and home.startswith(_HOMES):
        keyword = _REGISTRATIONS[function]
        named = node.args[0] if node.args else next((w.value for w in node.keywords if w.arg == keyword), None)
        whole = keyword == "ns"
    else:
        return
    if named is None:
        return
    namespace = _fixed_namespace(named, names, whole=whole)
    if namespace is None:
        return
    what = f"{function}({ast.unparse(named)})"
    if namespace:
        said = f"{what} registers in the namespace {namespace!r}, which all versions of the kernel share"
    else:
        said = f"{what} registers an op without a namespace"
    yield FIXED_NAMESPACE.at(module.file, said, line=named.lineno, symbol=namespace or None)


def _fixed_namespace(node: ast.expr, names: _Names, *, whole: bool) -> str | None:
    """The namespace that a registration fixes, ``""`` for an op that is named without one; ``None`` where it is the
    kernel's own or cannot be told. ``whole``: the text is a namespace, not an op's name.
    """
    text = _text_of(node, names, frozenset())
    if whole:
        return text if text is not None and text != names.own_id else None
    if text is not None and "::" not in text:
        return ""
    value = _evaluate(node, names)
    return value.namespace if value.kind is _Kind.FIXED else None


@checks(PythonTree, PREFIX_FALLBACK, PREFIX_WRAPPED)
def prefix_function(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """Fallbacks around the import of ``add_op_namespace_prefix``, and functions that wrap it."""
    for module in package_of(tree).modules.values():
        if _PREFIX.encode() not in module.file.source or module.name == ("_ops",):
            continue
        names = _read_names(module, None)
        for node, place in module.source.nodes:
            if isinstance(node, ast.Try) and _imports_prefix(node.body) and not _raises(node):
                yield PREFIX_FALLBACK.at(
                    module.file, f"this import of {_PREFIX} may fail and fall back to something else", line=node.lineno
                )
            elif isinstance(node, ast.FunctionDef):
                yield from _wrapper(node, place, names, module)


def _imports_prefix(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and any(alias.name == _PREFIX for alias in node.names)
        for statement in body
        for node in walk(statement)
    )


def _raises(node: ast.Try) -> bool:
    return not node.handlers or all(any(isinstance(s, ast.Raise) for s in handler.body) for handler in node.handlers)


def _wrapper(node: ast.FunctionDef, _place: Position, names: _Names, module: Module) -> Iterator[Finding]:
    returned = [inner.value for inner in walk(node) if isinstance(inner, ast.Return) and inner.value is not None]
    wraps = any(
        isinstance(value, ast.Call) and dotted_name(value.func) in names.prefixes - {node.name} for value in returned
    )
    if node.name == _PREFIX and not wraps:
        said = f"{_PREFIX} is defined here, replacing the generated one"
        yield PREFIX_FALLBACK.at(module.file, said, line=node.lineno, symbol=node.name)
    elif wraps:
        yield PREFIX_WRAPPED.at(module.file, f"{node.name} wraps {_PREFIX}", line=node.lineno, symbol=node.name)


# --- C++ sources ---

_NATIVE = (".cpp", ".cc", ".cxx", ".c++", ".cu", ".hip", ".mm", ".h", ".hpp", ".cuh", ".inl")
_LARGEST_SOURCE = 8 << 20
_MACRO = re.compile(
    r"\b((?:STABLE_)?TORCH_LIBRARY(?:_IMPL|_FRAGMENT)?(?:_EXPAND)?)\s*\(\s*([A-Za-z_]\w*)\s*,(?:\s*([A-Za-z_]\w*)\s*,)?"
)
_NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)


def without_noise(text: str) -> str:
    """C++ without comments and the content of strings; lines stay where they are."""
    return _NOISE.sub(lambda match: "\n" * match[0].count("\n") if match[0][0] == "/" else '""', text)


def registration_instead(namespace: str, name: str) -> str:
    """The lines to write instead of a registration of op ``name`` in ``namespace``."""
    return (
        f"Instead of torch::RegisterOperators, TORCH_LIBRARY({namespace}, ...) and macros around them, write:\n"
        '#include "registration.h"\n'
        "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {\n"
        f'  ops.def("{name}(Tensor x) -> Tensor");  // the op\'s own schema, with Tensor! for what it writes\n'
        f'  ops.impl("{name}", c10::DispatchKey::..., &{name});  // one for each device that it runs on\n'
        "}\n"
        "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n"
        "(TORCH_LIBRARY_FRAGMENT_EXPAND in all files but one, REGISTER_EXTENSION in one), and call it in Python:\n"
        f"from ._ops import ops; ops.{name}(...), not torch.ops.{namespace}.{name}(...)"
    )


_REGISTRAR = re.compile(r"\bRegisterOperators\b")
_NAMED_OP = re.compile(
    r'"\s*([A-Za-z_]\w*)::([A-Za-z_]\w*)[^"]*"\s*(?:,\s*&?\s*((?:\w+\s*::\s*)*[A-Za-z_]\w*)\s*[,)])?'
)
_MODULE = re.compile(r"\bREGISTER_EXTENSION\b")


@checks(SourceTree, FIXED_NAMESPACE_NATIVE)
def registrar_objects(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """``torch::RegisterOperators`` with names of ops, and macros around it, in the sources that are listed."""
    has_module = any(_MODULE.search(file.native.bare) for file in source.compiled)
    for relative, text in native_sources(source):
        if "RegisterOperators" not in text:
            continue
        code = without_comments(text)
        found: dict[str, dict[str, int]] = {}
        functions: dict[str, str | None] = {}
        for match in _REGISTRAR.finditer(code):
            end = code.find(";", match.start())
            for op in _NAMED_OP.finditer(code, match.start(), end if end >= 0 else len(code)):
                found.setdefault(op[1], {}).setdefault(op[2], code.count("\n", 0, op.start()) + 1)
                functions.setdefault(op[2], op[3])
        for namespace, ops in found.items():
            yield FIXED_NAMESPACE_NATIVE.at(
                join(source.shown, relative),
                f"torch::RegisterOperators registers {few(list(ops))} in the namespace {namespace!r}, which all"
                " versions of the kernel share",
                line=next(iter(ops.values())),
                symbol=namespace,
                hint=_lines_instead(
                    source, namespace, [BoundOp(name=op, function=functions[op]) for op in ops], is_first=not has_module
                ),
            )
            has_module = True


def _lines_instead(source: SourceTree, namespace: str, bound: Sequence[BoundOp], *, is_first: bool) -> str:
    """The lines to write instead of a registration of ``bound`` in ``namespace``, as far as the sources say them."""
    assert source.draft is not None  # noqa: S101  (its sources were read)
    lines = registration(source.draft, source.compiled, bound, is_first=is_first)
    name = bound[0].name
    return "\n".join(
        (
            "write instead (in a schema, Tensor! for what the op writes):",
            *lines,
            f"and call it in Python: from ._ops import ops; ops.{name}(...), not torch.ops.{namespace}.{name}(...);",
            f'for torch.compile, give it a fake: torch.library.register_fake(add_op_namespace_prefix("{name}"))',
        )
    )


@checks(SourceTree, FIXED_NAMESPACE_NATIVE)
def native_registrations(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """``TORCH_LIBRARY`` and its like in the sources that ``build.toml`` lists."""
    for relative, text in native_sources(source):
        if "TORCH_LIBRARY" not in text:
            continue
        clean = without_noise(text)
        defined = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", clean, re.MULTILINE))
        for match in _MACRO.finditer(clean):
            macro, name = match[1], match[2]
            head = clean[: match.start()].rsplit("\n", 1)[-1]
            if name == "TORCH_EXTENSION_NAME" and macro.endswith("_EXPAND"):
                continue
            if head.lstrip().startswith("#") or _in_macro(clean, match.start()) or name in defined:
                continue
            line = clean.count("\n", 0, match.start()) + 1
            if name == "TORCH_EXTENSION_NAME":
                said = f"{macro} does not expand TORCH_EXTENSION_NAME: write {macro}_EXPAND"
            else:
                said = f"{macro} registers in the namespace {name!r}, which all versions of the kernel share"
            yield FIXED_NAMESPACE_NATIVE.at(join(source.shown, relative), said, line=line, symbol=name)


def _in_macro(text: str, position: int) -> bool:
    """Whether ``position`` lies in a ``#define`` of several lines."""
    lines = text[:position].split("\n")
    index = len(lines) - 1
    while index > 0 and lines[index - 1].rstrip().endswith("\\"):
        index -= 1
    return index < len(lines) - 1 and lines[index].lstrip().startswith("#")


def native_sources(source: SourceTree) -> Iterator[tuple[str, str]]:
    """``(path relative to the project, text)`` of the C++ and CUDA sources and headers that ``build.toml`` lists."""
    project = source.draft
    if project is None:
        return
    for relative in listed_sources(project):
        path = project.root / relative
        if not relative.lower().endswith((*_NATIVE, ".c")) or not path.is_file():
            continue
        if path.stat().st_size <= _LARGEST_SOURCE:
            yield relative, path.read_text(encoding="utf-8", errors="replace")


# --- libraries ---

_INITIALISER = re.compile(rb"(\d+)TORCH_LIBRARY_(FRAGMENT_|IMPL_)?init_")
_SCHEMA = re.compile(
    rb"([A-Za-z_]\w*)::[A-Za-z_][\w.]*\((?:\)|(?:Tensor|Scalar|SymInt|Device|Layout|MemoryFormat|Generator|Any|int"
    rb"|float|bool|str|complex|__torch__)\b[^\0]*\)) *-> *[A-Za-z(][^\0]*"
)
_LONGEST_SCHEMA = 8192


@checks(LibraryFile, FOREIGN_NAMESPACE)
def library_registrations(library: LibraryFile, _settings: Settings) -> Iterator[Finding]:
    """Op schemas with a namespace among a library's strings, and the initialisers that torch's macros leave.

    Both are certain where they are there; a stripped library whose schemas are not qualified shows neither, and what it
    registers shows when it is loaded.
    """
    if library.variant is None or library.variant.id is None or library.elf is None:
        return
    own = library.variant.id
    for namespace in sorted(_namespaces(library) - {own}):
        yield FOREIGN_NAMESPACE.at(
            library,
            f"registers ops in namespace {namespace!r} instead of the kernel's own, {own!r}",
            symbol=namespace,
        )


def _namespaces(library: LibraryFile) -> set[str]:
    """Namespaces that certainly occur in a library: in its texts, not in its code."""
    found: set[bytes] = set()
    for piece in _texts(library):
        for position in _positions(piece, b"TORCH_LIBRARY_"):
            namespace = _of_initialiser(piece[max(0, position - 4) : position + 1024])
            if namespace:
                found.add(namespace)
        for position in _positions(piece, b") ->"):
            start = piece.rfind(b"\0", max(0, position - _LONGEST_SCHEMA), position) + 1
            end = piece.find(b"\0", position, position + _LONGEST_SCHEMA)
            match = _SCHEMA.fullmatch(piece[start:end]) if start and end > 0 else None
            if match is not None:
                found.add(match[1])
    return {namespace.decode("ascii") for namespace in found}


def _texts(library: LibraryFile) -> Iterator[bytes]:
    """The parts of a library where texts are; a zero stands before the first text of each, as before all others."""
    for part in library.text_ranges:
        for number, piece in enumerate(pieces(library.path, [part], overlap=2 * _LONGEST_SCHEMA)):
            yield piece if number else b"\0" + piece


def _positions(data: bytes, needle: bytes) -> Iterator[int]:
    position = data.find(needle)
    while position >= 0:
        yield position
        position = data.find(needle, position + 1)


def _of_initialiser(symbol: bytes) -> bytes | None:
    """The namespace in the mangled name of what ``TORCH_LIBRARY(namespace, m)`` and its like define."""
    match = _INITIALISER.search(symbol)
    if match is None:
        return None
    name = symbol[match.end(1) : match.end(1) + int(match[1])]
    namespace = name[match.end() - match.end(1) :]
    if match[2] == b"FRAGMENT_":
        namespace = namespace.rpartition(b"_")[0]
    elif match[2] == b"IMPL_":
        namespace = namespace.rpartition(b"_")[0].rpartition(b"_")[0]
    return namespace if namespace.replace(b"_", b"a").isalnum() else None
