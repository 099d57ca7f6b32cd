"""Records and caches that are damaged, of another version, hostile, read-only, or on a full disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_actions import action, plan_of, run, statuses
from kernel_builder.actions.model import Action
from kernel_builder.engine.cache import ActionCache, Made
from kernel_builder.engine.records import Records
from kernel_builder.errors import BuildError
from kernel_builder.events import Event, Notice, Recorder
from kernel_builder.plan.model import BuildPlan
from kernel_builder.store.shared import SharedFolder


def copying(name: str = "a") -> Action:
    return action(name, f"cat ../{name} > {name}.out; echo said")


def project(root: Path, *actions: Action, text: str = "text\n") -> BuildPlan:
    root.mkdir(exist_ok=True)
    for entry in actions:
        (root / entry.source).write_text(f"{entry.source} {text}")
    return plan_of(root, *actions)


def became(plan: BuildPlan, cache: ActionCache | None = None) -> list[str]:
    return list(statuses(run(plan, cache=cache)).values())


def told_of(plan: BuildPlan, cache: ActionCache) -> tuple[set[str], list[str]]:
    """What became of the actions, and what people are told besides."""
    recorder = Recorder()
    result = run(plan, recorder, cache=cache)
    return set(statuses(result).values()), [one.message for one in recorder.events if isinstance(one, Notice)]


WRONG: tuple[object, ...] = ([], "text", {"a": 1}, True)
"""Values that no key of an entry has, but for a text."""
GOOD = {"digest": "1", "reads": {}, "makes": {}, "seconds": 1.0, "memory": 1}


@pytest.mark.parametrize(
    "line",
    [
        "7",
        "null",
        "[]",
        '["x"]',
        '["x", 7]',
        '[["x"], {}]',
        json.dumps([7, GOOD]),
        *(
            json.dumps(["{id}", {**GOOD, key: wrong}])
            for key in ("reads", "makes", "seconds", "memory", "fell_back")
            for wrong in WRONG
            if (key, wrong) != ("fell_back", "text")
        ),
        json.dumps(["{id}", {"reads": {"/\0": "1"}, "makes": {}, "seconds": 1, "memory": 1}]),
        json.dumps(["{id}", GOOD])[:-9],
    ],
)
def test_a_line_of_records_that_says_nothing_is_passed_over(tmp_path: Path, line: str) -> None:
    entry = copying()
    plan = project(tmp_path / "k", entry)
    assert became(plan) == ["done"]
    file = plan.places.work / "actions.jsonl"
    good = file.read_text()
    file.write_text(line.replace("{id}", entry.id))
    assert became(plan) == ["done"]
    file.write_text(f"{line.replace('{id}', 'other')}\n{good}")
    assert became(plan) == ["up to date"]


def test_half_a_line_costs_no_other(tmp_path: Path) -> None:
    """A build was killed while it wrote."""
    one, other = copying("a"), copying("b")
    plan = project(tmp_path / "k", one, other)
    assert became(project(tmp_path / "k", one)) == ["done"]
    file = plan.places.work / "actions.jsonl"
    file.write_text(file.read_text() + '["half')
    assert sorted(became(plan)) == ["done", "up to date"]
    assert Records(plan.places.work)[other.id] is not None
    assert became(plan) == ["up to date", "up to date"]


@pytest.mark.parametrize(
    "entry",
    [
        "[",
        "7",
        "{}",
        "[7]",
        '[{"reads": {}, "blobs": {}}]',
        '[{"reads": [], "blobs": {}, "seconds": 1, "memory": 1}]',
        '[{"reads": {}, "blobs": {"x": "../../../victim"}, "seconds": 1, "memory": 1}]',
        '[{"reads": {}, "blobs": {"x": 7}, "seconds": 1, "memory": 1}]',
        '[{"reads": {}, "blobs": {}, "seconds": "1", "memory": 1}]',
        '[{"reads": {}, "blobs": {}, "seconds": 1, "memory": 1, "fell_back": 7}]',
        "\ufeff[]",
    ],
)
def test_an_entry_that_says_nothing_is_passed_over(tmp_path: Path, entry: str) -> None:
    cache = ActionCache(tmp_path / "cache")
    became(project(tmp_path / "one", copying()), cache)
    for path in (cache.root / "entries").rglob("*.json"):
        text = entry
        if entry.startswith("[{"):
            text = json.dumps([{"key": path.stem, **json.loads(entry)[0]}])
        path.write_text(text)
    assert became(project(tmp_path / "two", copying()), cache) == ["done"]
    assert became(project(tmp_path / "three", copying()), cache) == ["from the cache"]


def test_what_is_stored_for_another_key_is_not_believed(tmp_path: Path) -> None:
    """Files of a cache that were exchanged, as a bad disk or a bad copy does it."""
    cache = ActionCache(tmp_path / "cache")
    one, other = action("a", "echo one > a.out"), action("a", "echo other > a.out")
    for name, entry in (("one", one), ("other", other)):
        became(project(tmp_path / name, entry), cache)
    first, second = (cache.root / "entries").rglob("*.json")
    text = first.read_text()
    first.write_text(second.read_text())
    second.write_text(text)
    plan = project(tmp_path / "again", one)
    assert became(plan, cache) == ["done"]
    assert (plan.places.work / "a.out").read_text() == "one\n"


@pytest.mark.parametrize("text", ["[", "7", "[7]", '[{"key": "other"}]', "\x00"])
def test_damaged_entries_are_found_and_removed(tmp_path: Path, text: str) -> None:
    cache = ActionCache(tmp_path / "cache")
    became(project(tmp_path / "one", copying("a"), copying("b")), cache)
    assert cache.remove_damaged() == ()
    bad, good = (cache.root / "entries").rglob("*.json")
    bad.write_text(text)
    assert cache.remove_damaged() == (bad,)
    good.write_text("[]")
    assert cache.remove_damaged() == ()


def test_contents_that_were_exchanged_are_not_believed(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache")
    became(project(tmp_path / "one", copying("a"), copying("b")), cache)
    blobs = sorted(path for path in (cache.root / "blobs").rglob("*") if path.is_file())
    contents = [path.read_bytes() for path in blobs]
    for path, data in zip(blobs, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(data)
    plan = project(tmp_path / "two", copying("a"), copying("b"))
    assert became(plan, cache) == ["done", "done"]
    assert (plan.places.work / "a.out").read_text() == "a text\n"


@pytest.mark.parametrize("victim", ["../victim", "../../victim", "/victim", "..", "", "A" * 40])
def test_a_hostile_cache_reaches_nothing_outside(tmp_path: Path, victim: str) -> None:
    """Digests become names of files: one that is none must not name another file, which would be removed as damaged."""
    (tmp_path / "victim").write_text("mine")
    shared = tmp_path / "shared"
    became(
        project(tmp_path / "one", copying()), ActionCache(tmp_path / "a", remote=SharedFolder(root=shared, writes=True))
    )
    for path in (shared / "entries").rglob("*.json"):
        listed = json.loads(path.read_text())
        digest = str(tmp_path / victim[1:]) if victim.startswith("/") else victim
        for one in listed:
            one["blobs"] = dict.fromkeys(one["blobs"], digest)
        path.write_text(json.dumps(listed))
    cache = ActionCache(tmp_path / "b", remote=SharedFolder(root=shared, writes=False))
    became(project(tmp_path / "zero", copying("b")), cache)
    assert became(project(tmp_path / "two", copying()), cache) == ["done"]
    assert (tmp_path / "victim").read_text() == "mine"


def test_large_outputs_go_through_the_cache_piece_by_piece(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache")
    entry = action("a", "head -c 5000000 /dev/zero > a.out; echo end >> a.out")
    for name, expected in (("one", "done"), ("two", "from the cache")):
        plan = project(tmp_path / name, entry)
        assert became(plan, cache) == [expected]
        assert (plan.places.work / "a.out").read_bytes() == bytes(5_000_000) + b"end\n"


def test_a_cache_is_not_counted_again_by_every_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten gigabytes of small files that takes seconds."""
    cache = ActionCache(tmp_path / "cache")
    became(project(tmp_path / "one", copying("a")), cache)
    counted: list[int] = []
    real = ActionCache.shrink

    def shrink(self: ActionCache, limit: int) -> int:
        counted.append(limit)
        return real(self, limit)

    monkeypatch.setattr(ActionCache, "shrink", shrink)
    became(project(tmp_path / "two", copying("b")), cache)
    assert not counted
    usage = cache.usage()
    assert sum(map(int, (cache.root / "size").read_text().split())) == usage.size
    small = ActionCache(cache.root, limit=usage.size)
    became(project(tmp_path / "three", copying("c")), small)
    assert counted == [usage.size]
    assert small.usage().size <= usage.size


def test_what_killed_writers_left_goes(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache")
    became(project(tmp_path / "one", copying()), cache)
    before = cache.usage()
    old, young = cache.root / "blobs" / "ab" / ".x.1", cache.root / "blobs" / "ab" / ".x.2"
    old.parent.mkdir(exist_ok=True)
    for path in (old, young):
        path.write_text("half")
    os.utime(old, (1000, 1000))
    assert cache.remove_damaged() == ()
    assert cache.usage() == before
    assert (old.exists(), young.exists()) == (False, True)


def test_others_may_remove_everything_while_a_build_runs(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache")
    names = [f"n{number}" for number in range(12)]
    became(project(tmp_path / "one", *map(copying, names)), cache)
    plan = project(tmp_path / "two", *map(copying, names))

    class Greedy(Recorder):
        def emit(self, event: Event, /) -> None:
            super().emit(event)
            ActionCache(cache.root).shrink(0)

    result = run(plan, Greedy(), cache=cache)
    assert set(statuses(result).values()) <= {"done", "from the cache"}
    assert {(plan.places.work / f"{name}.out").read_text() for name in names} == {f"{name} text\n" for name in names}


def test_a_work_directory_that_is_removed_meanwhile_is_told(tmp_path: Path) -> None:
    """As by ``git clean -xdf`` in another window."""
    root = tmp_path / "k"
    entries = [
        action(f"n{number}", f"test -e ../gone || rm -r ../.kernel-builder; : > n{number}.out") for number in (1, 2)
    ]
    with pytest.raises(BuildError, match=r"\.kernel-builder, or something in it, was removed during the build"):
        run(project(root, *entries), jobs=1)
    (root / "gone").touch()
    assert became(project(root, *entries)) == ["done", "done"]


@contextlib.contextmanager
def mounted(place: Path, size: str) -> Iterator[Path]:
    """A file system of its own, of that size."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_cache_that_may_only_be_read_is_used(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "2m") as disk:
        cache = ActionCache(disk / "cache")
        became(project(tmp_path / "one", copying()), cache)
        for path in cache.root.rglob("*"):
            os.utime(path, (1000, 1000))  # so that it would be noted that it is used
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        read_only = ActionCache(cache.root)
        assert told_of(project(tmp_path / "two", copying()), read_only) == ({"from the cache"}, [])
        several = project(tmp_path / "three", copying("b"), copying("c"))
        became_of, (message,) = told_of(several, read_only)
        assert became_of == {"done"}
        assert f"cannot write to the cache {cache.root} (Read-only file system)" in message


def test_a_full_disk_under_the_cache_stops_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "64k") as disk:
        cache = ActionCache(disk / "cache")
        entry = action("a", "head -c 1000000 /dev/zero > a.out")
        for name in ("one", "two"):
            cache = ActionCache(cache.root)
            became_of, (message,) = told_of(project(tmp_path / name, entry), cache)
            assert became_of == {"done"}
            assert f"cannot write to the cache {cache.root} (No space left on device)" in message
            assert cache.remove_damaged() == ()
            assert halves_in(cache) == []
        assert cache.find("k" * 40, str) is None
        ActionCache(cache.root).keep("k" * 40, {"x": b"1"}, Made(reads={}, blobs={}, seconds=0, memory=0))
        assert cache.find("k" * 40, str) is not None


def test_a_file_that_cannot_be_stored_whole_is_not_stored(tmp_path: Path) -> None:
    """The system ends a write in the middle, as on a full disk."""
    cache, made = ActionCache(tmp_path / "cache"), Made(reads={}, blobs={}, seconds=0, memory=0)
    cache.keep("a" * 40, {"x": b"1"}, made)
    output = tmp_path / "output"
    output.write_bytes(bytes(3_000_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, before[1]))
    try:
        cache.keep("b" * 40, {"x": output}, made)
        cache.keep("c" * 40, {"x": b"2"}, made)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert cache.problem == os.strerror(errno.EFBIG)
    assert [cache.find(name * 40, str) is not None for name in "abc"] == [True, False, False]
    assert (cache.remove_damaged(), halves_in(cache)) == ((), [])


def halves_in(cache: ActionCache) -> list[Path]:
    """What is half written in it."""
    return [path for path in cache.root.rglob(".*") if path.is_file()]


@pytest.mark.parametrize("free", [0, 4, 8, 12, 16, 24, 40, 64])
def test_a_full_disk_under_the_project_is_told_and_the_next_build_is_right(tmp_path: Path, free: int) -> None:
    """Wherever it fills up: in logs, outputs, records, or what else is kept. ``free`` are kibibytes."""
    entries = [action(f"n{number}", f"head -c 9000 /dev/zero > n{number}.out") for number in range(8)]
    with mounted(tmp_path / "disk", "1m") as disk:
        plan = project(disk / "k", *entries)
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        os.truncate(filler, filler.stat().st_size - (free << 10))
        try:
            assert "failed" in became(plan)
        except BuildError as error:
            told = error.message
        else:
            told = "".join(log.read_text() for log in (plan.places.work / "log").iterdir()) + str(disk)
        assert "No space left on device" in told
        assert str(disk) in told
        filler.unlink()
        assert set(became(plan)) <= {"done", "up to date"}
        for number in range(8):
            assert (plan.places.work / f"n{number}.out").read_bytes() == bytes(9000)
        assert set(became(plan)) == {"up to date"}
