"""What an edit costs: a file of Python is no reason to compile, link or inspect anything."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import pytest

from conftest import CPU, ProjectMaker, Result, Tool, commit
from kernel_builder.load import child, client
from kernel_builder.load.client import Environment

ARGUMENTS = ("--variant", CPU, "--json", "--no-load")


def build(tool: Tool, root: Path) -> Result:
    built = tool("build", root, *ARGUMENTS)
    assert built.code == 0, built.stderr
    return built


def steps(result: Result) -> list[str]:
    """What was run, as progress shows it."""
    return [line for line in result.stderr.splitlines() if line.startswith("[")]


def made(root: Path) -> dict[str, int]:
    """Everything that compilers and linkers made, and when."""
    work = root / ".kernel-builder" / CPU
    return {str(path): path.stat().st_mtime_ns for path in work.rglob("*") if path.suffix in {".o", ".so"}}


def test_an_edit_of_python_links_nothing_and_loads_beside_the_former_build(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")  # whose libraries the kernel needs
    # What torch exports takes half a second to be read, and was compared when the library was linked.
    monkeypatch.setattr("kernel_builder.check.library_undefined.installed_exports", None)
    root = make_project("loop", {"a.cpp": 'static int count; extern "C" int a() { return ++count; }\n'})
    commit(root)
    python = root / "torch-ext" / "loop" / "__init__.py"
    build(tool, root)
    libraries: list[Path] = []
    before: dict[str, int] = {}
    for edit in range(3):
        python.write_text(f"from . import _ops\nedit = {edit}\n", encoding="ascii")
        result = build(tool, root)
        assert result.compiled() == []
        assert made(root).keys() == before.keys() or not before
        if before:  # the first edit of a clean tree makes a longer name
            assert steps(result) == []
            assert made(root) == before
        before = made(root)
        variant = tmp_path / f"edit-{edit}"
        shutil.copytree(root / "build" / CPU, variant)
        (library,) = variant.glob("*.abi3.so")
        assert library.name == f"{result.variant()['ops-id']}.abi3.so"
        libraries.append(library)

    opened = [ctypes.CDLL(str(library), mode=os.RTLD_LAZY) for library in libraries]
    assert len({library.name for library in libraries}) == 3
    for library, handle in zip(libraries, opened, strict=True):
        assert hasattr(handle, f"PyInit_{library.name.removesuffix('.abi3.so')}")
    assert [handle.a() for handle in (*opened, *opened)] == [1, 1, 1, 2, 2, 2]


def test_commits_that_differ_in_python_share_what_was_linked(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("shared", {"a.cpp": 'extern "C" int a() { return 1; }\n'})
    commit(root)
    build(tool, root)
    before = made(root)
    (root / "torch-ext" / "shared" / "__init__.py").write_text("from . import _ops\nx = 1\n", encoding="ascii")
    commit(root)
    result = build(tool, root)
    assert steps(result) == []
    assert made(root) == before
    assert result.variant()["status"] == "built"


def test_what_says_its_name_elsewhere_is_linked_under_it(tool: Tool, make_project: ProjectMaker) -> None:
    """A source that uses the name in a way of its own may have it anywhere, in instructions also."""
    pytest.importorskip("torch")  # whose libraries the kernel needs
    text = """\
#define TEXT(X) #X
#define NAME(X) TEXT(X)
extern "C" const char *name() { return NAME(TORCH_EXTENSION_NAME); }
"""
    root = make_project("early", {"a.cpp": text})
    commit(root)
    for edit in range(2):
        (root / "torch-ext" / "early" / "__init__.py").write_text(f"from . import _ops\nx = {edit}\n", encoding="ascii")
        result = build(tool, root)
        (library,) = (root / "build" / CPU).glob("*.abi3.so")
        handle = ctypes.CDLL(str(library), mode=os.RTLD_LAZY)
        handle.name.restype = ctypes.c_char_p
        assert handle.name().decode() == result.variant()["ops-id"]
        assert result.compiled() == ["a.cpp"]


def test_what_the_kernel_says_is_left_alone(tool: Tool, make_project: ProjectMaker) -> None:
    """Linkers keep a text that is the end of another one within it: names, and strings that a source has."""
    pytest.importorskip("torch")  # whose libraries the kernel needs
    root = make_project("ends", {"a.cpp": 'extern "C" int a() { return 0; }\n'})
    build(tool, root)
    (linked,) = (root / ".kernel-builder" / CPU).glob("*.abi3.so")
    stand_in = linked.name.removesuffix(".abi3.so").rpartition("_")[2]
    ends = [stand_in[at:] for at in range(len(stand_in))]
    letters = "abcdef"
    texts = "".join(f'const char *text_{at}() {{ return "{end}"; }}\n' for at, end in enumerate(ends))
    functions = "".join(f"int {letter}() {{ return {at}; }}\n" for at, letter in enumerate(letters))
    (root / "a.cpp").write_text(f'extern "C" {{\n{texts}{functions}}}\n', encoding="ascii")
    build(tool, root)
    assert stand_in in {path.name.removesuffix(".abi3.so").rpartition("_")[2] for path in linked.parent.glob("*.so")}
    (library,) = (root / "build" / CPU).glob("*.abi3.so")
    handle = ctypes.CDLL(str(library), mode=os.RTLD_LAZY)
    found = []
    for at in range(len(ends)):
        function = handle[f"text_{at}"]
        function.restype = ctypes.c_char_p
        found.append(function().decode())
    assert found == ends
    assert [handle[letter]() for letter in letters] == list(range(len(letters)))


LOADED = """\
import torch

from . import _ops

seen = []


def ran():
    seen.append(1)


def unused(x):
    return x + {number}


ran()
constant = {constant}
"""


def test_a_proof_holds_while_only_what_did_not_run_changes(
    tool: Tool, session_store: Path, make_project: ProjectMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    asked: list[str] = []
    described, loaded = child.ask, Environment.ask

    def ask(python: Path, environ: dict[str, str], task: str, *rest: object, **named: object) -> object:
        asked.append(task)
        return described(python, environ, task, *rest, **named)  # type: ignore[arg-type]

    def ask_environment(here: Environment, task: str, *rest: object) -> object:
        asked.append(task)
        return loaded(here, task, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(client, "ask", ask)
    monkeypatch.setattr(Environment, "ask", ask_environment)
    root = make_project("proof", {"a.cpp": 'extern "C" int a() { return 1; }\n'})
    python = root / "torch-ext" / "proof" / "__init__.py"
    python.write_text(LOADED.format(number=1, constant=1), encoding="ascii")
    commit(root)
    said: list[tuple[bool, str | None]] = []
    # The first is what was committed, whose name is shorter: that is no reason to load what comes after it.
    for number, constant in ((1, 1), (2, 1), (3, 1), (3, 2), (4, 2)):
        python.write_text(LOADED.format(number=number, constant=constant), encoding="ascii")
        before = {*(session_store / "proofs").glob("*.json")}
        asked.clear()
        built = tool("build", root, "--variant", CPU, "--json")
        assert built.code == 0, built.stderr
        load = built.variant()["load"]
        assert isinstance(load, dict)
        assert load["status"] == "loaded"
        said.append(("load" in asked, load["reason"]))
        # Only a variant that was loaded has a proof, which is what uploading looks for.
        assert bool({*(session_store / "proofs").glob("*.json")} - before) is ("load" in asked)
    kept = "not again: only files that loading it does not run changed (__init__.py: unused)"
    assert said == [(True, None), (False, kept), (False, kept), (True, None), (False, kept)]
    # Where nothing is left of a build, its proof is: another checkout, or after git clean.
    for folder in ("build", ".kernel-builder"):
        shutil.rmtree(root / folder)
    python.write_text(LOADED.format(number=3, constant=2), encoding="ascii")
    asked.clear()
    again = tool("build", root, "--variant", CPU, "--json")
    assert (again.code, again.compiled(), "load" in asked) == (0, [], False)
    # What the active environment has is known by now, whoever wants to know it.
    for number in (5, 6):
        python.write_text(LOADED.format(number=number, constant=2), encoding="ascii")
        asked.clear()
        assert tool("build", root, "--local").code == 0
    assert asked == []
