"""The environment is read in one place, in ``cli/``, and written nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_builder

PACKAGE = Path(kernel_builder.__file__).parent
READER = "cli/__init__.py"
ELSEWHERE = "load/probe/"
"""Runs in another interpreter, whose environment it is."""
_READS = {"environ", "environb", "getenv", "getenvb"}
_WRITES = {"putenv", "unsetenv"}
_CHANGES = {"update", "setdefault", "pop", "popitem", "clear"}


def uses(tree: ast.AST) -> Iterator[ast.expr]:
    """Wherever ``os.environ`` and its kin are named."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "os"
        for alias in node.names
        if alias.name in _READS | _WRITES
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _READS | _WRITES:
            if isinstance(node.value, ast.Name) and node.value.id == "os":
                yield node
        elif isinstance(node, ast.Name) and node.id in imported:
            yield node


def writes(tree: ast.AST) -> list[int]:
    """The lines that change the environment."""
    named = {id(node) for node in uses(tree)}
    lines: list[int] = []
    for node in ast.walk(tree):
        changed: list[ast.AST] = []
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in _CHANGES:
                changed = [function.value]
            elif getattr(function, "attr", getattr(function, "id", None)) in _WRITES:
                changed = [function]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            changed = [node.value]
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            changed = list(node.targets) if not isinstance(node, ast.AugAssign) else [node.target]
        lines += [node.lineno for part in changed if id(part) in named]  # type: ignore[attr-defined]
    return lines


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_one_module_reads_the_environment() -> None:
    readers = {name: len(list(uses(tree))) for name, tree in modules()}
    found = {name for name, count in readers.items() if count and not name.startswith(ELSEWHERE)}
    assert found == {READER}
    assert readers[READER] == 1


def test_no_module_writes_it() -> None:
    writers = {name: lines for name, tree in modules() if (lines := writes(tree))}
    assert [name for name in writers if not name.startswith(ELSEWHERE)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['A'] = 'b'",
        "import os\ndel os.environ['A']",
        "import os\nos.environ |= {}",
        "import os\nos.environ = {}",
        "import os\nos.environ.update({})",
        "import os\nos.putenv('A', 'b')",
        "from os import environ as e\ne.pop('A')",
        "from os import unsetenv\nunsetenv('A')",
    ],
)
def test_the_look_sees_writes(text: str) -> None:
    assert writes(ast.parse(text)) == [2]


def test_the_look_sees_reads() -> None:
    text = "import os\nfrom os import getenv as g\nos.environ.get('A')\ng('A')\n{**os.environ}\nself.environ.get('A')"
    assert sorted(node.lineno for node in uses(ast.parse(text))) == [3, 4, 5]
    assert writes(ast.parse(text)) == []
