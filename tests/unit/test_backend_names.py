"""No module but those of the backends themselves names one: what differs between backends comes from a table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import kernel_builder

PACKAGE = Path(kernel_builder.__file__).parent
ALLOWED = ("backends/", "data/", "templates/", "config/editions/")
"""Where backends are named: their own modules, tables, what is written for users, and formats that are over."""

ELSEWHERE = frozenset({"cpu_count"})
"""Names of others that have such a word in them."""

CONTROL_GROUPS = "engine/resources.py"
"""Reads the limits of control groups, one controller of which is called cpu."""

_WORDS = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*")
_NAMED = frozenset({"cpu", "cuda"})


def words_of(text: str) -> set[str]:
    """The words in a text or in an identifier, in lower case: those of ``findCudaFlags`` are find, cuda, flags."""
    return {word.lower() for word in _WORDS.findall(text)}


def texts_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """``(line, text)`` of every identifier and every string of a module, docstrings left out."""
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str | bytes) and id(node) not in documentation:
                yield line, node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            continue
        # Every field of a node that is text is an identifier: a name, an attribute, an argument, a module.
        for _, value in ast.iter_fields(node):
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, str):
                    yield line, item


def named_in(source: str) -> list[tuple[int, str]]:
    """``(line, text)`` of what names a backend in the source of a module."""
    found = texts_of(ast.parse(source))
    return sorted((line, text) for line, text in found if text not in ELSEWHERE and words_of(text) & _NAMED)


def modules() -> Iterator[tuple[str, str]]:
    """``(path, source)`` of every module that must not name backends."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(ALLOWED):
            yield name, path.read_text(encoding="utf-8")


def test_only_backends_and_tables_name_backends() -> None:
    wrong = [
        f"{name}:{line}: {text[:80]!r}"
        for name, source in modules()
        if name != CONTROL_GROUPS
        for line, text in named_in(source)
    ]
    assert not wrong, "\n".join(wrong)


def test_what_counts_as_naming_one() -> None:
    source = '''\
"""A docstring may name cuda."""
import cuda_thing
from a.cpu import b as c
def f(x, *, cuda_flags: int) -> None:
    """So may this one: CUDA."""
    x.CUDA = f"with {x} CUDA"
    y = "accuda", b"cpu", "cpus", os.cpu_count()
class FakeCudaSdk:
    """And this: cpu."""
    attribute = 1
    """And a comment on an attribute: cpu."""
f(cudaVersion=1)
'''
    assert [line for line, _ in named_in(source)] == [2, 3, 4, 6, 6, 7, 8, 12]
