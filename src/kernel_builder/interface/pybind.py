"""Functions that ``PYBIND11_MODULE`` offers to Python, and the schemas that they have as ops of torch.

Sources are read as text. What cannot be told from it, or has no counterpart in a schema, is said, not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kernel_builder.interface.cxx_types import (
    QUALIFIERS,
    Converted,
    bare_type,
    converted,
    default_of,
    is_type,
    returned,
    split_types,
    usable_name,
)
from kernel_builder.interface.native import NativeText, arguments, closing, literal_at

_MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(")
_HELPER = re.compile(r"\bvoid\s+\w+\s*\(\s*(?:pybind11|py)\s*::\s*module_?\s*&\s*\w+\s*\)\s*\{")
"""A function that the module's block calls, and that defines a part of it."""
_FORWARDING = re.compile(
    r"\[\s*[&=]?\s*\]\s*(?:\((?P<given>[^()]*)\)\s*)?(?:noexcept\s*)?(?:->\s*[\w:<>,\s]+)?"
    r"\{\s*(?:return\s+)?(?P<function>(?:\w+\s*::\s*)*\w+)\s*\((?P<passed>(?:[\w\s,]|std\s*::\s*move\s*\(\s*\w+\s*\))*)\)"
    r"\s*;\s*\}"
)
"""``[](at::Tensor x) { return scale(x); }``."""
_REGISTRY = re.compile(r"\bRegisterOperators\s*\(\s*\)")
"""How operators were registered with torch before TORCH_LIBRARY: their schemas are worked out, too."""
_ENTRY = re.compile(r"(?:\bPyMODINIT_FUNC|\bPyObject\s*\*)\s*PyInit_\w+\s*\([^()]*\)\s*\{")
"""The module of an extension that registers its ops by itself: nothing is in it."""
_EXTERN_C = re.compile(r"extern\s*\"[^\"]*\"\s*\{\s*$")
_SUBMODULE = re.compile(r"\b(\w+)\s*=\s*\w+\s*\.\s*def_submodule\s*\(")
_SPACE = re.compile(r"\bnamespace\b\s*(\w+(?:\s*::\s*\w+)*)?\s*\{")
_AUTOGRAD = re.compile(r"\b\w+\s*::\s*apply\s*\(")
_MACROS = re.compile(r"\b[A-Z][A-Z0-9]*_(?:API|EXPORT|EXPORTS|INLINE|HOST_DEVICE)\b")
_WRAPPED = re.compile(r"(?:\w+\s*::\s*)*wrap_pybind_function(?:_no_gil)?\s*\(\s*(.+)\)", re.DOTALL)
"""What torch puts around functions so that they tell errors."""
_CHOSEN = re.compile(
    r"(?:(?:pybind11|py)\s*::\s*overload_cast\s*<(?P<cast>.*)>\s*\((?P<a>[^()]*)\)"
    r"|static_cast\s*<[^()]*\(\s*\*\s*\)\s*\((?P<pointed>.*)\)\s*>\s*\((?P<b>[^()]*)\)"
    r"|\(\s*[^()]*\(\s*\*\s*\)\s*\((?P<plain>.*)\)\s*\)\s*(?P<c>[^()]*))",
    re.DOTALL,
)
"""One of several functions of a name, by its parameters: ``py::overload_cast<int>(&f)``, ``(int (*)(int)) &f``."""
_FUNCTION = re.compile(r"&?\s*((?:\w+\s*::\s*)*)(\w+)\s*$")
_ARGUMENT = re.compile(
    r'(?:(?:\w+\s*::\s*)*arg\s*\(\s*(?:"(?P<a>\w+)")?\s*\)|"(?P<b>\w+)"\s*_a)'
    r"(?:\s*\.\s*\w+\s*\([^()]*\))*\s*(?:=\s*(?P<default>.+))?$",
    re.DOTALL,
)
_IN_PLACE = r"(?:\.\s*\w*[a-z]_\s*\(|\s*\[[^\]]*\]\s*=(?!=)|\.\s*(?:set_data|resize)\s*\()"


@dataclass(frozen=True, kw_only=True)
class BoundParameter:
    """A parameter: ``cxx`` is its type as written, ``default`` is that of the schema."""

    name: str
    cxx: str
    type: Converted
    default: str | None = None
    is_mutable: bool = False


@dataclass(frozen=True, kw_only=True)
class BoundFunction:
    """A function as an op: ``name`` in Python, ``function`` in C++, in ``namespace``, ``result`` as written.

    ``has_gradient``: it has a gradient of its own, ``torch::autograd::Function``, so it is for every device.
    """

    name: str
    function: str
    namespace: str
    parameters: tuple[BoundParameter, ...]
    result: str
    returns: Converted
    defined_in: str | None
    has_gradient: bool = False

    @property
    def schema(self) -> str:
        """``f(Tensor x, int n=0) -> Tensor``."""
        given = ", ".join(
            f"{_written(parameter)} {parameter.name}"
            + (f"={parameter.default}" if parameter.default is not None else "")
            for parameter in self.parameters
        )
        return f"{self.name}({given}) -> {self.returns.schema}"

    @property
    def has_tensors(self) -> bool:
        """Whether torch can choose an implementation by its arguments."""
        return any("Tensor" in parameter.type.schema for parameter in self.parameters)


def _written(parameter: BoundParameter) -> str:
    """The type in a schema: ``Tensor!``, ``Tensor!?``."""
    kind = parameter.type.schema
    return kind.replace("Tensor", "Tensor!", 1) if parameter.is_mutable else kind


@dataclass(frozen=True, kw_only=True)
class ModuleBlock:
    """One ``PYBIND11_MODULE``, a function that adds to one, a statement that registers operators (``is_registry``), or
    a module without anything in it (``is_empty``): where it is in the text of its file, from ``start`` to ``end``.
    """

    path: str
    start: int
    end: int
    is_registry: bool = False
    is_empty: bool = False


def module_blocks(files: Mapping[str, NativeText]) -> tuple[ModuleBlock, ...]:
    """All modules that ``files`` define, with the functions that define parts of them."""
    found = []
    for path, native in files.items():
        bare = native.bare
        for match in _MODULE.finditer(bare):
            brace = bare.find("{", closing(bare, match.end() - 1))
            if brace >= 0:
                found.append(ModuleBlock(path=path, start=match.start(), end=closing(bare, brace)))
        found += [
            ModuleBlock(path=path, start=match.start(), end=closing(bare, match.end() - 1))
            for match in _HELPER.finditer(bare)
        ]
        for match in _REGISTRY.finditer(bare):
            start = max(bare.rfind(mark, 0, match.start()) for mark in ";{}") + 1
            start += len(bare[start:]) - len(bare[start:].lstrip())
            found.append(ModuleBlock(path=path, start=start, end=_statement_end(bare, match.end()), is_registry=True))
        found += [_entry(path, bare, match) for match in _ENTRY.finditer(bare)]
    return tuple(found)


def _entry(path: str, bare: str, match: re.Match[str]) -> ModuleBlock:
    """The function that makes a module, with the ``extern "C"`` that has nothing else."""
    start, end = match.start(), closing(bare, match.end() - 1)
    around = _EXTERN_C.search(bare[:start])
    after = bare[end:]
    if around is not None and after.lstrip().startswith("}"):
        start, end = around.start(), end + after.index("}") + 1
    return ModuleBlock(path=path, start=start, end=end, is_empty=True)


def _statement_end(bare: str, at: int) -> int:
    """The position behind the ``;`` that ends a statement which ``at`` is in."""
    while at < len(bare) and bare[at] != ";":
        at = closing(bare, at) if bare[at] in "({[" else at + 1
    return at + 1


def bound_functions(
    files: Mapping[str, NativeText], blocks: Iterable[ModuleBlock]
) -> tuple[tuple[BoundFunction, ...], tuple[str, ...]]:
    """The functions of ``blocks`` that can be ops, and a sentence on everything else that a person must decide."""
    functions: dict[str, BoundFunction] = {}
    decisions: list[str] = []
    for block in blocks:
        native = files[block.path]
        if block.is_empty:
            continue
        if block.is_registry:
            _take_registry(block, files, functions, decisions)
            continue
        first = arguments(native.code, native.bare.find("(", block.start))[-1]
        variable = re.findall(r"\w+", first)[-1]
        parts = _SUBMODULE.findall(native.bare[block.start : block.end])
        if parts:
            decisions.append(
                f"{block.path}: {', '.join(parts)}: functions of a module in the module became ops beside the others"
            )
        names = "|".join(map(re.escape, (variable, *parts)))
        uses = re.compile(rf"\b(?:{names})\s*\.\s*(\w+)\s*\(|\bpy(?:bind11)?\s*::\s*(class_|enum_)")
        at = block.start
        chained = re.compile(r"\s*\.\s*(def)\s*\(")
        while (match := uses.search(native.bare, at, block.end)) is not None:
            where = f"{block.path}:{native.line(match.start())}"
            at = match.end()
            if match[2]:
                decisions.append(f"{where}: {match[2]} makes a Python type, which ops cannot pass: write it in Python")
                continue
            call: re.Match[str] | None = match
            while call is not None and call[1] == "def":
                open_at = native.bare.index("(", call.end() - 1)
                _take(arguments(native.code, open_at), where, files, functions, decisions)
                at = closing(native.bare, open_at)
                call = chained.match(native.bare, at)
            if match[1] not in {"def", "doc", "def_submodule"}:
                decisions.append(f"{where}: {variable}.{match[1]}(...) has no counterpart: write it in Python")
    return tuple(functions.values()), tuple(decisions)


def _take_registry(
    block: ModuleBlock,
    files: Mapping[str, NativeText],
    functions: dict[str, BoundFunction],
    decisions: list[str],
) -> None:
    """The operators of one statement: ``RegisterOperators().op("space::name", &function)``."""
    native, at = files[block.path], block.start
    call = re.compile(r"\.\s*op\s*\(")
    while (match := call.search(native.bare, at, block.end)) is not None:
        where = f"{block.path}:{native.line(match.start())}"
        given = arguments(native.code, match.end() - 1)
        at = closing(native.bare, match.end() - 1)
        text = literal_at(given[0], 0)[0] if given else ""
        name = (text or "").partition("(")[0].rpartition("::")[2].strip()
        _take((f'"{name}"', *given[1:]), where, files, functions, decisions)


def _take(
    given: tuple[str, ...],
    where: str,
    files: Mapping[str, NativeText],
    functions: dict[str, BoundFunction],
    decisions: list[str],
) -> None:
    name = literal_at(given[0], 0)[0] if given else ""
    given = _with_cast_whole(given)
    text, types = _chosen(given[1].strip()) if len(given) > 1 else ("", None)
    target = _FUNCTION.fullmatch(_forwarded(text)) if text else None
    if not name or target is None:
        decisions.append(f"{where}: {name or 'a definition'} is not a plain function: write one, and register it")
        return
    if name in functions:
        decisions.append(
            f"{where}: {name} is defined a second time, with other parameters or by another module: give each a name of"
            " its own, and its C++ function, too"
        )
        return
    namespace = "".join(target[1].split()).removesuffix("::")
    if namespace and _is_class(namespace.rpartition("::")[2], files):
        decisions.append(f"{where}: {name} is a function of the class {namespace}: write one that calls it")
        return
    found = _signature(target[2], files, types)
    if found is None:
        sought = target[2] if types is None else f"{target[2]}({', '.join(types)})"
        decisions.append(f"{where}: no declaration of {sought} was found in the sources that were converted")
        return
    try:
        functions[name] = _function(name, target[2], found, given[2:], where, decisions)
    except ValueError as error:
        decisions.append(f"{where}: {name} is not registered: {error}")


def _with_cast_whole(given: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments of a definition; a cast to a type with commas, as the second of them, is one argument."""
    if len(given) < 2 or not re.match(r"\s*(?:(?:pybind11|py)\s*::\s*overload_cast|static_cast)\b", given[1]):
        return given
    for end in range(2, len(given) + 1):
        target = ",".join(given[1:end])
        if target.count("<") == target.count(">"):
            return (given[0], target, *given[end:])
    return given


def _chosen(text: str) -> tuple[str, tuple[str, ...] | None]:
    """The function that a cast chooses by its parameters, and their types; ``None`` without a cast."""
    match = _CHOSEN.fullmatch(text)
    if match is None:
        return text, None
    types = next(one for one in (match["cast"], match["pointed"], match["plain"]) if one is not None)
    target = next(one for one in (match["a"], match["b"], match["c"]) if one is not None)
    return target.strip(), tuple(one for one in split_types(arguments(f"({types})", 0)) if one.strip() != "void")


def _is_class(name: str, files: Mapping[str, NativeText]) -> bool:
    pattern = re.compile(rf"\b(?:class|struct)\s+(?:[A-Z_]+\s+)?{re.escape(name)}\s*(?:final\s*)?[:{{]")
    return any(pattern.search(native.bare) is not None for native in files.values())


def _forwarded(text: str) -> str:
    """The function that a lambda passes just its own arguments on to, or that torch wraps; else what is there."""
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is not None:
        return wrapped[1].strip()
    match = _FORWARDING.fullmatch(text)
    if match is None:
        return text
    named = [re.split(r"\W+", one.partition("=")[0].strip())[-1] for one in (match["given"] or "").split(",")]
    passed = [re.sub(r"std\s*::\s*move\s*\(\s*(\w+)\s*\)", r"\1", one).strip() for one in match["passed"].split(",")]
    return match["function"] if named == passed else text


@dataclass(frozen=True, kw_only=True)
class _Signature:
    result: str
    parameters: tuple[str, ...]
    body: str
    path: str
    is_static: bool
    namespace: str
    is_hidden: bool


def _signature(name: str, files: Mapping[str, NativeText], types: tuple[str, ...] | None) -> _Signature | None:
    """The definition of a function, else its declaration; of several, the one whose parameters have ``types``."""
    declared = None
    for path, native in files.items():
        for match in re.finditer(rf"(?<![\w.:>]){re.escape(name)}\s*\(", native.bare):
            end = closing(native.bare, match.end() - 1)
            before = re.split(r"[;{}]", native.bare[: match.start()])[-1].strip()
            after = native.bare[end:].lstrip().removeprefix("noexcept").lstrip()
            if not re.fullmatch(r"[\w:<>,\s*&\[\]()]+", before) or before.split()[-1:] in (["return"], ["else"]):
                continue
            if not after.startswith(("{", ";")):
                continue
            brace = native.bare.find("{", end)
            spaces = _enclosing(native.bare, match.start())
            found = _Signature(
                result=" ".join(_MACROS.sub(" ", QUALIFIERS.sub(" ", before)).split()),
                parameters=split_types(arguments(native.code, match.end() - 1)),
                body=native.bare[brace : closing(native.bare, brace)] if after.startswith("{") else "",
                path=path,
                is_static="static" in before.split(),
                namespace="::".join(space for space in spaces if space),
                is_hidden="" in spaces,
            )
            if types is not None and not _takes(found.parameters, types):
                continue
            if found.body:
                return found
            declared = declared or found
    return declared


def _takes(parameters: tuple[str, ...], types: tuple[str, ...]) -> bool:
    """Whether a function with ``parameters`` is the one that a cast to ``types`` chooses."""
    declared = [bare_type(_declared(text)[0]) for text in parameters if text != "void"]
    return declared == [bare_type(_declared(text)[0]) for text in types]


def _enclosing(bare: str, position: int) -> list[str]:
    """The namespaces around a position, the outermost first; one without a name is empty."""
    around = []
    for match in _SPACE.finditer(bare, 0, position):
        if closing(bare, match.end() - 1) > position:
            around.append("".join(match[1].split()) if match[1] else "")
    return around


def _function(
    name: str,
    function: str,
    found: _Signature,
    rest: tuple[str, ...],
    where: str,
    decisions: list[str],
) -> BoundFunction:
    """Raises ``ValueError`` that says what has no counterpart in a schema."""
    if found.is_static:
        raise ValueError(f"{function} is static: remove that, so that the binding can call it")
    if found.is_hidden:
        raise ValueError(f"{function} is in a namespace without a name: move it, so that the binding can call it")
    if "template" in found.result.split() or found.result.startswith("template"):
        raise ValueError(f"{function} is a template: write a function that calls it")
    named = [match for text in rest if (match := _ARGUMENT.match(text.strip())) is not None]
    parameters = []
    for index, text in enumerate(p for p in found.parameters if p != "void"):
        match = named[index] if index < len(named) else None
        parameter = _parameter(text, index, match, found.body)
        if parameter.name.endswith("_") and f'"{parameter.name[:-1]}"' in (match[0] if match else ""):
            decisions.append(
                f"{where}: {name} calls a parameter {parameter.name[:-1]}, which is a word of schemas or of C++:"
                f" it is {parameter.name} now"
            )
        given = match["default"] if match is not None else None
        if given is not None and parameter.default is None:
            decisions.append(
                f"{where}: the default of {name}({parameter.name}={given.strip()}) is not a literal: set it in Python"
            )
        if parameter.is_mutable and not _is_reference(text):
            decisions.append(f"{where}: {name} seems to write to {parameter.name}: it is marked with !")
        parameters.append(parameter)
    parameters = _with_defaults_last(name, parameters, where, decisions)
    returns = returned(found.result)
    tensors = [parameter.name for parameter in parameters if parameter.type.schema.startswith("Tensor")]
    if "Tensor" not in returns.schema and tensors and not any(parameter.is_mutable for parameter in parameters):
        decisions.append(
            f"{where}: {name} returns no tensor, so it seems to write to some of {', '.join(tensors)}: mark these"
            " with ! in its schema"
        )
    if "&" in found.result:
        decisions.append(f"{where}: {name} returns a reference, perhaps to an argument: return nothing instead")
    return BoundFunction(
        name=name,
        function=function,
        namespace=found.namespace,
        parameters=tuple(parameters),
        result=found.result,
        returns=returns,
        defined_in=found.path if found.body else None,
        has_gradient=_AUTOGRAD.search(found.body) is not None,
    )


def _with_defaults_last(
    name: str, parameters: list[BoundParameter], where: str, decisions: list[str]
) -> list[BoundParameter]:
    """A schema has no default before a parameter without one, so such a default is left out."""
    last = max((index for index, one in enumerate(parameters) if one.default is None), default=-1)
    for one in parameters[:last]:
        if one.default is not None:
            decisions.append(
                f"{where}: the default of {name}({one.name}={one.default}) is left out, because"
                f" {parameters[last].name} behind it has none: set it in Python"
            )
    return [replace(one, default=None) if index < last else one for index, one in enumerate(parameters)]


def _is_reference(text: str) -> bool:
    return "&" in text and "const" not in text.split("&", maxsplit=1)[0].replace("&", " ").split()


def _declared(text: str) -> tuple[str, str]:
    """The type and the name of a parameter; the name may be empty."""
    bare = text.split("=", maxsplit=1)[0].strip()
    match = re.fullmatch(r"(.*?[\s&*>])(\w+)", bare, re.DOTALL)
    words = QUALIFIERS.sub(" ", bare).replace("&", " ").split()
    has_name = match is not None and len(words) > 1 and not is_type(" ".join(words))
    return (match[1].strip(), match[2]) if match is not None and has_name else (bare, "")


def _parameter(text: str, index: int, named: re.Match[str] | None, body: str) -> BoundParameter:
    cxx, own = _declared(text)
    own = own or f"arg{index}"
    kind = converted(cxx)
    name = ((named["a"] or named["b"]) if named is not None else None) or own
    writes = re.search(rf"(?<![\w.]){re.escape(own)}{_IN_PLACE}", body) is not None
    is_mutable = kind.schema in {"Tensor", "Tensor?"} and (_is_reference(cxx) or writes)
    return BoundParameter(
        name=usable_name(name),
        cxx=cxx,
        type=kind,
        default=default_of(named["default"] if named is not None else None),
        is_mutable=is_mutable,
    )
