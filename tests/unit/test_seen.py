"""What was seen is known to be as it was, or known not to be: by names, sizes and times, and by content while young."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.seen import YOUNG_NS, Memory, Sighting, environment_digest, look_again, unused_for

LATER = YOUNG_NS + 1_000_000_000


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("file", "folder/one", "folder/two"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"content of {name}", encoding="ascii")
    (tmp_path / "link").symlink_to("folder")
    return tmp_path


def sighting_of(tree: Path, *, since: int | None = None) -> Mapping[str, Any]:
    sighting = Sighting() if since is None else Sighting(since=since)
    for name in ("file", "absent", "folder"):
        sighting.file(tree / name, own=True)
    sighting.folder(tree / "folder", own=True)
    sighting.names(tree, {"build"})
    sighting.link(tree / "link")
    assert sighting.disturbed is None
    return sighting.to_json()


def as_old(tree: Path) -> Mapping[str, Any]:
    """A sighting from a time when everything in ``tree`` had been as it is for long."""
    return sighting_of(tree, since=time.time_ns() + LATER)


def rewrite(path: Path) -> None:
    """Other content of the same size, at the same time."""
    status = path.stat()
    with path.open("r+b") as file:
        file.write(b"X")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def exchange(path: Path) -> None:
    """Another file of that name, equal in all that ``ls -l`` shows."""
    status = path.stat()
    other = path.with_name("new")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


def retarget(tree: Path) -> None:
    (tree / "other").mkdir()
    (tree / "link").unlink()
    (tree / "link").symlink_to("other")
    (tree / "other").rmdir()


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda tree: rewrite(tree / "file"),
    "removal": lambda tree: (tree / "file").unlink(),
    "a file for a file": lambda tree: exchange(tree / "file"),
    "something where nothing was": lambda tree: (tree / "absent").write_text("", encoding="ascii"),
    "permissions": lambda tree: (tree / "file").chmod(0o600),
    "a new name": lambda tree: (tree / "new").write_text("", encoding="ascii"),
    "another name": lambda tree: (tree / "file").rename(tree / "renamed"),
    "a file for a file in a directory": lambda tree: exchange(tree / "folder" / "one"),
    "where a link points": retarget,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("look", [sighting_of, as_old])
def test_every_change_is_seen(tree: Path, change: str, look: Callable[[Path], Mapping[str, Any]]) -> None:
    seen = look(tree)
    assert look_again(seen).changed is None
    CHANGES[change](tree)
    assert look_again(seen).changed is not None


def test_what_does_not_count_is_passed_over(tree: Path) -> None:
    seen = as_old(tree)
    (tree / "build").mkdir()
    (tree / "build" / "anything").write_text("", encoding="ascii")
    (tree / "new").write_text("", encoding="ascii")
    (tree / "new").unlink()
    assert look_again(seen).changed is None


def test_a_young_file_is_known_by_its_content(tree: Path) -> None:
    """Two writes within one tick of the clock leave the same times: what a stamp cannot tell, the content does."""
    seen = sighting_of(tree)
    file = str(tree / "file")
    assert seen["files"][file][1] is not None
    rewrite(tree / "file")
    status = Path(file).stat()
    forged = [status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    forged_seen = {**seen, "files": {file: [forged, seen["files"][file][1]]}}
    assert look_again(forged_seen).changed == file
    assert look_again({**forged_seen, "files": {file: [forged, None]}}).changed is None


def test_what_was_young_is_believed_once_it_is_old(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = sighting_of(tree)
    assert look_again(seen).newer is None
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + LATER)
    newer = look_again(seen).newer
    assert newer is not None
    assert newer["files"][str(tree / "file")][1] is None
    monkeypatch.setattr("kernel_builder.seen._digest", lambda _path: pytest.fail("an old file was read"))
    monkeypatch.setattr("kernel_builder.seen._names", lambda *_of: pytest.fail("an old directory was read"))
    assert look_again(newer).changed is None


@pytest.mark.parametrize("name", ["file", "folder/one"])
def test_a_change_while_something_is_made_disturbs(tree: Path, name: str) -> None:
    sighting = Sighting(since=time.time_ns() - LATER)
    (tree / name).write_text("new", encoding="ascii")
    sighting.file(tree / name)
    assert sighting.disturbed == str(tree / name)


def test_memory_holds_while_its_basis_does(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    memory = Memory(tmp_path_factory.mktemp("memory"), most=3)
    for number in range(5):
        memory.keep(("question", number), {"answer": number}, as_old(tree))
    answers = [memory.recall(("question", number)) for number in range(5)]
    assert [answer.value["answer"] if answer else None for answer in answers] == [None, None, 2, 3, 4]
    rewrite(tree / "file")
    assert memory.recall(("question", 4)) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"seen": {"files": {"/": 3}}}', "\0", '{"seen": 1}'])
def test_a_damaged_memory_is_none(tmp_path: Path, tree: Path, text: str) -> None:
    memory = Memory(tmp_path / "memory")
    memory.keep(("question",), 1, as_old(tree))
    (file,) = (tmp_path / "memory").iterdir()
    file.write_text(text, encoding="ascii")
    assert memory.recall(("question",)) is None


def test_variables_count_but_for_those_of_a_command_line() -> None:
    one = environment_digest({"PATH": "/usr/bin", "SECRET": "hidden", "SHLVL": "1"})
    assert one == environment_digest({"SECRET": "hidden", "SHLVL": "2", "PATH": "/usr/bin"})
    assert one != environment_digest({"PATH": "/usr/bin", "SECRET": "other"})
    assert "hidden" not in one


@pytest.mark.parametrize(
    ("ahead", "least", "most"),
    [(-100.0, 100.0, 160.0), (0.0, 0.0, 60.0), (3600.0, 0.0, 0.0), (1e6, float("inf"), float("inf"))],
)
def test_a_time_far_ahead_does_not_count_as_just_used(ahead: float, least: float, most: float) -> None:
    """The clock was set back since. Some machines that share a directory are an hour or a time zone apart."""
    assert least <= unused_for(time.time() + ahead) <= most
