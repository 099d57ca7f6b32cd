"""What decides an action and is in no file that it is given: times, variables, and files that change while it waits."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine_actions import action, plan_of, run, shell, statuses
from kernel_builder.actions.model import COMPILER_ENVIRONMENT, Action, Step, Tool
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.protocol import EngineResult
from kernel_builder.engine.records import headers
from kernel_builder.errors import BuildError
from kernel_builder.events import Event, Recorder, StepStarted
from kernel_builder.plan.model import BuildPlan


def compiling(source: str = "a.c") -> Action:
    """Compiles the project's ``source``."""
    compiler = Tool(name="cc", path=Path(shutil.which("cc") or "/usr/bin/cc"), digest="1")
    words = f"-MMD -MF a.d -I{{project}} -c {{project}}/{source} -o {{work}}/a.o"
    made = action(source, "", steps=(Step(command=("{tool:cc}", *words.split())),), tools=(compiler,))
    return replace(made, outputs=("{work}/a.o",), depfile="{work}/a.d", environment=COMPILER_ENVIRONMENT)


def built(root: Path, cache: ActionCache | None, *actions: Action, **variables: str) -> EngineResult:
    environ = {"PATH": os.environ["PATH"], **variables}
    return run(plan_of(root, *actions), cache=cache, environ=environ)


def became(root: Path, cache: ActionCache | None, *actions: Action, **variables: str) -> list[str]:
    return list(statuses(built(root, cache, *actions, **variables)).values())


def project(root: Path, **files: str) -> Path:
    root.mkdir(exist_ok=True)
    for name, text in files.items():
        (root / name.replace("_", ".")).write_text(text)
    return root


@pytest.mark.parametrize("variable", ["SOURCE_DATE_EPOCH", "NIX_CFLAGS_COMPILE"])
def test_a_variable_that_decides_counts_here_and_in_the_cache(tmp_path: Path, variable: str) -> None:
    cache, root = ActionCache(tmp_path / "cache"), project(tmp_path / "k", a_c="const char *a = __DATE__ __TIME__;\n")
    for value, expected in (("5", "done"), ("5", "up to date"), ("900000", "done"), ("5", "from the cache")):
        assert became(root, cache, compiling(), **{variable: value}) == [expected]


@pytest.mark.parametrize(
    "variable",
    ["CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LD_RUN_PATH",
     "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CCC_OVERRIDE_OPTIONS", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES",
     "LD_PRELOAD", "GCC_COLORS", "CCC_ADD_ARGS", "CL", "ZERO_AR_DATE", "LDFLAGS", "CFLAGS"],
)  # fmt: skip
def test_a_variable_that_compilers_read_behind_the_plans_back_does_not_reach_them(
    tmp_path: Path, variable: str
) -> None:
    entry = action("x", "env > x.out", environment=COMPILER_ENVIRONMENT)
    root = project(tmp_path / "k")
    assert became(root, None, entry, **{variable: "/nothing"}) == ["done"]
    seen = (root / ".kernel-builder" / "x.out").read_text().splitlines()
    assert not any(line.startswith(f"{variable}=") for line in seen)


def test_the_time_of_a_source_that_asks_for_it_counts(tmp_path: Path) -> None:
    """It may come from a header; of other sources, times are nothing."""
    cache, root = ActionCache(tmp_path / "cache"), tmp_path / "k"
    project(root, a_c='#include "a.h"\nconst char *a = STAMP;\n', a_h="#define STAMP __TIMESTAMP__\n")
    for at, expected in ((1000, "done"), (1000, "up to date"), (90_000, "done"), (1000, "from the cache")):
        os.utime(root / "a.c", (at, at))
        assert became(root, cache, compiling()) == [expected]
    assert b"Jan  1 00:16:40 1970" in (root / ".kernel-builder" / "a.o").read_bytes()
    project(root, a_h='#define STAMP "none"\n')
    for at, expected in ((1000, "done"), (90_000, "up to date")):
        os.utime(root / "a.c", (at, at))
        assert became(root, cache, compiling()) == [expected]


@pytest.mark.parametrize("ahead", [3600, 86400 * 365 * 50])
def test_a_file_whose_time_is_to_come_is_no_reason_to_compile_again(tmp_path: Path, ahead: int) -> None:
    """As archives have them, and machines whose clock was wrong."""
    cache, root = ActionCache(tmp_path / "cache"), project(tmp_path / "k", a_c='#include "a.h"\n', a_h="int a;\n")
    for name in ("a.c", "a.h"):
        os.utime(root / name, (time.time() + ahead, time.time() + ahead))
    for expected in ("done", "up to date"):
        assert became(root, cache, compiling()) == [expected]
    shutil.rmtree(root / ".kernel-builder")
    assert became(root, cache, compiling()) == ["from the cache"]


def test_other_contents_of_the_same_time_and_size_are_seen(tmp_path: Path) -> None:
    root = project(tmp_path / "k", a_c="int a1;\n")
    os.utime(root / "a.c", (1000, 1000))
    assert became(root, None, compiling()) == ["done"]
    project(root, a_c="int a2;\n")
    os.utime(root / "a.c", (1000, 1000))
    assert became(root, None, compiling()) == ["done"]
    os.utime(root / "a.c", (2000, 2000))
    assert became(root, None, compiling()) == ["up to date"]


class Meanwhile(Recorder):
    """Does something while the first action begins."""

    def __init__(self, act: object) -> None:
        super().__init__()
        self._act = act

    def emit(self, event: Event) -> None:
        super().emit(event)
        if isinstance(event, StepStarted) and self._act is not None:
            act, self._act = self._act, None
            act()  # type: ignore[operator]


def waiting(root: Path) -> BuildPlan:
    """A slow action, then one that had to wait for it and reads ``a``."""
    slow = action("s", "sleep 0.3; : > s.out")
    return plan_of(root, slow, action("a", "cat ../a > a.out"))


def test_a_file_that_changes_while_its_action_waits_is_never_taken_for_what_it_was(tmp_path: Path) -> None:
    """The cache has what the former contents make, under which it was looked up."""
    cache = ActionCache(tmp_path / "cache")
    run(waiting(project(tmp_path / "first", a="old")), cache=cache)
    root = project(tmp_path / "second", a="mid", s="other")
    run(waiting(root))
    project(root, a="old", s="more")
    run(waiting(root), Meanwhile(lambda: (root / "a").write_text("new")), cache=cache, jobs=1)
    run(waiting(root), cache=cache)
    assert (root / ".kernel-builder" / "a.out").read_text() == "new"
    assert set(statuses(run(waiting(root), cache=cache)).values()) == {"up to date"}


def test_what_is_made_of_a_changing_file_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    """Its maker is not recorded, and those after it run all the same."""
    root = project(tmp_path / "k", x="old\n")
    first = action("x", "cat ../x > x.out; test ! -e ../touch || echo again >> ../x")
    second = action("y", "cp x.out y.out", inputs=("{work}/x.out",))
    assert set(statuses(run(plan_of(root, first, second))).values()) == {"done"}
    project(root, x="new\n", touch="")
    assert set(statuses(run(plan_of(root, first, second))).values()) == {"done"}
    assert (root / ".kernel-builder" / "y.out").read_text() == "new\n"


def test_an_input_that_goes_before_its_turn_is_told(tmp_path: Path) -> None:
    root = project(tmp_path / "k", a="1")
    with pytest.raises(BuildError, match=r"k/a, which a needs, is missing"):
        run(waiting(root), Meanwhile((root / "a").unlink), jobs=1)
    project(root, a="1")
    assert set(statuses(run(waiting(root))).values()) <= {"done", "up to date"}


def chain(back: str) -> Action:
    """Preprocesses and compiles ``a.cu``, of which the compiler uses no lines unless the text asks for them."""
    steps = (
        Step(command=shell("cpp ../a.cu > a.i; printf 'a.o: ../a.cu\\n' > a.d")[0].command, writes=("{work}/a.i",)),
        Step(
            command=shell(back)[0].command,
            reads=("{work}/a.i",),
            texts=("{work}/a.i",),
            writes=("{work}/a.o",),
        ),
    )
    return replace(action("a.cu", "", steps=steps), outputs=("{work}/a.o",), depfile="{work}/a.d")


@pytest.mark.parametrize(
    ("text", "is_compiled_again"),
    [
        ("int a;\n", False),
        ("int a = __builtin_LINE();\n", True),
        ("int f(int line = __builtin_LINE()) { return line; }\nint g() { return f(); }\n", True),
        ("auto a = __builtin_source_location();\n", True),
        ("const char *a = __builtin_FILE();\n", True),
        ("int a = __LINE__;\n", True),
    ],
)
def test_lines_count_where_only_the_compiler_knows_them(tmp_path: Path, text: str, is_compiled_again: bool) -> None:
    cache, root, runs = ActionCache(tmp_path / "cache"), project(tmp_path / "k"), tmp_path / "runs"
    entry = chain(f"echo x >> {runs}; cp a.i a.o")
    for lines in ("", "\n\n"):
        (root / "a.cu").write_text(lines + text)
        assert became(root, cache, entry) == ["done"]
    assert len(runs.read_text().split()) == (2 if is_compiled_again else 1)


@pytest.mark.parametrize("names", [("a b", "c d e"), ("a#b", "c"), ("$a", "b"), ("a", "b$ #c"), ("a\\ b", "c")])
def test_the_list_of_headers_has_the_paths_of_where_it_is(tmp_path: Path, names: tuple[str, str]) -> None:
    """Compilers write blanks and the like in a way of their own there."""
    cache, expected = ActionCache(tmp_path / "cache"), ["done"]
    for name in names:
        root = project(tmp_path / name, a_c='#include "a.h"\n', a_h="int a;\n")
        assert became(root, cache, compiling()) == expected
        expected = ["from the cache"]
        work = root / ".kernel-builder"
        assert headers(work / "a.d") == (f"{root}/a.c", f"{root}/a.h")
        assert str(tmp_path / names[0]) not in (work / "a.d").read_text() or name == names[0]
