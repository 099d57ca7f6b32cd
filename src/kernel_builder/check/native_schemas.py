"""The schemas of ops whose functions are written in C++: types, names and defaults as the sources have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_builder.interface.native import ReadFile, arguments, closing, hollowed

_SIGNATURE = re.compile(r"([A-Za-z_][\w:]*(?:\s*<[^;{}()]*>)?(?:\s*(?:const\b|[&*]))*)\s+$")
_NEVER = frozenset({"return", "else", "new", "throw", "case", "co_return"})
_AUTOGRAD = re.compile(r"\bautograd\s*::\s*Function\b")


@dataclass(frozen=True, kw_only=True)
class BoundOp:
    """What a registration calls ``name``: ``function`` says which function that is, ``written`` how it is written,
    where it is a lambda. ``named`` are the arguments that the registration names, with their defaults.
    """

    name: str
    function: str | None
    written: str = ""
    named: tuple[tuple[str, str], ...] = ()


def bound_op(name: str, given: Sequence[str]) -> BoundOp:
    """The op of pybind11's ``def(name, given...)``: a function or a lambda, a text, names of arguments."""
    function = re.fullmatch(r"&?\s*((?:\w+\s*::\s*)*\w+)", given[0]) if given else None
    named = [match for match in map(_NAMED.fullmatch, given[1:]) if match is not None]
    return BoundOp(
        name=name,
        function=function[1] if function else None,
        written=given[0] if given and given[0].startswith("[") else "",
        named=tuple((match[1] or match[3], (match[2] or match[4] or "").strip()) for match in named),
    )


_NAMED = re.compile(
    r"""(?:\w+\s*::\s*)*arg\s*\(\s*"(\w+)"\s*\)(?:\s*\.\s*\w+\s*\([^()]*\))*\s*(?:=(.*))?|"(\w+)"_a\s*(?:=(.*))?""",
    re.DOTALL,
)
"""How pybind11 and nanobind name an argument, with its default."""
_LAMBDA = re.compile(r"\[[^\]]*\]\s*(?=\()")
_RESULT = re.compile(r"\s*(?:mutable\s*|noexcept\s*)*->\s*([^{]+)")
_UNKNOWN = "TYPE"
_TYPES = {
    "Tensor": "Tensor",
    "double": "float",
    "float": "float",
    "bool": "bool",
    "string": "str",
    "string_view": "str",
    "char*": "str",
    "ScalarType": "ScalarType",
    "Dtype": "ScalarType",
    "Device": "Device",
    "Scalar": "Scalar",
    "SymInt": "SymInt",
    "Generator": "Generator",
    "Layout": "Layout",
    "MemoryFormat": "MemoryFormat",
    "IntArrayRef": "int[]",
    "SymIntArrayRef": "SymInt[]",
    "OptionalIntArrayRef": "int[]?",
    "TensorList": "Tensor[]",
    **dict.fromkeys(("int", "int64_t", "int32_t", "int16_t", "int8_t", "long", "longlong", "short", "unsigned"), "int"),
    **dict.fromkeys(("uint64_t", "uint32_t", "uint16_t", "uint8_t", "size_t", "ssize_t", "ptrdiff_t"), "int"),
    **dict.fromkeys(("longint", "longlongint", "unsignedint", "unsignedlong", "unsignedlonglong"), "int"),
}
"""Types of C++ -> types of schemas. torch itself takes no numbers but ``int64_t`` and ``double``."""
_NARROW = re.compile(r"\b(?:int|float|short|unsigned|size_t|ssize_t|u?int(?:8|16|32)_t|uint64_t)\b")


@dataclass(frozen=True, kw_only=True)
class Schema:
    """What follows an op's name. ``narrow``: the function has numbers that torch does not take; ``takes_tensors``: so
    torch can choose a device by them; ``records``: it calls a ``torch::autograd::Function``; ``remark`` is for what
    could not be told.
    """

    text: str
    narrow: bool
    takes_tensors: bool
    records: bool
    remark: str | None


def schema_of(bound: BoundOp, files: Sequence[ReadFile]) -> Schema | None:
    """``(Tensor x, int k) -> Tensor`` of a function in the sources or of a lambda; ``None`` where there is none."""
    signature = _of_lambda(bound.written) if bound.written else _of_function(bound.function, files)
    if signature is None:
        return None
    result, written = signature
    given = [_parameter(text, number) for number, text in enumerate(written) if text != "void"]
    if len(bound.named) == len(given):
        given = [one.called(*said) for one, said in zip(given, bound.named, strict=True)]
    returned = "()" if result == "void" else _type(result) or _UNKNOWN
    unknown = [one.written for one in given if one.kind is None] + [result] * (returned == _UNKNOWN)
    parameters = ", ".join(map(str, given))
    return Schema(
        text=f"({parameters}) -> {returned}",
        narrow=_NARROW.search(" ".join((result, *written))) is not None,
        takes_tensors=re.search(rf"\b(?:Tensor|{_UNKNOWN})\b", parameters) is not None,
        records=records_gradients(bound.function, files) if bound.function is not None else "::apply(" in bound.written,
        remark=f"write a type of schemas instead of {_UNKNOWN}: {'; '.join(unknown)}" if unknown else None,
    )


def _parts(text: str, position: int) -> tuple[str, ...]:
    """The parameters between brackets; commas inside of ``<...>`` part none."""
    found: list[str] = []
    for part in arguments(text, position):
        if found and found[-1].count("<") > found[-1].count(">"):
            found[-1] += f", {part}"
        else:
            found.append(part)
    return tuple(found)


def _of_function(function: str | None, files: Sequence[ReadFile]) -> tuple[str, tuple[str, ...]] | None:
    """``(result, parameters)`` as the sources write them."""
    short = re.escape((function or "").rsplit("::", 1)[-1].strip())
    for file in files if short else ():
        bare = file.native.bare
        for match in re.finditer(rf"\b{short}\s*\(", bare):
            head = _SIGNATURE.search(bare[max(0, match.start() - 200) : match.start()])
            if head is not None and head[1].strip() not in _NEVER:
                return head[1].strip(), _parts(file.native.code, match.end() - 1)
    return None


def _of_lambda(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The same of ``[](at::Tensor x) -> at::Tensor { ... }``. What is not said is what is returned."""
    match = _LAMBDA.match(text)
    if match is None:
        return None
    given = _parts(text, match.end())
    rest = text[closing(hollowed(text), match.end()) :]
    said = _RESULT.match(rest)
    if said is not None:
        return said[1].strip(), given
    returned = re.findall(r"\breturn\b\s*([^;]*);", rest)
    if not any(returned):
        return "void", given
    kinds = {text.strip().rpartition(" ")[2].lstrip("&*"): text.strip().rpartition(" ")[0] for text in given}
    return kinds.get(returned[0].strip(), "what the lambda returns"), given


def records_gradients(function: str, files: Sequence[ReadFile]) -> bool:
    """Whether the body of ``function`` applies a ``torch::autograd::Function``."""
    function = function.rsplit("::", 1)[-1].strip()
    if not any(_AUTOGRAD.search(file.native.bare) for file in files):
        return False
    for file in files:
        bare = file.native.bare
        for match in re.finditer(rf"\b{re.escape(function)}\s*\(", bare):
            end = closing(bare, match.end() - 1)
            opened = len(bare[end:]) - len(bare[end:].lstrip()) + end
            if bare[opened : opened + 1] == "{" and "::apply(" in bare[opened : closing(bare, opened)]:
                return True
    return False


@dataclass(frozen=True, kw_only=True)
class _Parameter:
    """A parameter: ``kind`` is its type in schemas, ``None`` for one that has none there; ``written`` is it in C++."""

    name: str
    kind: str | None
    default: str
    written: str

    def called(self, name: str, default: str) -> _Parameter:
        """The same with a name and a default of its own."""
        return replace(self, name=name, default=_default(default) or self.default)

    def __str__(self) -> str:
        return f"{self.kind or _UNKNOWN} {self.name}{f'={self.default}' if self.default else ''}"


def _parameter(text: str, number: int) -> _Parameter:
    """``Tensor! out`` of ``at::Tensor &out``."""
    before, _, default = text.partition("=")
    match = re.fullmatch(r"(.+?[\s&*>])\s*(\w+)\s*", before.strip(), re.DOTALL)
    if match is not None and match[2] in {*_TYPES, "const"}:
        match = None  # a declaration without names
    type_ = before.strip() if match is None else match[1]
    kind = _type(type_)
    is_written = kind == "Tensor" and "&" in type_ and "const" not in type_
    name = match[2] if match is not None else f"arg{number}"
    return _Parameter(
        name=name, kind=f"{kind}!" if is_written else kind, default=_default(default), written=" ".join(before.split())
    )


def _default(text: str) -> str:
    """The default of a schema for one of C++ or pybind11; nothing for one that has no such form."""
    plain = text.strip()
    if re.fullmatch(r"(?:\w+\s*::\s*)*(?:none\s*\(\s*\)|nullopt|nullptr)", plain):
        return "None"
    number = re.fullmatch(r"(-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[fFlLuU]*", plain)
    if number is not None:
        return number[1]
    if re.fullmatch(r'"[^"\\]*"', plain):
        return f"'{plain[1:-1]}'"
    return {"true": "True", "false": "False"}.get(plain, "")


def schema_type(name: str) -> str | None:
    """What schemas call a type of C++, which has no namespace here."""
    return _TYPES.get(name)


def _type(text: str) -> str | None:
    bare = re.sub(r"\bconst\b|[&\s]", "", text)
    optional = re.fullmatch(r"(?:(?:c10|std|torch|at)::)?optional<(.+)>", bare)
    several = re.fullmatch(r"(?:std::vector|(?:c10|at|torch)::(?:ArrayRef|List))<(.+)>", bare)
    together = re.fullmatch(r"std::(?:tuple|pair)<(.+)>", bare)
    if together:
        kinds = [_type(part) for part in _parts(f"({together[1]})", 0)]
        return None if None in kinds else f"({', '.join(str(kind) for kind in kinds)})"
    if optional or several:
        inner = _type((optional or several)[1])  # type: ignore[index]
        return None if inner is None else f"{inner}{'?' if optional else '[]'}"
    return schema_type(bare.rsplit("::", 1)[-1])
