"""Variant directories as they lie on disk, ours or another builder's: which there are, and what their metadata says.

Reference: interoperability contract 6.1 (where variants are looked for) and 4.1 (metadata).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_builder.artifact.digest import METADATA
from kernel_builder.config.model import Project
from kernel_builder.errors import ConfigError
from kernel_builder.files import parse_json
from kernel_builder.project.inputs import sources_of
from kernel_builder.variants.build_type import BuildType

_MAX_BYTES = 16 * 2**20  # of a metadata file; no honest one has as many
CARD = "CARD.md"
"""Name of the card's template in a project, and of the filled card beside the variants; on the Hub it is README.md."""


@dataclass(frozen=True, kw_only=True)
class BuiltVariant:
    """One variant directory and its ``metadata.json``, which may hold anything: nothing is judged here."""

    path: Path
    metadata: Mapping[str, object] = field(repr=False)

    @property
    def name(self) -> str:
        """The variant's name: that of its directory."""
        return self.path.name

    @property
    def backend(self) -> str:
        """``backend.type`` of the metadata; empty if it is not there."""
        return str(_table(self.metadata, "backend").get("type", ""))

    @property
    def archs(self) -> tuple[str, ...]:
        """``backend.archs`` of the metadata."""
        archs = _table(self.metadata, "backend").get("archs", ())
        return tuple(str(arch) for arch in archs) if isinstance(archs, list) else ()

    @property
    def version(self) -> int | None:
        """The kernel's version."""
        version = self.metadata.get("version")
        return version if isinstance(version, int) else None

    @property
    def commit(self) -> str | None:
        """The commit of the kernel that it was built from."""
        commit = _table(_table(self.metadata, "provenance"), "kernel").get("commit")
        return commit if isinstance(commit, str) else None

    @property
    def builder_version(self) -> str | None:
        """The version of the builder that made it."""
        version = _table(_table(self.metadata, "provenance"), "kernel-builder").get("version")
        return version if isinstance(version, str) else None

    @property
    def is_dirty(self) -> bool:
        """Whether the kernel's or the builder's sources differed from their commit (contract 4.1)."""
        provenance = _table(self.metadata, "provenance")
        return any(_table(provenance, part).get("dirty") is True for part in ("kernel", "kernel-builder"))

    @property
    def is_uncommitted(self) -> bool:
        """Whether its provenance says that the kernel's sources were in no commit."""
        provenance = _table(self.metadata, "provenance")
        return bool(_table(provenance, "kernel-builder")) and not provenance.get("kernel")

    @property
    def left_out(self) -> tuple[str, ...]:
        """The architectures that it was not built for, and would have been in a whole build."""
        archs = _table(_table(self.metadata, "provenance"), "partial").get("left-out", ())
        return tuple(str(arch) for arch in archs) if isinstance(archs, list) else ()

    @property
    def trial(self) -> str:
        """Why it must not be published, as it records that it was built to be tried alone; empty where it was not."""
        reason = _table(_table(self.metadata, "provenance"), "trial").get("reason", "")
        return reason if isinstance(reason, str) else ""

    @property
    def build_type(self) -> BuildType:
        """What it says that it was built for."""
        return BuildType.of(_table(_table(self.metadata, "provenance"), "build-type"))

    @property
    def sources(self) -> Mapping[str, object]:
        """What it records of the sources that it was built from; empty where it records nothing."""
        return _table(_table(self.metadata, "provenance"), "sources")

    @property
    def headers(self) -> str | None:
        """Which headers of the framework it says that device code was compiled with; ``None`` for all of them."""
        told = _table(self.metadata, "provenance").get("headers")
        return told if isinstance(told, str) else None

    def is_stale(self, sources: Mapping[str, str]) -> bool:
        """Whether it was built from other sources than those with the record ``sources``, as far as it says."""
        return self.sources.get("scheme") == sources["scheme"] and self.sources.get("sha256") != sources["sha256"]


def stale_variants(project: Project, variants: Iterable[BuiltVariant]) -> tuple[str, ...]:
    """The names of those of ``variants`` that were built from other sources than ``project`` has now."""
    found = tuple(variant for variant in variants if variant.sources)
    sources = sources_of(project, found[0].path.parent) if found else None
    return () if sources is None else tuple(variant.name for variant in found if variant.is_stale(sources))


def stale_text(names: Sequence[str]) -> str:
    """What people are told of stale variants."""
    which = "this variant was" if len(names) == 1 else "these variants were"
    return f"{which} built from other sources than those here: {', '.join(names)}"


def _table(of: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = of.get(key)
    return value if isinstance(value, dict) else {}


def variants_in(folder: Path) -> tuple[BuiltVariant, ...]:
    """The variants directly below ``folder``, by name: directories with a ``metadata.json``. None if it is no folder.

    Raises :class:`ConfigError` that names every ``metadata.json`` that cannot be read.
    """
    if not folder.is_dir():
        return ()
    found: list[BuiltVariant] = []
    wrong: list[str] = []
    for path in sorted(folder.iterdir()):
        file = path / METADATA
        if path.name.startswith(".") or not file.is_file():
            continue
        try:
            if file.stat().st_size > _MAX_BYTES:
                wrong.append(f"{file}: too large for a metadata file")
                continue
            document = parse_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            wrong.append(f"{file}: {error}")
            continue
        if isinstance(document, dict):
            found.append(BuiltVariant(path=path, metadata=document))
        else:
            wrong.append(f"{file}: not a table")
    if wrong:
        raise ConfigError("cannot read metadata:\n  " + "\n  ".join(wrong), hint="rebuild these variants")
    return tuple(found)
