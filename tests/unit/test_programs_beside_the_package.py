"""Benchmarks and scripts are run by hand: what they import of the package must be there all the same."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

from conftest import ROOT

PROGRAMS = sorted(path for folder in ("benchmarks", "scripts") for path in (ROOT / folder).glob("*.py"))


def imported(program: Path) -> list[tuple[str, str]]:
    """The modules of the package that ``program`` imports, each with a name that it takes from there."""
    tree = ast.parse(program.read_text(encoding="utf-8"))
    return [
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("kernel_builder")
        for alias in node.names
    ]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_what_a_program_imports_is_there(program: Path) -> None:
    for module, name in imported(program):
        found = importlib.import_module(module)
        inside = hasattr(found, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None
        assert inside or hasattr(found, name), f"{module} has no {name}"


def test_imports_are_found() -> None:
    assert ("kernel_builder.binary.device_proof", "comparable") in imported(ROOT / "benchmarks" / "slim_passes.py")
