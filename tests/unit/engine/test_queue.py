"""In which order variants get their turn, how many at once, and how much of each runs at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine_actions import until
from kernel_builder.actions.model import Action, ActionKind, Step, Tool, action_id
from kernel_builder.actions.places import Places
from kernel_builder.config.backends import Backend
from kernel_builder.engine.local import LocalEngine
from kernel_builder.engine.protocol import ActionResult, ActionStatus, EngineOptions, EngineResult
from kernel_builder.errors import BuildError
from kernel_builder.events import Recorder, StepFinished, StepStarted
from kernel_builder.plan.model import BuildPlan, VariantPlan
from kernel_builder.variants.names import NoarchVariant

SHELL = Tool(name="sh", path=Path("/bin/sh"), digest="1")
BACKENDS = ("cpu", "cuda", "rocm", "xpu")
SOURCES = ("a", "b", "c", "d")


def action(variant: str, kind: ActionKind, source: str, inputs: Sequence[str], script: str = "sleep 0.03") -> Action:
    output = f"{{work}}/{variant}-{kind.value}-{source}"
    return Action(
        id=action_id(variant, kind, source),
        kind=kind,
        variant=variant,
        source=source,
        steps=(Step(command=("{tool:sh}", "-c", f'{script} && : > "$0"', output), writes=(output,)),),
        inputs=tuple(inputs),
        outputs=(output,),
        log=f"{{work}}/log/{variant}-{kind.value}-{source}.log",
        memory=1 << 20,
        tools=(SHELL,),
        environment=("PATH",),
    )


def variant_of(backend: str, failing: bool = False) -> VariantPlan:
    """Four sources, a link, a check, as every compiled variant has them."""
    variant = NoarchVariant(backend=Backend(backend))
    name = str(variant)
    compiles = [action(name, ActionKind.COMPILE, source, (f"{{project}}/{source}",)) for source in SOURCES]
    if failing:
        compiles[0] = action(name, ActionKind.COMPILE, "a", ("{project}/a",), "exit 3")
    link = action(name, ActionKind.LINK, "lib", [output for one in compiles for output in one.outputs])
    check = action(name, ActionKind.INSPECT, "lib", link.outputs)
    return VariantPlan(
        variant=variant,
        ops_id="_k_1",
        generated=(),
        actions=(*compiles, link, check),
        library=None,
        installed=(),
        metadata={},
        goals=check.outputs,
    )


def plan_of(root: Path, failing: str = "") -> BuildPlan:
    work = root / ".kernel-builder"
    work.mkdir()
    for source in SOURCES:
        (root / source).touch()
    variants = tuple(variant_of(backend, failing=backend == failing) for backend in BACKENDS)
    places = Places(root=root, work=work, output=root / "build", store=root / "store")
    return BuildPlan(places=places, name="k", python_name="k", variants=variants)


def run(plan: BuildPlan, recorder: Recorder | None = None, **options: object) -> EngineResult:
    given = EngineOptions(environ=os.environ, reporter=recorder or Recorder())
    return LocalEngine().run(plan, replace(given, **options))  # type: ignore[arg-type]


def journal(recorder: Recorder) -> list[tuple[str, str, str]]:
    """``(start or end, variant, kind)``, in the order of the run."""
    found = []
    for event in recorder.events:
        if isinstance(event, StepStarted | StepFinished):
            kind, variant, _ = event.description.split()
            found.append(("start" if isinstance(event, StepStarted) else "end", variant, kind))
    return found


def most_at_once(lines: Sequence[tuple[str, str, str]]) -> int:
    running = most = 0
    for what, *_ in lines:
        running += 1 if what == "start" else -1
        most = max(most, running)
    return most


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_a_variant_links_as_soon_as_its_objects_are_there(tmp_path: Path, jobs: int) -> None:
    plan = plan_of(tmp_path)
    recorder = Recorder()
    run(plan, recorder, jobs=jobs)
    lines = journal(recorder)
    for backend in BACKENDS[:-1]:
        (linked,) = (i for i, line in enumerate(lines) if line == ("start", f"torch-{backend}", "link"))
        compiled = max(i for i, line in enumerate(lines) if line == ("end", f"torch-{backend}", "compile"))
        # Only what got the other free processors in the same moment comes between.
        assert len([line for line in lines[compiled + 1 : linked] if line[0] == "start"]) < jobs, lines
    over = lines.index(("end", f"torch-{BACKENDS[0]}", "link"))
    assert over < lines.index(("start", f"torch-{BACKENDS[-1]}", "compile")), lines
    assert most_at_once(lines) <= jobs


@pytest.mark.parametrize(("variants", "cores"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, None), (None, 2)])
def test_variants_at_once_and_cores_of_each_are_kept_to(
    tmp_path: Path, variants: int | None, cores: int | None
) -> None:
    plan = plan_of(tmp_path)
    recorder = Recorder()
    run(plan, recorder, variants=variants, cores=cores)
    lines = journal(recorder)
    assert len(lines) == 2 * len(plan.actions)
    if cores is not None:
        assert most_at_once(lines) <= cores * (variants or len(BACKENDS))
        for backend in BACKENDS:
            assert most_at_once([line for line in lines if line[1] == f"torch-{backend}"]) <= cores
    if variants is not None:
        begun: set[str] = set()
        for what, variant, kind in lines:
            begun.add(variant)
            assert len(begun) <= variants
            if (what, kind) == ("end", "inspect"):
                begun.discard(variant)
    if (variants, cores) == (2, 2):
        assert most_at_once(lines) > 2  # and they are made use of


@pytest.mark.parametrize("variants", [1, 2, None])
def test_a_variant_that_waited_for_one_that_failed_is_built_all_the_same(tmp_path: Path, variants: int | None) -> None:
    plan = plan_of(tmp_path, failing="cpu")
    result = run(plan, variants=variants, cores=2, keep_going=True)
    for backend in BACKENDS:
        found = {one.status for one in result.of_variant(f"torch-{backend}")}
        if backend == "cpu":
            assert found == {ActionStatus.DONE, ActionStatus.FAILED, ActionStatus.NOT_RUN}
        else:
            assert found == {ActionStatus.DONE}


def test_without_keep_going_nothing_begins_after_a_failure(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, failing="cpu")
    result = run(plan, variants=1, cores=1)
    assert {one.status for one in result.of_variant("torch-cuda")} == {ActionStatus.NOT_RUN}


def test_a_variant_is_handed_over_as_soon_as_it_is_done(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    recorder = Recorder()
    told: list[tuple[str, int]] = []

    def over(variant: str, results: tuple[ActionResult, ...]) -> None:
        assert {result.status for result in results} == {ActionStatus.DONE}
        assert [result.action.kind for result in results][-2:] == [ActionKind.LINK, ActionKind.INSPECT]
        told.append((variant, len([line for line in journal(recorder) if line[0] == "end"])))

    run(plan, recorder, jobs=1, over=over)
    assert [variant for variant, _ in told] == [f"torch-{backend}" for backend in BACKENDS]
    assert [ended for _, ended in told] == [6, 12, 18, 24]
    # What is up to date is handed over, too, and before anything runs.
    told.clear()
    (tmp_path / ".kernel-builder" / "torch-xpu-link-lib").unlink()
    over_names: list[str] = []
    run(plan, over=lambda variant, _: over_names.append(variant))
    assert over_names[-1] == "torch-xpu"
    assert set(over_names) == {f"torch-{backend}" for backend in BACKENDS}


@pytest.mark.parametrize(("keep_going", "complete"), [(False, {"cpu", "cuda"}), (True, {"cpu", "cuda", "xpu"})])
def test_what_fails_late_takes_nothing_from_those_before(tmp_path: Path, keep_going: bool, complete: set[str]) -> None:
    found: dict[str, set[ActionStatus]] = {}

    def over(variant: str, results: tuple[ActionResult, ...]) -> None:
        found[variant] = {result.status for result in results}

    run(plan_of(tmp_path, failing="rocm"), jobs=1, keep_going=keep_going, over=over)
    assert {name for name, ended in found.items() if ended == {ActionStatus.DONE}} == {f"torch-{n}" for n in complete}
    assert ("torch-rocm" in found) is keep_going
    if keep_going:
        assert {ActionStatus.FAILED, ActionStatus.NOT_RUN} <= found["torch-rocm"]


def test_others_go_on_while_a_variant_is_finished(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    started = tmp_path / ".kernel-builder" / "torch-cuda-compile-a"

    def over(variant: str, _: object) -> None:
        if variant == "torch-cpu":
            until(started.exists)

    assert len(run(plan, jobs=1, over=over).finished) == 24


def test_what_finishing_raises_ends_the_run(tmp_path: Path) -> None:
    def over(variant: str, _: object) -> None:
        raise BuildError(f"{variant} cannot be finished")

    with pytest.raises(BuildError, match="torch-cpu cannot be finished"):
        run(plan_of(tmp_path), jobs=1, over=over)
    assert not (tmp_path / ".kernel-builder" / "processes").exists()
    assert not (tmp_path / ".kernel-builder" / "torch-cuda-link-lib").exists()
