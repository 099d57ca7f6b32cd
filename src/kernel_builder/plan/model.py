"""A build plan: every file that is generated, every action that runs, every file that is installed, as plain data.

A plan is a pure function of project, variants, toolchains and identity; an engine carries it out. Paths of actions and
generated files are words with placeholders (:mod:`kernel_builder.actions.model`), so a plan is the same on every
machine. Everything is sorted or in plan order, so two plans of the same inputs are equal, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_builder.actions.model import Action, GeneratedFile, Step, graph_id
from kernel_builder.actions.places import Places
from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Architecture, Hub
from kernel_builder.variants.names import Variant


@dataclass(frozen=True, kw_only=True)
class InstalledFile:
    """A file of the variant directory: a copy of ``origin`` (a word), or ``content``. ``path`` is relative, POSIX."""

    path: str
    origin: str | None = None
    content: str | None = None


@dataclass(frozen=True, kw_only=True)
class EffectiveSection:
    """What became of a section's architectures: compiled for ``effective``; ``dropped`` contributed nothing. It would
    be compiled for those ``left_out``, too, had others not been asked for alone.
    """

    id: str
    effective: tuple[Architecture, ...]
    dropped: tuple[Architecture, ...] = ()
    left_out: tuple[Architecture, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VariantPlan:
    """How one variant is made. ``library`` is ``None`` for a noarch variant, which has no actions.

    ``linked_as`` is the ops id that the library is linked with; it is installed with ``ops_id`` in its place. So that
    what is linked depends on nothing but what it is made of. ``goals`` are the outputs that the variant is complete
    with.
    """

    variant: Variant
    ops_id: str
    generated: tuple[GeneratedFile, ...]
    actions: tuple[Action, ...]
    library: str | None
    installed: tuple[InstalledFile, ...]
    metadata: Mapping[str, object]
    linked_as: str = ""
    goals: tuple[str, ...] = ()
    sections: tuple[EffectiveSection, ...] = ()
    toolchain: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The variant's name, which is that of its directory."""
        return str(self.variant)

    @property
    def backend(self) -> Backend:
        """The compute backend."""
        return self.variant.backend

    @property
    def library_name(self) -> str:
        """What the library is called where it is installed; ``""`` for a variant without one."""
        made = (self.library or "").rpartition("/")[2]
        return made and f"{self.ops_id}{made.removeprefix(self.linked_as)}"


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """All variants of one run. ``places`` are the directories of this machine; nothing else depends on it.

    ``hub`` is where the variants are meant to be uploaded to.
    """

    places: Places
    name: str
    python_name: str
    variants: tuple[VariantPlan, ...]
    hub: Hub = field(default_factory=Hub)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of all variants, in plan order."""
        return tuple(action for variant in self.variants for action in variant.actions)

    @property
    def generated(self) -> tuple[GeneratedFile, ...]:
        """The generated files of all variants, each once."""
        return tuple(dict.fromkeys(file for variant in self.variants for file in variant.generated))

    @property
    def id(self) -> str:
        """A digest over the graph of actions: equal for equal work on every machine."""
        return graph_id(self.actions)

    def to_json(self, *, portable: bool = False) -> dict[str, object]:
        """The plan as plain JSON values, for ``--dry-run --json``; ``portable`` keeps the placeholders in."""
        return {
            "id": self.id,
            "name": self.name,
            **({} if portable else {"output": str(self.places.output)}),
            "hub": {"repo-id": self.hub.repo_id, "branch": self.hub.branch},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "variants": [_variant_json(variant, None if portable else self.places) for variant in self.variants],
        }


def _variant_json(plan: VariantPlan, places: Places | None) -> dict[str, object]:
    def shown(word: str) -> str:
        return places.text(word) if places else word

    return {
        "name": plan.name,
        "ops-id": plan.ops_id,
        "toolchain": dict(plan.toolchain),
        "sections": [
            {
                "id": section.id,
                "capabilities": [str(one) for one in section.effective],
                "dropped": [str(one) for one in section.dropped],
                **({"left-out": [str(one) for one in section.left_out]} if section.left_out else {}),
            }
            for section in plan.sections
        ],
        "generated": [{"path": shown(file.path), "content": file.content} for file in plan.generated],
        "steps": [_action_json(action, places) for action in plan.actions],
        "library": shown(plan.library) if plan.library else None,
        "linked-as": plan.linked_as or None,
        "installed": [
            {"path": file.path, "origin": shown(file.origin) if file.origin else None} for file in plan.installed
        ],
        "metadata": dict(plan.metadata),
    }


def _action_json(action: Action, places: Places | None) -> dict[str, object]:
    values = action.to_json()
    if places is None:
        return values

    def shown(step: Step) -> dict[str, object]:
        return {
            "command": list(places.expanded(action, step.command)),
            "reads": None if step.reads is None else [places.text(word, action) for word in step.reads],
            "writes": [places.text(word, action) for word in step.writes],
        }

    words = {
        key: [places.text(word, action) for word in getattr(action, key)] for key in ("inputs", "implicit", "outputs")
    }
    depfile = places.text(action.depfile, action) if action.depfile else None
    return {
        **values,
        **words,
        "command": list(places.command(action)),
        "commands": [shown(step) for step in action.steps],
        "fallback": [shown(step) for step in action.fallback],
        "depfile": depfile,
        "log": places.text(action.log, action),
    }
