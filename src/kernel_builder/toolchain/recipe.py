"""``data/toolchains.toml`` as values: what is taken from which wheel."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class LibraryRecipe:
    """A shared library of which only the names are kept. ``member`` is its path in the wheel.

    ``leading`` tells that the names stand at its beginning and are read from there; otherwise it is read
    whole. ``cuda`` marks a library that only CUDA variants link.
    """

    member: str
    leading: bool
    cuda: bool = False


@dataclass(frozen=True, kw_only=True)
class PackageRecipe:
    """What to take from one project's wheel. ``version`` is a specifier, for where no release pins it.

    ``tool`` marks programs, which must run on the machine that compiles, whatever it compiles for.
    """

    project: str
    include: tuple[str, ...]
    version: str = "=={cuda}.*"
    libraries: tuple[LibraryRecipe, ...] = ()
    tool: bool = False

    def for_cuda(self, version: str) -> PackageRecipe:
        """The recipe with ``{cuda}`` and ``{major}`` filled in."""
        return PackageRecipe(
            project=self.project,
            include=tuple(fill(pattern, version) for pattern in self.include),
            version=fill(self.version, version),
            libraries=tuple(
                LibraryRecipe(member=fill(library.member, version), leading=library.leading, cuda=library.cuda)
                for library in self.libraries
            ),
            tool=self.tool,
        )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The whole table. ``digest`` changes with any change to it."""

    digest: str
    torch: PackageRecipe
    torch_strip: str
    torch_include: tuple[str, ...]
    cuda_majors: tuple[int, ...]
    cuda_release: str
    cuda_strip: str
    cuda_include: tuple[str, ...]
    cuda_compiler: tuple[str, ...]
    cuda: tuple[PackageRecipe, ...]


def fill(pattern: str, cuda: str) -> str:
    """``pattern`` with ``{cuda}`` and ``{major}`` replaced."""
    return pattern.replace("{cuda}", cuda).replace("{major}", cuda.partition(".")[0])


def _text(table: Mapping[str, object], key: str) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a string")
    return value


def _texts(table: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = table[key]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{key} must be a list of strings")
    return tuple(value)


def _numbers(table: Mapping[str, object], key: str) -> tuple[int, ...]:
    value = table[key]
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise TypeError(f"{key} must be a list of whole numbers")
    return tuple(value)


def _tables(table: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"{key} must be a list of tables")
    return value


def _libraries(tables: list[Mapping[str, object]]) -> tuple[LibraryRecipe, ...]:
    reads = {"leading": True, "whole": False}
    return tuple(
        LibraryRecipe(member=_text(t, "member"), leading=reads[_text(t, "read")], cuda=t.get("cuda") is True)
        for t in tables
    )


def parse_recipe(text: str) -> Recipe:
    """Read the table. Raises ``KeyError``, ``TypeError`` or ``tomllib.TOMLDecodeError``: it ships with the
    package.
    """
    table = tomllib.loads(text)
    torch, cuda = table["torch"], table["cuda"]
    return Recipe(
        digest=hashlib.sha256(text.encode()).hexdigest(),
        torch=PackageRecipe(
            project=_text(torch, "project"),
            include=_texts(torch, "include"),
            libraries=_libraries(_tables(torch, "library")),
        ),
        torch_strip=_text(torch, "strip"),
        torch_include=_texts(torch, "include-directories"),
        cuda_majors=_numbers(cuda, "majors"),
        cuda_release=_text(cuda, "release"),
        cuda_strip=_text(cuda, "strip"),
        cuda_include=_texts(cuda, "include-directories"),
        cuda_compiler=_texts(cuda, "compiler"),
        cuda=tuple(
            PackageRecipe(
                project=_text(package, "project"),
                include=_texts(package, "include"),
                version=_text(package, "version") if "version" in package else "=={cuda}.*",
                libraries=_libraries(_tables(package, "libraries")),
                tool=package.get("tool") is True,
            )
            for package in _tables(cuda, "package")
        ),
    )


@cache
def default_recipe() -> Recipe:
    """The table that ships with the package."""
    return parse_recipe(files("kernel_builder.data").joinpath("toolchains.toml").read_text(encoding="utf-8"))
