"""docs/reference/environment.md has every variable of ours that the package reads."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import kernel_builder
from conftest import ROOT

PACKAGE = Path(kernel_builder.__file__).parent
PAGE = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
_OURS = re.compile(r"KERNEL_BUILDER_[A-Z_]+")
_MACROS = ("KERNEL_BUILDER_OP_", "KERNEL_BUILDER_PART_", "KERNEL_BUILDER_LIBRARY", "KERNEL_BUILDER_STABLE_LIBRARY")
"""Names in C++ and assembly that are generated."""


def read() -> set[str]:
    """Variables that are named in the package's code, each as a string of its own."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if "templates" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _OURS.fullmatch(node.value):
                found.add(node.value)
    return found - set(_MACROS)


def test_every_variable_is_on_the_page() -> None:
    found = read()
    assert len(found) > 10
    assert {name for name in found if f"`{name}`" not in PAGE} == set()


def test_the_page_names_none_that_nobody_reads() -> None:
    files = [*PACKAGE.rglob("*.py"), *(PACKAGE / "data").glob("*.toml")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    names = set(re.findall(r"`([A-Z]+(?:_[A-Z0-9]+)+)`", PAGE))
    assert len(names) > 15
    # Read by rich; made of a platform's name.
    assert {name for name in names - {"NO_COLOR", "CXX_AARCH64_LINUX"} if name not in text} == set()
