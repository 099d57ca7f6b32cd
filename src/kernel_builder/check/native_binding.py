"""Rules about how native code offers its ops: through torch's registry, never as a Python module of its own.

``pybind11``, ``nanobind`` and hand-written modules need more of Python than its limited API, or a module name that the
build gives. Only what ``build.toml`` has compiled counts, with the project's own files that it includes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.native_schemas import BoundOp, bound_op
from kernel_builder.check.registering import registration
from kernel_builder.check.subject import SourceTree, join
from kernel_builder.config.model import FrameworkKind, Project
from kernel_builder.interface.native import ReadFile, arguments, closing, literal_at

BINDING = rule(
    "KB206",
    "python-module-in-sources",
    Severity.ERROR,
    summary="Native code registers ops with torch and makes no Python module: no pybind11, nanobind or PyInit function",
    rationale=(
        "Such modules work with only one Python version, or have the wrong name. Hub kernels use Python's limited "
        "API, and the build generates the module."
    ),
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
_REGISTERED = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT)?_EXPAND\s*\(\s*TORCH_EXTENSION_NAME\b")


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


def _instead(project: Project, files: Sequence[ReadFile], body: str) -> str:
    """The lines to write, with the names of the ops where the module says them."""
    registered = next((file.path for file in files if _REGISTERED.search(file.native.bare)), None)
    if registered is not None:
        return f"remove it: {registered} registers the ops already; ops that only it has belong there"
    bound = _bound(body) or (BoundOp(name="my_op", function="my_op"),)
    return "\n".join(("write instead:", *registration(project, files, bound)))


def _bound(body: str) -> tuple[BoundOp, ...]:
    """What a module's ``m.def("name", &function)`` bind."""
    found: dict[str, BoundOp] = {}
    for match in re.finditer(r"(?:\.|->)\s*def\s*\(", body):
        name, _ = literal_at(body, match.end())
        if not name.isidentifier():
            continue
        found.setdefault(name, bound_op(name, arguments(body, match.end() - 1)[1:]))
    return tuple(found.values())
