"""Functions that ``PYBIND11_MODULE`` offers to Python, and the schemas that they have as ops of torch.

Sources are read as text. What cannot be told from it, or has no counterpart in a schema, is said, not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernel_builder.interface.native import NativeText, arguments, closing, literal_at, unescaped

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
_AUTOGRAD = re.compile(r"\b\w+\s*::\s*apply\s*\(")
_MACROS = re.compile(r"\b[A-Z][A-Z0-9]*_(?:API|EXPORT|EXPORTS|INLINE|HOST_DEVICE)\b")
_FUNCTION = re.compile(r"&?\s*((?:\w+\s*::\s*)*)(\w+)\s*$")
_ARGUMENT = re.compile(
    r'(?:(?:\w+::)*arg\s*\(\s*"(?P<a>\w+)"\s*\)|"(?P<b>\w+)"\s*_a)\s*(?:=\s*(?P<default>.+))?$', re.DOTALL
)
_QUALIFIERS = re.compile(r"\b(?:const|constexpr|static|inline|extern|volatile|typename|struct|C10_EXPORT|TORCH_API)\b")
_GROUP = re.compile(r"(?:tuple|pair)\s*<(.+)>")
_NAMESPACES = re.compile(r"\b(?:at|c10|torch|std|caffe2)\s*::\s*")
_IN_PLACE = r"(?:\.\s*\w*[a-z]_\s*\(|\s*\[[^\]]*\]\s*=(?!=)|\.\s*(?:set_data|resize)\s*\()"

_SIMPLE = {
    "Tensor": ("Tensor", "at::Tensor"),
    "Scalar": ("Scalar", "at::Scalar"),
    "ScalarType": ("ScalarType", "at::ScalarType"),
    "Dtype": ("ScalarType", "at::ScalarType"),
    "Device": ("Device", "at::Device"),
    "bool": ("bool", "bool"),
    "string": ("str", "std::string"),
    "string_view": ("str", "std::string"),
    **dict.fromkeys(
        ("int", "long", "long long", "int64_t", "int32_t", "int16_t", "int8_t", "uint8_t", "uint32_t", "uint64_t",
         "uint16_t", "uintptr_t", "intptr_t", "ssize_t", "Py_ssize_t", "unsigned long long",
         "size_t", "unsigned", "unsigned int", "short", "long int", "ptrdiff_t", "unsigned long"),
        ("int", "int64_t"),
    ),
    **dict.fromkeys(("float", "double"), ("float", "double")),
}  # fmt: skip
_LISTS = {"TensorList": "Tensor", "IntArrayRef": "int64_t"}
_VIEWS = {"Tensor": "at::TensorList", "int": "at::IntArrayRef", "float": "at::ArrayRef<double>"}


@dataclass(frozen=True, kw_only=True)
class Converted:
    """A C++ type as a schema has it: ``schema``, the ``native`` type that torch passes, and what to write to get the
    C++ type from ``{}``.
    """

    schema: str
    native: str
    expression: str = "{}"


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
    target = _FUNCTION.fullmatch(_forwarded(given[1].strip())) if len(given) > 1 else None
    if not name or target is None:
        decisions.append(f"{where}: {name or 'a definition'} is not a plain function: write one, and register it")
        return
    if name in functions:
        decisions.append(f"{where}: {name} is defined again with other parameters: give it a name of its own")
        return
    namespace = target[1].replace(" ", "").removesuffix("::")
    found = _signature(target[2], files)
    if found is None:
        decisions.append(f"{where}: no declaration of {target[2]} was found in the sources that were converted")
        return
    try:
        functions[name] = _function(name, target[2], namespace, found, given[2:], where, decisions)
    except ValueError as error:
        decisions.append(f"{where}: {name} is not registered: {error}")


def _forwarded(text: str) -> str:
    """The function that a lambda passes just its own arguments on to; else what is there."""
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


def _signature(name: str, files: Mapping[str, NativeText]) -> _Signature | None:
    """The definition of a function, else its declaration."""
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
            found = _Signature(
                result=" ".join(_MACROS.sub(" ", _QUALIFIERS.sub(" ", before)).split()),
                parameters=_parameters(arguments(native.code, match.end() - 1)),
                body=native.bare[brace : closing(native.bare, brace)] if after.startswith("{") else "",
                path=path,
                is_static="static" in before.split(),
            )
            if found.body:
                return found
            declared = declared or found
    return declared


def _parameters(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Parts between commas, those joined again that are within ``<>``."""
    found: list[str] = []
    for part in parts:
        is_open = bool(found) and _depth(found[-1]) > 0
        found = [*found[:-1], f"{found[-1]}, {part}"] if is_open else [*found, part]
    return tuple(found)


def _depth(text: str) -> int:
    """How many ``<`` of a declaration are open; operators of default values are not counted."""
    declared = text.partition("=")[0].replace("->", "")
    return declared.count("<") - declared.count(">")


def _function(
    name: str,
    function: str,
    namespace: str,
    found: _Signature,
    rest: tuple[str, ...],
    where: str,
    decisions: list[str],
) -> BoundFunction:
    """Raises ``ValueError`` that says what has no counterpart in a schema."""
    if found.is_static:
        raise ValueError(f"{function} is static: remove that, so that the binding can call it")
    if "template" in found.result.split() or found.result.startswith("template"):
        raise ValueError(f"{function} is a template: write a function that calls it")
    named = [match for text in rest if (match := _ARGUMENT.match(text.strip())) is not None]
    parameters = []
    for index, text in enumerate(p for p in found.parameters if p != "void"):
        match = named[index] if index < len(named) else None
        parameter = _parameter(text, index, match, found.body)
        given = match["default"] if match is not None else None
        if given is not None and parameter.default is None:
            decisions.append(
                f"{where}: the default of {name}({parameter.name}={given.strip()}) is not a literal: set it in Python"
            )
        if parameter.is_mutable and not _is_reference(text):
            decisions.append(f"{where}: {name} seems to write to {parameter.name}: it is marked with !")
        parameters.append(parameter)
    returns = _returns(found.result)
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
        namespace=namespace,
        parameters=tuple(parameters),
        result=found.result,
        returns=returns,
        defined_in=found.path if found.body else None,
        has_gradient=_AUTOGRAD.search(found.body) is not None,
    )


def _is_reference(text: str) -> bool:
    return "&" in text and "const" not in text.split("&", maxsplit=1)[0].replace("&", " ").split()


def _parameter(text: str, index: int, named: re.Match[str] | None, body: str) -> BoundParameter:
    bare = text.split("=", maxsplit=1)[0].strip()
    match = re.fullmatch(r"(.*?[\s&*>])(\w+)", bare, re.DOTALL)
    words = _QUALIFIERS.sub(" ", bare).replace("&", " ").split()
    has_name = match is not None and len(words) > 1 and not _is_type(" ".join(words))
    cxx, own = (match[1].strip(), match[2]) if match is not None and has_name else (bare, f"arg{index}")
    kind = _converted(cxx)
    name = (named["a"] or named["b"]) if named is not None else own
    writes = re.search(rf"(?<![\w.]){re.escape(own)}{_IN_PLACE}", body) is not None
    is_mutable = kind.schema in {"Tensor", "Tensor?"} and (_is_reference(cxx) or writes)
    return BoundParameter(
        name=name,
        cxx=cxx,
        type=kind,
        default=_default(named["default"] if named is not None else None),
        is_mutable=is_mutable,
    )


def _is_type(text: str) -> bool:
    return _NAMESPACES.sub("", text) in _SIMPLE


def _converted(cxx: str) -> Converted:
    """A type of C++ as a schema has it. Raises ``ValueError`` for one that it has not."""
    bare = " ".join(_QUALIFIERS.sub(" ", _NAMESPACES.sub("", cxx)).replace("&", " ").split())
    if bare in _SIMPLE:
        schema, native = _SIMPLE[bare]
        is_number = schema in {"int", "float"}
        return Converted(
            schema=schema, native=native, expression=f"static_cast<{_plain(cxx)}>({{}})" if is_number else "{}"
        )
    group = _GROUP.fullmatch(bare)
    if group is not None:
        return _numbers(cxx, _parameters(arguments(f"({group[1]})", 0)))
    inner = re.fullmatch(r"(optional|vector|ArrayRef)\s*<\s*(.+?)\s*>", bare)
    if bare in _LISTS or (inner is not None and inner[1] != "optional"):
        item = _converted(_LISTS.get(bare) or (inner[2] if inner else ""))
        view = _VIEWS.get(item.schema)
        own = inner is not None and inner[1] == "vector"
        if view is None or (item.schema == "int" and inner is not None and inner[2] not in {"int64_t", "long"}):
            raise ValueError(f"a schema has no {cxx}")
        return Converted(schema=f"{item.schema}[]", native=view, expression="{}.vec()" if own else "{}")
    if inner is not None:
        item = _converted(inner[2])
        if item.expression != "{}" and inner[2] not in {"int64_t", "long", "double"}:
            raise ValueError(f"{cxx} is not what torch passes: use optional of int64_t or double")
        return Converted(schema=f"{item.schema}?", native=f"std::optional<{item.native}>")
    raise ValueError(f"a schema has no {_plain(cxx)}")


def _numbers(cxx: str, parts: tuple[str, ...]) -> Converted:
    """A tuple of numbers, all integers or all not, is a list of that length: torch passes no tuples. Raises
    ``ValueError`` for any other.
    """
    items = [_converted(part) for part in parts]
    kinds = {item.schema for item in items}
    if len(kinds) != 1 or not kinds <= {"int", "float"}:
        raise ValueError(f"a schema has no {_plain(cxx)}")
    (kind,) = kinds
    values = ", ".join(item.expression.format(f"{{0}}.at({index})") for index, item in enumerate(items))
    return Converted(
        schema=f"{kind}[{len(items)}]", native=_VIEWS[kind], expression=f"{_plain(cxx)}({values})"
    )


def _plain(cxx: str) -> str:
    return " ".join(_QUALIFIERS.sub(" ", cxx).replace("&", " ").split())


def _returns(result: str) -> Converted:
    bare = " ".join(_NAMESPACES.sub("", result).replace("&", " ").split())
    if bare == "void":
        return Converted(schema="()", native="void")
    group = _GROUP.fullmatch(bare)
    if group is not None:
        items = [_converted(item) for item in _parameters(arguments(f"({group[1]})", 0))]
        # A tuple converts to one whose items its own convert to: int to int64_t, float to double.
        native = f"std::tuple<{', '.join(item.native for item in items)}>"
        if any(item.schema.endswith("[]") for item in items):
            native = result
        return Converted(schema=f"({', '.join(item.schema for item in items)})", native=native)
    kind = _converted(result)
    native = result if kind.schema.endswith("[]") else kind.native
    return Converted(schema=kind.schema, native=native)


def _default(text: str | None) -> str | None:
    if text is None:
        return None
    bare = text.strip()
    if bare in {"true", "false"}:
        return bare.capitalize()
    if re.fullmatch(r"(?:pybind11|py)\s*::\s*none\s*\(\s*\)|(?:std|c10|at|torch)\s*::\s*nullopt", bare):
        return "None"
    if re.fullmatch(r"-?\d+[uUlL]*", bare):
        return re.sub(r"[uUlL]+$", "", bare)
    if re.fullmatch(r"-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fF]?", bare):
        return str(float(bare.rstrip("fF")))
    if re.fullmatch(r'"[^"]*"', bare):
        return f'"{unescaped(bare[1:-1])}"'
    return None
