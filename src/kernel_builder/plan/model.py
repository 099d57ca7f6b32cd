"""A build plan: every file that is generated, every command that runs, every file that is installed, as plain data.

A plan is a pure function of project, variants, toolchains and identity; ``build/`` carries it out. All paths are
absolute. Everything is sorted or in plan order, so two plans of the same inputs are equal, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Capability, Hub
from kernel_builder.variants.names import Variant
from kernel_builder.versions import Version


class StepKind(StrEnum):
    """What a step does, as progress shows it."""

    COMPILE = "compile"
    LINK = "link"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command. ``inputs`` are given to it, ``implicit`` are files it reads besides; ``output`` is what it makes.

    ``depfile`` lists the headers it read, in make's syntax, once it ran. ``log`` is where its words go. ``memory`` is
    an estimate in bytes of the most it needs (DESIGN.md F10), ``source`` the path for people, relative to the project.
    """

    kind: StepKind
    command: tuple[str, ...]
    inputs: tuple[Path, ...]
    output: Path
    log: Path
    source: str
    memory: int
    implicit: tuple[Path, ...] = ()
    depfile: Path | None = None


@dataclass(frozen=True, kw_only=True)
class GeneratedFile:
    """A file that the plan itself provides. It is rewritten only when its content changes."""

    path: Path
    content: str


@dataclass(frozen=True, kw_only=True)
class InstalledFile:
    """A file of the variant directory: a copy of ``origin``, or ``content``. ``path`` is relative, POSIX."""

    path: str
    origin: Path | None = None
    content: str | None = None


@dataclass(frozen=True, kw_only=True)
class EffectiveSection:
    """What became of a section's capabilities: compiled for ``capabilities``; ``dropped`` contributed nothing."""

    id: str
    capabilities: tuple[Capability, ...]
    dropped: tuple[Capability, ...] = ()


@dataclass(frozen=True, kw_only=True)
class UndefinedPolicy:
    """What a library may leave undefined: names of these tables (one a line) and Python's limited API.

    ``python`` is the limited API's version. ``torch`` are torch's own tables. With ``stable``, a release of torch, only
    those of their names may be left undefined that belong to the stable ABI of that release.
    """

    tables: tuple[Path, ...]
    torch: tuple[Path, ...]
    python: tuple[int, int]
    stable: Version | None = None


@dataclass(frozen=True, kw_only=True)
class VariantPlan:
    """How one variant is made. ``library`` is ``None`` for a noarch variant, which has no steps."""

    variant: Variant
    ops_id: str
    generated: tuple[GeneratedFile, ...]
    steps: tuple[Step, ...]
    library: Path | None
    installed: tuple[InstalledFile, ...]
    metadata: Mapping[str, object]
    sections: tuple[EffectiveSection, ...] = ()
    undefined: UndefinedPolicy | None = None
    toolchain: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The variant's name, which is that of its directory."""
        return str(self.variant)

    @property
    def backend(self) -> Backend:
        """The compute backend."""
        return self.variant.backend


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """All variants of one run. ``work`` is the tool's own directory in the project, ``output`` where variants go.

    ``hub`` is where the variants are meant to be uploaded to.
    """

    root: Path
    work: Path
    output: Path
    name: str
    python_name: str
    variants: tuple[VariantPlan, ...]
    hub: Hub = field(default_factory=Hub)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all variants, in plan order."""
        return tuple(step for variant in self.variants for step in variant.steps)

    def to_json(self) -> dict[str, object]:
        """The plan as plain JSON values, for ``--dry-run --json`` and golden files."""
        return {
            "name": self.name,
            "output": str(self.output),
            "hub": {"repo-id": self.hub.repo_id, "branch": self.hub.branch},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "variants": [_variant_json(variant) for variant in self.variants],
        }


def _variant_json(plan: VariantPlan) -> dict[str, object]:
    return {
        "name": plan.name,
        "ops-id": plan.ops_id,
        "toolchain": dict(plan.toolchain),
        "sections": [
            {
                "id": section.id,
                "capabilities": [str(capability) for capability in section.capabilities],
                "dropped": [str(capability) for capability in section.dropped],
            }
            for section in plan.sections
        ],
        "generated": [{"path": str(file.path), "content": file.content} for file in plan.generated],
        "steps": [
            {
                "kind": step.kind.value,
                "source": step.source,
                "command": list(step.command),
                "inputs": [str(path) for path in step.inputs],
                "implicit": [str(path) for path in step.implicit],
                "output": str(step.output),
                "log": str(step.log),
            }
            for step in plan.steps
        ],
        "library": str(plan.library) if plan.library else None,
        "installed": [
            {"path": file.path, "origin": str(file.origin) if file.origin else None} for file in plan.installed
        ],
        "metadata": dict(plan.metadata),
    }
