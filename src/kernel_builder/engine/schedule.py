"""In which order actions run, and how many at once.

What ends a variant goes first, so that people get it as soon as its objects are there; then come the variants in their
order, and in each of them what the longest chain waits for, by the time that things took before. An action starts when
a processor is free and its memory, by its peak of last time, fits beside what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernel_builder.actions.model import Action, ActionKind
from kernel_builder.engine.records import Records, needs_of
from kernel_builder.engine.resources import Resources

_LAST = (ActionKind.LINK, ActionKind.INSPECT)
_HEAVY = 2 << 30
_SECONDS = {
    ActionKind.TRANSLATE: 1.0,
    ActionKind.PREPROCESS: 3.0,
    ActionKind.SPLIT: 25.0,
    ActionKind.DEVICE: 20.0,
    ActionKind.COMPILE: 20.0,
    ActionKind.LINK: 2.0,
    ActionKind.INSPECT: 0.5,
}
"""How long things take that nobody has seen running, with all of torch's headers (DESIGN.md F8); other kinds 1 s."""
_LIGHT = 0.2
"""How much of that without them."""
_MARGIN = 1.15
"""A peak of memory may be a little higher next time."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What actions will cost, by what they or the like of them cost before: seconds, and bytes of memory, by id."""

    seconds: Mapping[str, float]
    memory: Mapping[str, int]

    @classmethod
    def of(cls, actions: Sequence[Action], records: Records) -> Costs:
        """Costs of ``actions``: their own last ones, else the greatest of their kind, else an estimate."""
        alike: dict[tuple[ActionKind, int], list[tuple[float, int]]] = {}
        for action in actions:
            record = records[action.id]
            if record is not None and record.memory:
                alike.setdefault((action.kind, action.memory), []).append((record.seconds, record.memory))
        seconds: dict[str, float] = {}
        memory: dict[str, int] = {}
        for action in actions:
            record = records[action.id]
            seen = alike.get((action.kind, action.memory), [])
            if record is not None and record.memory:
                seen = [(record.seconds, record.memory)]
            guess = _SECONDS.get(action.kind, 1.0) * (1 if action.memory >= _HEAVY else _LIGHT)
            seconds[action.id] = sum(one for one, _ in seen) / len(seen) if seen else guess
            memory[action.id] = int(max(one for _, one in seen) * _MARGIN) if seen else action.memory
        return cls(seconds=seconds, memory=memory)


def ranks(actions: Sequence[Action], costs: Costs, variants: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """What sorts actions, by id: the least goes first."""
    waiting: dict[str, float] = {}
    needs = needs_of(actions)
    path: dict[str, float] = {}
    for action in reversed(actions):
        path[action.id] = costs.seconds[action.id] + waiting.get(action.id, 0.0)
        for name in needs[action.id]:
            waiting[name] = max(waiting.get(name, 0.0), path[action.id])
    turn = {name: place for place, name in enumerate(variants)}
    return {
        action.id: (0.0 if action.kind in _LAST else 1.0, turn.get(action.variant, 0), -path[action.id], place)
        for place, action in enumerate(actions)
    }


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much may run at once: ``jobs`` threads, ``memory`` bytes (``None``: whatever it takes), ``variants``, and
    ``cores`` threads of one variant.
    """

    jobs: int
    memory: int | None
    variants: int | None = None
    cores: int | None = None

    @classmethod
    def of(
        cls, resources: Resources, *, jobs: int | None, cores: int | None, variants: int | None, hungriest: int
    ) -> Bounds:
        """``jobs`` is ``--jobs``, which overrides what the machine has. ``cores`` and ``variants`` together do so, too;
        ``cores`` alone is what at least may run of one variant.
        """
        if cores is None:
            memory = None if jobs is not None else resources.memory
            return cls(jobs=jobs or resources.processors, memory=memory, variants=variants)
        if variants is None:
            alike = min(resources.processors, max(1, resources.memory // max(1, hungriest)))
            return cls(jobs=max(cores, alike), memory=None, cores=cores)
        return cls(jobs=cores * variants, memory=None, variants=variants, cores=cores)


@dataclass(frozen=True, kw_only=True)
class Running:
    """What an action takes while it runs, on this machine or on the other one named: threads, and bytes."""

    variant: str
    threads: int
    memory: int
    site: str = ""


def fits(need: Running, running: Iterable[Running], limits: Bounds) -> bool:
    """Whether ``need`` may start beside ``running``. One action may always run."""
    now = list(running)
    if sum(one.threads for one in now) + need.threads > limits.jobs:
        return False
    if limits.cores is not None:
        of_variant = sum(one.threads for one in now if one.variant == need.variant)
        if of_variant + need.threads > limits.cores:
            return False
    return not now or limits.memory is None or sum(one.memory for one in now) + need.memory <= limits.memory


def may_pass(waiting: Running, running: Iterable[Running]) -> bool:
    """Whether others may start before ``waiting``, for which memory is short: only while something runs whose end
    makes room for it, so that it does not wait for ever.
    """
    return any(one.memory >= waiting.memory for one in running)
