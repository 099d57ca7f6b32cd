"""Whether what runs in an environment needs torch: the kernel's Python, its tests and its benchmarks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kernel_builder.config.model import Project

_FOLDERS = ("tests", "benchmarks")
_FORGIVEN = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def wants_torch(project: Project) -> bool:
    """Whether running ``project`` takes torch: it is written for torch, or a Python file of the package, of ``tests/``
    or ``benchmarks/`` imports torch where nothing catches that it cannot.

    ``pytest.importorskip("torch")`` asks for nothing, and neither does an import for type checkers alone.
    """
    if project.framework.kind.needs_torch:
        return True
    folders = [project.root / project.framework.directory, *(project.root / name for name in _FOLDERS)]
    return any(_imports_torch(file) for folder in folders for file in sorted(folder.rglob("*.py")))


def _imports_torch(file: Path) -> bool:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False  # running it tells what is wrong with it
    return any(name.partition(".")[0] == "torch" for name in _needed(tree.body))


def _needed(statements: list[ast.stmt]) -> Iterator[str]:
    """The modules that ``statements`` import and cannot do without."""
    for statement in statements:
        match statement:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield module
            case ast.If(test=test, orelse=other) if "TYPE_CHECKING" in ast.unparse(test):
                yield from _needed(other)
            case ast.Try(handlers=handlers) if any(map(_forgives, handlers)):
                continue
            case _:
                for field in ("body", "orelse", "finalbody"):
                    yield from _needed(getattr(statement, field, []))
                for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                    yield from _needed(part.body)


def _forgives(handler: ast.ExceptHandler) -> bool:
    """Whether ``handler`` catches a module that is not there."""
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(one) in _FORGIVEN for one in caught)
