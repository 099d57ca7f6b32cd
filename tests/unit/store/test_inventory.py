"""The store looked after: what is in it, whether it is sound, and what may go."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from filelock import FileLock

from kernel_builder.events import Notice, Recorder
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import MANIFEST, Store, StoreKey
from kernel_builder.store.inventory import BUILDS, StoreEntry, collect, discard_unused, list_entries, verify_entries

SOURCE = Artefact(name="demo", version="1.0", filename="demo-1.0-py3-none-any.whl", sha256="ab" * 32)
DAY = 86400.0


def key(name: str) -> StoreKey:
    return StoreKey.of(name, wheel=name)


def filler(size: int = 1000) -> Callable[[Path], Sequence[Artefact]]:
    def fill(into: Path) -> Sequence[Artefact]:
        (into / "folder").mkdir()
        (into / "folder" / "a.h").write_bytes(b"a" * size)
        (into / "b.h").write_bytes(b"b" * 10)
        return [SOURCE]

    return fill


def filled(root: Path, *names: str, age: float = 0.0) -> Store:
    """A store whose entries nobody uses any more."""
    store = Store(root)
    for name in names:
        store.ensure(key(name), filler())
        moment = time.time() - age
        os.utime(store.path(key(name)) / MANIFEST, (moment, moment))
    store.close()
    return Store(root)


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.chmod(0o644)
    path.write_bytes(change(path.read_bytes()))


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def names(entries: Sequence[StoreEntry]) -> list[str]:
    return [entry.name.rpartition("-")[0] for entry in entries]


def test_entries_are_listed_with_size_use_and_origin(tmp_path: Path) -> None:
    store = filled(tmp_path, "beta", "alpha", age=3 * DAY)
    first, second = list_entries(store)
    assert names([first, second]) == ["alpha", "beta"]
    assert (first.size, first.files, first.origins, first.problem) == (1010, 2, ("index",), None)
    assert 2.9 * DAY < time.time() - first.last_used < 3.1 * DAY
    assert list_entries(Store(tmp_path / "nothing")) == ()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (flip, "its contents have changed"),
        (lambda data: data[:-1], "999 bytes, expected 1000"),
        (lambda data: data + b"x", "1001 bytes, expected 1000"),
    ],
)
def test_verifying_names_a_damaged_file(tmp_path: Path, change: Callable[[bytes], bytes], what: str) -> None:
    store = filled(tmp_path, "sound", "broken")
    file = store.path(key("broken")) / "folder" / "a.h"
    damage(file, change)
    broken, sound = verify_entries(store, list_entries(store))
    assert sound.problems == ()
    assert [(problem.path, problem.what) for problem in broken.problems] == [("folder/a.h", what)]


def test_a_bit_that_changed_without_a_trace_is_found_by_verifying(tmp_path: Path) -> None:
    store = filled(tmp_path, "rotten")
    file = store.path(key("rotten")) / "folder" / "a.h"
    before = file.stat()
    damage(file, flip)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.glance(key("rotten").name) == []
    (verdict,) = verify_entries(store, list_entries(store))
    assert [problem.what for problem in verdict.problems] == ["its contents have changed"]


def test_verifying_names_missing_and_foreign_files_and_links(tmp_path: Path) -> None:
    store = filled(tmp_path, "broken")
    folder = store.path(key("broken"))
    (folder / "folder" / "a.h").unlink()
    (folder / "folder" / "new.h").write_text("")
    (folder / "b.h").unlink()
    (folder / "b.h").symlink_to("folder/new.h")
    (verdict,) = verify_entries(store, list_entries(store))
    assert [(problem.path, problem.what) for problem in verdict.problems] == [
        ("b.h", "not a regular file"),
        ("folder/a.h", "missing"),
        ("folder/new.h", "does not belong here"),
    ]


@pytest.mark.parametrize("change", [flip, lambda data: data[:40], lambda data: data.replace(b'"demo"', b'"dEmo"')])
def test_a_damaged_manifest_is_found(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    store = filled(tmp_path, "broken")
    damage(store.path(key("broken")) / MANIFEST, change)
    (entry,) = list_entries(store)
    assert entry.problem is not None
    (verdict,) = verify_entries(store, [entry])
    assert [problem.path for problem in verdict.problems] == [MANIFEST]
    assert not store.has(key("broken"))


def test_a_build_that_meets_a_damaged_entry_says_so_and_provides_it_again(tmp_path: Path) -> None:
    filled(tmp_path, "demo")
    recorder = Recorder()
    store = Store(tmp_path, recorder)
    file = store.path(key("demo")) / "folder" / "a.h"
    damage(file, flip)
    assert not store.has(key("demo"))
    assert not store.has(key("demo"))
    (notice,) = recorder.events
    assert isinstance(notice, Notice)
    assert notice.warning
    assert f"{key('demo').name} in the store is damaged (folder/a.h: its contents have changed)" in notice.message
    store.ensure(key("demo"), filler())
    assert file.read_bytes() == b"a" * 1000
    assert store.verify(key("demo")) == []
    assert store.has(key("demo"))


def foreign_file(entry: Path) -> str:
    (entry / "folder" / "c.h").write_text("")
    return "folder/c.h"


def foreign_folder(entry: Path) -> str:
    (entry / "more" / "deeper").mkdir(parents=True)
    (entry / "more" / "deeper" / "c.h").write_text("")
    return "more/deeper/c.h"


def link_to_a_folder(entry: Path) -> str:
    (entry / "link").symlink_to(entry / "folder")
    return "link"


@pytest.mark.parametrize("add", [foreign_file, foreign_folder, link_to_a_folder])
def test_what_was_added_to_an_entry_is_found_and_gone_after_the_next_build(
    tmp_path: Path, add: Callable[[Path], str]
) -> None:
    store = filled(tmp_path, "demo")
    path = add(store.path(key("demo")))
    (verdict,) = verify_entries(store, list_entries(store))
    assert [(problem.path, problem.what) for problem in verdict.problems] == [(path, "does not belong here")]
    entry = store.ensure(key("demo"), filler())
    assert not os.path.lexists(entry / path)
    assert store.verify(key("demo")) == []


def test_a_file_in_the_place_of_an_entry_is_found_and_replaced(tmp_path: Path) -> None:
    store = filled(tmp_path, "demo")
    store.discard(key("demo"))
    store.path(key("demo")).write_text("")
    (verdict,) = verify_entries(store, list_entries(store))
    assert verdict.problems
    store.ensure(key("demo"), filler())
    assert store.verify(key("demo")) == []


def test_what_is_removed_while_it_is_verified_is_not_damaged(tmp_path: Path) -> None:
    store = filled(tmp_path, "demo", "other")
    listed = list_entries(store)
    store.discard(key("other"))
    assert [verdict.problems for verdict in verify_entries(store, listed)] == [(), ()]


def test_a_store_that_was_copied_without_times_is_sound(tmp_path: Path) -> None:
    store = filled(tmp_path, "demo")
    file = store.path(key("demo")) / "b.h"
    os.utime(file)
    assert store.has(key("demo"))
    assert file.stat().st_mtime == (store.path(key("demo")) / "folder" / "a.h").stat().st_mtime


def test_cleaning_up_by_age_takes_what_was_not_used(tmp_path: Path) -> None:
    filled(tmp_path, "old", age=40 * DAY)
    store = filled(tmp_path, "new", age=1 * DAY)
    looked = collect(store, older_than=30 * DAY, dry_run=True)
    assert names(looked.entries) == ["old"]
    assert names(list_entries(store)) == ["new", "old"]
    assert collect(store, older_than=30 * DAY) == looked
    assert names(list_entries(store)) == ["new"]
    assert looked.freed == 1010


def test_cleaning_up_by_size_takes_the_least_recently_used_first(tmp_path: Path) -> None:
    for days, name in ((3, "c"), (1, "a"), (2, "b")):
        filled(tmp_path, name, age=days * DAY)
    store = Store(tmp_path)
    assert names(collect(store, keep_size=2 * 1010).entries) == ["c"]
    assert names(collect(store, keep_size=1500).entries) == ["b"]
    assert collect(store, keep_size=1500).entries == ()
    assert names(list_entries(store)) == ["a"]


def test_what_was_used_before_the_clock_was_set_back_goes_first_until_it_is_used_again(tmp_path: Path) -> None:
    """Its time is ahead, which would make it the newest for years."""
    for days, name in ((-400, "ahead"), (-500, "used"), (1, "a")):
        filled(tmp_path, name, age=days * DAY)
    store = Store(tmp_path)
    store.ensure(key("used"), filler())
    store.close()
    assert names(collect(store, keep_size=2 * 1010).entries) == ["ahead"]
    assert names(list_entries(store)) == ["a", "used"]


def test_using_an_entry_makes_it_recent(tmp_path: Path) -> None:
    store = filled(tmp_path, "demo", age=40 * DAY)
    store.ensure(key("demo"), filler())
    store.close()
    assert collect(store, older_than=30 * DAY).entries == ()


def test_without_a_limit_entries_stay(tmp_path: Path) -> None:
    store = filled(tmp_path, "demo", age=400 * DAY)
    assert collect(store).entries == ()
    assert names(list_entries(store)) == ["demo"]


_USER = """
import sys, time
from pathlib import Path
from kernel_builder.store.cache import Store, StoreKey
def build(into):
    print("building", flush=True)
    (into / "x").write_text("half")
    time.sleep(60)
    return []
store = Store(Path(sys.argv[1]))
store.ensure(StoreKey.of(sys.argv[2], wheel=sys.argv[2]), build)
print("using", flush=True)
time.sleep(60)
"""


def other_process(root: Path, name: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", _USER, str(root), name], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() in {"building", "using"}
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_what_a_running_process_uses_is_never_removed(tmp_path: Path) -> None:
    store = filled(tmp_path, "used", "idle", age=40 * DAY)
    process = other_process(tmp_path, "used")
    try:
        removal = collect(store, everything=True)
        assert names(removal.entries) == ["idle"]
        assert removal.kept == (key("used").name,)
        assert discard_unused(store, [key("used").name]) == (key("used").name,)
        assert store.verify(key("used")) == []
    finally:
        kill(process)
    assert names(collect(store, everything=True).entries) == ["used"]
    assert list((tmp_path / "uses").iterdir()) == []


def test_debris_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    store = filled(tmp_path, "other")
    process = other_process(tmp_path, "half")
    try:
        assert collect(store).debris == 0
        assert len(list(store.debris())) == 1
    finally:
        kill(process)
    parts = tmp_path / "parts" / key("half").name
    parts.mkdir(parents=True)
    old = time.time() - 8 * DAY
    for path in (parts / "x.parts", parts / "x.list"):
        path.write_bytes(b"x" * 100)
        os.utime(path, (old, old))
    assert collect(store, dry_run=True).debris == 2
    removal = collect(store)
    assert removal.debris == 2
    assert removal.freed >= 200
    assert list(store.debris()) == []
    assert not parts.exists()
    assert names(list_entries(store)) == ["other"]


def test_what_builds_of_read_only_projects_left_goes_after_a_week_unless_one_runs(tmp_path: Path) -> None:
    store = filled(tmp_path, "other")
    old = time.time() - 8 * DAY
    for name, when in (("idle", old), ("fresh", time.time()), ("held", old)):
        work = tmp_path / BUILDS / name
        work.mkdir(parents=True)
        (work / "contents.json").write_bytes(b"x" * 100)
        os.utime(work / "contents.json", (when, when))
    with FileLock(tmp_path / BUILDS / "held" / "lock"):
        for _ in range(2):  # looking makes nothing younger
            assert collect(store, dry_run=True).debris == 1
        assert collect(store).debris == 1
    assert sorted(path.name for path in (tmp_path / BUILDS).iterdir()) == ["fresh", "held"]
    assert collect(store, everything=True).debris == 2
