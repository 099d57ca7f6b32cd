"""What a new backend takes: one module and one row of a table, and then its kernels are planned, built, checked and
described. Its compiler is a shell script; the host's is the real one.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest

from conftest import Result, Tool, commit
from made_up import SOURCES, package_with_toy

pytestmark = pytest.mark.slow
NAME = "torch213-cxx11-toy10-x86_64-linux"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, frozenset[str]]:
    return package_with_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def toy(package: tuple[Path, frozenset[str]], session_store: Path, tmp_path: Path) -> Tool:
    """The command line that knows the backend, with a toolkit of its own to break."""
    home = tmp_path / "toolkit"
    shutil.copytree(SOURCES / "bin", home / "bin")
    return Tool(
        {
            **os.environ,
            "PYTHONPATH": str(package[0]),
            "KERNEL_BUILDER_CACHE": str(session_store),
            "TOY_HOME": str(home),
            "PYTHONDONTWRITEBYTECODE": "",  # each command would compile this copy's Python again
        }
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "toy-thing"
    shutil.copytree(SOURCES / "project", root)
    commit(root)
    return root


def built(toy: Tool, root: Path, *more: str) -> Result:
    return toy.apart("build", root, "--variant", NAME, "--json", *more)


def test_it_takes_one_module_and_its_rows(package: tuple[Path, frozenset[str]]) -> None:
    assert package[1] == {"backends/toy.py", "data/backends.toml", "data/support.toml"}


def test_its_variants_are_planned_as_a_graph(toy: Tool, project: Path) -> None:
    planned = built(toy, project, "--dry-run")
    assert planned.code == 0, planned.stderr
    variants = planned.json["variants"]
    assert isinstance(variants, list)
    (variant,) = variants
    made = [(step["kind"], step["source"], step["architecture"]) for step in variant["steps"]]
    library = f"{variant['ops-id'].rpartition('_toy_')[0]}_toy.abi3.so"
    assert made == [
        ("compile", "torch-ext/binding.cpp", None),
        ("device", "thing.toy", "t1"),
        ("device", "thing.toy", "t2"),
        ("bundle", "thing.toy", None),
        ("compile", "thing.toy", None),
        ("compile", "host.cpp", None),
        ("compile", "(module)", None),
        ("link", library, None),
        ("inspect", library, None),
    ]
    first = variant["steps"][1]
    assert first["command"][-2:] == ["-fast", "{braces}"]
    assert len(first["outputs"]) == 2
    assert variant["toolchain"]["toy"] == "1.0"
    assert variant["metadata"]["backend"] == {"type": "toy", "archs": ["t1", "t2"]}
    assert any("t9 dropped; with Toy 1.0, kernels are built for t1, t2" in str(note) for note in planned.json["notes"])  # type: ignore[attr-defined]
    text = toy.apart("build", project, "--variant", NAME, "--dry-run", "-v").stdout
    assert "device thing.toy" in text


def test_they_are_built_checked_and_described(toy: Tool, project: Path) -> None:
    result = built(toy, project, "--no-cache")  # other tests compile the same C++
    assert result.code == 0, result.stderr
    assert sorted(result.compiled(NAME)) == ["host.cpp", "thing.toy", "torch-ext/binding.cpp"]
    load = result.variant(NAME)["load"]
    assert isinstance(load, dict)
    assert load["status"] == ("loaded with stand-ins" if importlib.util.find_spec("torch") else "not loaded here")
    assert "the installed kernels client does not know the backend" in load["reason"] or not load["ops"]
    metadata = json.loads((project / "build" / NAME / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["backend"] == {"type": "toy", "archs": ["t1", "t2"]}
    (library,) = (project / "build" / NAME).glob("_toy_thing_toy_*.abi3.so")
    assert b"t1 twice 2;t1 thrice 3;t2 twice 2;t2 thrice 3;" in library.read_bytes()

    checked = toy.apart("check", project / "build", "--format", "json")
    assert checked.code == 0, checked.stdout
    card = toy.apart("card", project, "--repo-id", "someone/toy-thing")
    assert (card.code, "toy" in card.stdout) == (0, True), card.stderr

    again = built(toy, project)
    assert (again.variant(NAME)["status"], again.compiled(NAME)) == ("unchanged", [])


def test_builds_for_some_chips_only_are_marked_and_share_their_objects(toy: Tool, project: Path) -> None:
    some = built(toy, project, "--arch", "t1", "--no-load")
    assert some.code == 0, some.stderr
    metadata = json.loads((project / "build" / NAME / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["backend"] == {"type": "toy", "archs": ["t1"]}
    assert metadata["provenance"]["partial"] == {"left-out": ["t2"]}
    (library,) = (project / "build" / NAME).glob("*.abi3.so")
    assert b"t1 twice 2;t1 thrice 3;" in library.read_bytes()
    assert b"t2" not in library.read_bytes()
    checked = toy.apart("check", project / "build", "--select", "KB434")
    assert "built without t2" in checked.stdout
    refused = toy.apart("upload", project, "--repo-id", "me/toy-thing", "--dry-run")
    assert refused.code == 1
    assert f"{NAME} lacks t2; nothing was uploaded" in refused.stderr
    assert f"kernel-builder build {project} --variant {NAME}" in refused.stderr.replace("\n", " ")

    def made() -> set[tuple[str, str | None]]:
        lines = (project / ".kernel-builder" / "timeline.jsonl").read_text(encoding="utf-8").splitlines()
        spans = [json.loads(line) for line in lines]
        return {(span["source"], span["architecture"]) for span in spans if span.get("status") == "done"}

    assert built(toy, project, "--no-load").code == 0
    assert ("thing.toy", "t2") in made()
    assert ("thing.toy", "t1") not in made()
    again = built(toy, project, "--arch", "t1", "--no-load")
    assert (again.code, again.compiled(NAME)) == (0, [])


def test_what_its_compiler_refuses_is_told_with_its_words(toy: Tool, project: Path) -> None:
    (project / "thing.toy").write_text("broken\n", encoding="ascii")
    failed = toy.apart("build", project, "--variant", NAME, "--keep-going")
    assert failed.code == 1
    assert "thing.toy does not compile" in failed.stderr
    assert "this is broken on t1" in failed.stderr
    assert "this is broken on t2" in failed.stderr
    assert not (project / "build").exists()


def test_an_update_of_its_compiler_in_place_recompiles(toy: Tool, project: Path) -> None:
    assert built(toy, project, "--no-load").code == 0
    compiler = Path(toy.environment["TOY_HOME"]) / "bin" / "toycc"
    text = compiler.read_text(encoding="ascii")
    compiler.write_text(text.replace("{ return \\2 * x; }", "{ return \\2 + x; }"), encoding="ascii")
    assert text != compiler.read_text(encoding="ascii")
    updated = built(toy, project, "--no-load")
    assert (updated.code, "thing.toy" in updated.compiled(NAME)) == (0, True)


def test_without_its_toolkit_people_are_told_what_helps(toy: Tool, project: Path) -> None:
    shutil.rmtree(Path(toy.environment["TOY_HOME"]))
    refused = built(toy, project)
    assert refused.code == 4
    assert "it has no toycc" in refused.stderr
    assert "install Toy 1.0, and let TOY_HOME name it" in refused.stderr


@pytest.mark.torch
def test_what_it_made_computes(toy: Tool, project: Path) -> None:
    pytest.importorskip("torch")  # its libraries are needed by every kernel
    assert built(toy, project, "--no-load").code == 0
    (path,) = (project / "build" / NAME).glob("*.abi3.so")
    library = ctypes.CDLL(str(path), mode=os.RTLD_LAZY)
    assert (library.four_times(5), library.six_times(5)) == (20, 30)
