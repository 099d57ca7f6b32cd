"""The ninja engine: what it writes, compared with a golden file, and what it says of real actions, by their ids."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

import kernel_builder
from kernel_builder.actions.model import Action, ActionKind, GeneratedFile, Threads, Tool, Tree, action_id
from kernel_builder.actions.places import Places
from kernel_builder.config.backends import Backend
from kernel_builder.engine.ninja import NinjaEngine, render_ninja
from kernel_builder.engine.protocol import ActionStatus, EngineOptions, EngineResult
from kernel_builder.engine.resources import Budget
from kernel_builder.engine.stale import headers, outdated
from kernel_builder.engine.work import environment_for
from kernel_builder.errors import BuildError
from kernel_builder.events import Recorder, StepFinished, StepsPlanned, StepStarted
from kernel_builder.plan.model import BuildPlan, VariantPlan
from kernel_builder.variants.names import NoarchVariant

GOLDEN = Path(__file__).parent.parent.parent / "golden" / "engine" / "build.ninja"
VARIANT = "torch-cpu"
SHELL = Tool(name="sh", path=Path("/bin/sh"), digest="1")


def action(source: str, script: str, **changes: object) -> Action:
    """An action that runs ``script`` with the shell and makes ``{work}/<source>.out``."""
    made = Action(
        id=action_id(VARIANT, ActionKind.COMPILE, source),
        kind=ActionKind.COMPILE,
        variant=VARIANT,
        source=source,
        command=("{tool:sh}", "-c", script),
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
    return NinjaEngine().run(plan, replace(given, **options))  # type: ignore[arg-type]


def statuses(result: EngineResult) -> dict[str, str]:
    return {name.rsplit(":", 1)[1]: entry.status.value for name, entry in result.results.items()}


def test_what_ninja_is_given(tmp_path: Path) -> None:
    """Odd names, headers, several outputs, a pool, hidden variables, an action that follows another."""
    first = action(
        "with space/$a:b.cpp",
        "true",
        depfile="{work}/a.d",
        outputs=("{work}/one.o", "{work}/two.o"),
        trees=(Tree(name="torch", identity="store-key"),),
        memory=3 << 30,
    )
    second = action(
        "check",
        "true",
        kind=ActionKind.INSPECT,
        inputs=("{work}/one.o",),
        implicit=("{work}/question.json",),
        environment=("PATH", "PYTHONPATH"),
    )
    text = render_ninja(
        plan_of(tmp_path, first, second),
        Budget(jobs=8, threads=1, pools={3 << 30: 2}, reason=""),
        ["PATH", "PYTHONPATH"],
    ).text.replace(str(tmp_path), "/ROOT")
    if os.environ.get("KERNEL_BUILDER_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_results_and_progress_come_by_id(tmp_path: Path) -> None:
    good = action(
        "good", "echo words; : > .kernel-builder/good.out", command=("{tool:sh}", "-c", "echo words; : > good.out")
    )
    bad = action("bad", "", command=("{tool:sh}", "-c", "echo 'FAILED: [1/9] good'; exit 3"))
    after = action("after", "", inputs=("{work}/bad.out",))
    recorder = Recorder()
    plan = plan_of(tmp_path, good, bad, after)
    result = run(plan, recorder, keep_going=True)
    assert statuses(result) == {"good": "done", "bad": "failed", "after": "not run"}
    # Whatever an action prints is its output and nothing else.
    assert result.results[bad.id].output == ("FAILED: [1/9] good",)
    assert sorted(result.finished) == sorted([good.id, bad.id])
    planned = [event.total for event in recorder.events if isinstance(event, StepsPlanned)]
    assert planned == [3]
    started = {event.description for event in recorder.events if isinstance(event, StepStarted)}
    ended = [event for event in recorder.events if isinstance(event, StepFinished)]
    assert started == {good.description, bad.description}
    assert [(event.done, event.total) for event in ended] == [(1, 3), (2, 3)]
    log = plan.places.path(good.log).read_text(encoding="utf-8").splitlines()
    assert log == ["/bin/sh -c 'echo words; : > good.out'", "words"]
    again = run(plan, keep_going=True)
    assert statuses(again) == {"good": "up to date", "bad": "failed", "after": "not run"}


def test_a_failure_stops_the_rest_unless_told_to_go_on(tmp_path: Path) -> None:
    bad = action("a", "exit 1")
    others = [action(f"b{number}", f"sleep 0.2; : > b{number}.out") for number in range(6)]
    result = run(plan_of(tmp_path, bad, *others), jobs=1)
    assert statuses(result)["a"] == "failed"
    assert "not run" in statuses(result).values()


@pytest.mark.parametrize(
    "change",
    [
        {"tools": (replace(SHELL, digest="2"),)},
        {"trees": (Tree(name="toolkit", identity="other"),)},
        {"command": ("{tool:sh}", "-c", ": > x.out; :")},
    ],
)
def test_another_tool_tree_or_command_runs_again_and_so_does_going_back(
    tmp_path: Path, change: dict[str, object]
) -> None:
    first = action("x", ": > x.out", trees=(Tree(name="toolkit", identity="one"),))
    second = replace(first, **change)  # type: ignore[arg-type]
    for entry, expected in (
        (first, "done"),
        (first, "up to date"),
        (second, "done"),
        (second, "up to date"),
        (first, "done"),
    ):
        plan = plan_of(tmp_path, entry)
        assert (entry.id in outdated(plan)) == (expected == "done")
        assert statuses(run(plan)) == {"x": expected}


def test_a_header_that_the_compiler_reported_counts(tmp_path: Path) -> None:
    (tmp_path / "a b.h").touch()
    script = r"""printf 'x.out: %s/a\\ b.h /usr/include/stdio.h\n' "$1" > x.d; : > x.out"""
    entry = action("x", "", command=("{tool:sh}", "-c", script, "-", "{project}"), depfile="{work}/x.d")
    plan = plan_of(tmp_path, entry)
    assert statuses(run(plan)) == {"x": "done"}
    assert headers(tmp_path / ".kernel-builder" / "x.d") == (f"{tmp_path}/a b.h", "/usr/include/stdio.h")
    assert statuses(run(plan)) == {"x": "up to date"}
    time.sleep(0.02)
    (tmp_path / "a b.h").write_text("changed", encoding="ascii")
    assert outdated(plan) == {entry.id}
    assert statuses(run(plan)) == {"x": "done"}


def test_an_action_sees_the_variables_that_it_names(tmp_path: Path) -> None:
    script = "env > $0.out"
    narrow = action("narrow", script, command=("{tool:sh}", "-c", script, "narrow"))
    wide = action("wide", script, command=("{tool:sh}", "-c", script, "wide"), environment=("PATH", "SPECIAL", "KB_*"))
    environ = {"PATH": os.environ["PATH"], "SPECIAL": "1", "KB_A": "2", "CPATH": "/x", "SOURCE_DATE_EPOCH": "7"}
    plan = plan_of(tmp_path, narrow, wide)
    run(plan, environ=environ)

    def seen(name: str) -> set[str]:
        text = (tmp_path / ".kernel-builder" / f"{name}.out").read_text(encoding="utf-8")
        return set(re.findall(r"^(\w+)=", text, re.MULTILINE))

    assert {"PATH", "SPECIAL", "KB_A", "SOURCE_DATE_EPOCH", "LC_ALL"} <= seen("wide")
    assert not {"SPECIAL", "KB_A"} & seen("narrow")
    assert "CPATH" not in seen("wide") | seen("narrow")
    assert environment_for({}, ())["SOURCE_DATE_EPOCH"] == "0"


def test_threads_are_told_by_a_variable_so_that_nothing_runs_again(tmp_path: Path) -> None:
    script = 'echo "$MORE" > x.out'
    entry = action("x", script, threads=Threads(variable="MORE", value="--threads {count}", most=4))
    plan = plan_of(tmp_path, entry)
    run(plan, jobs=4)
    assert (tmp_path / ".kernel-builder" / "x.out").read_text(encoding="ascii") == "--threads 4\n"
    assert statuses(run(plan, jobs=1)) == {"x": "up to date"}


def test_generated_files_are_written_before_and_only_when_they_change(tmp_path: Path) -> None:
    entry = action("x", "cp gen/file x.out", implicit=("{work}/gen/file",))
    plan = plan_of(tmp_path, entry, generated=(GeneratedFile(path="{work}/gen/file", content="1"),))
    assert statuses(run(plan)) == {"x": "done"}
    assert statuses(run(plan)) == {"x": "up to date"}
    other = plan_of(tmp_path, entry, generated=(GeneratedFile(path="{work}/gen/file", content="2"),))
    time.sleep(0.02)
    assert statuses(run(other)) == {"x": "done"}


def test_an_engine_that_cannot_work_says_why(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, action("x", "true", inputs=("{project}/gone",)))
    (tmp_path / "gone").unlink()
    with pytest.raises(BuildError, match="gone"):
        run(plan)


def test_nothing_to_do_needs_no_engine(tmp_path: Path) -> None:
    assert run(plan_of(tmp_path)).results == {}
    assert not list((tmp_path / ".kernel-builder").iterdir())


def test_a_record_that_is_lost_costs_one_count_only(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, action("x", ": > x.out"))
    run(plan)
    (tmp_path / ".kernel-builder" / "commands.json").write_text("[", encoding="ascii")
    assert statuses(run(plan)) == {"x": ActionStatus.UP_TO_DATE.value}
    shutil.rmtree(tmp_path / ".kernel-builder")
    assert statuses(run(plan_of(tmp_path, action("x", ": > x.out")))) == {"x": "done"}


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_what_ended_before_a_run_was_cut_off_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    good, slow = action("a", ": > a.out"), action("b", ": > b.out")
    whole = NinjaEngine._run

    def cut_off(*arguments: object) -> int:
        whole(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(NinjaEngine, "_run", cut_off)
        if how == "killed":
            patched.setattr("kernel_builder.engine.ninja.record", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            run(plan_of(tmp_path, good, slow))
    plan = plan_of(tmp_path, good, replace(slow, command=("{tool:sh}", "-c", "exit 1")))
    assert statuses(run(plan, keep_going=True)) == {"a": "up to date", "b": "failed"}
    assert statuses(run(plan, keep_going=True)) == {"a": "up to date", "b": "failed"}


def test_half_of_an_output_never_counts(tmp_path: Path) -> None:
    whole, broken = action("x", "echo good > x.out"), action("x", "echo half > x.out; exit 1")
    output = tmp_path / ".kernel-builder" / "x.out"
    run(plan_of(tmp_path, whole))
    assert statuses(run(plan_of(tmp_path, broken))) == {"x": "failed"}
    assert not output.exists()
    assert statuses(run(plan_of(tmp_path, whole))) == {"x": "done"}
    assert output.read_text(encoding="ascii") == "good\n"


def test_a_check_that_fails_stops_nothing_else(tmp_path: Path) -> None:
    check = action("a", "echo wrong; exit 1", kind=ActionKind.INSPECT)
    others = [action(f"b{number}", f": > b{number}.out") for number in range(3)]
    plan = plan_of(tmp_path, check, *others)
    for expected in ("done", "up to date"):
        result = run(plan, jobs=1)
        assert statuses(result) == {"a": "failed", **{f"b{number}": expected for number in range(3)}}
        assert result.results[check.id].output == ("wrong",)


@pytest.mark.parametrize("length", [40_000, 70_000, 300_000])
def test_a_link_may_be_of_any_length(tmp_path: Path, length: int) -> None:
    path = shutil.which("g++")
    assert path is not None
    subprocess.run([path, "-x", "c", "-c", "/dev/null", "-o", tmp_path / "empty.o"], check=True)
    names = [f"{number:0200}.o" for number in range(length // 200)]
    for name in names:
        (tmp_path / name).hardlink_to(tmp_path / "empty.o")
    compiler = Tool(name="c++", path=Path(path), digest="1")
    command = ("{tool:c++}", "-shared", "-o", "{work}/x.out", *(f"{{project}}/{name}" for name in names))
    link = action("x", "", kind=ActionKind.LINK, command=command, tools=(compiler,))
    assert statuses(run(plan_of(tmp_path, link))) == {"x": "done"}


def test_a_check_runs_this_package_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'echo "$PYTHONPATH" > x.out'
    monkeypatch.chdir(tmp_path)
    plan = plan_of(tmp_path, action("x", script, environment=("PATH", "PYTHONPATH")))
    run(plan, environ={"PATH": os.environ["PATH"], "PYTHONPATH": "src"})
    found = (tmp_path / ".kernel-builder" / "x.out").read_text(encoding="utf-8").strip()
    assert found == f"{Path(kernel_builder.__file__).parents[1]}:{tmp_path}/src"


def test_commands_of_one_action_run_in_order_and_leave_nothing_between_them(tmp_path: Path) -> None:
    """The log shows all of them; what they hand on is removed, also when one fails."""
    shell = ("{tool:sh}", "-c")
    good = action(
        "good",
        "",
        before=((*shell, "echo one; : > middle"),),
        command=(*shell, "echo two; mv middle good.out; : > middle"),
        scratch=("{work}/middle",),
    )
    plan = plan_of(tmp_path, good)
    assert statuses(run(plan)) == {"good": "done"}
    log = plan.places.path(good.log).read_text(encoding="utf-8").splitlines()
    assert log[0].startswith("/bin/sh -c 'echo one; : > middle' && /bin/sh -c")
    assert log[1:] == ["one", "two"]
    assert not (tmp_path / ".kernel-builder" / "middle").exists()
    assert statuses(run(plan)) == {"good": "up to date"}
    bad = replace(good, before=((*shell, "echo one; : > middle; exit 3"),))
    result = run(plan_of(tmp_path, bad))
    assert result.results[bad.id].output == ("one",)
    assert not (tmp_path / ".kernel-builder" / "middle").exists()
