"""Walks over syntax trees are those of :mod:`ast`, without the nodes that hold no code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kernel_builder
from kernel_builder.check.subject import read_python
from kernel_builder.check.syntax import children, everything, walk

_NO_CODE = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_FILES = sorted((Path(kernel_builder.__file__).parent / "check").glob("*.py"))


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.name)
def test_everything_that_holds_code_is_walked_in_order(file: Path) -> None:
    tree = ast.parse(file.read_bytes())
    expected = [node for node in ast.walk(tree) if not isinstance(node, _NO_CODE)]
    assert walk(tree) == expected
    assert list(everything(tree)) == expected


def test_children_are_in_file_order_whatever_field_they_are_in() -> None:
    [call] = [node for node in walk(ast.parse("f(a, *b, c=-d, **{e: f and g})")) if isinstance(node, ast.Call)]
    assert [ast.unparse(child) for child in children(call)] == ["f", "a", "*b", "c=-d", "**{e: f and g}"]


def test_nothing_is_below_a_file_that_does_not_parse() -> None:
    assert walk(None) == []
    assert everything(None) == ()


def test_files_of_one_content_share_what_is_read_off_them(tmp_path: Path) -> None:
    for name in ("source.py", "packed.py"):
        (tmp_path / name).write_text("def f():\n    return 1\n", encoding="utf-8")
    first, second = (read_python(tmp_path / name, shown=name, relative=name) for name in ("source.py", "packed.py"))
    assert first.tree is second.tree is not None
    (tmp_path / "packed.py").write_text("def f():\n    return 2\n", encoding="utf-8")
    assert read_python(tmp_path / "packed.py", shown="packed.py", relative="packed.py").tree is not first.tree
