"""Installs variants, each as soon as its actions are over: whatever becomes of the rest of the build, they are there.

Variants are finished one after the other: loading takes seconds, but of one processor, and compilers go on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from kernel_builder.artifact.built import CARD, variants_in
from kernel_builder.config.model import Project
from kernel_builder.engine.protocol import ActionResult, EngineResult
from kernel_builder.engine.timeline import Stage
from kernel_builder.errors import BuildError, ConfigError
from kernel_builder.events import Notice, Reporter
from kernel_builder.files import write_text
from kernel_builder.git import deciding_files
from kernel_builder.plan.model import BuildPlan
from kernel_builder.project.identity import identify
from kernel_builder.project.inputs import build_inputs
from kernel_builder.seen import Sighting, look_again
from kernel_builder.workflow.finish import Finisher
from kernel_builder.workflow.outcome import VariantOutcome, VariantStatus
from kernel_builder.workflow.prepare import Prepared
from kernel_builder.workflow.run import Run

_TOLD = {VariantStatus.BUILT: "is installed", VariantStatus.FAILED: "failed; its errors are shown at the end"}


class Installing:
    """Finishes the variants of ``plan``; ``refuse`` raises where the kernel is no longer the one that was compiled.

    ``stages`` say when it worked.
    """

    def __init__(self, finisher: Finisher, plan: BuildPlan, refuse: Callable[[], None]) -> None:
        self._finisher, self._refuse = finisher, refuse
        self._variants = {variant.name: variant for variant in plan.variants}
        self._outcomes: dict[str, VariantOutcome] = {}
        self.stages: list[Stage] = []

    def prepare(self, name: str) -> None:
        """Get ready to finish a variant whose last actions run, while a processor is free."""
        self._finisher.ahead.begin(self._variants[name])
        if (self._finisher.prepared.project.root / CARD).is_file():
            import kernel_builder.interface.card  # noqa: F401, PLC0415  (it is needed at the end, when nothing else runs)

    def finish_early(self, name: str, results: tuple[ActionResult, ...]) -> None:
        """Finish a variant whose actions ended with ``results``, while others are worked on, and tell people: see
        :class:`~kernel_builder.engine.protocol.EngineOptions`. Raises what ``refuse`` does.
        """
        status = self._finish(name, results).status
        done, total = len(self._outcomes), len(self._variants)
        if done < total and status in _TOLD:
            message = f"{name} {_TOLD[status]} ({done} of {total} variants are done)"
            self._finisher.reporter.emit(Notice(message=message, once=True))

    def finish_all(self, result: EngineResult) -> tuple[VariantOutcome, ...]:
        """Finish what is left when nothing runs any more: variants without actions, and those that were not completed.
        All outcomes, in the plan's order. Raises what ``refuse`` does.
        """
        for name in self._variants:
            if name not in self._outcomes:
                self._finish(name, result.of_variant(name))
        return tuple(self._outcomes[name] for name in self._variants)

    def _finish(self, name: str, results: tuple[ActionResult, ...]) -> VariantOutcome:
        began = time.time()
        self._refuse()
        outcome = self._finisher.finish(self._variants[name], results)
        self._outcomes[name] = outcome
        self.stages.append(Stage(stage=f"install and load {name}", begin=began, end=time.time()))
        return outcome


def refuse_changes(prepared: Prepared, run: Run, mark: str, since: int) -> None:
    """Raise :class:`BuildError` where the kernel is no longer the one that the plan names, which was named after
    ``since`` (nanoseconds of the clock). ``mark`` is part of its name.
    """
    inputs, identity = prepared.planning.survey.inputs, prepared.identity
    is_same = look_again(inputs.seen.to_json()).changed is None
    git = deciding_files(prepared.project.root, run.environ)
    if is_same and git is not None and identity.lasts and not inputs.seen.disturbed:
        sighting = Sighting(since=since)
        for path in (*git, *(prepared.project.root / name for name in identity.tracked)):
            sighting.file(path)
        if not sighting.disturbed:
            return  # nothing that git would be asked about changed
    if not is_same:
        inputs = build_inputs(prepared.project, prepared.plan.places.output)
    if identify(prepared.project, inputs, environ=run.environ, mark=mark) != identity:
        raise BuildError(
            "files of the kernel changed during the build, so its name no longer matches them",
            hint="run the build again; nothing that was compiled after the change was installed",
        )


def fill_card(project: Project, output: Path, reporter: Reporter) -> None:
    """Fill in the project's card, if it has one, beside the variants that it describes (contract 6.3)."""
    if not (project.root / CARD).is_file():
        return
    from kernel_builder.interface.card import fill_card as filled  # noqa: PLC0415  (jinja2's sandbox takes its time)

    try:
        variants = variants_in(output)
        if variants:
            text = filled(project, variants)
            if not (output / CARD).is_file() or (output / CARD).read_text(encoding="utf-8") != text:
                write_text(output / CARD, text)
    except ConfigError as error:  # the variants are good without it
        details = "".join(f"\n{diagnostic.render()}" for diagnostic in error.diagnostics)
        hint = f" ({error.hint})" if error.hint else ""
        reporter.emit(Notice(message=f"the card was not filled in: {error.message}{hint}{details}", warning=True))
