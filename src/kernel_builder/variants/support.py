"""The support table: which torch builds exist, and what their headers need. Read from ``data/support.toml``.

Reference: interoperability contract 2.2 (what is required now), 2.3 (all build sets) and 2.4 (their history).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib import resources

from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import parse_architecture
from kernel_builder.config.model import Architecture
from kernel_builder.variants.names import Abi, ArchVariant, Compute, Platform, System, TorchTag, TvmFfiTag, Variant
from kernel_builder.versions import Version


class VariantSet(StrEnum):
    """The named sets of variants."""

    REQUIRED = "required"
    """What kernels on the Hub must have now."""
    LATEST = "latest"
    """The releases that are required, and every newer one."""
    LEGACY = "legacy"
    """The twelve variants of torch 2.5 and 2.6 that were recommended first."""
    ALL = "all"


@dataclass(frozen=True, kw_only=True)
class SupportRow:
    """One torch build: a release for a backend and a platform.

    ``python`` is the oldest Python that this release runs on.
    ``toolkit`` is the version of the backend's toolkit, with its patch number where that is known. ``since`` and
    ``until`` are the dates (ISO 8601) between which kernels had to have the variant; ``since`` is ``None`` if they
    never had to, ``until`` while they have to. ``tvm_ffi`` is the tvm-ffi release that the build is paired with.
    ``wheel`` is the newest version of this release on the public package index, ``is_published`` whether the wheel
    there, for this platform, is this build.
    """

    torch: Version
    cxx_standard: int
    python: tuple[int, int]
    variant: ArchVariant
    toolkit: Version | None = None
    since: str | None = None
    until: str | None = None
    tvm_ffi: Version | None = None
    wheel: str = ""
    is_published: bool = False

    @property
    def required(self) -> bool:
        """Whether kernels on the Hub must have this variant now."""
        return self.since is not None and self.until is None

    @property
    def name(self) -> str:
        """The name of the full variant, whatever a project's own variant for this build is called."""
        return str(self.variant)

    @property
    def platform(self) -> Platform:
        """Machine and system."""
        return Platform(machine=self.variant.machine, system=self.variant.system)


@dataclass(frozen=True, kw_only=True)
class ArchitectureDefault:
    """Architectures of ``backend`` that are compiled for by default, from toolkit ``minver`` on."""

    backend: Backend
    minver: Version
    architectures: tuple[Architecture, ...]


@dataclass(frozen=True, kw_only=True)
class SupportTable:
    """All rows, oldest torch first; the default capabilities, newest toolkit first; globs of the set ``legacy``."""

    rows: tuple[SupportRow, ...]
    architecture_defaults: tuple[ArchitectureDefault, ...]
    legacy: tuple[str, ...] = ()

    @cached_property
    def oldest_required(self) -> Version:
        """The oldest torch release that variants are required for."""
        return min(row.torch for row in self.rows if row.required)

    def contains(self, which: VariantSet, row: SupportRow) -> bool:
        """Whether ``row`` belongs to a named set."""
        match which:
            case VariantSet.REQUIRED:
                return row.required
            case VariantSet.LATEST:
                return row.torch >= self.oldest_required
            case VariantSet.LEGACY:
                return any(fnmatchcase(row.name, pattern) for pattern in self.legacy)
            case VariantSet.ALL:
                return True

    def oldest_python(self, variant: Variant) -> tuple[str, tuple[int, int]] | None:
        """The oldest Python that ``variant`` can meet, and the torch that needs it: ``("torch 2.13", (3, 10))``.

        A variant for torch's stable ABI meets the release that it names and later ones, one for tvm-ffi every torch
        that is paired with it. ``None`` where any torch may come along: variants without compiled code, and
        releases that the table does not have.
        """
        if not isinstance(variant, ArchVariant):
            return None
        tag = variant.tag
        if isinstance(tag, TvmFfiTag):
            rows = [row for row in self.rows if row.tvm_ffi is not None and _pair(row.tvm_ffi) == tag.version]
        else:
            rows = [row for row in self.rows if _pair(row.torch) == tag.version]
        oldest = min(rows, key=lambda row: (row.python, row.torch), default=None)
        return None if oldest is None else (f"torch {oldest.torch}", oldest.python)

    def sets_of(self, rows: Sequence[SupportRow]) -> frozenset[VariantSet]:
        """The named sets that one of ``rows`` belongs to."""
        return frozenset(which for which in VariantSet if any(self.contains(which, row) for row in rows))

    def default_architectures(self, backend: Backend, toolkit: Version) -> tuple[Architecture, ...]:
        """What a section that asks for nothing is compiled for by that version of the backend's toolkit.

        Raises ``LookupError`` for a toolkit older than every list.
        """
        for entry in self.architecture_defaults:
            if entry.backend is backend and toolkit >= entry.minver:
                return entry.architectures
        raise LookupError(f"no default architectures are known for {backend.label} {toolkit}")


def _pair(version: Version) -> tuple[int, int]:
    return version.major, version.minor


def _rows(release: Mapping[str, object], build: Mapping[str, object]) -> list[SupportRow]:
    """The rows of one entry of ``builds``: each version on each platform, with each ABI."""
    torch = Version.parse(_text(release, "version"))
    standard = release["cxx-standard"]
    if not isinstance(standard, int):
        raise TypeError("cxx-standard must be a number")
    backend = Backend(_text(build, "backend"))
    toolkits: list[Version | None] = [Version.parse(text) for text in _texts(build, "versions")]
    wheels = release.get("wheels")
    published: Mapping[str, object] = wheels if isinstance(wheels, dict) else {}
    rows: list[SupportRow] = []
    for platform in map(Platform.parse, _texts(build, "platforms")):
        on_linux = platform.system is System.LINUX
        abis: list[Abi | None] = [Abi(text) for text in _texts(build, "abi")] or [Abi.CXX11] if on_linux else [None]
        rows.extend(
            SupportRow(
                torch=torch,
                cxx_standard=standard,
                python=_pair(Version.parse(_text(release, "python"))),
                variant=ArchVariant(
                    tag=TorchTag(version=_pair(torch), abi=abi),
                    compute=Compute(backend=backend, version=_pair(toolkit) if toolkit else None),
                    machine=platform.machine,
                    system=platform.system,
                ),
                toolkit=toolkit,
                since=_text(build, "since") or None,
                until=_text(build, "until") or None,
                tvm_ffi=Version.parse(_text(build, "tvm-ffi")) if "tvm-ffi" in build else None,
                wheel=_text(published, "version"),
                is_published=_text(published, str(platform)) == _flavour(abi, backend, toolkit),
            )
            for toolkit in toolkits or [None]
            for abi in abis
        )
    return rows


def _flavour(abi: Abi | None, backend: Backend, toolkit: Version | None) -> str:
    """What ``wheels`` of the table calls a build: ``cxx11-cu130``."""
    compute = str(Compute(backend=backend, version=_pair(toolkit) if toolkit else None))
    return compute if abi is None else f"{abi.value}-{compute}"


def _text(table: Mapping[str, object], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a string")
    return value


def _texts(table: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{key} must be a list of strings")
    return tuple(value)


def parse_support(text: str) -> SupportTable:
    """Read a table. Raises ``KeyError``, ``TypeError``, ``ValueError``: it ships with the package."""
    document = tomllib.loads(text)
    rows = [row for release in document["torch"] for build in release["builds"] for row in _rows(release, build)]
    defaults = [
        ArchitectureDefault(
            backend=Backend(entry["backend"]),
            minver=Version.parse(entry["minver"]),
            architectures=tuple(parse_architecture(Backend(entry["backend"]), text) for text in entry["default"]),
        )
        for entry in document["architectures"]
    ]
    return SupportTable(
        rows=tuple(sorted(rows, key=lambda row: (row.torch, row.variant.compute, row.name))),
        architecture_defaults=tuple(sorted(defaults, key=lambda entry: entry.minver, reverse=True)),
        legacy=tuple(document["sets"]["legacy"]),
    )


@cache
def load_support() -> SupportTable:
    """The table that the package carries."""
    return parse_support(resources.files("kernel_builder.data").joinpath("support.toml").read_text(encoding="utf-8"))
