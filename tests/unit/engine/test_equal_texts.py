"""C++ sources that two toolkits make the same text of are compiled once. Real compilers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine_actions import action, plan_of, run
from kernel_builder.actions.model import Action, Step, Tool, Tree
from kernel_builder.actions.precompile import without_launcher
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.protocol import ActionResult
from kernel_builder.engine.texts import beside_the_text, text_command

GXX = shutil.which("g++")
pytestmark = pytest.mark.skipif(GXX is None, reason="g++ is not installed")

PLAIN = "int twice(int number) { return 2 * number; }\n"
FIRST, SECOND = "#define VERSION 130\n", "// newer\n#define VERSION 132\n"


def compiles(toolkit: Path, *options: str, gxx: str | None = GXX) -> Action:
    """Compiles ``a.cpp`` of a project where it finds the headers of ``toolkit``."""
    target, depfile = "{work}/a.cpp.out", "{work}/a.d"
    words = ("{tool:c++}", "-x", "c++", "-c", "{project}/a.cpp", "-o", target, "-MD", "-MF", depfile, "-O2")
    step = Step(command=(*words, "-isystem", "{tree:toolkit}", *options), writes=(target,))
    tree = Tree(name="toolkit", identity=toolkit.name, root=toolkit, folders=(toolkit,))
    tool = Tool(name="c++", path=Path(gxx or ""), digest="1")
    return action("a.cpp", "", steps=(step,), depfile=depfile, tools=(tool,), trees=(tree,))


def toolkit(root: Path, name: str, text: str) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "version.h").write_text(text)
    return folder


def became(root: Path, source: str, made: Action, cache: ActionCache | None) -> ActionResult:
    root.mkdir()
    (root / "a.cpp").write_text(source)
    (result,) = run(plan_of(root, made), cache=cache).results.values()
    return result


def second_of(
    tmp_path: Path, source: str, options: tuple[Sequence[str], Sequence[str]] = ((), ()), second: str = SECOND
) -> ActionResult:
    """What becomes of ``source`` for a second toolkit, after it was compiled for the first one."""
    cache = ActionCache(tmp_path / "cache")
    for name, text, own in (("first", FIRST, options[0]), ("second", second, options[1])):
        made = compiles(toolkit(tmp_path, f"toolkit-{name}", text), *own)
        result = became(tmp_path / name, source, made, cache)
    return result


def work_of(root: Path) -> Path:
    return root / ".kernel-builder"


def test_what_includes_nothing_of_the_toolkit_is_compiled_once(tmp_path: Path) -> None:
    assert second_of(tmp_path, PLAIN).status == "from the cache"
    work = work_of(tmp_path / "second")
    made = compiles(tmp_path / "toolkit-second")
    assert became(tmp_path / "afresh", PLAIN, made, None).status == "done"
    assert (work / "a.cpp.out").read_bytes() == (work_of(tmp_path / "afresh") / "a.cpp.out").read_bytes()
    assert f"{tmp_path}/second/a.cpp" in (work / "a.d").read_text()
    log = (work / "log" / "a.cpp.log").read_text()
    assert f"{tmp_path}/toolkit-second" in log
    assert str(tmp_path / "first") not in log
    assert not [path for path in work.rglob("*") if ".ii" in path.name]
    again = run(plan_of(tmp_path / "second", made), cache=ActionCache(tmp_path / "cache"))
    assert [result.status for result in again.results.values()] == ["up to date"]


@pytest.mark.parametrize(
    ("source", "options", "second", "expected"),
    [
        ("#include <version.h>\n" + PLAIN, ((), ()), SECOND, "from the cache"),
        ("#include <version.h>\nint version = VERSION;\n", ((), ()), SECOND, "done"),
        ("#if __has_include(<new.h>)\nint has;\n#endif\n", ((), ()), SECOND, "from the cache"),
        (PLAIN, (("-DUNUSED=1",), ("-D", "UNUSED=2", "-I/nowhere")), SECOND, "from the cache"),
        ("int used = USED;\n", (("-DUSED=1",), ("-DUSED=2",)), SECOND, "done"),
        (PLAIN, ((), ("-O3",)), SECOND, "done"),
        (PLAIN, (("-g",), ("-g",)), SECOND, "done"),
        (PLAIN, (("-g0",), ("-g0",)), SECOND, "from the cache"),
        ("#include <version.h>\nint line = __builtin_LINE();\n", ((), ()), FIRST, "done"),
        ("#include <version.h>\nint line = __LINE__;\n", ((), ()), SECOND, "from the cache"),
        ("#warning again\n" + PLAIN, ((), ()), SECOND, "done"),
    ],
)
def test_the_text_and_what_else_decides_an_object_decide(
    tmp_path: Path, source: str, options: tuple[Sequence[str], Sequence[str]], second: str, expected: str
) -> None:
    assert second_of(tmp_path, source, options, second).status == expected


def test_what_a_source_asks_for_decides(tmp_path: Path) -> None:
    """A header that nobody includes, but that is there."""
    cache, source = ActionCache(tmp_path / "cache"), "#if __has_include(<new.h>)\nint has;\n#endif\n"
    became(tmp_path / "first", source, compiles(toolkit(tmp_path, "toolkit-first", FIRST)), cache)
    second = toolkit(tmp_path, "toolkit-second", FIRST)
    (second / "new.h").touch()
    assert became(tmp_path / "second", source, compiles(second), cache).status == "done"


def test_what_is_wrong_is_said_once_by_the_compiler(tmp_path: Path) -> None:
    folder = toolkit(tmp_path, "toolkit", FIRST)
    for source, complaint in (("#include <gone.h>\n", "gone.h"), ("#warning odd\nint a = b;\n", "#warning odd")):
        cache = ActionCache(tmp_path / "cache")
        result = became(tmp_path / complaint.strip("# "), source, compiles(folder), cache)
        assert result.status == "failed"
        assert sum(f"{complaint}" in line and "a.cpp:1:" in line for line in result.output) == 1


def test_a_source_that_changes_while_it_is_compiled_is_not_kept(tmp_path: Path) -> None:
    """What was preprocessed is not what was compiled."""
    meddling = tmp_path / "g++"
    meddling.write_text(
        f'#!/bin/sh\nfor word; do [ "$word" = -c ] && echo "int other;" >> {tmp_path}/first/a.cpp; done\n'
        f'exec {GXX} "$@"\n'
    )
    meddling.chmod(0o755)
    cache = ActionCache(tmp_path / "cache")
    first = compiles(toolkit(tmp_path, "toolkit-first", FIRST), gxx=str(meddling))
    assert became(tmp_path / "first", PLAIN, first, cache).status == "done"
    second = compiles(toolkit(tmp_path, "toolkit-second", SECOND))
    assert became(tmp_path / "second", PLAIN, second, cache).status == "done"


def test_what_the_fallback_made_is_not_kept_for_the_text(tmp_path: Path) -> None:
    """It was made of another text."""
    cache = ActionCache(tmp_path / "cache")
    full = compiles(toolkit(tmp_path, "toolkit-first", FIRST))
    slim = replace(full.steps[0], command=(*full.command, "-fno-such-option"))
    first = became(tmp_path / "first", PLAIN, replace(full, steps=(slim,), fallback=full.steps), cache)
    assert first.fell_back is not None
    second = compiles(toolkit(tmp_path, "toolkit-second", SECOND))
    second = replace(second, steps=(replace(second.steps[0], command=(*second.command, "-fno-such-option")),))
    assert became(tmp_path / "second", PLAIN, replace(second, fallback=full.steps), cache).status == "done"


def test_only_sources_of_variants_with_a_toolkit_are_preprocessed_for_it(tmp_path: Path) -> None:
    made = compiles(tmp_path / "toolkit")
    assert text_command(made, "T") is not None
    assert text_command(replace(made, trees=()), "T") is None
    launched = ("{tool:python}", "-P", "{tool:launcher}", "--words", "0", *made.command)
    assert without_launcher(launched) == made.command
    assert text_command(replace(made, steps=(replace(made.steps[0], command=launched),)), "T") is None
    assert text_command(replace(made, steps=(*made.steps, *made.steps)), "T") is None
    for option in ("-flto", "-fsanitize=address", "-include-pch", "@file"):
        assert text_command(compiles(tmp_path / "toolkit", option), "T") is None


def test_options_that_decide_the_text_alone_are_left_out(tmp_path: Path) -> None:
    options = ("-I/a", "-I", "/b", "-DX", "-include", "x.h", "-ffile-prefix-map=/a=b", "-fPIC", "-std=c++20")
    words = beside_the_text(compiles(tmp_path / "toolkit", *options))
    compiler = ("{tool:c++}", "-x", "c++", "-c", "{project}/a.cpp", "-o", "{work}/a.cpp.out", "-O2")
    assert words == (*compiler, "-fPIC", "-std=c++20")
