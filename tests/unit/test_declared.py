"""What the package imports is what it says it needs (``pyproject.toml``), and the other way round."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kernel_builder.check.stdlib import MODULES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "kernel_builder"
NOT_OURS = PACKAGE / "templates"
"""Files that are written into other projects."""

OPTIONAL: Mapping[str, str] = {
    "sigstore": "the extra 'sign': signing and verifying alone need it, and say so",
    "obstore": "the extra 'shared-cache': a cache on a server alone needs it, and says so",
    "dask": "the extra 'cluster': builds on other machines and their workers alone need it, and say so",
    "distributed": "as dask",
    "kernels": "the extra 'run': the interpreter that loads a variant has it, which may be another one",
}
"""Modules of extras -> why the package works without them. They are imported within functions alone."""

ELSEWHERE: Mapping[str, str] = {
    "torch": "only the interpreter that loads a variant imports it; the package itself never needs it",
    "tvm_ffi": "only the interpreter that loads a tvm-ffi variant imports it",
    "numpy": "only the environment that a kernel is measured in imports it, for workloads that return its arrays",
    "matplotlib": "only the environment that a kernel is measured in imports it, to draw the figure",
    "pytest": "only the environment that a kernel's tests run in imports it",
}
"""Modules that are declared nowhere -> why."""


def _imports(body: list[ast.stmt], *, lazy: bool) -> Iterator[tuple[str, bool]]:
    """``(dotted name, whether it is imported late or by type checkers alone)`` of what is imported in ``body``."""
    for statement in body:
        match statement:
            case ast.Import(names=names):
                yield from ((alias.name, lazy) for alias in names)
            case ast.ImportFrom(module=str() as module, level=0, names=names):
                yield from ((f"{module}.{alias.name}", lazy) for alias in names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=then, orelse=other):
                yield from _imports(then, lazy=True)
                yield from _imports(other, lazy=lazy)
            case ast.FunctionDef(body=inner) | ast.AsyncFunctionDef(body=inner):
                yield from _imports(inner, lazy=True)
            case _:
                for _, value in ast.iter_fields(statement):
                    for item in value if isinstance(value, list) else ():
                        if isinstance(item, ast.stmt):
                            yield from _imports([item], lazy=lazy)
                        elif isinstance(item, (ast.ExceptHandler, ast.match_case)):
                            yield from _imports(item.body, lazy=lazy)


def imported(text: str) -> set[tuple[str, bool]]:
    """Third-party names that the module ``text`` imports, as :func:`_imports` gives them."""
    return {
        (name, lazy)
        for name, lazy in _imports(ast.parse(text).body, lazy=False)
        if name.partition(".")[0] not in {*MODULES, "kernel_builder"}
    }


_installed = cache(packages_distributions)


def distributions(name: str) -> set[str]:
    """The distributions that may have brought the module ``name``: by what is installed, and by its own name."""
    parts = name.split(".")
    own = {canonicalize_name(".".join(parts[:count])) for count in range(1, len(parts) + 1)}
    return own | {canonicalize_name(found) for found in _installed().get(parts[0], ())}


@pytest.fixture(scope="module")
def names() -> dict[str, bool]:
    """Third-party name -> whether every import of it is late."""
    found: dict[str, bool] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        if NOT_OURS not in file.parents:
            for name, lazy in imported(file.read_text(encoding="utf-8")):
                found[name] = lazy and found.get(name, True)
    return found


@pytest.fixture(scope="module")
def required() -> set[str]:
    """Distributions that the package always needs, on some supported Python at least."""
    return {canonicalize_name(Requirement(text).name) for text in _project()["dependencies"]}


def _project() -> dict[str, list[str]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        document = tomllib.load(file)["project"]
    extras = document["optional-dependencies"]
    return {
        "dependencies": document["dependencies"],
        "extras": [*extras["run"], *extras["sign"], *extras["shared-cache"], *extras["cluster"]],
    }


def test_everything_that_is_imported_is_declared(names: dict[str, bool], required: set[str]) -> None:
    allowed = {*OPTIONAL, *ELSEWHERE}
    missing = [name for name in names if name.partition(".")[0] not in allowed and not distributions(name) & required]
    assert sorted(missing) == []


def test_what_extras_bring_is_imported_late(names: dict[str, bool]) -> None:
    extras = {canonicalize_name(Requirement(text).name) for text in _project()["extras"]}
    for name, lazy in names.items():
        top = name.partition(".")[0]
        if top in OPTIONAL:
            assert distributions(name) & extras, name
        if top in {*OPTIONAL, *ELSEWHERE}:
            assert lazy, f"{name} is imported with its module"


def test_everything_that_is_declared_is_imported(names: dict[str, bool], required: set[str]) -> None:
    used = {distribution for name in names for distribution in distributions(name)}
    assert sorted(required - used) == []


def test_every_requirement_has_a_lower_bound() -> None:
    for text in _project()["dependencies"]:
        assert any(part.operator == ">=" for part in Requirement(text).specifier), text


def test_imports_are_found_wherever_they_stand() -> None:
    text = (
        "import a.b, os\nfrom c import d\nfrom . import e\nfrom kernel_builder import f\n"
        "try:\n    import g\nexcept ImportError:\n    import h\n"
        "if TYPE_CHECKING:\n    import i\nelse:\n    import j\n"
        "class K:\n    import k\n    def l(self):\n        with x:\n            import l\n"
        "match x:\n    case 1:\n        import m\n"
    )
    early = {"a.b", "c.d", "g", "h", "j", "k", "m"}
    assert imported(text) == {(name, False) for name in early} | {("i", True), ("l", True)}
