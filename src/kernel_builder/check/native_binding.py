"""Rules about how native code offers its ops: through torch's registry, never as a Python module of its own.

``pybind11``, ``nanobind`` and hand-written modules need more of Python than its limited API, or a module name that the
build gives. Only what ``build.toml`` has compiled counts, with the project's own files that it includes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import SourceTree, join
from kernel_builder.config.backends import HOST
from kernel_builder.config.model import FrameworkKind, Project
from kernel_builder.interface.native import ReadFile, arguments, closing, literal_at

BINDING = rule(
    "KB206",
    "python-module-in-sources",
    Severity.ERROR,
    summary="Native code registers ops with torch and makes no Python module: no pybind11, nanobind or PyInit function",
    rationale="These modules work with one Python version only, or have the wrong name; Hub kernels use Python's"
    " limited API, and the build makes the module.",
    remedy="Include registration.h, register the ops with TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops), and write"
    " REGISTER_EXTENSION(TORCH_EXTENSION_NAME).",
    source="docs/requirements.md, 'Op namespace'",
)
_MODULE = re.compile(r"\b(PYBIND11_(?:EMBEDDED_)?MODULE|PYBIND11_PLUGIN|NB_MODULE_?|BOOST_PYTHON_MODULE)\s*\(")
_INIT = re.compile(r"\b(PyInit_\w+)\s*\(")
_HEADER = re.compile(r"torch/(?:extension|python)\.h|torch/csrc/utils/pybind\.h|(?:pybind11|nanobind)/.+")
_HEADERS_INSTEAD = (
    "include {}; ops take and return tensors, numbers and strings, no Python objects, and are registered with the"
    ' macros of "registration.h"'
)
_ALL_OF_TORCH = "torch/all.h, or less of it (torch/library.h and ATen/core/Tensor.h)"
_STABLE = "torch/csrc/stable/library.h and torch/csrc/stable/tensor.h"
_SIGNATURE = re.compile(r"([A-Za-z_][\w:]*(?:\s*<[^;{}()]*>)?(?:\s*(?:const\b|[&*]))*)\s+$")
_ANY_SCHEMA = "(Tensor x) -> Tensor"
_REGISTERED = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT)?_EXPAND\s*\(\s*TORCH_EXTENSION_NAME\b")
_NEVER = frozenset({"return", "else", "new", "throw", "case", "co_return"})


@checks(SourceTree, BINDING)
def python_modules(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """Modules of pybind11 and its like, ``PyInit`` functions, and headers that need pybind11.

    What depends on a condition that is not known here (``#ifdef __CUDACC__``) is left to the compiler.
    """
    project = source.draft
    if project is None or project.framework.kind is not FrameworkKind.TORCH:
        return
    files = tuple(file for file in source.compiled if file.certain)
    for file in files:
        place = join(source.shown, file.path)
        for at, said, body in (*_modules(file), *_inits(file)):
            if file.native.is_certain(at):
                yield BINDING.at(place, said, line=file.native.line(at), hint=_instead(project, files, body))
        for include in file.native.includes:
            is_refused = _HEADER.fullmatch(include.path) is not None
            if is_refused and include.certain and not (project.root / include.path).is_file():
                said, hint = _about_header(project, include.path)
                yield BINDING.at(place, said, line=include.line, symbol=include.path, hint=hint)


def _about_header(project: Project, path: str) -> tuple[str, str]:
    """What is wrong with a header, and what to include instead."""
    hint = _HEADERS_INSTEAD.format(_STABLE if project.framework.stable_abi else _ALL_OF_TORCH)
    if project.framework.stable_abi and path.startswith("torch/"):
        return f"{path} is not part of torch's stable ABI, which this kernel targets", hint
    library = "nanobind" if path.startswith("nanobind/") else "pybind11"
    return f"{path} needs {library}, which works with one Python version only", hint


def _modules(file: ReadFile) -> Iterator[tuple[int, str, str]]:
    """``(position, what to say, text of the body)`` of each module of pybind11 and its like."""
    bare = file.native.bare
    for match in _MODULE.finditer(bare):
        end = closing(bare, match.end() - 1)
        given = " ".join(file.native.code[match.end() : end - 1].split())
        opens = bare.find("{", end)
        body = file.native.code[opens : closing(bare, opens)] if opens >= 0 and not bare[end:opens].strip() else ""
        yield match.start(), f"{match[1]}({given}) makes a Python module, which the build does itself", body


def _inits(file: ReadFile) -> Iterator[tuple[int, str, str]]:
    """The same of functions ``PyInit_<name>`` that are defined, not only declared."""
    bare = file.native.bare
    for match in _INIT.finditer(bare):
        end = closing(bare, match.end() - 1)
        if bare[end:].lstrip()[:1] == "{":
            yield match.start(), f"{match[1]}() makes a Python module, which the build does itself", ""


# --- what to write instead ---


@dataclass(frozen=True, kw_only=True)
class _Bound:
    """What a module calls ``name`` and which function that is, ``None`` where it is none with a name."""

    name: str
    function: str | None


def _instead(project: Project, files: Sequence[ReadFile], body: str) -> str:
    """The lines to write, with the names of the ops where the module says them."""
    registered = next((file.path for file in files if _REGISTERED.search(file.native.bare)), None)
    if registered is not None:
        return f"remove it: {registered} registers the ops already; ops that only it has belong there"
    keys = list(dict.fromkeys(section.backend.torch.dispatch_key for section in project.sections))
    key = keys[0] if keys else HOST.torch.dispatch_key
    stable = "STABLE_" if project.framework.stable_abi else ""
    definitions, implementations, narrow = [], [], False
    for bound in _bound(body) or (_Bound(name="my_op", function="my_op"),):
        schema = None if bound.function is None else _schema(bound.function, files)
        narrow |= schema is not None and schema.narrow
        written = f'  ops.def("{bound.name}{schema.text if schema else _ANY_SCHEMA}");'
        definitions.append(written if schema else f"{written}  // write its own schema")
        function = f"&{bound.function or bound.name}"
        implementations.append(f'  ops.impl("{bound.name}", {f"TORCH_BOX({function})" if stable else function});')
    lines = ['#include "registration.h"', "", f"{stable}TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {{"]
    lines += [*definitions, "}", "", f"{stable}TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, {key}, ops) {{"]
    lines += [*implementations, "}", "", "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)"]
    if len(keys) > 1:
        lines.append(f"(and the same TORCH_LIBRARY_IMPL_EXPAND for {', '.join(keys[1:])}, where that is compiled)")
    if narrow:
        lines.append("(and int64_t and double in the functions, where they have int and float)")
    return "\n".join(("write instead:", *lines))


def _bound(body: str) -> tuple[_Bound, ...]:
    """What a module's ``m.def("name", &function)`` bind."""
    found: dict[str, _Bound] = {}
    for match in re.finditer(r"(?:\.|->)\s*def\s*\(", body):
        name, _ = literal_at(body, match.end())
        if not name.isidentifier():
            continue
        given = arguments(body, match.end() - 1)
        function = re.fullmatch(r"&?\s*((?:\w+\s*::\s*)*\w+)", given[1]) if len(given) > 1 else None
        found.setdefault(name, _Bound(name=name, function=function[1] if function else None))
    return tuple(found.values())


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
    """What follows an op's name. ``narrow``: the function has ``int`` or ``float``, which torch does not take."""

    text: str
    narrow: bool


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
                return _Schema(text=f"({', '.join(text for text in given if text)}) -> {result}", narrow=narrow)
    return None


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
    if optional or several:
        inner = _type((optional or several)[1])  # type: ignore[index]
        return None if inner is None else f"{inner}{'?' if optional else '[]'}"
    return _TYPES.get(bare.rsplit("::", 1)[-1])
