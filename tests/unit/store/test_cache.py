"""The store: entries appear whole or not at all, and tampering is found."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from filelock import FileLock

from kernel_builder.errors import IntegrityError, MachineError, UsageError
from kernel_builder.events import Recorder, Waiting
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import Store, StoreKey, default_root, require_space

KEY = StoreKey.of("demo-1.0", wheel="sha256:abc")
SOURCE = Artefact(name="demo", version="1.0", filename="demo-1.0-py3-none-any.whl", record_sha256="ab")


def fill(into: Path) -> Sequence[Artefact]:
    (into / "bin").mkdir()
    (into / "bin" / "tool").write_text("#!/bin/sh\n")
    (into / "bin" / "tool").chmod(0o755)
    (into / "data.txt").write_text("data\n")
    return [SOURCE]


def entries(store: Store) -> list[str]:
    return sorted(path.name for path in (store.root / "store").iterdir())


def test_the_path_is_known_before_the_entry_exists(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert not store.has(KEY)
    assert store.ensure(KEY, fill) == store.path(KEY)
    assert store.has(KEY)
    assert store.path(KEY).name.startswith("demo-1.0-")


def test_keys_follow_everything_that_determines_an_entry() -> None:
    assert StoreKey.of("a", x=1, y=[2]) == StoreKey.of("a", y=[2], x=1)
    different = [StoreKey.of("a", x=1), StoreKey.of("a", x=2), StoreKey.of("b", x=1), StoreKey.of("a", y=1)]
    assert len({key.digest for key in different}) == 4


def test_an_entry_is_built_once(tmp_path: Path) -> None:
    store, calls = Store(tmp_path), []

    def build(into: Path) -> Sequence[Artefact]:
        calls.append(into)
        return fill(into)

    for _ in range(3):
        store.ensure(KEY, build)
    assert len(calls) == 1


def test_many_threads_build_an_entry_once(tmp_path: Path) -> None:
    calls: list[Path] = []

    def build(into: Path) -> Sequence[Artefact]:
        calls.append(into)
        return fill(into)

    threads = [threading.Thread(target=lambda: Store(tmp_path).ensure(KEY, build)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert Store(tmp_path).verify(KEY) == []


def test_files_are_read_only_and_keep_their_executable_bit(tmp_path: Path) -> None:
    entry = Store(tmp_path).ensure(KEY, fill)
    assert stat.S_IMODE((entry / "bin/tool").stat().st_mode) == 0o555
    assert stat.S_IMODE((entry / "data.txt").stat().st_mode) == 0o444


def test_the_manifest_names_files_and_sources(tmp_path: Path) -> None:
    entry = Store(tmp_path).ensure(KEY, fill)
    manifest = json.loads((entry / ".manifest.json").read_text())
    assert list(manifest["files"]) == ["bin/tool", "data.txt"]
    assert manifest["sources"][0]["filename"] == SOURCE.filename
    assert "http" not in json.dumps(manifest)


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_a_failed_build_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    store = Store(tmp_path)

    def build(into: Path) -> Sequence[Artefact]:
        fill(into)
        raise error

    with pytest.raises(type(error)):
        store.ensure(KEY, build)
    assert entries(store) == []
    assert store.ensure(KEY, fill).is_dir()


def test_an_entry_without_manifest_is_built_anew(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.path(KEY).mkdir(parents=True)
    (store.path(KEY) / "half").write_text("x")
    entry = store.ensure(KEY, fill)
    assert not (entry / "half").exists()


def tamper_contents(entry: Path) -> None:
    (entry / "data.txt").chmod(0o644)
    (entry / "data.txt").write_text("dato\n")


def tamper_size(entry: Path) -> None:
    (entry / "data.txt").chmod(0o644)
    (entry / "data.txt").write_text("longer than before\n")


def tamper_missing(entry: Path) -> None:
    (entry / "data.txt").unlink()


def tamper_extra(entry: Path) -> None:
    (entry / "data.txt.new").write_text("")


@pytest.mark.parametrize(
    ("tamper", "path", "what"),
    [
        (tamper_contents, "data.txt", "its contents have changed"),
        (tamper_size, "data.txt", "19 bytes, expected 5"),
        (tamper_missing, "data.txt", "missing"),
        (tamper_extra, "data.txt.new", "does not belong here"),
    ],
)
def test_verify_names_what_changed(tmp_path: Path, tamper: object, path: str, what: str) -> None:
    store = Store(tmp_path)
    entry = store.ensure(KEY, fill)
    assert store.verify(KEY) == []
    assert callable(tamper)
    tamper(entry)
    assert [(p.path, p.what) for p in store.verify(KEY)] == [(path, what)]


def test_verify_of_an_absent_or_unreadable_entry_is_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(IntegrityError, match="missing from the store"):
        store.verify(KEY)
    manifest = store.ensure(KEY, fill) / ".manifest.json"
    manifest.chmod(0o644)
    manifest.write_text("{")
    with pytest.raises(IntegrityError, match="cannot read the manifest"):
        store.verify(KEY)


def test_a_discarded_entry_is_gone_and_comes_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.ensure(KEY, fill)
    store.discard(KEY)
    assert entries(store) == []
    store.discard(KEY)
    assert store.ensure(KEY, fill).is_dir()


def test_debris_of_dead_processes_is_removed_and_that_of_living_ones_is_not(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.ensure(KEY, fill)
    other = StoreKey.of("other", x=1)
    dead = store.root / "store" / ".work-gone-0123456789abcdef-xyz"
    alive = store.root / "store" / f".work-{other.name}-abc"
    dead.mkdir()
    alive.mkdir()
    with FileLock(store.root / "locks" / f"{other.name}.lock"):
        store.ensure(StoreKey.of("third", x=1), fill)
    assert not dead.exists()
    assert alive.exists()


def test_waiting_for_another_builder_is_told_and_can_be_given_up(tmp_path: Path) -> None:
    recorder = Recorder()
    store = Store(tmp_path, recorder)
    (tmp_path / "locks").mkdir()

    def give_up() -> None:
        raise TimeoutError

    with (
        FileLock(tmp_path / "locks" / f"{KEY.name}.lock"),
        pytest.raises(TimeoutError),
    ):
        store.ensure(KEY, fill, give_up)
    assert [type(event) for event in recorder.events] == [Waiting]


def test_too_little_space_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        require_space(tmp_path, 10**18)
    assert str(tmp_path) in caught.value.message
    assert "MiB needed" in caught.value.message
    require_space(tmp_path, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")
def test_a_disk_that_fills_up_while_building_is_a_clear_error(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    store = Store(small)
    try:

        def build(into: Path) -> Sequence[Artefact]:
            (into / "big").write_bytes(bytes(3 * 2**20))
            return []

        with pytest.raises(MachineError, match="the disk is full") as caught:
            store.ensure(KEY, build)
        assert str(small) in caught.value.message
        assert entries(store) == []
    finally:
        store.close()
        subprocess.run(["umount", str(small)], check=True)


def test_a_store_in_an_impossible_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        Store(tmp_path / "file" / "below").ensure(KEY, fill)


def test_the_root_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_root({"KERNEL_BUILDER_CACHE": str(tmp_path / "here")}) == tmp_path / "here"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_root({}) == tmp_path / "xdg" / "kernel-builder"


_CHILD = """
import sys, time
from pathlib import Path
from kernel_builder.store.cache import Store, StoreKey
def build(into):
    (into / "big").write_bytes(bytes(1000))
    print("building", flush=True)
    time.sleep(float(sys.argv[2]))
    return []
Store(Path(sys.argv[1])).ensure(StoreKey.of("demo-1.0", wheel="sha256:abc"), build)
print("done", flush=True)
"""


def child(root: Path, seconds: float) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(root), str(seconds)], stdout=subprocess.PIPE, text=True, env=environment
    )


def test_two_processes_build_an_entry_once(tmp_path: Path) -> None:
    both = [child(tmp_path, 0.5), child(tmp_path, 0.5)]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(outputs) == ["building\ndone\n", "done\n"]
    assert Store(tmp_path).verify(KEY) == []


def test_when_the_building_process_is_killed_the_waiting_one_takes_over(tmp_path: Path) -> None:
    first = child(tmp_path, 600)
    assert first.stdout is not None
    assert first.stdout.readline() == "building\n"
    second = child(tmp_path, 0)
    first.kill()
    first.wait()
    first.stdout.close()
    assert second.communicate(timeout=60)[0] == "building\ndone\n"
    store = Store(tmp_path)
    assert store.verify(KEY) == []
    assert entries(store) == [KEY.name]


def test_a_cache_of_a_user_who_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="KERNEL_BUILDER_CACHE is '~no-such-user/x': no such user"):
        default_root({"KERNEL_BUILDER_CACHE": "~no-such-user/x"})
