"""Ops whose gradients are written in C++ where nothing calls them: below autograd, which has looked by then."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.native_schemas import records_gradients
from kernel_builder.check.subject import SourceTree, join
from kernel_builder.config.backends import Backend
from kernel_builder.interface.native import ReadFile, closing, literal_at

LOST = rule(
    "KB212",
    "gradients-lost",
    Severity.WARNING,
    summary="A function that applies a torch::autograd::Function is registered for Autograd",
    rationale=(
        "torch calls a device's implementation below autograd, so the gradient that the function should record "
        "there is lost: training fails, or continues without it."
    ),
    remedy="Also register it for Autograd: TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, Autograd, ops).",
    source="PyTorch's tutorial on dispatched operators in C++, 'Adding autograd support'",
)
_BLOCK = re.compile(r"\bTORCH_LIBRARY_IMPL(?:_EXPAND)?\s*\(\s*\w+\s*,\s*(?P<key>\w+)\s*,\s*\w+\s*\)\s*(?P<body>\{)")
_IMPL = re.compile(r"(?:\.|->)\s*impl\s*\(")
_FUNCTION = re.compile(r"\s*,\s*(?:TORCH_FN\s*\(\s*)?&?\s*(?:\w+\s*::\s*)*(?P<name>\w+)\s*\)")
_DEVICES = frozenset(backend.torch.dispatch_key for backend in Backend)


@checks(SourceTree, LOST)
def below_autograd(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """Implementations for a device that record gradients, of ops that autograd knows nothing else of."""
    files = source.compiled
    if not any("autograd" in file.native.bare for file in files) or _python_registers(source):
        return
    found = [(file, *one) for file in files for one in _implementations(file)]
    known = {op for _, _, key, op, _ in found if key not in _DEVICES}
    told: set[str] = set()
    for file, position, key, op, function in found:
        if key in _DEVICES and op not in known | told and records_gradients(function, files):
            told.add(op)
            said = f"{op} is implemented by {function} for {key}, below autograd, so the gradients that it records"
            yield LOST.at(join(source.shown, file.path), f"{said} are lost", line=file.native.line(position), symbol=op)


def _implementations(file: ReadFile) -> Iterator[tuple[int, str, str, str]]:
    """``(position, dispatch key, op, function)`` of each function that is registered by its name."""
    bare, code = file.native.bare, file.native.code
    for block in _BLOCK.finditer(bare):
        end = closing(bare, block.start("body"))
        for call in _IMPL.finditer(bare, block.start("body"), end):
            op, after = literal_at(code, call.end(), file.native.macros)
            function = _FUNCTION.match(bare, after)
            if op and function is not None:
                yield call.start(), block["key"], op, function["name"]


def _python_registers(source: SourceTree) -> bool:
    return source.python is not None and any(b"register_autograd" in file.source for file in source.python.files)
