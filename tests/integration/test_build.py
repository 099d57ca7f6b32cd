"""Builds of small projects by the real command, with real compilers.

Their sources need no torch, so each takes a second. Their C functions stay visible, so ctypes can call them.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from conftest import BUILD_TOML, CPU, ProjectMaker, Result, Tool, commit

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.usefixtures("unloaded")]

SECTIONS = """\
[general]
name = "apart"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/bind.cpp"]
cxx-flags = ["-DONLY_T"]

[kernel.a]
backend = "cpu"
depends = []
src = ["a/a.cpp", "a/util.h"]
include = ["a"]
cxx-flags = ["-DONLY_A"]

[kernel.b]
backend = "cpu"
depends = []
src = ["b/b.cpp", "b/util.h"]
include = ["b"]
cxx-flags = ["-DONLY_B"]
"""


def checked(result: Result) -> Result:
    assert result.code == 0, result.stderr + result.stdout
    return result


def library(root: Path, variant: str = CPU) -> ctypes.CDLL:
    """Open the library of a variant, with torch's libraries left out: these sources use none."""
    (path,) = (root / "build" / variant).glob("*.abi3.so")
    return ctypes.CDLL(str(path), mode=os.RTLD_LAZY)


def torch_is_here() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


needs_torch = pytest.mark.skipif(not torch_is_here(), reason="torch is not installed in this environment")


def test_sections_stay_apart(tool: Tool, make_project: ProjectMaker) -> None:
    """Case T6: each file fails to compile if it sees another section's macro or header, or lacks its own."""

    def source(own: str, others: str, body: str) -> str:
        wrong = " || ".join(f"defined({name})" for name in others.split())
        return f"#if !defined({own}) || {wrong}\n#error wrong macros\n#endif\n{body}\n"

    root = make_project(
        "apart",
        {
            "torch-ext/bind.cpp": source("ONLY_T", "ONLY_A ONLY_B", 'extern "C" int t() { return 1; }'),
            "a/a.cpp": source("ONLY_A", "ONLY_B ONLY_T", '#include <util.h>\nextern "C" int a() { return UTIL; }'),
            "a/util.h": "#define UTIL 10\n",
            "b/b.cpp": source("ONLY_B", "ONLY_A ONLY_T", '#include <util.h>\nextern "C" int b() { return UTIL; }'),
            "b/util.h": "#define UTIL 20\n",
        },
        toml=SECTIONS,
    )
    checked(tool("build", root, "--variant", CPU))
    plan = json.loads(checked(tool("build", root, "--variant", CPU, "--dry-run", "--json")).stdout)
    for step in plan["variants"][0]["steps"]:
        expected = {"a/a.cpp": {"-DONLY_A"}, "b/b.cpp": {"-DONLY_B"}, "torch-ext/bind.cpp": {"-DONLY_T"}}
        assert {word for word in step["command"] if word.startswith("-DONLY")} == expected.get(step["source"], set())


def test_equal_names_in_different_directories(tool: Tool, make_project: ProjectMaker) -> None:
    """Case T7: objects keep their whole path, so nothing overwrites anything."""
    root = make_project(
        "names",
        {
            "a/util.cpp": 'extern "C" int one() { return 1; }\n',
            "b/util.cpp": 'extern "C" int two() { return 2; }\n',
            "x/y.cpp": 'extern "C" int three() { return 3; }\n',
            "x_y.cpp": 'extern "C" int four() { return 4; }\n',
            "relu.c": "int five(void) { return 5; }\n",
            "relu.cpp": 'extern "C" int six() { return 6; }\n',
            "with space/a'b.cpp": 'extern "C" int seven() { return 7; }\n',
            "dollar$x.cpp": 'extern "C" int eight() { return 8; }\n',
        },
    )
    result = checked(tool("build", root, "--variant", CPU, "--json"))
    assert len(result.compiled()) == 8
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", *(root / "build" / CPU).glob("*.so")], check=True, capture_output=True, text=True
    ).stdout
    assert {"one", "two", "three", "four", "five", "six", "seven", "eight"} <= set(listing.split())


def test_a_second_run_compiles_nothing_and_a_header_recompiles_its_users(
    tool: Tool, make_project: ProjectMaker
) -> None:
    """Case T9, in two variants at once."""
    root = make_project(
        "again",
        {
            "a.cpp": '#include "a.h"\nextern "C" int a() { return A; }\n',
            "b.cpp": '#include "a.h"\nextern "C" int b() { return A + 1; }\n',
            "c.cpp": 'extern "C" int c() { return 3; }\n',
            "a.h": "#define A 1\n",
            "README.md": "words\n",
        },
    )
    commit(root)
    both = (CPU, CPU.replace("213", "212"))
    arguments = ("build", root, "--variant", "torch21[23]-*-cpu-*", "--json")
    first = checked(tool(*arguments))
    assert [first.compiled(name) for name in both] == [["a.cpp", "b.cpp", "c.cpp"]] * 2
    assert [tool(*arguments).compiled(name) for name in both] == [[], []]

    (root / "README.md").write_text("other words\n", encoding="ascii")
    (root / "empty").mkdir()
    assert [tool(*arguments, env={"PYTHONHASHSEED": "7"}).compiled(name) for name in both] == [[], []]

    (root / "a.h").write_text("#define A 100\n", encoding="ascii")
    edited = checked(tool(*arguments))
    assert [edited.compiled(name) for name in both] == [["a.cpp", "b.cpp"]] * 2
    assert edited.variant()["ops-id"] != first.variant()["ops-id"]
    for name in both:
        (path,) = (root / "build" / name).glob("*.abi3.so")
        assert path.name == f"{edited.variant(name)['ops-id']}.abi3.so"

    toml = (root / "build.toml").read_text(encoding="ascii")
    (root / "build.toml").write_text(toml + 'cxx-flags = ["-DNEW"]\n', encoding="ascii")
    assert checked(tool(*arguments)).compiled() == ["a.cpp", "b.cpp", "c.cpp"]


def test_only_the_compilers_must_be_on_the_path(tool: Tool, make_project: ProjectMaker, tmp_path: Path) -> None:
    """Case T9: whatever PATH says, there is no slow serial build."""
    root = make_project("path", {"a.cpp": "int a;\n"})
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("g++", "as", "ld", "nm", "ar", "git", "sh", "c++filt"):
        found = shutil.which(name)
        assert found is not None
        (binaries / name).symlink_to(found)
    checked(tool("build", root, "--variant", CPU, env={"PATH": str(binaries)}))


def test_one_broken_source_among_ten(tool: Tool, make_project: ProjectMaker) -> None:
    """Case T20 (a): the file and the compiler's words are shown, and no variant is left."""
    files = {f"s{number}.cpp": f"int s{number};\n" for number in range(9)} | {"broken.cpp": "int x = unknown_name;\n"}
    root = make_project("broken", files)
    result = tool("build", root, "--variant", CPU)
    assert result.code == 1
    assert "broken.cpp does not compile" in result.stderr
    assert "unknown_name" in result.stderr
    assert not (root / "build" / CPU).exists()
    (log,) = re.findall(r"the command and its full output: (\S+)", result.stderr)
    command = Path(log).read_text(encoding="utf-8").splitlines()[0]
    rerun = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "unknown_name" in rerun.stderr

    (root / "s3.cpp").write_text("int s3 = other_name;\n", encoding="ascii")
    both = tool("build", root, "--variant", CPU, "--keep-going").stderr
    (root / "s3.cpp").write_text("int s3;\n", encoding="ascii")
    headings = [line for line in both.splitlines() if line.startswith("error: ")]
    assert sorted(headings) == [f"error: {CPU}: {name} does not compile:" for name in ("broken.cpp", "s3.cpp")]
    (root / "broken.cpp").write_text("int x;\n", encoding="ascii")
    assert "broken.cpp" in checked(tool("build", root, "--variant", CPU, "--json")).compiled()


@pytest.mark.parametrize("name", ["a,b", "a:b*[c]?", "a\\'\"$d", "-a{project}"], ids=ascii)
def test_odd_characters_in_paths(tool: Tool, make_project: ProjectMaker, name: str) -> None:
    """In the project's path and in a header's, which is seen to change."""
    files = {"a.cpp": f'#include "{name}.h"\nextern "C" int answer() {{ return ANSWER; }}\n'}
    if '"' in name or "\\" in name:
        files = {"a.cpp": '#include "x.h"\nextern "C" int answer() { return ANSWER; }\n'}
    root = make_project("odd", files, directory=name)
    header = root / ("x.h" if "x.h" in files["a.cpp"] else f"{name}.h")
    for answer in (1, 2):
        header.write_text(f"#define ANSWER {answer}\n", encoding="ascii")
        checked(tool("build", root, "--variant", CPU))
        assert library(root).answer() == answer


@pytest.mark.parametrize("name", [b"a\xffb", b"a\nb"])
def test_paths_that_cannot_be_built_are_refused_before_anything(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path, name: bytes
) -> None:
    root = make_project("odd", {"a.cpp": "int a;\n"})
    moved = tmp_path / os.fsdecode(name)
    root.rename(moved)
    result = tool("build", moved, "--variant", CPU)
    assert result.code == 3
    assert "cannot be built" in result.stderr
    assert "hint: rename the file or directory" in result.stderr
    assert len(result.stderr) < 2000
    assert not (moved / "build").exists()


def test_keep_going_builds_what_can_be_built(tool: Tool, make_project: ProjectMaker) -> None:
    source = "#include <torch/version.h>\n#if TORCH_VERSION_MINOR == 12\n#error too old\n#endif\nint a;\n"
    root = make_project("goes-on", {"a.cpp": source})
    old = CPU.replace("213", "212")
    arguments = ("build", root, "--variant", "torch21[23]-*-cpu-*", "--json", "--jobs", "1")
    stopped = tool(*arguments)
    assert stopped.code == 1
    assert stopped.variant(old)["status"] == "failed"
    assert stopped.variant(CPU)["status"] == "not built"
    assert "--keep-going" in str(stopped.variant(CPU)["problem"])
    assert not (root / "build").exists()
    result = tool(*arguments, "--keep-going")
    assert result.code == 1
    assert [result.variant(name)["status"] for name in (old, CPU)] == ["failed", "built"]
    before = (root / "build" / CPU / "metadata.json").read_bytes()
    # What is complete and up to date is known to be so, whoever else fails; what was there is not touched.
    assert [tool(*arguments).variant(name)["status"] for name in (old, CPU)] == ["failed", "unchanged"]
    assert (root / "build" / CPU / "metadata.json").read_bytes() == before
    assert sorted(path.name for path in (root / "build").iterdir()) == [CPU]


def test_a_variant_is_installed_before_another_fails(tool: Tool, make_project: ProjectMaker) -> None:
    source = "#include <torch/version.h>\n#if TORCH_VERSION_MINOR == 13\n#error too new\n#endif\nint a;\n"
    root = make_project("early", {"a.cpp": source})
    old = CPU.replace("213", "212")
    stopped = tool("build", root, "--variant", "torch21[23]-*-cpu-*", "--jobs", "1")
    assert stopped.code == 1
    told, error = (stopped.stderr.index(text) for text in (f"{old} is installed (1 of 2 variants are done)", "#error"))
    assert told < error
    assert sorted(path.name for path in (root / "build").iterdir()) == [old]


def test_the_users_environment_does_not_get_into_the_library(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "only_here.h").touch()
    source = "#if __has_include(<only_here.h>)\n#error foreign\n#endif\nint a;\n"
    root = make_project("clean", {"a.cpp": source})
    meddling = {"CPATH": str(tmp_path / "foreign"), "LD_RUN_PATH": "/opt/x", "LIBRARY_PATH": str(tmp_path)}
    checked(tool("build", root, "--variant", CPU, env=meddling))
    (path,) = (root / "build" / CPU).glob("*.abi3.so")
    assert "/opt/x" not in subprocess.run(["readelf", "-dW", path], check=True, capture_output=True, text=True).stdout


def test_a_header_that_takes_anothers_place_recompiles(tool: Tool, make_project: ProjectMaker) -> None:
    toml = BUILD_TOML.format(name="shadow", sources='"a.cpp"') + 'include = ["one", "two"]\n'
    files = {"a.cpp": '#include <h.h>\nextern "C" int a() { return H; }\n', "two/h.h": "#define H 2\n", "one/k.h": ""}
    root = make_project("shadow", files, toml=toml)
    checked(tool("build", root, "--variant", CPU))
    (root / "one" / "h.h").write_text("#define H 1\n", encoding="ascii")
    assert checked(tool("build", root, "--variant", CPU, "--json")).compiled() == ["a.cpp"]


def test_another_compiler_behind_the_same_path_recompiles(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    root = make_project("upgraded", {"a.cpp": "int a;\n"})
    wrapper = tmp_path / "g++"
    for version, expected in (("12.8.0", ["a.cpp"]), ("12.8.0", []), ("12.9.0", ["a.cpp"])):
        wrapper.write_text(
            f'#!/bin/sh\nif [ "$1" = -dumpfullversion ]; then echo {version}; else exec g++ "$@"; fi\n',
            encoding="ascii",
        )
        wrapper.chmod(0o755)
        result = checked(tool("build", root, "--variant", CPU, "--json", env={"CXX": str(wrapper)}))
        assert result.compiled() == expected


def test_an_edit_during_the_build_is_not_shipped_under_the_old_name(tool: Tool, make_project: ProjectMaker) -> None:
    slow = "#include <regex>\n" + "".join(f'std::regex r{n}("a{n}");\n' for n in range(60))
    root = make_project("raced", {"slow.cpp": slow, "a.cpp": "int a;\n"})
    commit(root)
    process = tool.start("build", root, "--variant", CPU)
    log = root / ".kernel-builder" / CPU / "log" / "slow.cpp.log"
    deadline = time.monotonic() + 120
    while not log.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    (root / "a.cpp").write_text("int edited;\n", encoding="ascii")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "changed during the build" in stderr
    assert not (root / "build" / CPU).exists()


def test_a_missing_symbol_fails_the_link_with_its_readable_name(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project(
        "missing",
        {
            "a.cpp": "namespace at { void no_such_function(int); }\nvoid f() { at::no_such_function(1); }\n"
            'extern "C" void call() { f(); }\n',
            "b.cpp": 'extern "C" void *PyUnicode_AsUTF8AndSize(void *, void *);\n'
            'extern "C" void *_PyPrivate_Thing(); extern "C" void GOMP_barrier();\n'
            'extern "C" void *use() { GOMP_barrier(); return PyUnicode_AsUTF8AndSize(_PyPrivate_Thing(), 0); }\n',
        },
    )
    for _ in range(2):  # the second run has nothing to compile, and fails all the same
        result = tool("build", root, "--variant", CPU)
        assert result.code == 1
        assert "at::no_such_function(int) (used by a.cpp)\n      cause: a.cpp:" in result.stderr
        assert (
            "PyUnicode_AsUTF8AndSize (used by b.cpp)\n      cause: it is in Python's limited API since 3.10"
            in result.stderr
        )
        assert "_PyPrivate_Thing (used by b.cpp)\n      cause: it is not part of Python's limited API" in result.stderr
        assert "GOMP_barrier" not in result.stderr
        assert not (root / "build" / CPU).exists()


def test_a_c_library_function_above_the_floor_is_missing(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project(
        "new-libc",
        {"a.cpp": '#include <unistd.h>\nextern "C" int f() { return close_range(90, 99, 0); }\n'},
    )
    result = tool("build", root, "--variant", CPU)
    assert result.code == 1
    assert "close_range (used by a.cpp)" in result.stderr


def test_nothing_is_needed_or_exported_that_may_not_be(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project(
        "portable",
        {
            "a.cpp": "#include <regex>\n#include <thread>\n#include <filesystem>\n#include <iostream>\n"
            'extern "C" int f(const char *s) {\n'
            "  std::thread([] {}).join();\n"
            "  std::cout << std::filesystem::path(s).filename() << std::stod(s);\n"
            '  return std::regex_search(s, std::regex("a+"));\n}\n'
        },
    )
    checked(tool("build", root, "--variant", CPU))
    (path,) = (root / "build" / CPU).glob("*.abi3.so")
    dynamic = subprocess.run(["readelf", "-dW", path], check=True, capture_output=True, text=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    system = {"libgcc_s.so.1", "libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    assert needed <= {"libtorch.so", *system}
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic
    versions = subprocess.run(["readelf", "-VW", path], check=True, capture_output=True, text=True).stdout
    found = {tuple(map(int, number.split("."))) for number in re.findall(r"GLIBC_([0-9.]+)", versions)}
    assert max(found) <= (2, 27)
    assert "GLIBCXX" not in versions
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True
    ).stdout.split()
    assert [name for name in exported if name.startswith("_Z")] == []


def test_the_same_commit_gives_the_same_bytes_anywhere(tool: Tool, make_project: ProjectMaker, tmp_path: Path) -> None:
    root = make_project(
        "same",
        {
            "src/a.cpp": '#include "h.h"\n#include <regex>\nextern "C" const char *file() { return __FILE__; }\n'
            'extern "C" int m(const char *s) { return std::regex_match(s, std::regex(HEADER)); }\n',
            "src/h.h": "#define HEADER __FILE__\n",
        },
    )
    commit(root)
    other = tmp_path / "quite" / "another" / "place"
    shutil.copytree(root, other)
    trees = []
    for directory in (root, other):
        checked(tool("build", directory, "--variant", CPU))
        variant = directory / "build" / CPU
        trees.append({path.relative_to(variant): path.read_bytes() for path in variant.rglob("*") if path.is_file()})
    assert trees[0] == trees[1]
    (content,) = [data for path, data in trees[0].items() if path.suffix == ".so"]
    assert str(tmp_path).encode() not in content


def test_only_the_chosen_variant_is_replaced(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("single", {"a.cpp": "int a;\n"})
    for stranger in (root / "build" / "torch26-cxx98-cu118-x86_64-linux", root / "build" / "notes"):
        stranger.mkdir(parents=True)
        (stranger / "file").write_text("mine", encoding="ascii")
    old = root / "build" / CPU
    old.mkdir()
    (old / "stale.py").write_text("", encoding="ascii")
    checked(tool("build", root, "--variant", CPU))
    present = {path.name for path in (root / "build").iterdir()}
    assert present == {"notes", CPU, "torch26-cxx98-cu118-x86_64-linux"}
    assert not (old / "stale.py").exists()
    assert stat.S_IMODE(old.stat().st_mode) == 0o755
    assert json.loads((old / "metadata.json").read_text(encoding="utf-8"))["name"] == "single"


SLOW = "#include <regex>\n#include <map>\n" + "".join(
    f'bool m{n}(const char *s) {{ return std::regex_match(s, std::regex("a{n}(b|c)*")); }}\n' for n in range(400)
)
"""A source that takes a minute to compile."""


def start_to_compile(tool: Tool, root: Path) -> subprocess.Popen[str]:
    """A build of ``root`` that is compiling slow.cpp."""
    process = tool.start("build", root, "--variant", CPU)
    log = root / ".kernel-builder" / CPU / "log" / "slow.cpp.log"
    deadline = time.monotonic() + 120
    while not log.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.5)
    return process


def wait_until_nothing_runs(root: Path) -> None:
    """A compiler that was killed may take a moment to go. Left alone, it would take a minute and more."""
    deadline = time.monotonic() + 20
    while running := subprocess.run(["pgrep", "-f", str(root)], capture_output=True, text=True, check=False).stdout:
        assert time.monotonic() < deadline, running
        time.sleep(0.1)


def test_ctrl_c_stops_the_compilers_and_leaves_nothing(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("interrupted", {"slow.cpp": SLOW, "a.cpp": "int a;\n"})
    process = start_to_compile(tool, root)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    wait_until_nothing_runs(root)
    assert not list((root / ".kernel-builder" / CPU).rglob("slow.cpp.o"))
    assert not (root / "build").exists() or list((root / "build").iterdir()) == []
    (root / "slow.cpp").write_text("int quick;\n", encoding="ascii")
    checked(tool("build", root, "--variant", CPU))


def test_what_a_killed_build_left_running_is_stopped_by_the_next(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("killed", {"slow.cpp": SLOW, "a.cpp": "int a;\n"})
    process = start_to_compile(tool, root)
    process.kill()
    process.communicate(timeout=60)
    assert subprocess.run(["pgrep", "-f", str(root)], capture_output=True, check=False).stdout
    (root / "slow.cpp").write_text("int quick;\n", encoding="ascii")
    result = tool("build", root, "--variant", CPU)
    checked(result)
    assert "an earlier build was killed; stopping its compilers" in result.stderr
    wait_until_nothing_runs(root)


def test_two_builds_of_one_project_take_turns(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("turns", {f"s{n}.cpp": f"#include <regex>\nint s{n};\n" for n in range(6)})
    processes = [tool.start("build", root, "--variant", CPU) for _ in range(2)]
    for process in processes:
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr
    assert sorted(path.name for path in (root / "build").iterdir()) == [CPU]


def test_empty_capability_sets_and_foreign_sources_stop_before_compiling(
    tool: Tool, make_project: ProjectMaker
) -> None:
    """Case T5, first half; the message names both lists."""
    toml = """\
[general]
name = "caps"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch]
src = []

[kernel.main]
backend = "cuda"
depends = []
src = ["k.cu"]
cuda-capabilities = ["7.0"]
"""
    root = make_project("caps", {"k.cu": "__global__ void k() {}\n"}, toml=toml)
    result = tool("build", root, "--variant", "torch213-*-cu130-*", "--dry-run")
    assert result.code == 3
    assert "7.0" in result.stderr
    assert "7.5, 8.0" in result.stderr
    assert not (root / "build").exists()

    (root / "build.toml").write_text(toml.replace('["7.0"]', '["7.0", "8.0", "9.0a", "12.0+PTX"]'), encoding="ascii")
    plan = json.loads(checked(tool("build", root, "--variant", "torch213-*-cu130-*", "--dry-run", "--json")).stdout)
    (variant,) = plan["variants"]
    if not any(step["kind"] == "split" for step in variant["steps"]):  # nvcc is not in the store: it does all itself
        assert [word for word in variant["steps"][0]["command"] if word.startswith("-gencode")] == [
            "-gencode=arch=compute_80,code=sm_80",
            "-gencode=arch=compute_90a,code=sm_90a",
            "-gencode=arch=compute_120,code=sm_120",
            "-gencode=arch=compute_120,code=compute_120",
        ]
    else:
        devices = [step["architecture"] for step in variant["steps"] if step["kind"] == "device"]
        assert devices == ["compute_80", "compute_90a", "compute_120"]
        (last,) = (step for step in variant["steps"] if step["kind"] == "compile" and step["source"] == "k.cu")
        images = [word.split(",file=")[0] for word in last["commands"][0]["command"] if word.startswith("--image")]
        assert images == [
            "--image3=kind=elf,sm=80",
            "--image3=kind=elf,sm=90a",
            "--image3=kind=ptx,sm=120",
            "--image3=kind=elf,sm=120",
        ]
    assert any("7.0 dropped" in note for note in plan["notes"])
    assert variant["metadata"]["backend"]["archs"] == ["12.0+PTX", "8.0", "9.0a"]


def test_mistakes_on_the_command_line(tool: Tool, make_project: ProjectMaker, tmp_path: Path) -> None:
    root = make_project("asked", {"a.cpp": "int a;\n"})
    for arguments, code, words in (
        (("build", tmp_path / "nowhere"), 2, "is not a directory"),
        (("build", tmp_path), 3, "build.toml"),
        (("build", root, "--variant", "torch209-*"), 2, "no variant of this kernel matches torch209-*"),
        (("build", root, "--backend", "cuda"), 2, "this kernel has no backend cuda"),
        (("build", root, "--backend", "vulkan"), 2, "vulkan"),
        (("build", root, "--jobs", "0"), 2, "--jobs"),
        (("biuld", root), 2, "Did you mean 'build'"),
        (("build", root, "--local", "--python", "/no/such/python"), 2, "--python /no/such/python"),
        (("build", root, "--variant", CPU, "--python", "/etc/passwd"), 2, "--python /etc/passwd cannot load kernels"),
    ):
        result = tool(*arguments)
        assert (result.code, words in result.stderr) == (code, True), (arguments, result)


def test_a_header_outside_of_the_project_is_refused(tool: Tool, make_project: ProjectMaker) -> None:
    """It could change without the kernel's name changing."""
    root = make_project("outside", {"csrc/a.cpp": '#include "../../common/h.h"\nint a = H;\n'}, directory="repo/k")
    (root.parent / "common").mkdir()
    (root.parent / "common" / "h.h").write_text("#define H 1\n", encoding="ascii")
    result = tool("build", root, "--variant", CPU)
    assert result.code == 1
    assert f"csrc/a.cpp:1: error: this includes {root.parent / 'common' / 'h.h'}" in result.stderr
    assert not (root / "build").exists() or list((root / "build").iterdir()) == []


def test_a_file_that_no_name_in_the_sources_gave_away_is_refused_until_it_is_declared(
    tool: Tool, make_project: ProjectMaker
) -> None:
    """The proof behind the search for names: what the compilers read is compared with what the kernel's name covers."""
    source = "#define S_(x) #x\n#define S(x) S_(x)\n#define C(a, b) a##b\n#include S(C(tab, les))\nint a = H;\n"
    root = make_project("pasted", {"a.cpp": source, "tables": "#define H 1\n"})
    result = tool("build", root, "--variant", CPU)
    assert result.code == 1
    assert "include files that the kernel's name does not cover: tables\n" in result.stderr
    assert "add them to 'src'" in result.stderr
    assert not (root / "build").exists() or list((root / "build").iterdir()) == []
    build_toml = root / "build.toml"
    build_toml.write_text(build_toml.read_text().replace('"a.cpp"', '"a.cpp", "tables"'), encoding="utf-8")
    assert checked(tool("build", root, "--variant", CPU, "--json")).variant()["status"] == "built"


@needs_torch
def test_what_dependency_files_do_not_list_is_compiled_and_named_anew(tool: Tool, make_project: ProjectMaker) -> None:
    import torch  # noqa: F401  (its libraries are needed by every kernel)

    text = (
        'asm(".section .rodata\\nanswer: .incbin \\"answer.bin\\"\\n.previous\\n");\n'
        'extern const char answer[] __attribute__((visibility("hidden")));\n'
        '#include "quiet.h"\n'
        "int sum(void) { return answer[0] + ONE; }\n"
    )
    files = {"a.c": text, "data/answer.bin": "A", "data/quiet.h": '#pragma GCC system_header\n#include "one"\n'}
    toml = BUILD_TOML.format(name="embedded", sources='"a.c"') + 'include = ["data"]\n'
    root = make_project("embedded", {**files, "data/one": "#define ONE 1\n"}, toml=toml)
    names = set()
    for path, content, expected in (
        ("data/answer.bin", "A", 66),
        ("data/answer.bin", "B", 67),
        ("data/one", "#define ONE 2\n", 68),
        ("README.md", "words", 68),
    ):
        (root / path).write_text(content, encoding="ascii")
        checked(tool("build", root, "--variant", CPU))
        assert library(root).sum() == expected
        names.add(json.loads((root / "build" / CPU / "metadata.json").read_text())["id"])
    assert len(names) == 3


def test_the_only_project_below_is_built_when_none_is_named(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("alone", {"a.cpp": "int a;\n"}, directory="some/where")
    result = checked(tool("build", "--variant", CPU, cwd=root.parent))
    assert "using where, the only kernel project here" in result.stderr
    assert (root / "build" / CPU / "metadata.json").is_file()
    make_project("second", {"b.cpp": "int b;\n"}, directory="some/else")
    assert tool("build", "--variant", CPU, cwd=root.parent).code == 3


def test_errors_are_json_too_when_json_was_asked_for(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("asks", {"a.cpp": "int a;\n"})
    unknown = tool("build", root, "--variant", "nosuch", "--json")
    assert (unknown.code, unknown.json["ok"], unknown.json["exit-code"]) == (2, False, 2)
    (root / "a.cpp").unlink()
    mistaken = tool("build", root, "--json")
    assert (mistaken.code, mistaken.json["ok"]) == (3, False)
    assert "a.cpp" in str(mistaken.json["diagnostics"])


def test_an_unreachable_index_is_one_fast_error(tool: Tool, make_project: ProjectMaker, tmp_path: Path) -> None:
    """Case T19 (g)."""
    root = make_project("offline", {"a.cpp": "int a;\n"})
    started = time.monotonic()
    result = tool(
        "build",
        root,
        "--variant",
        CPU,
        env={"KERNEL_BUILDER_CACHE": str(tmp_path / "empty"), "KERNEL_BUILDER_INDEX_URL": "http://127.0.0.1:9/simple"},
    )
    assert result.code == 5
    assert "127.0.0.1" in result.stderr
    assert time.monotonic() - started < 20
    assert not (root / "build").exists()


def test_a_source_that_cannot_be_reached_leaves_the_variants_that_do_without_it(
    tool: Tool, make_project: ProjectMaker
) -> None:
    toml = BUILD_TOML.format(name="without", sources='"a.cpp"').replace('["cpu"]', '["cpu", "cuda"]')
    toml = toml.replace("src = []", 'minver = "2.13"\nmaxver = "2.13"')
    toml += '\n[kernel.device]\nbackend = "cuda"\ndepends = []\nsrc = ["a.cu"]\n'
    toml += '\n[general.cuda]\nmaxver = "12.6"\n'
    root = make_project("without", {"a.cpp": "int a;\n", "a.cu": "int b;\n"}, toml=toml)
    cuda = CPU.replace("cpu", "cu126")
    env = {"KERNEL_BUILDER_SOURCES": "index,redistrib", "KERNEL_BUILDER_REDISTRIB": "http://127.0.0.1:9/redist"}
    refused = tool("build", root, "--dry-run", "--complete", env=env)
    assert refused.code == 5  # nothing but the network is missing
    assert "1 of the 2 variants that Hub kernels must have cannot be built here" in refused.stderr
    assert f"  {cuda}\n      http://127.0.0.1:9/redist/" in refused.stderr
    assert "remedy: check your network connection, or set a mirror in kernel-builder.toml" in refused.stderr
    env.pop("KERNEL_BUILDER_SOURCES")
    sources = ("--source", "index", "--source", "redistrib")
    planned = tool("build", root, "--dry-run", "--json", *sources, env=env)
    assert planned.code == 0, planned.stderr
    unavailable, variants = planned.json["unavailable"], planned.json["variants"]
    assert isinstance(unavailable, list)
    assert isinstance(variants, list)
    assert [entry["name"] for entry in unavailable] == [cuda]
    assert "debian:" not in str(unavailable)
    assert [entry["name"] for entry in variants] == [CPU]


def test_offline_everything_that_is_not_in_the_store_is_listed(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    root = make_project("apart", {"a.cpp": "int a;\n"})
    result = tool("build", root, "--offline", env={"KERNEL_BUILDER_CACHE": str(tmp_path / "empty")})
    assert result.code == 5
    assert "2 of the 2 variants" in result.stderr
    names = "'torch212-cxx11-cpu-x86_64-linux' 'torch213-cxx11-cpu-x86_64-linux'"
    assert f"run: kernel-builder toolchain fetch {names};" in result.stderr.replace("\n", " ")
    assert not (root / "build").exists()


@needs_torch
def test_functions_of_the_library_can_be_called(tool: Tool, make_project: ProjectMaker) -> None:
    import torch  # noqa: F401  (its libraries are needed by every kernel)

    root = make_project("called", {"a.c": "int twice(int x) { return 2 * x; }\n"})
    checked(tool("build", root, "--variant", CPU))
    assert library(root).twice(21) == 42
