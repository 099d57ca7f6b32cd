"""The modules of a package, parsed and never imported: what defines a name, and what ``__all__`` holds.

Imports within the package are followed, and so is an ``__all__`` that takes in that of another module; what is put
together at run time alone is not seen. The package griffe does not fit: it skips folders without ``__init__.py``, stops
at a top module that does not parse, and counts every public submodule as part of the interface.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_builder.files import read_small

_MAX_HOPS = 16  # imports that are followed to find a definition; more is a circle


class PublicModule:
    """A parsed module: what its top level defines, and where the other names come from."""

    def __init__(self, tree: ast.Module, package: tuple[str, ...]) -> None:
        self.package = package  # names of the packages that contain it, outermost first
        self.definitions: dict[str, ast.stmt | ast.expr] = {}
        self.imports: dict[str, tuple[int, str, str]] = {}  # name -> (level, module, name there)
        self.stars: list[tuple[int, str]] = []
        self.exported: list[ast.expr] | None = None  # what is put together to ``__all__``, in order
        for statement in top_level(tree.body):
            self._read(statement)

    def _read(self, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.definitions[statement.name] = statement
            case ast.ImportFrom(level=level, module=module, names=names) if level:
                for alias in names:
                    if alias.name == "*":
                        self.stars.append((level, module or ""))
                    else:
                        self.imports[alias.asname or alias.name] = (level, module or "", alias.name)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        self._assign(target.id, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._assign(name, value)
            case ast.AugAssign(target=ast.Name(id="__all__"), value=value):
                self.exported = [*(self.exported or ()), value]
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="__all__"), attr=how), args=[value])):
                if how in {"append", "extend"}:
                    added = value if how == "extend" else ast.List(elts=[value])
                    self.exported = [*(self.exported or ()), added]

    def _assign(self, name: str, value: ast.expr) -> None:
        if name == "__all__":
            self.exported = [value]
        else:
            self.definitions[name] = value

    @property
    def public_definitions(self) -> Iterator[str]:
        """Functions and classes that are defined here under a public name."""
        for name, node in self.definitions.items():
            if not name.startswith("_") and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield name


class FoundModules(NamedTuple):
    """What defines a name, and the module that it is in."""

    module: PublicModule
    node: ast.stmt | ast.expr


class PublicPackage:
    """The modules of one package directory, parsed when they are asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, PublicModule | None] = {}

    def module(self, dotted: str) -> PublicModule | None:
        """The module ``a.b`` below the package (``__init__``: the package itself); ``None`` if there is none."""
        if dotted not in self._modules:
            self._modules[dotted] = self._parse(dotted)
        return self._modules[dotted]

    def _parse(self, dotted: str) -> PublicModule | None:
        parts = () if dotted == "__init__" else tuple(dotted.split("."))
        base = self._root.joinpath(*parts)
        for path, package in ((base / "__init__.py", parts), (base.with_suffix(".py"), parts[:-1])):
            try:
                return PublicModule(ast.parse(read_small(path)), package)
            except (OSError, SyntaxError, ValueError, RecursionError):
                continue
        return None

    def _target(self, module: PublicModule, level: int, name: str) -> str | None:
        """The dotted name, within the package, of what ``from <level dots>name import ...`` names in ``module``."""
        if level - 1 > len(module.package):
            return None
        parent = module.package[: len(module.package) - (level - 1)]
        return ".".join((*parent, *(name.split(".") if name else ()))) or "__init__"

    def find(self, module: PublicModule, name: str, hops: int = _MAX_HOPS) -> FoundModules | None:
        """What defines ``name`` in ``module``, imports within the package followed."""
        if name in module.definitions:
            found = module.definitions[name]
            if isinstance(found, ast.Name) and found.id != name and hops:
                return self.find(module, found.id, hops - 1)
            return FoundModules(module, found)
        if not hops:
            return None
        places = [module.imports[name]] if name in module.imports else [(*star, name) for star in module.stars]
        for level, source, original in places:
            dotted = self._target(module, level, source)
            other = self.module(dotted) if dotted is not None else None
            if other is not None and other is not module:
                found_there = self.find(other, original, hops - 1)
                if found_there is not None:
                    return found_there
        return None

    def declared(self, module: PublicModule) -> tuple[str, ...] | None:
        """The names in ``__all__`` of ``module``, those of other modules included; ``None`` without an ``__all__``."""
        return None if module.exported is None else tuple(dict.fromkeys(self._declared(module, set())))

    def _declared(self, module: PublicModule, seen: set[tuple[int, str]]) -> Iterator[str]:
        """``seen`` holds the names of each module that were followed: once is enough, and circles end."""
        if (id(module), "__all__") not in seen:
            seen.add((id(module), "__all__"))
            for part in module.exported or ():
                yield from self._strings(module, part, seen)

    def _strings(self, module: PublicModule, value: ast.expr, seen: set[tuple[int, str]]) -> Iterator[str]:
        """The strings in a list of them, as ``value`` in ``module`` gives it; what cannot be read off is left out."""
        match value:
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                for element in elements:
                    if isinstance(element, ast.Constant) and isinstance(element.value, str):
                        yield element.value
                    elif isinstance(element, ast.Starred):
                        yield from self._strings(module, element.value, seen)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                yield from self._strings(module, left, seen)
                yield from self._strings(module, right, seen)
            case ast.Call(func=ast.Name(id="list" | "tuple" | "sorted"), args=[inner]):
                yield from self._strings(module, inner, seen)
            case ast.Name(id=name) if (id(module), name) not in seen:
                seen.add((id(module), name))
                named = module.definitions.get(name)
                level, source, original = module.imports.get(name, (0, "", ""))
                if isinstance(named, ast.expr):
                    yield from self._strings(module, named, seen)
                elif original == "__all__":
                    yield from self._declared_by(module, level, source, seen)
            case ast.Attribute(value=ast.Name(id=name), attr="__all__") if name in module.imports:
                level, source, original = module.imports[name]
                yield from self._declared_by(module, level, f"{source}.{original}".lstrip("."), seen)

    def _declared_by(self, module: PublicModule, level: int, source: str, seen: set[tuple[int, str]]) -> Iterator[str]:
        """What the module adds that ``from <level dots>source import ...`` names in ``module``."""
        dotted = self._target(module, level, source)
        other = self.module(dotted) if dotted is not None else None
        if other is not None:
            yield from self._declared(other, seen)

    def exported(self, module: PublicModule) -> tuple[str, ...]:
        """Names that ``from module import *`` brings, star imports of its own included."""
        declared = self.declared(module)
        if declared is not None:
            return declared
        names = [*module.definitions, *module.imports]
        for level, source in module.stars:
            dotted = self._target(module, level, source)
            other = self.module(dotted) if dotted is not None else None
            if other is not None and other is not module:
                names += self.exported(other)
        return tuple(name for name in dict.fromkeys(names) if not name.startswith("_"))


def top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported, the branches of ``if`` and ``try`` included."""
    for statement in body:
        match statement:
            case ast.If(body=then, orelse=other):
                yield from top_level([*then, *other])
            case ast.Try(body=tried, handlers=handlers, orelse=other, finalbody=final):
                for part in (tried, *(handler.body for handler in handlers), other, final):
                    yield from top_level(part)
            case ast.With(body=inner):
                yield from top_level(inner)
            case _:
                yield statement
