"""A call of a kernel's function with made-up arguments, from its signature or its op's schema: the card shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from kernel_builder.interface.read import Function, Parameter, ParameterKind, Signature

_TENSOR = "torch.randn(1024, 1024, device=device)"
_OUTPUT = "torch.empty(1024, 1024, device=device)"
_USED = frozenset({"device", "get_kernel", "kernel", "torch"})  # names that the lines around a call need
_OUTPUTS = re.compile(r"out|output|dst|result")
# What annotations and schemas call a type -> a value of it. The first that is found in a text counts.
_VALUES = (
    (re.compile(r"\b(Tensor|Float|Int|Shaped|Num)\b.*\[|Tensor"), _TENSOR),
    (re.compile(r"\bdtype\b|\bScalarType\b"), "torch.float32"),
    (re.compile(r"\bdevice\b|\bDevice\b"), "device"),
    (re.compile(r"\bbool\b"), "True"),
    (re.compile(r"\bfloat\b|\bScalar\b"), "1.0"),
    (re.compile(r"\b(Sym)?[iI]nt\b"), "1"),
    (re.compile(r"\bstr(ing)?\b"), '""'),
)
_MANY = re.compile(r"\b(list|List|tuple|Tuple|Sequence|Iterable)\[|\[\d*\](?!.*\[)")
_OPTIONAL = re.compile(r"\bOptional\[|\bNone\b|\?$")
_SCHEMA = re.compile(r"(?P<name>[\w.]+)\((?P<parameters>.*)\)\s*->\s*(?P<returns>.*)", re.DOTALL)


_FLOATING = frozenset({"torch.float32", "torch.float64", "torch.float16", "torch.bfloat16"})


def guessed_dtypes(function: Function, ops: Mapping[str, str], dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """The tensors of :func:`example_call` whose dtypes nothing tells."""
    text = example_call(function, ops)
    made = re.findall(r"^(\w+?)_? = \[?torch\.(?:randn|empty)\(", text, re.MULTILINE)
    return tuple(name for name in made if name not in dtypes)


def example_call(function: Function, ops: Mapping[str, str], dtypes: Mapping[str, str] = MappingProxyType({})) -> str:
    """Lines of Python that call ``function`` of the module ``kernel`` on ``device``, tensors made up.

    ``ops`` are the schemas of the kernel's ops by name: they tell the types of what Python does not annotate;
    ``dtypes`` those of tensors, by their names. Others get torch's default.
    """
    schema = ops.get(function.op or function.name)
    of_op = _of_schema(schema) if schema is not None else None
    signature = function.signature or of_op
    if signature is None:
        return f"help(kernel.{function.name})"
    types = {parameter.name: parameter.annotation for parameter in of_op.parameters} if of_op else {}
    lines: list[str] = []
    arguments: list[str] = []
    for parameter in signature.parameters:
        if not parameter.is_required:
            continue
        value = _value(parameter, parameter.annotation or types.get(parameter.name))
        value = _of_dtype(value, dtypes.get(parameter.name))
        if "torch." in value:
            variable = f"{parameter.name}_" if parameter.name in _USED else parameter.name
            lines.append(f"{variable} = {value}")
            value = variable
        by_position = parameter.kind is ParameterKind.POSITIONAL_ONLY or value == parameter.name
        if parameter.kind is ParameterKind.KEYWORD_ONLY or not by_position or "=" in "".join(arguments):
            value = f"{parameter.name}={value}"
        arguments.append(value)
    result = "" if signature.returns in {"None", "()"} else "result = "
    return "\n".join([*lines, f"{result}kernel.{function.name}({', '.join(arguments)})"])


def _value(parameter: Parameter, kind: str | None) -> str:
    """A value for a parameter whose type is written as ``kind``; without one, a tensor, which most are."""
    if kind is None:
        return _OUTPUT if _OUTPUTS.fullmatch(parameter.name) else _TENSOR
    if _OPTIONAL.search(kind):
        return "None"
    value = next((value for pattern, value in _VALUES if pattern.search(kind)), "...")
    if value == _TENSOR and (_OUTPUTS.fullmatch(parameter.name) or "!" in kind):
        return _OUTPUT
    return f"[{value}]" if _MANY.search(kind) and value != "..." else value


def _of_dtype(value: str, dtype: str | None) -> str:
    """The same tensors with a dtype."""
    if dtype is None:
        return value
    if dtype not in _FLOATING:
        value = value.replace("torch.randn(", "torch.ones(")
    return value.replace(", device=device)", f", dtype={dtype}, device=device)")


def _of_schema(schema: str) -> Signature | None:
    """The signature in the schema of an op: ``relu(Tensor! out, Tensor x, *, float eps=1e-05) -> ()``."""
    match = _SCHEMA.fullmatch(schema)
    if match is None:
        return None
    kind = ParameterKind.POSITIONAL
    parameters: list[Parameter] = []
    for text in re.split(r",\s*(?![^\[(]*[\])])", match["parameters"].strip()):
        if text == "*":
            kind = ParameterKind.KEYWORD_ONLY
            continue
        declared, _, default = text.partition("=")
        type_, _, name = declared.strip().rpartition(" ")
        if type_:
            parameters.append(Parameter(name=name, kind=kind, default=default.strip() or None, annotation=type_))
    return Signature(parameters=tuple(parameters), returns=match["returns"].strip())
