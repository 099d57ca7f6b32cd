"""What the engine does with real actions, and what it says of them, by their ids."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import kernel_builder
from engine_actions import SHELL, action, plan_of, run, shell, statuses, until
from kernel_builder.actions.model import ActionKind, GeneratedFile, Step, Threads, Tool, Tree
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.protocol import ActionStatus
from kernel_builder.engine.records import Records, headers, outdated
from kernel_builder.engine.timeline import spans_in
from kernel_builder.engine.work import environment_for
from kernel_builder.errors import BuildError
from kernel_builder.events import Event, Recorder, StepFinished, StepsPlanned, StepStarted
from kernel_builder.files import Sink


def test_results_and_progress_come_by_id(tmp_path: Path) -> None:
    good = action("good", "echo words; : > .kernel-builder/good.out", steps=shell("echo words; : > good.out"))
    bad = action("bad", "", steps=shell("echo 'FAILED: [1/9] good'; exit 3"))
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


def test_the_timeline_tells_what_processors_spent(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache")
    busy = action("busy", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; : > busy.out")
    idle = action("idle", "sleep 0.3; : > idle.out")
    run(plan_of(tmp_path / "first", busy, idle), cache=cache)
    spent = {span.source: span for span in spans_in(tmp_path / "first" / ".kernel-builder")}
    assert spent["busy"].processor > 2 * spent["idle"].processor
    assert spent["idle"].processor < 0.2 < spent["idle"].seconds
    run(plan_of(tmp_path / "second", busy, idle), cache=cache)
    assert {span.processor for span in spans_in(tmp_path / "second" / ".kernel-builder")} == {0}


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
        {"steps": shell(": > x.out; :")},
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
        assert (entry.id in outdated(plan, os.environ)) == (expected == "done")
        assert statuses(run(plan)) == {"x": expected}


def test_a_header_that_the_compiler_reported_counts(tmp_path: Path) -> None:
    (tmp_path / "a b.h").touch()
    script = r"""printf 'x.out: %s/a\\ b.h /usr/include/stdio.h\n' "$1" > x.d; : > x.out"""
    entry = action("x", "", steps=shell(script, "-", "{project}"), depfile="{work}/x.d")
    plan = plan_of(tmp_path, entry)
    assert statuses(run(plan)) == {"x": "done"}
    # What is installed is known by the identity of the compiler.
    assert headers(tmp_path / ".kernel-builder" / "x.d") == (f"{tmp_path}/a b.h",)
    assert statuses(run(plan)) == {"x": "up to date"}
    time.sleep(0.02)
    (tmp_path / "a b.h").write_text("changed", encoding="ascii")
    assert outdated(plan, os.environ) == {entry.id}
    assert statuses(run(plan)) == {"x": "done"}


def test_an_action_sees_the_variables_that_it_names(tmp_path: Path) -> None:
    script = "env > $0.out"
    narrow = action("narrow", script, steps=shell(script, "narrow"))
    wide = action("wide", script, steps=shell(script, "wide"), environment=("PATH", "SPECIAL", "KB_*"))
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


def test_a_record_that_is_lost_runs_it_again(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, action("x", ": > x.out"))
    run(plan)
    (tmp_path / ".kernel-builder" / "actions.jsonl").write_text("[\n7\n", encoding="ascii")
    (tmp_path / ".kernel-builder" / "contents.json").write_text("[1]", encoding="ascii")
    assert statuses(run(plan)) == {"x": "done"}
    assert statuses(run(plan)) == {"x": "up to date"}
    shutil.rmtree(tmp_path / ".kernel-builder")
    assert statuses(run(plan_of(tmp_path, action("x", ": > x.out")))) == {"x": "done"}


def test_ctrl_c_ends_all_programs_and_leaves_no_half(tmp_path: Path) -> None:
    entry = action("x", "echo half > x.out; sleep 60 & sleep 60")
    plan = plan_of(tmp_path, entry)
    output = plan.places.path(entry.outputs[0])

    def interrupt() -> None:
        until(output.exists)
        signal.raise_signal(signal.SIGINT)

    class Impatient(Recorder):
        def emit(self, event: Event) -> None:
            super().emit(event)
            if isinstance(event, StepStarted):
                threading.Thread(target=interrupt).start()

    with pytest.raises(KeyboardInterrupt):
        run(plan, Impatient())
    assert not output.exists()
    assert not (plan.places.work / "processes").exists()
    assert statuses(run(plan_of(tmp_path, replace(entry, steps=shell(": > x.out"))))) == {"x": "done"}


@pytest.mark.parametrize("moment", [StepStarted, StepFinished, StepsPlanned])
@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_is_never_lost(tmp_path: Path, moment: type[Event], count: int) -> None:
    """Be it that the last action has just ended."""

    class Impatient(Recorder):
        def emit(self, event: Event) -> None:
            super().emit(event)
            if isinstance(event, moment):
                signal.raise_signal(signal.SIGINT)

    plan = plan_of(tmp_path, *(action(f"x{number}", f": > x{number}.out") for number in range(count)))
    with pytest.raises(KeyboardInterrupt):
        run(plan, Impatient())
    assert set(statuses(run(plan)).values()) <= {"done", "up to date"}


def test_a_second_ctrl_c_does_not_wait_for_a_shared_cache(tmp_path: Path) -> None:
    class Slow:
        def get(self, _name: str, _into: Sink) -> bool:
            for seconds in (0.5, 8):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(seconds)
            return False

        def put(self, name: str, file: Path) -> None:
            raise AssertionError((name, file))

    plan = plan_of(tmp_path, action("x", ": > x.out"))
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(plan, cache=ActionCache(tmp_path / "cache", remote=Slow()))
    assert time.monotonic() - begun < 6


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
    link = action("x", "", kind=ActionKind.LINK, steps=(Step(command=command),), tools=(compiler,))
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
    hand_on = Step(command=shell("echo one; : > middle")[0].command, writes=("{work}/middle",))
    good = action("good", "", steps=(hand_on, *shell("echo two; mv middle good.out; : > middle")))
    plan = plan_of(tmp_path, good)
    assert statuses(run(plan)) == {"good": "done"}
    log = plan.places.path(good.log).read_text(encoding="utf-8").splitlines()
    assert log[0].startswith("/bin/sh -c 'echo one; : > middle' && /bin/sh -c")
    assert log[1:] == ["one", "two"]
    assert not (tmp_path / ".kernel-builder" / "middle").exists()
    assert statuses(run(plan)) == {"good": "up to date"}
    wrong = replace(hand_on, command=shell("echo one; : > middle; exit 3")[0].command)
    result = run(plan_of(tmp_path, replace(good, steps=(wrong, *good.steps[1:]))))
    assert result.results[good.id].output == ("one",)
    assert not (tmp_path / ".kernel-builder" / "middle").exists()


def test_a_fallback_runs_where_a_step_fails_and_the_reason_is_kept(tmp_path: Path) -> None:
    entry = action("x", "echo 'a.h:1: error: slim'; exit 1", fallback=shell("echo full > x.out"))
    plan = plan_of(tmp_path, entry)
    first = run(plan).results[entry.id]
    assert (first.status, first.fell_back) == (ActionStatus.DONE, "a.h:1: error: slim")
    assert (tmp_path / ".kernel-builder" / "x.out").read_text() == "full\n"
    assert Records(plan.places.work)[entry.id].fell_back == "a.h:1: error: slim"  # type: ignore[union-attr]
    again = run(plan).results[entry.id]
    assert (again.status, again.fell_back) == (ActionStatus.UP_TO_DATE, "a.h:1: error: slim")
    both = run(plan_of(tmp_path, replace(entry, fallback=shell("echo worse; exit 1")))).results[entry.id]
    assert (both.status, both.output) == (ActionStatus.FAILED, ("worse",))


def test_headers_that_only_the_fallback_read_count_where_it_ran(tmp_path: Path) -> None:
    """Elsewhere the list of headers is empty."""
    (tmp_path / "a.h").write_text("1")
    listing = f"echo 'x.out: {tmp_path}/a.h' > x.d; : > x.out"
    for command, again in ((": > x.out", "up to date"), ("exit 1", "done")):
        entry = replace(action("x", command, fallback=shell(listing)), depfile="{work}/x.d")
        plan = plan_of(tmp_path, entry)
        assert statuses(run(plan)) == {"x": "done"}
        (tmp_path / "a.h").write_text(f"{command} 2")
        assert statuses(run(plan)) == {"x": again}
        assert statuses(run(plan)) == {"x": "up to date"}


def test_what_is_made_again_as_it_was_makes_nothing_after_it_run(tmp_path: Path) -> None:
    first = action("x", "cut -c1 ../x > x.out", inputs=("{project}/x",))
    second = action("y", "cp x.out y.out", inputs=("{work}/x.out",))
    (tmp_path / "x").write_text("one\n")
    assert statuses(run(plan_of(tmp_path, first, second))) == {"x": "done", "y": "done"}
    (tmp_path / "x").write_text("other\n")
    recorder = Recorder()
    assert statuses(run(plan_of(tmp_path, first, second), recorder)) == {"x": "done", "y": "up to date"}
    ended = [event for event in recorder.events if isinstance(event, StepFinished)]
    assert [(event.done, event.total) for event in ended] == [(1, 1)]
    (tmp_path / "x").touch()
    assert statuses(run(plan_of(tmp_path, first, second))) == {"x": "up to date", "y": "up to date"}


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    entry = action("x", "cat ../x > x.out; echo new > ../x", inputs=("{project}/x",))
    plan = plan_of(tmp_path, entry)
    assert statuses(run(plan)) == {"x": "done"}
    assert statuses(run(plan_of(tmp_path, replace(entry, steps=shell("cat ../x > x.out"))))) == {"x": "done"}
    assert (tmp_path / ".kernel-builder" / "x.out").read_text() == "new\n"


def test_peaks_of_memory_and_times_are_recorded(tmp_path: Path) -> None:
    script = f"{sys.executable} -S -c 'x = bytearray(200 << 20)'; : > x.out"
    entry = action("x", script)
    plan = plan_of(tmp_path, entry)
    run(plan)
    record = Records(plan.places.work)[entry.id]
    assert record is not None
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10  # a child begins as large as its parent
    assert 200 << 20 < record.memory < max(400 << 20, own + (100 << 20))
    assert 0 < record.seconds < 60


def test_a_full_disk_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(BuildError) as raised:
        run(plan_of(tmp_path, action("x", "true", log="{project}/full")))
    assert raised.value.message == f"{tmp_path / '.kernel-builder'}: No space left on device"
