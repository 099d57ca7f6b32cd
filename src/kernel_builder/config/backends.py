"""The compute backends, and what there is to know of each outside of its own module: ``data/backends.toml``.

A backend is its name, a ``str``, that also has the facts of its row. ``Backend("xpu")`` is always the same object, and
iterating over ``Backend`` gives all of them, in the order of the table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

_TABLE = Path(__file__).parent.parent / "data" / "backends.toml"
_CAPABILITY = "capability"
_TRIED_LAST = 99


class Role(StrEnum):
    """What a backend's own key of ``[kernel.<id>]`` says: flags of its compiler, architectures, or its oldest
    toolkit.
    """

    FLAGS = "flags"
    ARCHITECTURES = "architectures"
    MINVER = "minver"


@dataclass(frozen=True, kw_only=True)
class KernelKey:
    """A backend's own key in ``[kernel.<id>]``. ``noarch`` is its summary in ``[torch-noarch]``, ``None`` where that
    table does not have it.
    """

    name: str
    role: Role
    summary: str
    noarch: str | None = None


@dataclass(frozen=True, kw_only=True)
class GeneralTable:
    """``[general.<backend>]``: its summary and the names of its keys."""

    summary: str
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Architectures:
    """What code can be compiled for. ``pattern`` is ``None`` for capabilities (:mod:`config.capabilities`), else what
    each architecture matches. ``device_code`` names the reader of :mod:`binary.device_code` for
    it; without one, nobody reads the device code in libraries. ``flags`` is a pattern of the
    compiler's flags that choose them, with a blank before an argument that is a word of its own.
    """

    pattern: str | None
    noun: str
    plural: str
    examples: tuple[str, ...]
    device_code: str | None = None
    flags: str | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class InTorch:
    """What torch knows of a backend; the fields are those of the table's ``torch``.

    ``version_text`` is how ``version`` is written, with ``{major}`` and ``{minor}``; ``build`` is the local version of
    such builds on an index, ``None`` where there are none.
    """

    device: str
    dispatch_key: str
    version: str | None = None
    version_text: str = "{major}.{minor}"
    older_minor: bool = False
    system: str | None = None
    plugin: str | None = None
    plugin_first: bool = False
    libraries: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    triton: bool | None = None
    build: str | None = None


@dataclass(frozen=True, kw_only=True)
class OnMacos:
    """What variants for macOS are compiled for: the ``oldest`` one that they run on, and Apple's ``frameworks`` that
    they are linked with.
    """

    oldest: str = "15.0"
    frameworks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Driver:
    """How a driver is asked for devices: ``init(0)`` and ``count(int *)`` of ``library`` return 0 when all is well."""

    library: str
    init: str
    count: str


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What a backend needs where kernels are loaded: patterns of environment variables, and of devices in ``/dev``.
    ``home`` are the variables that tell tools where its toolkit is. ``readings`` is a command that prints what its
    devices do just now.
    """

    environment: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    readings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scaffold:
    """What ``init`` writes: a file (``{py}`` is the kernel's Python name) from a template. Two backends may share one.
    ``usual``: also where no backends are asked for.
    """

    file: str
    template: str
    usual: bool = False
    also: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """Every file with its template, in order."""
        first = (self.file, self.template)
        return (first, (self.also[0], self.also[1])) if self.also else (first,)


@dataclass(frozen=True, kw_only=True)
class ClangReading:
    """How clang is told to read its sources: ``arguments``, ``toolkit`` with ``{}`` for the toolkit's directory, and
    ``drop``, a pattern of definitions that clang makes itself.
    """

    arguments: tuple[str, ...]
    toolkit: str
    drop: str


class _Backends(type):
    """The type of :class:`Backend` itself, which is iterable."""

    def __iter__(cls) -> Iterator[Backend]:
        return iter(_backends().values())


class Backend(str, metaclass=_Backends):
    """A compute backend that a kernel can be for: its name, with the facts of its row.

    ``Backend(name)`` raises ``ValueError`` for a name that the table does not have.
    """

    label: str
    """For people: ``ROCm``."""
    words: tuple[str, ...]
    """Other words for it that people write."""
    prefix: str | None
    """What stands before the toolkit's version in variant names; ``None`` where they have none."""
    has_sections: bool
    """Whether it can have compiled code, hence ``[kernel.<id>]`` sections."""
    has_module: bool
    """Whether this version of kernel-builder can compile for it."""
    is_host: bool
    """Whether it is the processor that Python itself runs on."""
    is_shown: bool
    """Whether examples show it."""
    tried: int
    """Its place in the order in which a machine's devices are looked for."""
    sources: tuple[str, ...]
    """Suffixes of files in its own language, with the dot."""
    extension: str | None
    """The function of ``torch.utils.cpp_extension`` that describes an extension for it."""
    keys: tuple[KernelKey, ...]
    """Its own keys in ``[kernel.<id>]``."""
    general: GeneralTable | None
    architectures: Architectures | None
    torch: InTorch
    symbols: str | None
    """A pattern of the names that the runtimes which torch depends on have."""
    registration: str | None
    """A pattern of those that compiled code calls when it is loaded, to register its device code."""
    runtime: Runtime
    macos: OnMacos
    driver: Driver | None
    editor: ClangReading | None
    scaffold: Scaffold | None

    def __new__(cls, name: str) -> Backend:
        backend = _backends().get(name)
        if backend is None:
            raise ValueError(f"{name!r} is not a backend: {', '.join(_backends())}")
        return backend

    @property
    def value(self) -> str:
        """The name, as plain text."""
        return str(self)

    def key(self, role: Role) -> KernelKey | None:
        """Its key in ``[kernel.<id>]`` that has that role."""
        return next((key for key in self.keys if key.role is role), None)

    def __repr__(self) -> str:
        return f"Backend({self.value!r})"

    def __reduce__(self) -> tuple[type[Backend], tuple[str]]:
        return Backend, (self.value,)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self!r} cannot be changed")


@cache
def _backends() -> Mapping[str, Backend]:
    return parse_backends(_TABLE.read_text(encoding="utf-8"))


def parse_backends(text: str) -> Mapping[str, Backend]:
    """Read a table. Raises ``KeyError``, ``TypeError``, ``ValueError``: it ships with the package."""
    return {row["name"]: _backend(dict(row)) for row in tomllib.loads(text)["backend"]}


def _backend(row: dict[str, Any]) -> Backend:
    backend = str.__new__(Backend, row.pop("name"))
    facts = {
        "label": row.pop("label"),
        "words": tuple(row.pop("words", ())),
        "prefix": row.pop("prefix", None),
        "has_sections": row.pop("sections", False),
        "has_module": row.pop("module", False),
        "is_host": row.pop("host", False),
        "is_shown": row.pop("shown", False),
        "tried": row.pop("tried", _TRIED_LAST),
        "sources": tuple(row.pop("sources", ())),
        "extension": row.pop("extension", None),
        "keys": tuple(KernelKey(**{**key, "role": Role(key["role"])}) for key in row.pop("kernel", ())),
        "general": GeneralTable(**_fields(row.pop("general"))) if "general" in row else None,
        "architectures": _architectures(row.pop("architectures")) if "architectures" in row else None,
        "torch": InTorch(**_fields(row.pop("torch"))),
        "symbols": row.pop("symbols", None),
        "registration": row.pop("registration", None),
        "runtime": Runtime(**_fields(row.pop("runtime", {}))),
        "macos": OnMacos(**_fields(row.pop("macos", {}))),
        "driver": Driver(**row.pop("driver")) if "driver" in row else None,
        "editor": ClangReading(**_fields(row.pop("editor"))) if "editor" in row else None,
        "scaffold": Scaffold(**_fields(row.pop("init"))) if "init" in row else None,
    }
    if row:
        raise ValueError(f"{backend!r} has keys that nobody reads: {', '.join(row)}")
    vars(backend).update(facts)
    return backend


def _architectures(table: dict[str, Any]) -> Architectures:
    grammar = table.pop("grammar")
    return Architectures(pattern=None if grammar == _CAPABILITY else grammar, **_fields(table))


def _fields(table: dict[str, Any]) -> dict[str, Any]:
    """Keys and values as a dataclass has them."""
    return {key.replace("-", "_"): tuple(value) if isinstance(value, list) else value for key, value in table.items()}


HOST = next(backend for backend in Backend if backend.is_host)
"""The processor that Python itself runs on, which every torch has."""

SHOWN = next(backend for backend in Backend if backend.is_shown)
"""The backend that examples show."""


def order_of_devices() -> tuple[Backend, ...]:
    """The backends that a machine's devices are looked for, in that order, where nothing was asked for."""
    return tuple(sorted((one for one in Backend if one.tried < _TRIED_LAST), key=lambda one: one.tried))


def device_expression(backends: Sequence[Backend]) -> str:
    """The Python expression for the device to show a kernel on: the host's only where there is no other."""
    devices = [backend.torch.device for backend in sorted(backends, key=lambda backend: backend.is_host)]
    *first, last = dict.fromkeys(devices)
    if len(first) > 1:
        listed = ", ".join(f'"{device}"' for device in first)
        return f'next((name for name in ({listed}) if getattr(torch, name).is_available()), "{last}")'
    return "".join(f'"{device}" if torch.{device}.is_available() else ' for device in first) + f'"{last}"'
