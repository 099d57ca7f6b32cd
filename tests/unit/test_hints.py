"""Hints name whole commands: whoever reads "use --x" does not know of which command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import kernel_builder

PACKAGE = Path(kernel_builder.__file__).parent
_OPTION = re.compile(r"(?<![\w,-])--[a-z][a-z-]+")
_COMMAND = re.compile(r"kernel-builder |strip |patchelf |the same command|git |pip |apt-get |nvcc|-m pip|g\+\+")
_OF_OTHERS = frozenset(
    {"--coverage", "--config-settings", "--exclude-libs", "--pack-dyn-relocs", "--offload-arch", "--use_fast_math"}
)
"""Options of compilers."""


def hints() -> Iterator[tuple[str, str]]:
    """``(place, text)`` of every hint that is written at a call, with ``{}`` for what is put in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "templates" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for word in node.keywords if isinstance(node, ast.Call) else ():
                if word.arg in {"hint", "remedy"}:
                    for text in texts_of(word.value):
                        yield f"{path.relative_to(PACKAGE)}:{word.value.lineno}", text


def texts_of(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from (*texts_of(node.body), *texts_of(node.orelse))


def test_hints_with_options_name_the_command() -> None:
    found = list(hints())
    assert len(found) > 200
    lone = {
        place: text for place, text in found if not _COMMAND.search(text) and set(_OPTION.findall(text)) - _OF_OTHERS
    }
    assert lone == {}
