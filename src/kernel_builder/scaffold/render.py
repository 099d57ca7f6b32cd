"""A new project as a mapping of paths to text, made from the templates in ``templates/init``. Pure.

Reference: interoperability contract 6.2 (the tree) and 6.3 (the card, itself a template that builds fill in).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from itertools import combinations
from types import MappingProxyType

import jinja2

from kernel_builder.config.backends import Backend, device_expression
from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import UsageError
from kernel_builder.scaffold.licenses import FIRST_YEAR, known_licenses, license_files
from kernel_builder.scaffold.names import ProjectName

BACKENDS = tuple(backend for backend in Backend if backend.scaffold is not None)
"""Backends that a project can be made for; it lists them in this order."""

USUAL = tuple(backend for backend in BACKENDS if backend.scaffold is not None and backend.scaffold.usual)
"""Those that a project is made for where nobody says which."""

_KNOWN = frozenset(Backend)


@dataclass(frozen=True)
class _File:
    """A file of the project: its path (``{py}`` is the Python name), template, and the backend it is for."""

    path: str
    template: str | None
    backend: Backend | None = None


_FILES: tuple[_File, ...] = (
    _File(".clang-format", "clang-format.j2"),
    _File(".gitattributes", "gitattributes.j2"),
    _File(".gitignore", "gitignore.j2"),
    _File("CARD.md", "CARD.md.j2"),
    _File("README.md", "README.md.j2"),
    _File("benchmarks/benchmark.py", "benchmark.py.j2"),
    _File("build.toml", "build.toml.j2"),
    _File("example.py", "example.py.j2"),
    _File("pytest.ini", "pytest.ini.j2"),
    _File("tests/__init__.py", None),
    _File("tests/conftest.py", "conftest.py.j2"),
    _File("tests/test_{py}.py", "test.py.j2"),
    _File("torch-ext/torch_binding.cpp", "torch_binding.cpp.j2"),
    _File("torch-ext/torch_binding.h", "torch_binding.h.j2"),
    _File("torch-ext/{py}/__init__.py", "init.py.j2"),
    _File("torch-ext/{py}/layers.py", "layers.py.j2"),
    *(_File(path, template, one) for one in Backend if one.scaffold for path, template in one.scaffold.files),
)

_MINIMAL: tuple[_File, ...] = (
    _File(".clang-format", "clang-format.j2"),
    _File(".gitignore", "gitignore.j2"),
    _File("README.md", "README.md.j2"),
    _File("build.toml", "build.toml.j2"),
    _File("pytest.ini", "pytest.ini.j2"),
    _File("tests/__init__.py", None),
    _File("tests/test_{py}.py", "minimal_test.py.j2"),
    _File("torch-ext/torch_binding.cpp", "minimal_binding.cpp.j2"),
    _File("torch-ext/torch_binding.h", "minimal_binding.h.j2"),
    _File("torch-ext/{py}/__init__.py", "minimal_init.py.j2"),
    *(
        _File(path, f"minimal_{template}", one)
        for one in Backend
        if one.scaffold
        for path, template in one.scaffold.files
    ),
)
"""A first kernel: what can be read in five minutes, with the same build.toml."""


_TVM_FFI: tuple[_File, ...] = (
    _File(".clang-format", "clang-format.j2"),
    _File(".gitattributes", "gitattributes.j2"),
    _File(".gitignore", "gitignore.j2"),
    _File("CARD.md", "CARD.md.j2"),
    _File("README.md", "tvm_ffi/README.md.j2"),
    _File("benchmarks/benchmark.py", "tvm_ffi/benchmark.py.j2"),
    _File("build.toml", "tvm_ffi/build.toml.j2"),
    _File("example.py", "tvm_ffi/example.py.j2"),
    _File("pytest.ini", "pytest.ini.j2"),
    _File("tests/__init__.py", None),
    _File("tests/test_{py}.py", "tvm_ffi/test.py.j2"),
    _File("tvm-ffi-ext/tvm_ffi_binding.cpp", "tvm_ffi/binding.cpp.j2"),
    _File("tvm-ffi-ext/tvm_ffi_binding.h", "tvm_ffi/binding.h.j2"),
    _File("tvm-ffi-ext/{py}/__init__.py", "tvm_ffi/init.py.j2"),
    *(_File(one.scaffold.file, f"tvm_ffi/{one.scaffold.template}", one) for one in Backend if one.scaffold),
)
_ONLY_FULL = frozenset({".gitattributes", "CARD.md", "benchmarks/benchmark.py", "example.py"})
"""What a minimal project of tvm-ffi does without."""

FRAMEWORKS = (FrameworkKind.TORCH, FrameworkKind.TVM_FFI)
"""Frameworks that a project can be made for."""


@cache
def backends_for(framework: FrameworkKind) -> tuple[Backend, ...]:
    """The backends that a project for ``framework`` can be made for: those with a template."""
    if framework is not FrameworkKind.TVM_FFI:
        return BACKENDS
    templates = resources.files("kernel_builder").joinpath("templates", "init")
    files = {file.backend: file.template or "" for file in _TVM_FFI if file.backend is not None}
    return tuple(backend for backend in BACKENDS if templates.joinpath(*files[backend].split("/")).is_file())


def _files_of(framework: FrameworkKind, *, minimal: bool) -> tuple[_File, ...]:
    if framework is FrameworkKind.TVM_FFI:
        return tuple(file for file in _TVM_FFI if not minimal or file.path not in _ONLY_FULL)
    return _MINIMAL if minimal else _FILES


def choose_backends(words: Sequence[str], framework: FrameworkKind = FrameworkKind.TORCH) -> tuple[Backend, ...]:
    """Read the words that the user gave for backends; ``all`` stands for all that a project of ``framework`` can be
    made for.

    Returns them once each, in the order of :data:`BACKENDS`. Raises :class:`UsageError` that names every word
    that is no backend, or none that a project can be made for yet.
    """
    possible = backends_for(framework)
    chosen: set[Backend] = set()
    unknown: list[str] = []
    later: list[str] = []
    for word in words:
        lowered = word.lower()
        if lowered == "all":
            chosen.update(possible)
        elif lowered not in _KNOWN:
            unknown.append(word)
        elif Backend(lowered) not in possible:
            later.append(lowered)
        else:
            chosen.add(Backend(lowered))
    writes = " and ".join(filter(None, (", ".join(possible[:-1]), possible[-1])))
    others = ", ".join(backend for backend in Backend if backend not in possible)
    if unknown:
        near = [match for word in unknown for match in get_close_matches(word.lower(), possible, n=1, cutoff=0.7)]
        question = f"did you mean {', '.join(dict.fromkeys(near))}? " if near else ""
        raise UsageError(
            f"unknown backend {', '.join(repr(word) for word in unknown)}",
            hint=f"{question}init supports {writes}, but not yet {others}",
        )
    if later:
        raise UsageError(
            f"init does not support {', '.join(later)} yet: there is no template for it",
            hint=f"init supports {writes}",
        )
    return tuple(backend for backend in possible if backend in chosen)


def renderings(names: ProjectName) -> Mapping[str, frozenset[str]]:
    """Every text that :func:`render_project` writes to a path for a project of these names, whatever its backends.

    Files that name the project's licence or owner have more forms: only those of ``names`` are among them. Texts of
    licences are there for every year up to this one.
    """
    found: dict[str, set[str]] = {}
    for license_id in known_licenses():
        for year in range(FIRST_YEAR, _this_year() + 1):
            (text,) = license_files(license_id, holder=_holder(names), year=year).values()
            for path in ("LICENSE", f"LICENSE-{license_id}"):
                found.setdefault(path, set()).add(text)
    for framework in FRAMEWORKS:
        possible = backends_for(framework)
        for count in range(1, len(possible) + 1):
            for backends in combinations(possible, count):
                for minimal in (False, True):
                    files = render_project(
                        names, backends=backends, license_id="", minimal=minimal, framework=framework
                    )
                    for path, text in files.items():
                        found.setdefault(path, set()).add(text)
    return MappingProxyType({path: frozenset(texts) for path, texts in found.items()})


def _this_year() -> int:
    return datetime.datetime.now(tz=datetime.UTC).year


def _holder(names: ProjectName) -> str:
    """Whose the copyright is, as far as anybody said."""
    return names.owner or f"the authors of {names.name}"


def render_project(
    names: ProjectName,
    *,
    backends: Sequence[Backend],
    license_id: str,
    minimal: bool = False,
    year: int | None = None,
    framework: FrameworkKind = FrameworkKind.TORCH,
) -> Mapping[str, str]:
    """Render every file of a new project, keyed by its POSIX path in the project, in path order.

    ``backends`` are among :func:`backends_for` of ``framework``; ``license_id`` is an identifier such as
    ``Apache-2.0``, whose text is written where it is known; a ``minimal`` project has what a first kernel needs;
    ``year`` is that of the copyright, by default this one. Lines are wrapped the same whatever the names, as ruff (88
    to 120 columns) and clang-format (``.clang-format`` of the project) do.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kernel_builder", "templates/init"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  (source code, not HTML)
    )
    texts = license_files(license_id, holder=_holder(names), year=year or _this_year())
    values = {
        "name": names.name,
        "py": names.python_name,
        "layer": names.class_name,
        "repo_id": names.repo_id,
        "license_toml": json.dumps(license_id, ensure_ascii=False),
        "backends": [backend.value for backend in backends],
        "device": device_expression(backends),
        "minimal": minimal,
        "license_files": sorted(texts),
        "kernel_files": list(
            dict.fromkeys(
                path.format(py=names.python_name) for one in backends if one.scaffold for path, _ in one.scaffold.files
            )
        ),
    }
    files = {
        file.path.format(py=names.python_name): (
            "" if file.template is None else environment.get_template(file.template).render(values)
        )
        for file in _files_of(framework, minimal=minimal)
        if file.backend is None or file.backend in backends
    }
    return MappingProxyType(dict(sorted({**files, **texts}.items())))
