"""What a name in a module means, whatever its spelling: ``torch.ops.load_library`` may be written in many ways.

Followed are imports with and without other names, star imports, variables with one value, ``getattr`` with a literal,
``functools.partial``, and modules that are imported by a string.
"""

from __future__ import annotations

import ast
from functools import cached_property

from kernel_builder.check.python_facts import PythonSource, assigned_values

_DEEPEST = 8


class FullNames:
    """The full names behind the expressions of one module."""

    def __init__(self, source: PythonSource) -> None:
        self._source = source

    @cached_property
    def _imported(self) -> dict[str, str]:
        """Local name -> what an absolute import makes it."""
        found: dict[str, str] = {}
        for node, _place in self._source.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.split(".", 1)[0]] = (
                        alias.name if alias.asname else alias.name.split(".", 1)[0]
                    )
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        found.pop("*", None)
        return found

    @cached_property
    def _stars(self) -> tuple[str, ...]:
        return tuple(
            entry.module for entry in self._source.imports if entry.names == ("*",) and not entry.level and entry.module
        )

    @cached_property
    def values(self) -> dict[str, ast.expr]:
        """Variables that get one value in the whole file."""
        return {name: values[0] for name, values in assigned_values(self._source.nodes).items() if len(values) == 1}

    @cached_property
    def _parameters(self) -> frozenset[str]:
        """Names that stand for many values."""
        found: set[str] = set()
        for node in ast.walk(self._source.tree) if self._source.tree is not None else ():
            if isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                found.update(inner.id for inner in ast.walk(node.target) if isinstance(inner, ast.Name))
        return frozenset(found)

    def of(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """The full name of an expression; ``None`` where it means nothing that is imported."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, ast.Attribute):
            base = self.of(node.value, depth + 1)
            return None if base is None else f"{base}.{node.attr}"
        if isinstance(node, ast.Name):
            return self._of_name(node.id, depth)
        if isinstance(node, ast.Call):
            return self._of_call(node, depth)
        if isinstance(node, ast.NamedExpr):
            return self.of(node.value, depth + 1)
        return None

    def candidates(self, node: ast.AST | None) -> tuple[str, ...]:
        """The full names that an expression can have: one, or with star imports one for each of them."""
        found = self.of(node)
        if found is not None:
            return (found,)
        rest: list[str] = []
        while isinstance(node, ast.Attribute):
            rest.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self._source.definitions or node.id in self._parameters:
            return ()
        return tuple(".".join((star, node.id, *rest)) for star in self._stars)

    def _of_name(self, name: str, depth: int) -> str | None:
        if name in self._imported:
            return self._imported[name]
        if name in self.values and name not in self._parameters:
            return self.of(self.values[name], depth + 1)
        return None

    def _of_call(self, node: ast.Call, depth: int) -> str | None:
        """A module that is imported by a string, ``getattr`` with a literal, and ``partial``."""
        function = (
            node.func.id if isinstance(node.func, ast.Name) and node.func.id in {"getattr", "__import__"} else None
        )
        function = function or self.of(node.func, depth + 1)
        if function in {"importlib.import_module", "__import__"} and node.args:
            name = node.args[0]
            text = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
            if text is None or text.startswith("."):
                return None
            return text if function == "importlib.import_module" else text.split(".", 1)[0]
        if function == "getattr" and len(node.args) >= 2:
            attribute = node.args[1]
            if isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
                base = self.of(node.args[0], depth + 1)
                return None if base is None else f"{base}.{attribute.value}"
        if function == "functools.partial" and node.args:
            return self.of(node.args[0], depth + 1)
        return None
