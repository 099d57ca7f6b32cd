"""Plans of small real actions, for tests of the engine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kernel_builder.actions.model import Action, ActionKind, GeneratedFile, Step, Tool, action_id
from kernel_builder.actions.places import Places
from kernel_builder.config.backends import Backend
from kernel_builder.engine.local import LocalEngine
from kernel_builder.engine.protocol import EngineOptions, EngineResult
from kernel_builder.events import Recorder
from kernel_builder.plan.model import BuildPlan, VariantPlan
from kernel_builder.variants.names import NoarchVariant

VARIANT = "torch-cpu"
SHELL = Tool(name="sh", path=Path("/bin/sh"), digest="1")


def shell(script: str, *arguments: str) -> tuple[Step, ...]:
    """One step that runs ``script``."""
    return (Step(command=("{tool:sh}", "-c", script, *arguments)),)


def action(source: str, script: str, **changes: object) -> Action:
    """An action that runs ``script`` with the shell and makes ``{work}/<source>.out``."""
    made = Action(
        id=action_id(VARIANT, ActionKind.COMPILE, source),
        kind=ActionKind.COMPILE,
        variant=VARIANT,
        source=source,
        steps=shell(script),
        inputs=(f"{{project}}/{source}",),
        outputs=(f"{{work}}/{source}.out",),
        log=f"{{work}}/log/{source}.log",
        memory=1 << 20,
        tools=(SHELL,),
        environment=("PATH",),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def plan_of(root: Path, *actions: Action, generated: tuple[GeneratedFile, ...] = ()) -> BuildPlan:
    """A plan for one variant; sources that are not there are made."""
    work = root / ".kernel-builder"
    work.mkdir(parents=True, exist_ok=True)
    variant = VariantPlan(
        variant=NoarchVariant(backend=Backend("cpu")),
        ops_id="_k_cpu_1",
        generated=generated,
        actions=actions,
        library=None,
        installed=(),
        metadata={},
        goals=tuple(output for entry in actions for output in entry.outputs),
    )
    places = Places(root=root, work=work, output=root / "build", store=root / "store")
    for entry in actions:
        for word in entry.inputs:
            if word.startswith("{project}") and not places.path(word).exists():
                places.path(word).parent.mkdir(parents=True, exist_ok=True)
                places.path(word).touch()
    return BuildPlan(places=places, name="k", python_name="k", variants=(variant,))


def run(plan: BuildPlan, recorder: Recorder | None = None, **options: object) -> EngineResult:
    given = EngineOptions(environ=os.environ, reporter=recorder or Recorder())
    return LocalEngine().run(plan, replace(given, **options))  # type: ignore[arg-type]


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is about to happen."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def statuses(result: EngineResult) -> dict[str, str]:
    return {name.rsplit(":", 1)[1]: entry.status.value for name, entry in result.results.items()}
