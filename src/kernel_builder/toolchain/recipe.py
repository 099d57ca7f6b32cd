"""``data/toolchains.toml`` as values: what a toolchain is made of, and what each source calls its parts."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from packaging.specifiers import SpecifierSet

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import ToolchainError
from kernel_builder.versions import Version


@dataclass(frozen=True, kw_only=True)
class LibraryRecipe:
    """A shared library of which only the names are kept. ``member`` is its path in a wheel or below a toolkit.

    ``leading`` tells that the names stand at its beginning and are read from there; otherwise it is read
    whole. ``backend`` is set for a library that only variants of that backend link. ``instead`` is the path of the one
    that stands for it in builds for another backend.
    """

    member: str
    leading: bool
    backend: Backend | None = None
    instead: str | None = None

    @property
    def soname(self) -> str:
        """Its file name."""
        return self.member.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Major versions of the host compilers that hold from a release on: the oldest for a framework, the newest for a
    toolkit.
    """

    since: Version
    gcc: int
    clang: int


@dataclass(frozen=True, kw_only=True)
class FrameworkRecipe:
    """What is taken from a wheel of a framework, and what its headers need of a compiler (newest releases first).

    ``digest`` changes with what is taken. ``include`` begins with the pattern of the headers, and the file that says
    the version. A framework without ``flavours`` has builds of one kind. ``abi_library`` is the library whose names
    prove the C++ ABI, where kernels share one with it. ``builds`` are the recipes for backends whose builds have
    headers of their own; ``made_since`` is, in one of these, the first release whose headers can be made from those of
    the flavours ``made_from``.
    """

    kind: FrameworkKind
    digest: str
    project: str
    include: tuple[str, ...]
    strip: str
    include_directories: tuple[str, ...]
    flavours: tuple[str, ...]
    libraries: tuple[LibraryRecipe, ...]
    host_compilers: tuple[Bound, ...]
    abi_library: str | None = None
    builds: Mapping[Backend, FrameworkRecipe] = field(default_factory=dict)
    made_since: Version | None = None
    made_from: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """The directory of ``site-packages`` that it is installed in."""
        return self.strip.rstrip("/")

    @property
    def headers(self) -> str:
        """The pattern of its headers in a wheel."""
        return self.include[0]

    @property
    def version_file(self) -> str:
        """The path of the file that says its version, below ``site-packages``."""
        return self.include[1]

    def of(self, build: Backend | None) -> FrameworkRecipe:
        """The recipe for variants of ``build``."""
        return self if build is None else self.builds.get(build, self)

    def own_build(self, backend: Backend | None) -> Backend | None:
        """``backend``, if its builds have headers of their own."""
        return backend if backend in self.builds else None

    def can_make(self, release: str, flavour: str | None) -> bool:
        """Whether the headers can be made from those of a build of ``release`` with that flavour."""
        since = self.made_since
        return since is not None and self.is_base(flavour) and Version.parse(release) >= since

    def is_base(self, flavour: str | None) -> bool:
        """Whether headers are made from those of that flavour. One that its name does not tell may be."""
        return bool(self.made_from) if flavour is None else _matches(flavour, self.made_from)

    def is_own(self, version: str) -> bool:
        """Whether a version with its flavour, such as ``2.12.1+rocm7.2``, is of a build that this recipe is for."""
        flavour = version.partition("+")[2]
        return bool(flavour) and self.serves(flavour)

    def serves(self, flavour: str | None, backend: Backend | None = None, version: str = "") -> bool:
        """Whether kernels for a toolkit of ``backend`` (``None``: without one) can be compiled with the headers of a
        flavour (``cu126``). All CPU and CUDA builds of a release share theirs (F11), other builds have their own. A
        flavour that its name does not tell may be any; where headers can be made from others, it is one of the others.
        """
        if flavour is None:
            return self.made_since is None
        own = None if backend is None or backend.torch.build is None else _filled(backend.torch.build, version)
        return self._shares(flavour) if own is None or self._shares(own) else flavour == own

    def _shares(self, flavour: str) -> bool:
        return not self.flavours or _matches(flavour, self.flavours)

    def backends_with(self, has: Callable[[LibraryRecipe], bool]) -> frozenset[Backend]:
        """The backends none of whose libraries one lacks; ``has`` tells of each library whether it does."""
        lacking = {library.backend for library in self.libraries if not has(library)}
        return frozenset(backend for backend in Backend if backend not in lacking)


@dataclass(frozen=True, kw_only=True)
class ZigRecipe:
    """What is taken from a wheel of zig, and which clang each release is (oldest releases first).

    ``digest`` changes with what is taken.
    """

    digest: str
    project: str
    include: tuple[str, ...]
    clang: tuple[tuple[Version, int], ...]

    def releases(self, newest: int | None) -> SpecifierSet | None:
        """The releases whose clang is ``newest`` at most (``None``: any); ``None`` when there is none."""
        oldest = self.clang[0][0]
        if newest is None:
            return SpecifierSet(f">={oldest}")
        above = next((since for since, clang in self.clang if clang > newest), None)
        if above == oldest:
            return None
        return SpecifierSet(f">={oldest}" if above is None else f">={oldest},<{above}")


@dataclass(frozen=True, kw_only=True)
class CxxLibrariesRecipe:
    """The packages with libstdc++ and the C library. ``patterns`` are their names, with ``{gcc}`` for the major of GCC;
    ``suites`` have that GCC, in the order to try.
    """

    patterns: tuple[str, ...]
    suites: Mapping[str, int]

    def packages(self, gcc: int) -> tuple[str, ...]:
        """Their names for that GCC."""
        return tuple(pattern.replace("{gcc}", str(gcc)) for pattern in self.patterns)

    def is_part(self, name: str) -> bool:
        """Whether a package is one of them, of any GCC."""
        return any(name in self.packages(gcc) for gcc in self.suites.values())

    def major(self, names: Iterable[str]) -> int:
        """The GCC that packages of these names are of. Raises :class:`ToolchainError` when they are of none."""
        found = set(names)
        for gcc in self.suites.values():
            if set(self.packages(gcc)) == found:
                return gcc
        raise ToolchainError(f"{', '.join(sorted(found))} are not the packages that libstdc++ is taken from")


@dataclass(frozen=True, kw_only=True)
class WheelPart:
    """A component as the wheel of one project holds it: patterns, libraries, and where its files lie."""

    project: str
    root: str
    version: str
    include: tuple[str, ...]
    libraries: tuple[LibraryRecipe, ...]


@dataclass(frozen=True, kw_only=True)
class Component:
    """A part of one toolkit, with the major and minor version filled in.

    ``include`` are patterns relative to a toolkit's root, ``libraries`` lie in its ``lib``. ``wheel`` is ``None`` when
    no wheel holds it, for the reason ``lacking``. ``redistrib`` is its name in NVIDIA's manifests. ``package`` is the
    Debian package of its vendor that holds it, below ``package_root`` (a pattern); ``None`` where none does.
    ``optional``: only some kernels need it, so a toolkit goes without where no source has it. ``declares`` is the
    soname of a library whose names are those of the functions that its headers declare.
    """

    name: str
    compiler: bool
    include: tuple[str, ...]
    libraries: tuple[LibraryRecipe, ...]
    wheel: WheelPart | None
    lacking: str
    redistrib: str | None
    debian: bool
    package: str | None = None
    package_root: str = ""
    optional: bool = False
    declares: str | None = None


@dataclass(frozen=True, kw_only=True)
class _ComponentRow:
    """A component as the table has it, for all majors."""

    name: str
    compiler: bool
    since: Version
    include: tuple[str, ...]
    libraries: tuple[tuple[Mapping[int, str], bool], ...]
    wheel: Mapping[int, str]
    lacking: str
    redistrib: Mapping[int, str]
    debian: bool
    version: str
    package: str
    package_root: str
    optional: bool
    declares: Mapping[int, str]


@dataclass(frozen=True, kw_only=True)
class ToolkitRecipe:
    """All about the toolkit of ``backend``: components, and the host compilers that a release accepts at most (newest
    releases first).

    ``digest`` changes with what is taken from where. ``majors`` are those that the table knows, in order; ``wheels``
    has a project and a folder for those that the package index has. ``package_root`` is where the files of its vendor's
    Debian packages lie.
    """

    backend: Backend
    digest: str
    release: str
    include_directories: tuple[str, ...]
    wheels: Mapping[int, tuple[str, str]]
    rows: tuple[_ComponentRow, ...]
    host_compilers: tuple[Bound, ...]
    majors: tuple[int, ...]
    package_root: str

    @property
    def compiler_project(self) -> str:
        """The project of the newest compiler's wheel."""
        newest = max(self.wheels)
        return self.wheels[newest][0].replace("{wheel}", self.rows[0].wheel[newest])

    def components(self, version: str) -> tuple[Component, ...]:
        """The components of ``version`` (``12.4``). Raises :class:`ToolchainError` for an unknown major."""
        major = int(version.partition(".")[0])
        if major not in self.majors:
            known = ", ".join(str(number) for number in self.majors)
            label = self.backend.label
            raise ToolchainError(f"{label} {version} is not known", hint=f"known {label} majors: {known}")
        project, root = self.wheels.get(major, ("", ""))
        found: list[Component] = []
        for row in self.rows:
            if Version.parse(version) < row.since:
                continue
            wheel = row.wheel.get(major)
            sonames = [(fill(names[major], self.backend, version), leading) for names, leading in row.libraries]
            part: WheelPart | None = None
            if wheel is not None:
                folder = root.replace("{folder}", wheel.replace("-", "_"))
                prefix = fill(folder, self.backend, version)
                part = WheelPart(
                    project=project.replace("{wheel}", wheel),
                    root=prefix,
                    version=fill(row.version, self.backend, version),
                    include=tuple(f"{prefix}{pattern}" for pattern in row.include),
                    libraries=tuple(
                        LibraryRecipe(member=f"{prefix}lib/{name}", leading=leading) for name, leading in sonames
                    ),
                )
            found.append(
                Component(
                    name=row.name,
                    compiler=row.compiler,
                    include=row.include,
                    libraries=tuple(LibraryRecipe(member=f"lib/{name}", leading=leading) for name, leading in sonames),
                    wheel=part,
                    lacking=fill(row.lacking, self.backend, version)
                    or f"no wheel of {self.backend.label} {major} contains it",
                    redistrib=row.redistrib.get(major),
                    debian=row.debian,
                    package=fill(row.package, self.backend, version) or None,
                    package_root=fill(row.package_root or self.package_root, self.backend, version),
                    optional=row.optional,
                    declares=row.declares.get(major),
                )
            )
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The whole table."""

    frameworks: Mapping[FrameworkKind, FrameworkRecipe]
    zig: ZigRecipe
    cxx_libraries: CxxLibrariesRecipe
    toolkits: Mapping[Backend, ToolkitRecipe]

    @property
    def torch(self) -> FrameworkRecipe:
        """That of torch."""
        return self.frameworks[FrameworkKind.TORCH]


def bound_for(bounds: Sequence[Bound], version: str) -> Bound | None:
    """The bound that holds for ``version``: the newest that is not newer than it."""
    parsed = Version.parse(version)
    return next((bound for bound in bounds if parsed >= bound.since), None)


def fill(pattern: str, backend: Backend, version: str) -> str:
    """``pattern`` with the backend's name in braces, and ``{major}``, replaced by the toolkit's version."""
    return pattern.replace(f"{{{backend.value}}}", version).replace("{major}", version.partition(".")[0])


def _matches(flavour: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(flavour.partition(".")[0], pattern) for pattern in patterns)


def _filled(build: str, version: str) -> str:
    """The local version of a build of torch for a toolkit of that version."""
    major, _, minor = version.partition(".")
    return build.replace("{major}", major).replace("{minor}", minor)


def _text(table: Mapping[str, object], key: str, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a string")
    return value


def _texts(table: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = table[key]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{key} must be a list of strings")
    return tuple(value)


def _number(table: Mapping[str, object], key: str) -> int:
    value = table[key]
    if not isinstance(value, int):
        raise TypeError(f"{key} must be an integer")
    return value


def _numbers(table: Mapping[str, object], key: str) -> tuple[int, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise TypeError(f"{key} must be a list of integers")
    return tuple(value)


def _tables(table: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"{key} must be a list of tables")
    return value


def _by_major(value: object, majors: Sequence[int]) -> Mapping[int, str]:
    """A text that holds for all majors, or a table of them."""
    if value is None:
        return {}
    if isinstance(value, str):
        return dict.fromkeys(majors, value)
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return {int(major): text for major, text in value.items()}
    raise TypeError("a name must be a string, or a table of strings by major")


_READS = {"leading": True, "whole": False}
_BOUNDS = "host-compiler"
_ABI_LIBRARY = "abi-library"
_MADE_FROM = "made-from"


def _bounds(tables: list[Mapping[str, object]]) -> tuple[Bound, ...]:
    bounds = [
        Bound(since=Version.parse(_text(table, "since")), gcc=_number(table, "gcc"), clang=_number(table, "clang"))
        for table in tables
    ]
    return tuple(sorted(bounds, key=lambda bound: bound.since, reverse=True))


def _digest(table: Mapping[str, object], number: object) -> str:
    """Over everything in a table but what says nothing about what is taken."""
    taken = {key: value for key, value in table.items() if key not in {_BOUNDS, _ABI_LIBRARY, _MADE_FROM}}
    text = json.dumps([number, taken], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _framework(kind: FrameworkKind, table: Mapping[str, object], number: object) -> FrameworkRecipe:
    return FrameworkRecipe(
        kind=kind,
        digest=_digest(table, number),
        project=_text(table, "project"),
        include=_texts(table, "include"),
        strip=_text(table, "strip"),
        include_directories=_texts(table, "include-directories"),
        flavours=_texts(table, "flavours"),
        libraries=tuple(
            LibraryRecipe(
                member=_text(row, "member"),
                leading=_READS[_text(row, "read")],
                backend=_backend_of(row),
                instead=_text(row, "instead") if "instead" in row else None,
            )
            for row in _tables(table, "library")
        ),
        host_compilers=_bounds(_tables(table, _BOUNDS)),
        abi_library=_text(table, _ABI_LIBRARY) if _ABI_LIBRARY in table else None,
        made_since=Version.parse(_text(table, "made-since")) if "made-since" in table else None,
        made_from=_texts(table, _MADE_FROM) if _MADE_FROM in table else (),
    )


def _with_builds(kind: FrameworkKind, table: Mapping[str, Any], number: object) -> FrameworkRecipe:
    """The recipe for most builds of a framework, with those that have headers of their own: these say what differs."""
    most, builds = table[kind.value], table.get(f"{kind.value}-build", {})
    own = {Backend(name): _framework(kind, {**most, **differs}, number) for name, differs in builds.items()}
    return replace(_framework(kind, most, number), builds=own)


def _zig(table: Mapping[str, object]) -> ZigRecipe:
    include = _texts(table, "include")
    return ZigRecipe(
        digest=hashlib.sha256("\n".join(include).encode()).hexdigest(),
        project=_text(table, "project"),
        include=include,
        clang=tuple((Version.parse(_text(row, "since")), _number(row, "clang")) for row in _tables(table, "release")),
    )


def _cxx_libraries(table: Mapping[str, object]) -> CxxLibrariesRecipe:
    suites = table["suites"]
    if not isinstance(suites, dict) or not all(isinstance(gcc, int) for gcc in suites.values()):
        raise TypeError("suites must be a table of majors")
    return CxxLibrariesRecipe(patterns=_texts(table, "packages"), suites=suites)


def _component(table: Mapping[str, object], majors: Sequence[int], backend: Backend) -> _ComponentRow:
    return _ComponentRow(
        name=_text(table, "name"),
        compiler=table.get("compiler") is True,
        since=Version.parse(_text(table, "since", "1.0")),
        include=_texts(table, "include"),
        libraries=tuple(
            (_by_major(row["soname"], majors), _READS[_text(row, "read")]) for row in _tables(table, "libraries")
        ),
        wheel=_by_major(table.get("wheel"), majors),
        lacking=_text(table, "lacking", ""),
        redistrib=_by_major(table.get("redistrib"), majors),
        debian=table.get("debian") is True,
        version=_text(table, "version", f"=={{{backend.value}}}.*"),
        package=_text(table, "package", ""),
        package_root=_text(table, "package-root", ""),
        optional=table.get("optional") is True,
        declares=_by_major(table.get("declares"), majors),
    )


def parse_recipe(text: str) -> Recipe:
    """Read the table. Raises ``KeyError``, ``TypeError``, ``ValueError`` or ``tomllib.TOMLDecodeError``: it ships with
    the package.
    """
    table = tomllib.loads(text)
    number = table["recipe"]
    return Recipe(
        frameworks={kind: _with_builds(kind, table, number) for kind in FrameworkKind if kind.value in table},
        zig=_zig(table["zig"]),
        cxx_libraries=_cxx_libraries(table["cxx-libraries"]),
        toolkits={
            backend: _toolkit(table[backend.value], number, backend) for backend in Backend if backend.value in table
        },
    )


def _toolkit(table: Mapping[str, object], number: object, backend: Backend) -> ToolkitRecipe:
    wheels = {_number(row, "major"): (_text(row, "project"), _text(row, "root")) for row in _tables(table, "wheels")}
    majors = sorted({*wheels, *_numbers(table, "majors")})
    return ToolkitRecipe(
        backend=backend,
        digest=_digest(table, number),
        release=_text(table, "release", ""),
        include_directories=_texts(table, "include-directories"),
        wheels=wheels,
        rows=tuple(_component(row, majors, backend) for row in _tables(table, "component")),
        host_compilers=_bounds(_tables(table, _BOUNDS)),
        majors=tuple(majors),
        package_root=_text(table, "package-root", ""),
    )


def _backend_of(row: Mapping[str, object]) -> Backend | None:
    """The backend whose name is a key that is true."""
    return next((backend for backend in Backend if row.get(backend.value) is True), None)


@cache
def default_recipe() -> Recipe:
    """The table that ships with the package."""
    return parse_recipe(files("kernel_builder.data").joinpath("toolchains.toml").read_text(encoding="utf-8"))
