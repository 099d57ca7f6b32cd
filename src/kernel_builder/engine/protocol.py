"""What every engine does: it runs the actions of a plan that are out of date, and says of each what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kernel_builder.actions.model import Action
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.elsewhere import OtherMachines
from kernel_builder.engine.sandbox import ActionSandbox
from kernel_builder.events import Reporter
from kernel_builder.plan.model import BuildPlan


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a plan is to be run.

    ``jobs`` overrides how many actions run at once, ``cores`` is how many of one variant may, ``variants`` how many
    variants may be worked on at once; ``environ`` is the user's environment, of which each action sees
    what it names; ``verbose`` reports the output of every action. ``cache`` is asked before anything runs.
    With a ``sandbox``, actions run in it.
    ``elsewhere`` has other machines, which run what they can.
    ``over`` is called with the name of each variant none of whose actions is left, and their results, as soon as that
    is so. Other variants' actions go on meanwhile, and it is never called twice at once; what it raises ends the run,
    and so does a signal while it works.
    ``spare`` is called, now and then, with the name of a variant of which something new is being made, while fewer
    actions can run than may: there is room for something that will be needed when it is over. It must return at once.
    """

    environ: Mapping[str, str]
    reporter: Reporter
    jobs: int | None = None
    cores: int | None = None
    variants: int | None = None
    keep_going: bool = False
    cache: ActionCache | None = None
    sandbox: ActionSandbox | None = None
    verbose: bool = False
    elsewhere: OtherMachines | None = None
    over: Callable[[str, tuple[ActionResult, ...]], None] | None = None
    spare: Callable[[str], None] | None = None


class ActionStatus(StrEnum):
    """What became of an action."""

    DONE = "done"
    RECALLED = "from the cache"
    UP_TO_DATE = "up to date"
    FAILED = "failed"
    NOT_RUN = "not run"
    """Another action failed before its turn came."""


@dataclass(frozen=True, kw_only=True)
class ActionResult:
    """One action. ``output`` are the lines that a failed one wrote; ``seconds`` is how long it ran, if it ever did;
    ``fell_back``: why its fallback ran.
    """

    action: Action
    status: ActionStatus
    output: tuple[str, ...] = ()
    seconds: float | None = None
    fell_back: str | None = None


@dataclass(frozen=True, kw_only=True)
class EngineResult:
    """Results by the ids of actions. ``finished`` are the ids of those that ran, in the order they ended."""

    results: Mapping[str, ActionResult]
    finished: tuple[str, ...] = ()

    def of_variant(self, variant: str) -> tuple[ActionResult, ...]:
        """The results of one variant: those that ran in the order they ended, then the others."""
        ran = dict.fromkeys(self.finished)
        rest = (result for name, result in self.results.items() if name not in ran)
        ordered = (*(self.results[name] for name in ran), *rest)
        return tuple(result for result in ordered if result.action.variant == variant)


class Engine(Protocol):
    """Something that runs plans. It needs the work directory for itself: call it inside ``exclusive``."""

    def run(self, plan: BuildPlan, options: EngineOptions) -> EngineResult:
        """Run what is out of date.

        A failing action is a value of the result. Raises :class:`BuildError` when the engine itself cannot work. On
        Ctrl-C every child is stopped, half-written outputs are removed, and KeyboardInterrupt goes on.
        """
        ...
