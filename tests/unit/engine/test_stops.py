"""A build that is stopped or killed, at any moment: nothing runs on, nothing half counts, the next build is right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine_actions import action, plan_of, run, shell, statuses, until
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.processes import Processes
from kernel_builder.events import Recorder, Waiting

PROGRAM = """\
import signal, sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from engine_actions import action, plan_of, run
from kernel_builder.cli import show_interruption
from kernel_builder.cli.build import handle_signals
from kernel_builder.engine.cache import ActionCache
signal.signal(signal.SIGINT, signal.default_int_handler)
handle_signals()
try:
    run(plan_of(Path({root!r}), {actions}), cache=ActionCache(Path({cache!r})))
except KeyboardInterrupt:
    sys.exit(show_interruption())
"""


@pytest.fixture(autouse=True)
def hangups_count() -> Iterator[None]:
    """Also where the tests themselves were started by ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@contextmanager
def building(root: Path, actions: str, program: str = PROGRAM) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs ``actions``, an expression."""
    tests, cache = str(Path(__file__).parents[2]), str(root.parent / "cache")
    script = program.format(tests=tests, root=str(root), actions=actions, cache=cache)
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        try:
            yield process
        finally:
            process.kill()


def alive(number: Path) -> bool:
    """Whether the process whose number is in a file still runs."""
    try:
        state = Path(f"/proc/{number.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def is_written(*files: Path) -> bool:
    return all(file.is_file() and file.read_text().endswith("\n") for file in files)


def in_work(root: Path) -> set[str]:
    work = root / ".kernel-builder"
    return {str(path.relative_to(work)) for path in work.rglob("*") if path.is_file()}


STUBBORN = (
    "trap '' TERM; echo $$ > first; (trap '' TERM; echo $(exec sh -c 'echo $PPID') > second; sleep 60) & sleep 60"
)
LOOSE = "setsid sh -c 'echo $$ > second; sleep 60' & echo $$ > first; sleep 60"
PLAIN = "sleep 60 & echo $! > second; echo $$ > first; echo half > x.out; sleep 60"


@pytest.mark.parametrize(
    ("script", "wanted"),
    [(PLAIN, signal.SIGINT), (LOOSE, signal.SIGINT), (PLAIN, signal.SIGTERM), (LOOSE, signal.SIGHUP)],
)
def test_a_signal_ends_all_that_was_started(tmp_path: Path, script: str, wanted: signal.Signals) -> None:
    root = tmp_path / "k"
    work = root / ".kernel-builder"
    started = (work / "first", work / "second")
    with building(root, f"action('x', {script!r})") as process:
        until(lambda: is_written(*started))
        process.send_signal(wanted)
        assert process.wait(30) == 130
    assert not any(map(alive, started))
    assert not {"processes", "x.out"} & in_work(root)
    assert statuses(run(plan_of(root, action("x", ": > x.out")))) == {"x": "done"}


def test_a_signal_ends_what_finishes_a_variant_at_once(tmp_path: Path) -> None:
    root = tmp_path / "k"
    work = root / ".kernel-builder"
    program = PROGRAM.replace("ActionCache(Path({cache!r})))", "ActionCache(Path({cache!r})), over=over)").replace(
        "try:", "def over(*_):\n    import time\n    Path({root!r}, 'over').touch()\n    time.sleep(60)\ntry:"
    )
    with building(root, "action('x', ': > x.out')", program) as process:
        until((root / "over").exists)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
        assert time.monotonic() - begun < 10
    assert "processes" not in in_work(root)
    assert (work / "x.out").exists()
    assert statuses(run(plan_of(root, action("x", ": > x.out")))) == {"x": "up to date"}


def test_a_second_ctrl_c_does_not_wait_for_what_ignores_the_first(tmp_path: Path) -> None:
    root = tmp_path / "k"
    work = root / ".kernel-builder"
    started = (work / "first", work / "second")
    with building(root, f"action('x', {STUBBORN!r})") as process:
        until(lambda: is_written(*started))
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None
        assert all(map(alive, started))
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert time.monotonic() - begun < 5
    assert not any(map(alive, started))
    assert "processes" not in in_work(root)


def test_many_signals_at_once_end_it_once(tmp_path: Path) -> None:
    root = tmp_path / "k"
    scripts = ", ".join(f"action('x{number}', ': > begun{number}; sleep 60')" for number in range(2))
    with building(root, scripts) as process:
        until((root / ".kernel-builder" / "begun0").exists)
        for wanted in (signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGINT):
            process.send_signal(wanted)
            time.sleep(0.01)
        assert process.wait(30) == 130
    assert "processes" not in in_work(root)


def test_what_is_told_to_ignore_hangups_goes_on(tmp_path: Path) -> None:
    """As ``nohup`` does."""
    root = tmp_path / "k"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with building(root, "action('x', ': > begun; sleep 1; : > x.out')") as process:
            until((root / ".kernel-builder" / "begun").exists)
            process.send_signal(signal.SIGHUP)
            assert process.wait(30) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (root / ".kernel-builder" / "x.out").exists()


@pytest.mark.parametrize("script", [PLAIN, STUBBORN, LOOSE], ids=["plain", "stubborn", "in a session of its own"])
def test_what_a_killed_build_left_running_is_ended_by_the_next(
    tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs, and what these started, whose parents are gone."""
    monkeypatch.setattr("kernel_builder.engine.processes._STOP_SECONDS", 0.5)
    root = tmp_path / "k"
    work = root / ".kernel-builder"
    started = (work / "first", work / "second")
    with building(root, f"action('a', ': > a.out'), action('x', {script!r}, inputs=('{{work}}/a.out',))") as process:
        until(lambda: is_written(*started))
        process.kill()
        process.wait()
    assert all(map(alive, started))
    recorder = Recorder()
    after = action("x", "exit 1", inputs=("{work}/a.out",))
    again = run(plan_of(root, action("a", ": > a.out"), after), recorder, keep_going=True)
    assert statuses(again) == {"a": "up to date", "x": "failed"}
    assert [event.reason for event in recorder.events if isinstance(event, Waiting)]
    assert not any(map(alive, started))
    assert "processes" not in in_work(root)


def test_nobody_elses_programs_are_ended(tmp_path: Path) -> None:
    """A build was killed; somebody looks at its files now."""
    work = tmp_path / ".kernel-builder"
    plan = plan_of(tmp_path, action("x", ": > x.out"))
    (work / "processes").touch()
    (work / "input").touch()
    with (work / "input").open() as given, subprocess.Popen(["sleep", "60"], cwd=work, stdin=given) as looking:
        run(plan)
        assert looking.poll() is None
        looking.kill()


def test_a_script_that_went_into_the_directory_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "k"
    work = root / ".kernel-builder"
    work.mkdir(parents=True)
    tests, cache = str(Path(__file__).parents[2]), str(tmp_path / "cache")
    actions = "action('x', ': > begun; sleep 60')"
    program = PROGRAM.format(tests=tests, root=str(root), actions=actions, cache=cache)
    script = 'cd "$1"; "$2" -c "$3" & echo $! > "$1/number"; wait $!; echo $? > "$1/code"'
    command = ["sh", "-c", script, "-", str(work), sys.executable, program]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as shell_:
        until((work / "begun").exists)
        os.kill(int((work / "number").read_text()), signal.SIGTERM)
        assert shell_.wait(30) == 0
    assert (work / "code").read_text() == "130\n"


def test_a_program_that_leaves_another_behind_ends_all_the_same(tmp_path: Path) -> None:
    """It holds the log open."""
    entry = action("x", "setsid sleep 5 & echo $! > left; : > x.out")
    plan = plan_of(tmp_path, entry)
    begun = time.monotonic()
    assert statuses(run(plan)) == {"x": "done"}
    assert time.monotonic() - begun < 3
    os.kill(int((plan.places.work / "left").read_text()), signal.SIGKILL)


CHAIN = """\
action('a', 'cat ../a > a.out'), \
action('b', 'cat a.out > b.out; cat a.out >> b.out', inputs=('{work}/a.out',)), \
action('c', 'cat b.out > c.out', inputs=('{work}/b.out',))"""


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8])
def test_a_build_that_is_killed_at_any_moment_leaves_nothing_that_counts(tmp_path: Path, share: float) -> None:
    root = tmp_path / "k"
    root.mkdir()
    (root / "a").write_text("old\n")
    with building(root, CHAIN) as process:
        begun = time.monotonic()
        assert process.wait() == 0
        whole = time.monotonic() - begun
    (root / "a").write_text("new\n" * 100_000)
    with building(root, CHAIN) as process:
        time.sleep(whole * (0.5 + share / 2))  # the first half is Python's start
        process.kill()
        process.wait()
    actions = eval(CHAIN, {"action": action})  # noqa: S307  (the same as in the other process)
    cache = ActionCache(tmp_path / "cache")
    result = run(plan_of(root, *actions), cache=cache)
    assert set(statuses(result).values()) <= {"done", "up to date", "from the cache"}
    assert (root / ".kernel-builder" / "c.out").read_text() == "new\n" * 200_000
    assert set(statuses(run(plan_of(root, *actions))).values()) == {"up to date"}
    # Nor in the cache, for another checkout.
    for text in ("old\n", "new\n" * 100_000):
        other = tmp_path / f"other-{len(text)}"
        other.mkdir()
        (other / "a").write_text(text)
        run(plan_of(other, *actions), cache=cache)
        assert (other / ".kernel-builder" / "c.out").read_text() == text * 2
    assert cache.remove_damaged() == ()


def test_nothing_is_started_any_more_once_it_was_stopped(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.stop()
    assert processes.run(["true"], {}, tmp_path / "log").code < 0
    assert not (tmp_path / "processes").exists()


def test_an_output_that_fails_to_be_written_is_none(tmp_path: Path) -> None:
    entry = action("x", "echo half > x.out; kill -KILL $$")
    result = run(plan_of(tmp_path, entry))
    assert statuses(result) == {"x": "failed"}
    assert not (tmp_path / ".kernel-builder" / "x.out").exists()
    assert statuses(run(plan_of(tmp_path, action("x", "", steps=shell(": > x.out"))))) == {"x": "done"}
