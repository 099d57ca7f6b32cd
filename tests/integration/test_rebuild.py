"""What a build came from gives the same again; what does not is told."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD_TOML, ProjectMaker, Tool, commit
from hub import Account, State, serve

pytestmark = [pytest.mark.slow, pytest.mark.torch]

CPU = f"torch213-cxx11-cpu-{platform.machine()}-linux"
FILES = {
    "a.cpp": """\
#include "h.h"
static const char *volatile when = __DATE__;
__attribute__((constructor)) static void check() { if (when[0] == VALUE) __builtin_trap(); }
""",
    "h.h": "#define VALUE 2\n",
}
ME = "hf_me"
BUILD = ("--variant", CPU, "--no-load", "--no-cache")


@pytest.fixture
def project(make_project: ProjectMaker) -> Path:
    """A committed project."""
    root = make_project("again", FILES)
    commit(root)
    return root


def test_a_build_is_what_its_commit_gives_wherever_it_lies(tool: Tool, project: Path, tmp_path: Path) -> None:
    assert tool("build", project, *BUILD).code == 0
    published = tmp_path / "published"
    shutil.copytree(project / "build", published)
    commit(project, "later")
    (project / "a.cpp").write_text("broken", encoding="utf-8")  # what is here now does not count
    result = tool("rebuild", "--verify", published, "--project", project, "--json", "--try-sandbox")
    assert result.code == 0, result.stderr
    (variant,) = json.loads(result.stdout)["variants"]
    assert (variant["name"], variant["same"]) == (CPU, True)
    assert not (project / ".git" / "worktrees").exists() or not list((project / ".git" / "worktrees").iterdir())
    # Builds of older versions tell less of what made them.
    metadata = published / CPU / "metadata.json"
    document = json.loads(metadata.read_text(encoding="utf-8"))
    document["provenance"] = {"kernel-builder": {"version": "0.0.9"}, "kernel": document["provenance"]["kernel"]}
    old = tmp_path / "old"
    shutil.copytree(published, old)
    (old / CPU / "metadata.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    result = tool("rebuild", "--verify", old, "--project", project)
    assert result.code == 0, result.stdout
    assert "  built with kernel-builder 0.0.9, here " in result.stdout
    (published / CPU / "_ops.py").write_text("import os\n", encoding="utf-8")
    changed = tool("rebuild", "--verify", published, "--project", project)
    assert changed.code == 1
    assert "_ops.py was changed after the build" in changed.stderr


def test_what_differs_is_named(tool: Tool, project: Path) -> None:
    other_day = Tool({**tool.environment, "SOURCE_DATE_EPOCH": "1700000000"})
    built = other_day("build", project, *BUILD)
    assert built.code == 0, built.stderr
    kept = project.parent / "kept"
    result = tool("rebuild", "--verify", project, "--output", kept)
    assert result.code == 1, result.stderr
    assert "_again_cpu_" in result.stdout
    assert "__DATE__" in result.stdout
    assert "0 of 1 variants match a rebuild of commit" in result.stdout
    assert (kept / CPU / "metadata.json").is_file()


def test_sources_in_no_commit_cannot_be_built_again(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("again", FILES)
    assert tool("build", root, *BUILD).code == 0
    result = tool("rebuild", "--verify", root)
    assert result.code == 1
    assert f"{CPU} does not record which commit it was built from" in result.stderr
    assert "commit the sources, then build them: kernel-builder build" in result.stderr
    commit(root)
    (root / "h.h").write_text("#define VALUE 5\n", encoding="utf-8")
    assert tool("build", root, *BUILD).code == 0
    result = tool("rebuild", "--verify", root)
    assert result.code == 1
    assert f"{CPU} was built from uncommitted sources" in result.stderr


def test_another_repository_is_refused(tool: Tool, project: Path, make_project: ProjectMaker) -> None:
    assert tool("build", project, *BUILD).code == 0
    other = make_project("again", FILES, directory="other")
    commit(other, "another")
    result = tool("rebuild", "--verify", project / "build", "--project", other)
    assert result.code == 2
    assert "it has no such commit" in result.stderr
    nowhere = tool("rebuild", "--verify", "nowhere")
    assert nowhere.code == 2
    assert "neither a directory nor a revision on the Hub" in nowhere.stderr
    assert tool("rebuild", project).code == 2


def wrapper(folder: Path, version: str, *options: str) -> Path:
    """A g++ of another ``version`` that compiles with ``options`` besides."""
    real = shutil.which("g++")
    script = f"""\
#!/bin/sh
case "$1" in -dumpfullversion) echo {version}; exit;; esac
exec {real} "$@" {" ".join(options)}
"""
    folder.mkdir()
    (folder / "g++").write_text(script, encoding="ascii")
    (folder / "g++").chmod(0o755)
    return folder / "g++"


def test_another_compiler_is_named_whether_or_not_it_makes_a_difference(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    root = make_project("compiled", {"a.cpp": "int f(int n) { int s = 0; while (n) s += n--; return s; }\n"})
    commit(root)
    assert tool("build", root, *BUILD).code == 0
    metadata = json.loads((root / "build" / CPU / "metadata.json").read_text(encoding="utf-8"))
    compiler = metadata["provenance"]["tools"][0]
    assert compiler["name"] == "g++"
    assert {"g++", "cc1plus", "as", "ld", "libstdc++.a"} <= {*compiler["sha256"]}
    for folder, options, code in (("alike", (), 0), ("other", ("-O1", "-fno-stack-protector", "-fno-inline"), 1)):
        here = Tool({**tool.environment, "CXX": str(wrapper(tmp_path / folder, "13.1.0", *options))})
        result = here("rebuild", "--verify", root)
        assert result.code == code, (result.stdout, result.stderr)
        version, target = compiler["version"], compiler["target"]
        assert f"  built with g++ {version} for {target}, here 13.1.0 for {target}\n" in result.stdout
        assert ("section .text" in result.stdout) == (code == 1)


def test_changed_files_are_named(tool: Tool, make_project: ProjectMaker) -> None:
    """A tree that git takes for its commit, and that is another."""
    given = {**FILES, "torch-ext/again/table.json": "1\n", "torch-ext/again/more.py": "X = 1\n", "i.h": "\n"}
    toml = BUILD_TOML.format(name="again", sources='"a.cpp", "h.h", "i.h"').replace(
        "[torch]", '[torch]\npyext = ["json"]'
    )
    root = make_project("again", given, toml=toml)
    (root / "a.cpp").write_text(f'#include "i.h"\n{FILES["a.cpp"]}', encoding="utf-8")
    commit(root)
    changed = {
        "h.h": "#define VALUE 3\n",
        "torch-ext/again/table.json": "2\n",
        "torch-ext/again/more.py": "X = 2\n",
        "build.toml": (root / "build.toml").read_text(encoding="utf-8") + 'cxx-flags = ["-O1"]\n',
    }
    subprocess.run(["git", "update-index", "--assume-unchanged", *changed, "i.h"], cwd=root, check=True)
    for name, text in changed.items():
        (root / name).write_text(text, encoding="utf-8")
    assert tool("build", root, *BUILD).code == 0
    result = tool("rebuild", "--verify", root)
    assert result.code == 1, result.stderr
    lines = result.stdout.splitlines()
    for name in changed:
        assert [line for line in lines if line.startswith(f"  built from another {name}: ")], result.stdout
    assert not [line for line in lines if "i.h" in line]
    assert "  a.cpp was compiled with -O1, here without" in lines
    assert [line for line in lines if line == "  more.py: line 1: 'X = 2', here 'X = 1'"]
    assert "provenance.sources.files" not in result.stdout


def test_the_type_of_a_build_is_that_of_the_build(tool: Tool, project: Path) -> None:
    """A build with lines for profilers is built with these again."""
    assert tool("build", project, *BUILD, "--lineinfo").code == 0
    result = tool("rebuild", "--verify", project, "--json")
    document = json.loads(result.stdout)
    assert "a build with --lineinfo contains the paths of its directories" in document["notes"][-1]
    told = [line for one in document["variants"][0]["differences"] for line in one["how"]]
    assert not any("build-type" in line for line in told), told


@pytest.mark.network
def test_what_is_on_the_hub_is_built_again(tool: Tool, make_project: ProjectMaker, tmp_path: Path) -> None:
    package = {"torch-ext/light/__init__.py": '"""Nothing but a library."""\n\n__all__: list[str] = []\n'}
    root = make_project("light", {"a.cpp": "int light(int n) { return 2 * n; }\n", **package})
    commit(root)
    state = State(tmp_path / "hub", accounts=[Account(name="me", token=ME)])
    with serve(state, keep=False) as hub:
        me = Tool({**tool.environment, **hub.environment(ME, tmp_path / "home")})
        assert me("build", root, *BUILD).code == 0
        sent = me("upload", root, "--repo-id", "me/light")
        assert sent.code == 0, sent.stderr
        result = me("rebuild", "--verify", "me/light@v1", "--project", root)
        assert result.code == 0, (result.stdout, result.stderr)
        assert f"{CPU}: the same," in result.stdout
        missing = me("rebuild", "--verify", "me/light@v2", "--project", root)
        assert missing.code != 0
        assert "Traceback" not in missing.stderr
