"""The support table: which torch builds exist, and what their headers need. Read from ``data/support.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kernel_builder.config.capabilities import parse_capability
from kernel_builder.config.model import Backend, Capability
from kernel_builder.variants.names import Abi, ArchVariant, Compute, Machine, System, TorchTag
from kernel_builder.versions import Version


@dataclass(frozen=True, kw_only=True)
class SupportRow:
    """One torch build: a release for a backend, a machine and a system."""

    torch: Version
    cxx_standard: int
    required: bool
    variant: ArchVariant


@dataclass(frozen=True, kw_only=True)
class CapabilityDefault:
    """Capabilities compiled for by default, from toolkit ``minver`` on."""

    minver: Version
    capabilities: tuple[Capability, ...]


@dataclass(frozen=True, kw_only=True)
class SupportTable:
    """All rows, oldest torch first, and the default capabilities, newest toolkit first."""

    rows: tuple[SupportRow, ...]
    capability_defaults: tuple[CapabilityDefault, ...]

    def default_capabilities(self, cuda: Version) -> tuple[Capability, ...]:
        """What a section without ``cuda-capabilities`` is compiled for by toolkit ``cuda``.

        Raises ``LookupError`` for a toolkit older than every list.
        """
        for entry in self.capability_defaults:
            if cuda >= entry.minver:
                return entry.capabilities
        raise LookupError(f"no default capabilities are known for CUDA {cuda}")


def _pair(text: str) -> tuple[int, int]:
    version = Version.parse(text)
    return version.major, version.minor


@cache
def load_support() -> SupportTable:
    """Read the table that the package carries."""
    text = resources.files("kernel_builder.data").joinpath("support.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    rows: list[SupportRow] = []
    for release in document["torch"]:
        for build in release["builds"]:
            backend = Backend(build["backend"])
            versions: list[tuple[int, int] | None] = [_pair(version) for version in build.get("versions", [])]
            rows.extend(
                SupportRow(
                    torch=Version.parse(release["version"]),
                    cxx_standard=release["cxx-standard"],
                    required=release["required"],
                    variant=ArchVariant(
                        tag=TorchTag(version=_pair(release["version"]), abi=Abi(build["abi"])),
                        compute=Compute(backend=backend, version=version),
                        machine=Machine(build["machine"]),
                        system=System(build["system"]),
                    ),
                )
                for version in versions or [None]
            )
    defaults = [
        CapabilityDefault(
            minver=Version.parse(entry["minver"]),
            capabilities=tuple(parse_capability(text) for text in entry["default"]),
        )
        for entry in document["cuda-capabilities"]
    ]
    return SupportTable(
        rows=tuple(sorted(rows, key=lambda row: (row.torch, row.variant.compute.backend, str(row.variant)))),
        capability_defaults=tuple(sorted(defaults, key=lambda entry: entry.minver, reverse=True)),
    )
