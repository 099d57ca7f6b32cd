"""The lines that register ops as Hub kernels do: with the macros of ``registration.h``, schemas, and a device for each
implementation. They are shown where sources register them in another way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_builder.config.backends import HOST
from kernel_builder.config.model import Project
from kernel_builder.interface.native import ReadFile, arguments, closing

_SIGNATURE = re.compile(r"([A-Za-z_][\w:]*(?:\s*<[^;{}()]*>)?(?:\s*(?:const\b|[&*]))*)\s+$")
_ANY_SCHEMA = "(Tensor x) -> Tensor"
_NEVER = frozenset({"return", "else", "new", "throw", "case", "co_return"})
_AUTOGRAD = re.compile(r"\bautograd\s*::\s*Function\b")


@dataclass(frozen=True, kw_only=True)
class BoundOp:
    """What a registration calls ``name`` and which function that is, ``None`` where it is none with a name."""

    name: str
    function: str | None


def registration(
    project: Project, files: Sequence[ReadFile], bound: Sequence[BoundOp], *, is_first: bool = True
) -> list[str]:
    """The lines that register ``bound``, whose functions are in ``files``; ``is_first``: in the one file that has the
    module, too.
    """
    keys = dict.fromkeys((section.backend.torch.dispatch_key, section.backend.value) for section in project.sections)
    stable = "STABLE_" if project.framework.stable_abi else ""
    definitions, implementations, recording, narrow = [], [], [], False
    for one in bound:
        schema = None if one.function is None else _schema(one.function, files)
        function = f"&{one.function or one.name}"
        written = f'  ops.def("{one.name}{schema.text if schema else _ANY_SCHEMA}"'
        if schema is not None and not schema.takes_tensors:  # by which torch would choose a device
            definitions.append(f"{written}, {function});")
            continue
        definitions.append(f"{written});" if schema else f"{written});  // write its own schema")
        narrow |= schema is not None and schema.narrow
        implementations.append(f'  ops.impl("{one.name}", {f"TORCH_BOX({function})" if stable else function});')
        recording += implementations[-1:] if schema is not None and schema.records else []
    block = "TORCH_LIBRARY_EXPAND" if is_first else "TORCH_LIBRARY_FRAGMENT_EXPAND"
    lines = ['#include "registration.h"', "", f"{stable}{block}(TORCH_EXTENSION_NAME, ops) {{", *definitions, "}"]
    if implementations:
        opened = _opened(list(keys) or [(HOST.torch.dispatch_key, HOST.value)], f"{stable}TORCH_LIBRARY_IMPL_EXPAND")
        lines += ["", *opened, *implementations, "}"]
    if recording:
        lines += ["", f"{stable}TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, Autograd, ops) {{", *recording]
        lines += ["}  // torch::autograd::Function records gradients only there; without it they are lost"]
    if is_first:
        lines += ["", "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)"]
    if narrow:
        lines.append("(and int64_t and double in the functions, where they have int and float)")
    return lines


def _opened(keys: Sequence[tuple[str, str]], macro: str) -> list[str]:
    """The beginning of the block with implementations, for the device that is compiled for."""
    if len(keys) == 1:
        return [f"{macro}(TORCH_EXTENSION_NAME, {keys[0][0]}, ops) {{"]
    lines = []
    for number, (key, backend) in enumerate(keys):
        lines.append(f"#{'elif' if number else 'if'} defined({backend.upper()}_KERNEL)")
        lines.append(f"{macro}(TORCH_EXTENSION_NAME, {key}, ops) {{")
    return [*lines, "#endif"]


_TYPES = {
    "Tensor": "Tensor",
    "int64_t": "int",
    "double": "float",
    "bool": "bool",
    "string": "str",
    "string_view": "str",
    "int": "int",
    "float": "float",
}
"""Types of C++ -> types of schemas. torch takes no functions with ``int`` and ``float``."""


@dataclass(frozen=True, kw_only=True)
class _Schema:
    """What follows an op's name. ``narrow``: the function has ``int`` or ``float``, which torch does not take;
    ``takes_tensors``: so torch can choose a device by them; ``records``: it calls a ``torch::autograd::Function``.
    """

    text: str
    narrow: bool
    takes_tensors: bool
    records: bool


def _schema(function: str, files: Sequence[ReadFile]) -> _Schema | None:
    """``(Tensor x, int k) -> Tensor`` of a function in the sources, where its types are simple."""
    short = function.rsplit("::", 1)[-1].strip()
    for file in files:
        bare = file.native.bare
        for match in re.finditer(rf"\b{re.escape(short)}\s*\(", bare):
            head = _SIGNATURE.search(bare[max(0, match.start() - 200) : match.start()])
            if head is None or head[1].strip() in _NEVER:
                continue
            written = arguments(file.native.code, match.end() - 1)
            given = [_parameter(text) for text in written]
            result = "()" if head[1].strip() == "void" else _type(head[1])
            if result is not None and None not in given:
                narrow = re.search(r"\b(?:int|float)\b", " ".join((head[1], *written))) is not None
                parameters = ", ".join(text for text in given if text)
                return _Schema(
                    text=f"({parameters}) -> {result}",
                    narrow=narrow,
                    takes_tensors="Tensor" in parameters,
                    records=_records(short, files),
                )
    return None


def _records(function: str, files: Sequence[ReadFile]) -> bool:
    """Whether the body of ``function`` applies a ``torch::autograd::Function``."""
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


def _parameter(text: str) -> str | None:
    """``Tensor! out`` of ``at::Tensor &out``."""
    before, separator, default = text.partition("=")
    match = re.fullmatch(r"(.+?[\s&*>])\s*(\w+)\s*", before.strip(), re.DOTALL)
    kind = _type(match[1]) if match is not None else None
    if match is None or kind is None:
        return None
    written = kind == "Tensor" and "&" in match[1] and "const" not in match[1]
    value = default.strip() if separator else ""
    plain = {"true": "True", "false": "False"}.get(value, value)
    if plain and re.fullmatch(r"-?\d+(\.\d+)?|True|False", plain) is None:
        return None
    return f"{kind}{'!' * written} {match[2]}{f'={plain}' if plain else ''}"


def _type(text: str) -> str | None:
    bare = re.sub(r"\bconst\b|[&\s]", "", text)
    optional = re.fullmatch(r"(?:(?:c10|std|torch|at)::)?optional<(.+)>", bare)
    several = re.fullmatch(r"(?:std::vector|(?:c10|at|torch)::ArrayRef)<(.+)>", bare)
    together = re.fullmatch(r"std::(?:tuple|pair)<(.+)>", bare)
    if together:
        parts = [_type(part) for part in together[1].split(",")]
        return None if None in parts else f"({', '.join(part for part in parts if part)})"
    if optional or several:
        inner = _type((optional or several)[1])  # type: ignore[index]
        return None if inner is None else f"{inner}{'?' if optional else '[]'}"
    return _TYPES.get(bare.rsplit("::", 1)[-1])
