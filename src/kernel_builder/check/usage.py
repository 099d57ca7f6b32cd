"""A rule about examples, benchmarks and cards: what they call of the kernel exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import MAX_TEXT, SourceTree, join, read_python
from kernel_builder.interface.read import read_interface
from kernel_builder.interface.usage import KernelPackage, python_blocks

OUTDATED_EXAMPLE = rule(
    "KB490",
    "outdated-example",
    Severity.WARNING,
    summary="Examples, benchmarks and cards call functions that the kernel has, with arguments that they take",
    rationale="Users copy this code first, and it fails.",
    remedy="Update the example, or restore the function.",
    source="docs/card.md",
)
_PAGES = ("CARD.md", "README.md")
_CODE = ("*.py", "examples/**/*.py", "scripts/*.py", "benchmarks/*.py")
_NOT_EXAMPLES = frozenset({"setup.py", "conftest.py"})
_MOST_FILES = 200


@checks(SourceTree, OUTDATED_EXAMPLE)
def outdated_examples(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """Python files and code blocks beside the kernel that load it."""
    tree, project = source.python, source.project
    if tree is None or project is None or tree.name is None:
        return
    package = KernelPackage(tree.root)
    if package.names is None:
        return
    repo_id = project.hub.repo_id
    own = re.compile(rf"(?:[^/]+/)?{re.escape(project.name)}")

    def is_own(text: str) -> bool:
        return text == repo_id or own.fullmatch(text) is not None

    for relative, line, code in _code_of(source.path, tree.root, repo_id or f"owner/{project.name}"):
        for wrong in package.misuses(code, is_own=is_own, module=tree.name):
            near = f"Did you mean {' or '.join(wrong.near)}?" if wrong.near else None
            yield OUTDATED_EXAMPLE.at(
                join(source.shown, relative), wrong.reason, line=line + wrong.line, symbol=wrong.name, hint=near
            )


def _code_of(root: Path, package: Path, repo_id: str) -> Iterator[tuple[str, int, ast.Module]]:
    """Code beside the kernel: its file, the line before it, and what it says. What does not parse is left out."""
    files = sorted({path for pattern in _CODE for path in root.glob(pattern) if path.is_file()})
    for path in files[:_MOST_FILES]:
        relative = path.relative_to(root).as_posix()
        if path.name not in _NOT_EXAMPLES and not path.is_relative_to(package):
            parsed = read_python(path, shown=relative, relative=relative).tree
            if parsed is not None:
                yield relative, 0, parsed
    functions = tuple(function.name for function in read_interface(package).functions)
    for name in _PAGES:
        path = root / name
        if not path.is_file() or path.stat().st_size > MAX_TEXT:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for line, code in python_blocks(text, repo_id=repo_id, functions=functions):
            try:
                yield name, line, ast.parse(code)
            except (SyntaxError, ValueError, RecursionError):
                continue
