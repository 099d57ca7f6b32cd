"""The action cache: what is recalled and what is not, by real actions; its bound, and what others do to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine_actions import action, plan_of, run, shell, statuses
from kernel_builder.actions.model import Action, ActionKind, Step, Tool, Tree
from kernel_builder.engine.cache import ActionCache, Made
from kernel_builder.engine.protocol import EngineResult
from kernel_builder.files import Sink
from kernel_builder.plan.model import BuildPlan

PREPROCESS = "sed 's|//.*||' ../a.cu > a.i; printf 'a.i: ../a.cu ../a.h\\n' > a.d"


def checkout(root: Path, **files: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name.replace("_", ".")).write_text(text)
    return root


def count(root: Path) -> Callable[[], int]:
    """How often a program wrote into ``runs``."""
    return lambda: len((root / "runs").read_text()) if (root / "runs").exists() else 0


def compile_action(runs: Path, **changes: object) -> Action:
    """Makes ``a.o`` of the project's ``a.cpp`` and ``a.h``, and notes that it ran."""
    script = (
        f"printf x >> {runs}/runs; cat ../a.cpp ../a.h > a.o; printf 'a.o: ../a.cpp %s/a.h\\n' \"$0\" > a.d; echo said"
    )
    made = action("a.cpp", "", steps=(Step(command=(*shell(script)[0].command, "{project}")),))
    made = replace(made, outputs=("{work}/a.o",), depfile="{work}/a.d")
    return replace(made, **changes)  # type: ignore[arg-type]


def built(plan: BuildPlan, cache: ActionCache) -> EngineResult:
    return run(plan, cache=cache)


def test_another_checkout_recalls_what_one_made(tmp_path: Path) -> None:
    """Outputs, headers and the log, with the directories of the place where they are now."""
    cache, runs = ActionCache(tmp_path / "cache"), count(tmp_path)
    first = checkout(tmp_path / "first", a_cpp="1\n", a_h="2\n")
    assert statuses(built(plan_of(first, compile_action(tmp_path)), cache)) == {"a.cpp": "done"}
    second = checkout(tmp_path / "second", a_cpp="1\n", a_h="2\n")
    plan = plan_of(second, compile_action(tmp_path))
    assert statuses(built(plan, cache)) == {"a.cpp": "from the cache"}
    assert runs() == 1
    work = plan.places.work
    assert (work / "a.o").read_text() == "1\n2\n"
    assert (work / "a.d").read_text() == f"a.o: ../a.cpp {second}/a.h\n"
    log = plan.places.path(plan.actions[0].log).read_text().splitlines()
    assert log[1:] == ["said"]
    assert str(first) not in log[0]
    assert statuses(built(plan, cache)) == {"a.cpp": "up to date"}
    (second / "a.h").write_text("3\n")
    assert statuses(built(plan_of(second, compile_action(tmp_path)), cache)) == {"a.cpp": "done"}
    (second / "a.h").write_text("2\n")
    assert statuses(built(plan_of(second, compile_action(tmp_path)), cache)) == {"a.cpp": "from the cache"}


@pytest.mark.parametrize(
    "change",
    [
        {"tools": (Tool(name="sh", path=Path("/bin/sh"), digest="2"),)},
        {"trees": (Tree(name="toolkit", identity="other"),)},
        {"steps": (*shell("true"), *compile_action(Path("/nowhere")).steps)},
    ],
    ids=["tool", "tree", "command"],
)
def test_what_decides_the_result_decides_the_key(tmp_path: Path, change: dict[str, object]) -> None:
    cache = ActionCache(tmp_path / "cache")
    root = checkout(tmp_path / "k", a_cpp="1\n", a_h="2\n")
    built(plan_of(root, compile_action(tmp_path)), cache)
    if "steps" in change:
        change = {"steps": (*shell("true"), *compile_action(tmp_path).steps)}
    assert statuses(built(plan_of(root, compile_action(tmp_path, **change)), cache)) == {"a.cpp": "done"}


def test_the_time_that_programs_are_told_counts(tmp_path: Path) -> None:
    cache, root = ActionCache(tmp_path / "cache"), checkout(tmp_path / "k", a_cpp="1\n", a_h="2\n")
    for epoch, expected in (("5", "done"), ("6", "done"), ("5", "from the cache")):
        environ = {"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": epoch}
        plan = plan_of(root, compile_action(tmp_path))
        (plan.places.work / "actions.jsonl").unlink(missing_ok=True)
        assert statuses(run(plan, cache=cache, environ=environ)) == {"a.cpp": expected}


def test_the_words_of_a_comment_count_for_nothing(tmp_path: Path) -> None:
    cache, root = ActionCache(tmp_path / "cache"), checkout(tmp_path / "k", a_cpp="int a; // one\n", a_h="2\n")
    built(plan_of(root, compile_action(tmp_path)), cache)
    (root / "a.cpp").write_text("int a; /* other\nwords */\n"[:6] + " // another one\n")
    assert statuses(built(plan_of(root, compile_action(tmp_path)), cache)) == {"a.cpp": "up to date"}
    (root / "a.cpp").write_text("// moved\nint a;\n")
    assert statuses(built(plan_of(root, compile_action(tmp_path)), cache)) == {"a.cpp": "done"}


def chain(runs: Path, back: str = "sed '/^#/d;/^$/d' a.i > a.s") -> Action:
    """Preprocesses, compiles and assembles ``a.cu``; each of the last two notes that it ran."""
    compiler = Step(
        command=shell(f"printf c >> {runs}/runs; {back}")[0].command,
        reads=("{work}/a.i",),
        texts=("{work}/a.i",),
        writes=("{work}/a.s",),
    )
    assembler = Step(
        command=shell(f"printf a >> {runs}/runs; grep -v '^#' a.s > a.o")[0].command,
        reads=("{work}/a.s",),
        writes=("{work}/a.o",),
    )
    steps = (Step(command=shell(PREPROCESS)[0].command, writes=("{work}/a.i",)), compiler, assembler)
    made = action("a.cu", "", kind=ActionKind.DEVICE, steps=steps)
    return replace(made, outputs=("{work}/a.o",), depfile="{work}/a.d")


def test_equal_preprocessed_text_skips_the_compiler_and_equal_assembly_the_assembler(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache")
    root = checkout(tmp_path / "k", a_cu='# 1 "a.cu"\nint a;\n', a_h="")

    def ran(entry: Action) -> str:
        (tmp_path / "runs").write_text("")
        assert statuses(built(plan_of(root, entry), cache)) == {"a.cu": "done"}
        return (tmp_path / "runs").read_text()

    assert ran(chain(tmp_path)) == "ca"
    # Another tree of headers, and other lines: the same code all the same.
    (root / "a.cu").write_text('\n# 7 "a.cu"\nint a;\n')
    assert ran(replace(chain(tmp_path), trees=(Tree(name="torch", identity="other"),))) == ""
    assert (root / ".kernel-builder" / "a.o").read_text() == "int a;\n"
    assert not (root / ".kernel-builder" / "a.s").exists()
    # Another compiler that gives the same assembly.
    assert ran(chain(tmp_path, back="grep '^[^#]' a.i > a.s")) == "c"
    (root / "a.cu").write_text("int b;\n")
    assert ran(chain(tmp_path)) == "ca"


def test_a_program_that_says_something_says_it_again(tmp_path: Path) -> None:
    """It may name lines, and those of another text are others."""
    cache = ActionCache(tmp_path / "cache")
    root = checkout(tmp_path / "k", a_cu="int a;\n", a_h="")
    talking = chain(tmp_path, back="cp a.i a.s; echo warning")
    built(plan_of(root, talking), cache)
    other = replace(talking, trees=(Tree(name="torch", identity="other"),))
    plan = plan_of(root, other)
    built(plan, cache)
    assert (tmp_path / "runs").read_text() == "cac"
    assert "warning" in plan.places.path(other.log).read_text()


def test_why_a_fallback_ran_is_recalled_too(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache")
    for name, expected in (("one", "done"), ("two", "from the cache")):
        entry = action("x", "echo 'error: slim'; exit 1", fallback=shell(": > x.out"))
        result = built(plan_of(checkout(tmp_path / name), entry), cache)
        assert (statuses(result), result.results[entry.id].fell_back) == ({"x": expected}, "error: slim")


def damage(root: Path) -> None:
    for path in (root / "blobs").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes() + b"x")


def cut(root: Path) -> None:
    for path in (root / "entries").rglob("*.json"):
        path.write_text("[{")


def remove(root: Path) -> None:
    for path in (root / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()


@pytest.mark.parametrize("harm", [damage, cut, remove])
def test_what_is_damaged_is_made_again(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    cache = ActionCache(tmp_path / "cache")
    built(plan_of(checkout(tmp_path / "one", a_cpp="1", a_h="2"), compile_action(tmp_path)), cache)
    harm(cache.root)
    plan = plan_of(checkout(tmp_path / "two", a_cpp="1", a_h="2"), compile_action(tmp_path))
    assert statuses(built(plan, cache)) == {"a.cpp": "done"}
    assert (plan.places.work / "a.o").read_text() == "12"
    again = plan_of(checkout(tmp_path / "three", a_cpp="1", a_h="2"), compile_action(tmp_path))
    assert statuses(built(again, cache)) == {"a.cpp": "from the cache"}


def test_a_cache_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = ActionCache(tmp_path / "file" / "cache")
    plan = plan_of(checkout(tmp_path / "k", a_cpp="1", a_h="2"), compile_action(tmp_path))
    assert statuses(built(plan, cache)) == {"a.cpp": "done"}


def test_a_failing_action_is_not_kept(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache")
    for name in ("one", "two"):
        assert statuses(built(plan_of(checkout(tmp_path / name), action("x", "exit 1")), cache)) == {"x": "failed"}
    assert cache.usage().entries == 0


def keep(cache: ActionCache, name: str, size: int, used: float) -> None:
    key = name * 40
    cache.keep(key, {"out": name.encode() * size}, Made(reads={}, blobs={}, seconds=0, memory=0))
    for path in (*cache.root.rglob(f"{key}.json"), *cache.root.rglob(cache.find(key, str).blobs["out"])):  # type: ignore[union-attr]
        os.utime(path, (used, used))


def kept_in(cache: ActionCache) -> set[str]:
    """Of what :func:`keep` kept, that which can be recalled."""
    found = {name: cache.find(name * 40, str) for name in "abc"}
    return {name for name, entry in found.items() if entry is not None and cache.blob(entry.blobs["out"]) is not None}


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache", limit=10_000)
    for place, name in enumerate("abc"):
        keep(cache, name, 4000, used=1000.0 + place)
    assert cache.find("a" * 40, str) is not None  # and so it is used
    cache.blob(cache.find("a" * 40, str).blobs["out"])  # type: ignore[union-attr]
    cache.close()
    assert cache.usage().size <= 10_000
    kept = kept_in(cache)
    assert "b" not in kept
    assert "a" in kept
    assert cache.shrink(0) > 0
    assert cache.usage().size == 0


def test_what_was_used_before_the_clock_was_set_back_does_not_count_as_just_used(tmp_path: Path) -> None:
    """Neither what is whole, unless it is used again, nor what writers left that were killed."""
    cache, ahead = ActionCache(tmp_path / "cache"), time.time() + 1e8
    for name, used in (("a", ahead + 2), ("b", ahead + 1), ("c", time.time())):
        keep(cache, name, 4000, used=used)
    found = cache.find("a" * 40, str)
    assert found is not None
    assert cache.blob(found.blobs["out"]) is not None  # and so it is used
    half = cache.root / "blobs" / "ab" / ".x.1"
    half.parent.mkdir(exist_ok=True)
    half.write_text("half")
    os.utime(half, (ahead, ahead))
    cache.shrink(12_000)
    assert kept_in(cache) == {"a", "c"}
    assert not half.exists()


def test_damaged_contents_are_found_and_removed(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache")
    keep(cache, "a", 100, used=1000.0)
    keep(cache, "b", 100, used=1000.0)
    assert cache.remove_damaged() == ()
    bad = next(path for path in (cache.root / "blobs").rglob("*") if path.is_file())
    bad.write_bytes(b"other")
    assert cache.remove_damaged() == (bad,)
    assert cache.usage().blobs == 1


def test_many_writers_at_once(tmp_path: Path) -> None:
    """Every candidate that is there is whole, whoever wrote last."""
    caches = [ActionCache(tmp_path / "cache") for _ in range(4)]

    def write(cache: ActionCache, number: int) -> None:
        for turn in range(30):
            reads = {"f": str(number * 100 + turn)}
            recalled = Made(reads=reads, blobs={}, seconds=0, memory=0)
            cache.keep("k" * 40, {"out": f"{number} {turn}".encode()}, recalled)
            json.loads((cache.root / "entries" / "kk" / f"{'k' * 40}.json").read_text())

    threads = [threading.Thread(target=write, args=(cache, number)) for number, cache in enumerate(caches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = json.loads((tmp_path / "cache" / "entries" / "kk" / f"{'k' * 40}.json").read_text())
    assert 1 <= len(listed) <= 16
    for entry in listed:
        number, turn = divmod(int(entry["reads"]["f"]), 100)
        assert caches[0].blob(entry["blobs"]["out"]) == f"{number} {turn}".encode()


WRITER = """
import sys
from pathlib import Path
from kernel_builder.engine.cache import ActionCache, Made

cache, number = ActionCache(Path(sys.argv[1]), limit=40_000), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for turn in range(40):
    reads = {"f": str(turn % 6)}
    made = {"same": b"s" * 3000, "own": f"{turn % 6} {number} ".encode() * 500}
    cache.keep("k" * 40, made, Made(reads=reads, blobs={}, seconds=0, memory=0))
    found = cache.find("k" * 40, reads.get)
    if found is not None:
        for word, digest in found.blobs.items():
            text = cache.blob(digest)
            assert text is None or text[:2] == (b"ss" if word == "same" else f"{turn % 6} ".encode()), text
    if turn % 20 == number:
        cache.close()
assert cache.problem is None, cache.problem
"""


def test_many_processes_write_the_same_key_at_once(tmp_path: Path) -> None:
    """While some of them make room, too: what is found is whole and what was asked for, or is not there."""
    root = tmp_path / "cache"
    command = [sys.executable, "-c", WRITER, str(root)]
    pipe = subprocess.PIPE
    writers = [subprocess.Popen([*command, str(one)], stdin=pipe, stdout=pipe, text=True) for one in range(4)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("\n", timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0]
    cache = ActionCache(root)
    assert cache.remove_damaged() == ()
    assert [path for path in root.rglob(".*") if path.is_file()] == []
    cache.keep("k" * 40, {"own": b"last"}, Made(reads={"f": "7"}, blobs={}, seconds=0, memory=0))
    found = cache.find("k" * 40, {"f": "7"}.get)
    assert found is not None
    assert cache.blob(found.blobs["own"]) == b"last"


class Shared:
    """A store that others share, in memory."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def get(self, name: str, into: Sink) -> bool:
        for byte in self.stored.get(name, b""):
            into.write(bytes([byte]))
        return name in self.stored

    def put(self, name: str, file: Path) -> None:
        self.stored[name] = file.read_bytes()


def test_what_others_made_is_fetched_and_checked(tmp_path: Path) -> None:
    remote = Shared()
    first = ActionCache(tmp_path / "here", remote=remote)
    built(plan_of(checkout(tmp_path / "one", a_cpp="1", a_h="2"), compile_action(tmp_path)), first)
    second = ActionCache(tmp_path / "there", remote=remote)
    result = built(plan_of(checkout(tmp_path / "two", a_cpp="1", a_h="2"), compile_action(tmp_path)), second)
    assert statuses(result) == {"a.cpp": "from the cache"}
    remote.stored = {name: b"evil" if name.startswith("blobs") else data for name, data in remote.stored.items()}
    third = ActionCache(tmp_path / "elsewhere", remote=remote)
    result = built(plan_of(checkout(tmp_path / "three", a_cpp="1", a_h="2"), compile_action(tmp_path)), third)
    assert statuses(result) == {"a.cpp": "done"}
