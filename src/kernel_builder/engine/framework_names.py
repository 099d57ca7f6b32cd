"""Why the framework's release lacks a name: another C++ ABI, other parameters, another release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from kernel_builder.binary.causes import NamedCause
from kernel_builder.config.backends import HOST, Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.engine.definitions import spell
from kernel_builder.engine.own_names import demangle, same_but_for_strings
from kernel_builder.versions import Version

_ENTRY = re.compile(r"(?P<project>.+)-(?P<version>\d+\.\d+(?:\.\d+)?)(?:\+[\w.]+)?-[0-9a-f]+")
"""What an entry of the store is called, as :class:`~kernel_builder.store.cache.StoreKey` does."""


@cache
def table(path: Path) -> frozenset[str]:
    """The names in an export table, one a line."""
    return frozenset(path.read_text(encoding="utf-8", errors="surrogateescape").split("\n"))


def not_exported(release: str, framework: FrameworkKind) -> NamedCause:
    """The cause where nothing like a name is exported."""
    marks = "TVM_FFI_DLL" if framework is FrameworkKind.TVM_FFI else "TORCH_API or C10_API"
    what = f"use another function: only those that {framework.value} marks as {marks} are exported"
    return NamedCause(why=f"{release} does not export it", instead=what)


def framework_cause(symbol: str, readable: str, tables: tuple[Path, ...], release: str) -> NamedCause | None:
    """Why ``symbol``, named as the framework's are, is not in its ``tables``; ``release`` is what they are of. ``None``
    when nothing there, nor in other releases in the store, is like it.
    """
    backend = _backend_with(symbol, readable, tables)
    if backend is not None:
        why = f"it belongs to torch's {backend.label} libraries, which this variant does not use"
        return NamedCause(why=why, instead=f'call it only in sources of a section with backend = "{backend.value}"')
    spelled = spell(readable)
    alike = {name for path in tables for name in table(path) if spelled.base in name}
    names = demangle(sorted(alike))
    found = sorted({text for text in names.values() if spell(text).base == spelled.base})
    if any(same_but_for_strings(text, readable) for text in found):
        why = f"{release} has it with the other C++ ABI of std::string"
        return NamedCause(why=why, instead="remove _GLIBCXX_USE_CXX11_ABI from the sources; the build defines it")
    here = _version_of(tables)
    others = sorted(_others_with(symbol, tables))
    if others and here is not None:
        newer = [version for version in others if version > here]
        key, other = ("minver", newer[0]) if newer else ("maxver", others[-1])
        have = "has" if len(others) == 1 else "have"
        why = f"{_project_of(tables)} {_and(others)} {have} it, but {release} does not"
        return NamedCause(why=why, instead=f'set {key} = "{other.major}.{other.minor}" in [torch] of build.toml')
    same = [text for text in found if spell(text).scope == spelled.scope]
    if same:
        more = f" (and {len(same) - 1} more)" if len(same) > 1 else ""
        why = f"{release} has '{same[0]}'{more}, whose parameters differ"
        return NamedCause(why=why, instead="call it as the headers of that release declare it")
    return None


def _backend_with(symbol: str, readable: str, tables: tuple[Path, ...]) -> Backend | None:
    """The other backend whose libraries of the framework have ``symbol``: by their tables, or by its namespace."""
    for path in sorted(set(tables[0].parent.glob("*.txt")) - set(tables)):
        named = [backend for backend in Backend if backend.value in path.name]
        if named and symbol in table(path):
            return named[0]
    here = {backend for backend in Backend for path in tables if backend.value in path.name.split(".")[0].split("_")}
    named = [backend for backend in Backend if f"::{backend.value}::" in readable.partition("(")[0]]
    return named[0] if named and named[0] not in here and named[0] is not HOST else None


def _and(versions: Iterable[Version]) -> str:
    return " and ".join(dict.fromkeys(f"{version.major}.{version.minor}" for version in versions))


def _project_of(tables: tuple[Path, ...]) -> str:
    return tables[0].parent.parent.name.partition("-")[0]


def _version_of(tables: tuple[Path, ...]) -> Version | None:
    for path in tables:
        match = _ENTRY.fullmatch(path.parent.parent.name)
        if match is not None:
            return Version.parse(match["version"])
    return None


def _others_with(symbol: str, tables: tuple[Path, ...]) -> Iterator[Version]:
    """Other releases in the store that export ``symbol``."""
    here = _version_of(tables)
    if here is None:
        return
    for other in tables[0].parents[2].glob(f"{_project_of(tables)}-*"):
        match = _ENTRY.fullmatch(other.name)
        if match is None:
            continue
        version = Version.parse(match["version"])
        if (version.major, version.minor) == (here.major, here.minor):
            continue
        if any(symbol in table(path) for path in (other / tables[0].parent.name).glob("*.txt")):
            yield version
