"""Types and defaults of C++ as schemas of torch have them, and what converts what torch passes.

What has no counterpart raises ``ValueError``, which says so.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from importlib import resources

from kernel_builder.interface.native import arguments, unescaped

QUALIFIERS = re.compile(r"\b(?:const|constexpr|static|inline|extern|volatile|typename|struct|C10_EXPORT|TORCH_API)\b")
_NAMESPACES = re.compile(r"\b(?:at|c10|torch|std|caffe2)\s*::\s*")
_GROUP = re.compile(r"(?:tuple|pair)\s*<(.+)>")

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
_VIEWS = {
    "Tensor": "at::TensorList",
    "int": "at::IntArrayRef",
    "float": "at::ArrayRef<double>",
    "bool": "c10::List<bool>",
    "str": "std::vector<std::string>",
}
_ITEMS = {"Tensor": "at::Tensor", "int": "int64_t", "float": "double", "str": "std::string"}
_WIDE = frozenset({"int64_t", "long", "double", "Tensor", "bool", "string"})
"""What torch passes as it is."""
_WORDS_OF_TORCH = frozenset(keyword.kwlist) - {"async", "await", "except", "finally", "from", "lambda", "nonlocal",
                                               "try", "yield"}  # fmt: skip
"""Words that a schema has another meaning for, measured with torch 2.13."""
_WORDS_OF_CXX = frozenset(
    resources.files("kernel_builder.data").joinpath("cxx_words.txt").read_text(encoding="utf-8").split()
)


@dataclass(frozen=True, kw_only=True)
class Converted:
    """A C++ type as a schema has it: ``schema``, the ``native`` type that torch passes, and what to write to get the
    C++ type from ``{0}``. ``length``: a list must have so many items, which torch does not check.
    """

    schema: str
    native: str
    expression: str = "{0}"
    length: int | None = None


def split_types(parts: tuple[str, ...]) -> tuple[str, ...]:
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


def usable_name(name: str) -> str:
    """A name for a parameter in a schema and in C++: one that is a word of either gets ``_`` behind it."""
    return f"{name}_" if name in _WORDS_OF_TORCH or name in _WORDS_OF_CXX else name


def is_type(text: str) -> bool:
    return _NAMESPACES.sub("", text) in _SIMPLE


def bare_type(cxx: str) -> str:
    """A type without what callers need not know: ``const``, references, the namespaces of torch."""
    return " ".join(QUALIFIERS.sub(" ", _NAMESPACES.sub("", cxx)).replace("&", " ").split())


def converted(cxx: str) -> Converted:
    """A type of C++ as a schema has it. Raises ``ValueError`` for one that it has not."""
    bare = bare_type(cxx)
    if bare in _SIMPLE:
        schema, native = _SIMPLE[bare]
        is_number = schema in {"int", "float"}
        return Converted(
            schema=schema, native=native, expression=f"static_cast<{_plain(cxx)}>({{0}})" if is_number else "{0}"
        )
    if bare.replace(" ", "") == "char*" and "const" in cxx.split():
        return Converted(schema="str", native="std::string", expression="{0}.c_str()")
    group = _GROUP.fullmatch(bare)
    if group is not None:
        return _numbers(cxx, split_types(arguments(f"({group[1]})", 0)))
    inner = re.fullmatch(r"(optional|vector|ArrayRef)\s*<\s*(.+?)\s*>", bare)
    if bare in _LISTS:
        item = converted(_LISTS[bare])
        return Converted(schema=f"{item.schema}[]", native=_VIEWS[item.schema])
    if inner is None:
        raise ValueError(f"a schema has no {_plain(cxx)}")
    if inner[1] == "optional":
        return _optional(cxx, inner[2])
    return _list(cxx, inner[2], is_vector=inner[1] == "vector")


def _list(cxx: str, own: str, *, is_vector: bool) -> Converted:
    item = converted(own)
    view = _VIEWS.get(item.schema)
    if view is None or (not is_vector and own not in _WIDE and item.schema != "Tensor"):
        raise ValueError(f"a schema has no {_plain(cxx)}")
    if not is_vector:
        return Converted(schema=f"{item.schema}[]", native=view)
    if item.schema == "str":
        return Converted(schema="str[]", native=view)
    copied = f"{_plain(cxx)}({{0}}.begin(), {{0}}.end())"
    is_same = item.schema == "Tensor" or own in _WIDE
    return Converted(schema=f"{item.schema}[]", native=view, expression="{0}.vec()" if is_same else copied)


def _optional(cxx: str, own: str) -> Converted:
    item = converted(own)
    native = f"std::optional<{item.native}>"
    if item.expression == "{0}" or own in _WIDE:
        return Converted(schema=f"{item.schema}?", native=native)
    if item.schema not in {"int", "float"}:
        raise ValueError(f"a schema has {item.schema}?, but torch does not pass it as {_plain(cxx)}: write a function")
    value = item.expression.format("*{0}")
    return Converted(
        schema=f"{item.schema}?",
        native=native,
        expression=f"{{0}} ? std::make_optional({value}) : std::nullopt",
    )


def _numbers(cxx: str, parts: tuple[str, ...]) -> Converted:
    """A tuple of numbers, all integers or all not, is a list of that length: torch passes no tuples. Raises
    ``ValueError`` for any other.
    """
    items = [converted(part) for part in parts]
    kinds = {item.schema for item in items}
    if len(kinds) != 1 or not kinds <= {"int", "float"}:
        raise ValueError(f"a schema has no {_plain(cxx)}")
    (kind,) = kinds
    values = ", ".join(item.expression.format(f"{{0}}[{index}]") for index, item in enumerate(items))
    return Converted(
        schema=f"{kind}[{len(items)}]",
        native=_VIEWS[kind],
        expression=f"{_plain(cxx)}({values})",
        length=len(items),
    )


def _plain(cxx: str) -> str:
    return " ".join(QUALIFIERS.sub(" ", cxx).replace("&", " ").split())


def returned(result: str) -> Converted:
    """A result as a schema has it; it converts to the ``native`` type. Raises ``ValueError``."""
    bare = " ".join(_NAMESPACES.sub("", result).replace("&", " ").split())
    if bare == "void":
        return Converted(schema="()", native="void")
    group = _GROUP.fullmatch(bare)
    if group is None:
        return _result(result)
    # A tuple converts to one whose items its own convert to: int to int64_t, float to double.
    items = [_result(item) for item in split_types(arguments(f"({group[1]})", 0))]
    native = f"std::tuple<{', '.join(item.native for item in items)}>"
    return Converted(schema=f"({', '.join(item.schema for item in items)})", native=native)


def _result(cxx: str) -> Converted:
    """One result. A list is returned as a vector: what torch passes are views."""
    kind = converted(cxx)
    item, mark, _ = kind.schema.partition("[")
    if not mark:
        return Converted(schema=kind.schema, native=kind.native)
    if kind.length is not None or "begin()" in kind.expression or item not in _ITEMS:
        raise ValueError(f"torch takes no {_plain(cxx)} as a result: return a list of int64_t, double or tensors")
    is_view = kind.expression == "{0}" and item != "str"
    native = kind.native if is_view else f"std::vector<{_ITEMS[item]}>"
    return Converted(schema=kind.schema, native=native)


def default_of(text: str | None) -> str | None:
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
