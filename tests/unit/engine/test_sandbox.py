"""In a sandbox an action has its inputs, its tools and a place for its outputs, and nothing else."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from engine_actions import action, plan_of, run, shell
from kernel_builder.actions.model import Action, ActionKind, Step, Tool, Tree
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.protocol import ActionResult, ActionStatus
from kernel_builder.engine.sandbox import ActionSandbox, find_bubblewrap
from kernel_builder.errors import MachineError
from kernel_builder.toolchain.host import header_folders
from kernel_builder.toolchain.model import Family

try:
    BUBBLEWRAP = find_bubblewrap(os.environ)
except MachineError as error:
    pytest.skip(error.message, allow_module_level=True)


def boxed(root: Path, *actions: Action, cache: ActionCache | None = None) -> dict[str, ActionResult]:
    """What became of ``actions`` in a sandbox, by their sources."""
    plan = plan_of(root, *actions)
    result = run(plan, sandbox=ActionSandbox(program=BUBBLEWRAP, plan=plan), cache=cache)
    return {entry.action.source: entry for entry in result.results.values()}


def test_what_is_declared_is_seen_and_nothing_else(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("given", "included.h", "undeclared", "../beside"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(name, encoding="ascii")
    script = """
        cat $1/given $1/included.h > given.out
        for path in $1/undeclared $1/../beside $1/.git ~/.profile /root /home /etc/passwd; do
          test ! -e $path || { echo "$path is there"; exit 1; }
        done
        echo x > $1/given && exit 2
        echo x > $1/new
        echo x > scratch-of-nobody
        true
    """
    tree = Tree(name="project", identity="1", files=("included.h",))
    made = action("given", "", steps=shell(script, "-", "{project}"), trees=(tree,), environment=("PATH", "HOME"))
    result = boxed(project, made)["given"]
    assert result.status is ActionStatus.DONE, result.output
    work = project / ".kernel-builder"
    assert (work / "given.out").read_text() == "givenincluded.h"
    # What it wrote into the tree is gone, and in the work directory there is nothing else of it.
    assert (project / "given").read_text() == "given"
    assert not (project / "new").exists()
    assert not [path.name for path in work.iterdir() if "scratch" in path.name or path.name.startswith(".sandbox")]


def test_of_the_store_what_an_action_names_is_seen_and_nothing_else(tmp_path: Path) -> None:
    """By a word, by a part of one, as a tree, as a tree's directory, and as a tool."""
    project = tmp_path / "project"
    entries = project / "store" / "store"
    named = ("word-1", "part-2", "tree-3", "folder-4", "tool-5")
    for name in (*named, "other-6", "word-1-more"):
        (entries / name / "bin").mkdir(parents=True)
    shutil.copy("/bin/sh", entries / "tool-5/bin/sh")
    script = f"""
        for name in {" ".join(named)}; do test -d $0/$name/bin || {{ echo $name is missing; exit 1; }}; done
        test "$(ls $0 | wc -l)" = {len(named)} || {{ ls $0; exit 2; }}
        : > a.out
    """
    step = Step(
        command=("{tool:own}", "-c", script, "{store}/store", "{store}/store/word-1", "-I={store}/store/part-2")
    )
    trees = (
        Tree(name="a", identity="tree-3"),
        Tree(name="b", identity="measured/x", folders=(entries / "folder-4/bin",)),
    )
    own = Tool(name="own", path=entries / "tool-5/bin/sh", digest="1")
    made = action("a", "", steps=(step,), tools=(own,), trees=trees)
    result = boxed(project, made)["a"]
    assert result.status is ActionStatus.DONE, result.output


def test_there_is_no_network_and_no_other_process(tmp_path: Path) -> None:
    script = """
        test "$(ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ')" = lo || exit 1
        test "$(ls -d /proc/[0-9]* | wc -l)" -lt 10 || exit 2
        echo fine > a.out
    """
    assert boxed(tmp_path / "p", action("a", script))["a"].status is ActionStatus.DONE


def test_an_action_sees_what_its_inputs_came_with_and_not_what_others_make(tmp_path: Path) -> None:
    first = action("first", "echo 1 > first.out; echo 2 > first.h")
    first = replace(first, outputs=("{work}/first.out", "{work}/first.h"))
    other = action("other", "echo 3 > other.out")
    script = "cat first.out first.h > second.out; test ! -e other.out"
    second = replace(action("second", script), inputs=("{project}/second", "{work}/first.out"), implicit=())
    results = boxed(tmp_path / "p", other, first, second)
    assert {one.status for one in results.values()} == {ActionStatus.DONE}, results
    assert (tmp_path / "p/.kernel-builder/second.out").read_text() == "1\n2\n"


def test_a_failure_leaves_nothing_and_says_what_was_said(tmp_path: Path) -> None:
    result = boxed(tmp_path / "p", action("a", "echo half > a.out; echo 'a:1: error: no' >&2; exit 1"))["a"]
    assert (result.status, result.output) == (ActionStatus.FAILED, ("a:1: error: no",))
    assert not (tmp_path / "p/.kernel-builder/a.out").exists()


def test_what_was_made_outside_does_not_count_inside(tmp_path: Path) -> None:
    cache, made = ActionCache(tmp_path / "cache"), action("a", "echo 1 > a.out")
    plan = plan_of(tmp_path / "p", made)
    run(plan, cache=cache)
    assert boxed(tmp_path / "p", made, cache=cache)["a"].status is ActionStatus.DONE
    assert boxed(tmp_path / "p", made, cache=cache)["a"].status is ActionStatus.UP_TO_DATE


def test_checks_of_our_own_run_outside(tmp_path: Path) -> None:
    (tmp_path / "beside").touch()
    check = replace(action("a", f"test -e {tmp_path}/beside && : > a.out"), kind=ActionKind.INSPECT)
    assert boxed(tmp_path / "p", check)["a"].status is ActionStatus.DONE


def test_a_compile_finds_the_system_headers_and_not_those_of_other_packages(tmp_path: Path) -> None:
    cxx = Path(shutil.which("g++") or "/usr/bin/g++")
    own, shared = header_folders(cxx, os.environ, Family.GCC)
    tool = Tool(name="c++", path=cxx, digest="1", headers=tuple(own), shared=tuple(shared))
    strange = next((path for path in Path("/usr/include").glob("*.h") if path.name in {"zlib.h", "ncurses.h"}), None)
    source = "#include <vector>\n#include <stdio.h>\n#include <sys/stat.h>\n#include <linux/if.h>\n"
    if strange is not None:
        source += f"#if __has_include(<{strange.name}>)\n#error it is seen\n#endif\n"
    (tmp_path / "p").mkdir()
    (tmp_path / "p/a.cpp").write_text(source, encoding="ascii")
    words = ("-c", "{project}/a.cpp", "-o", "{work}/a.o", "-MD", "-MF", "{work}/a.d")
    made = action("a.cpp", "", steps=(Step(command=("{tool:c++}", *words)),), tools=(tool,))
    made = replace(made, outputs=("{work}/a.o",), depfile="{work}/a.d")
    result = boxed(tmp_path / "p", made)["a.cpp"]
    assert result.status is ActionStatus.DONE, result.output


@pytest.mark.parametrize("script", ["echo 'setting up uid map: Permission denied' >&2; exit 1", None])
def test_where_it_cannot_run_that_is_said(tmp_path: Path, script: str | None) -> None:
    if script is not None:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(MachineError) as caught:
        find_bubblewrap({"PATH": str(tmp_path)})
    assert "--sandbox" in caught.value.message
    assert ("uid map: Permission denied" in caught.value.message) == (script is not None)
    assert "kernel-builder build --try-sandbox" in (caught.value.hint or "")
