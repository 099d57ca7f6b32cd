"""A header that nothing declares fails its compile, and people are told where it is included."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from engine_actions import action, plan_of, run
from kernel_builder.actions.model import COMPILER_ENVIRONMENT, Action, Step, Tool, Tree
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.declared import Declared, Whose
from kernel_builder.engine.protocol import ActionResult, ActionStatus
from kernel_builder.engine.records import headers, system_headers
from kernel_builder.toolchain.c_library import SITE, is_of_c_library
from kernel_builder.toolchain.host import header_folders
from kernel_builder.toolchain.model import Family

CXX = Path(shutil.which("g++") or "/usr/bin/g++")


def compiling(elsewhere: Path, *options: str, tree: Path | None = None) -> Action:
    """Compiles ``src/a.cpp`` with g++, which looks into ``elsewhere/system`` as into ``/usr/local/include``."""
    own, shared = header_folders(CXX, os.environ, Family.GCC)
    system = elsewhere / "system"
    tool = Tool(name="c++", path=CXX, digest="1", headers=tuple(own), shared=(*shared, system))
    words = ("-MD", "-MF", "{work}/a.d", "-c", "{project}/src/a.cpp", "-o", "{work}/a.o", "-idirafter", str(system))
    step = Step(command=("{tool:c++}", *options, "-I{project}/include", *words))
    trees = (Tree(name="torch", identity="1", root=tree, folders=(tree,)),) if tree is not None else ()
    made = action("src/a.cpp", "", steps=(step,), tools=(tool,), trees=trees)
    return replace(made, outputs=("{work}/a.o",), depfile="{work}/a.d", environment=COMPILER_ENVIRONMENT)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def compiled(
    root: Path,
    files: dict[str, str],
    *options: str,
    cache: ActionCache | None = None,
    variables: Mapping[str, str] | None = None,
) -> ActionResult:
    """What became of a compile of ``files``, which are in the project, or beside it: ``../elsewhere/x.h``."""
    project = root / "project"
    write(project, files)
    plan = plan_of(project, compiling(root / "elsewhere", *options, tree=root / "torch"))
    return next(iter(run(plan, cache=cache, environ={**os.environ, **(variables or {})}).results.values()))


PLANTED = "#define H 1\n"


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        ({"src/a.cpp": "\n#include <x.h>\n", "../elsewhere/system/x.h": PLANTED}, (), "src/a.cpp:2: {}/system/x.h"),
        (
            {"src/a.cpp": "#include <x.h>\n", "../elsewhere/own/x.h": PLANTED},
            ("-I../../elsewhere/own",),
            "src/a.cpp:1: {}/own/x.h",
        ),
        (
            {
                "src/a.cpp": '#include "b.h"\n',
                "include/b.h": '//\n#include "../../elsewhere/x.h"',
                "../elsewhere/x.h": "",
            },
            (),
            "include/b.h:2: {}/x.h",
        ),
        (
            {"src/a.cpp": "int a;\n", "../elsewhere/x.h": PLANTED},
            ("-include", "../../elsewhere/x.h"),
            "src/a.cpp:0: {}/x.h",
        ),
        ({"src/a.cpp": '#include "../link/x.h"\n', "../elsewhere/x.h": PLANTED}, (), "src/a.cpp:1: {}/x.h)"),
        (
            {"src/a.cpp": "#if __has_include(<x.h>)\nint a;\n#endif\n", "../elsewhere/system/x.h": PLANTED},
            (),
            "src/a.cpp:1: {}/system/x.h",
        ),
        (
            {"src/a.cpp": "//\n#define HAS_X __has_include(<x.h>)\nint a;\n", "../elsewhere/system/x.h": PLANTED},
            (),
            "src/a.cpp:2: {}/system/x.h",
        ),
        (
            {"src/a.cpp": "#if 1 && \\\n  __has_include(<x.h>)\n#endif\n", "../elsewhere/system/x.h": PLANTED},
            (),
            "src/a.cpp:1: {}/system/x.h",
        ),
        (
            {"src/a.cpp": 'asm(".incbin \\"../../elsewhere/x.bin\\"");\n', "../elsewhere/x.bin": "1"},
            (),
            "src/a.cpp:1: {}/x.bin",
        ),
        (
            {"src/a.cpp": '//\nasm(R"(\n .include "x.s"\n)");\n', "../elsewhere/own/x.s": "nop\n"},
            ("-I../../elsewhere/own", "-Wa,-I../../elsewhere/own"),
            "src/a.cpp:3: {}/own/x.s",
        ),
        (
            {"src/a.cpp": '#define H "../../elsewhere/x.h"\n#define I H\n#include I\n', "../elsewhere/x.h": ""},
            (),
            "src/a.cpp:3: {}/x.h",
        ),
        (
            {"src/a.cpp": "#define T(n) <x.h>\nint a;\n#include T(1)\n", "../elsewhere/system/x.h": ""},
            (),
            "src/a.cpp:3: {}/system/x.h",
        ),
        (
            {"src/a.cpp": "#if __has_include(H)\nint a;\n#endif\n", "../elsewhere/system/x.h": ""},
            ("-DH=<x.h>",),
            "src/a.cpp:1: {}/system/x.h",
        ),
        (
            {"src/a.cpp": "int a;\n", "../elsewhere/x.h": PLANTED},
            ("-imacros../../elsewhere/x.h",),
            "src/a.cpp:0 (-imacros../../elsewhere/x.h): {}/x.h",
        ),
        (
            {
                "src/a.cpp": '#define F "../../elsewhere/x.bin"\nasm(".incbin \\"" F "\\"");\n',
                "../elsewhere/x.bin": "1",
            },
            (),
            "src/a.cpp:2: {}/x.bin",
        ),
        (
            {
                "src/a.cpp": '#define S(x) #x\n#define T(x) S(x)\nasm(".include " T(P));\n',
                "../elsewhere/own/x.s": "nop\n",
            },
            ("-Wa,-I../../elsewhere/own", "-I../../elsewhere/own", '-DP="x.s"'),
            "src/a.cpp:3: {}/own/x.s",
        ),
    ],
    ids=[
        "system directory",
        "option",
        "beside",
        "-include",
        "link",
        "__has_include",
        "in a macro",
        "continued",
        "incbin",
        "assembly",
        "include of a macro",
        "include of a macro with arguments",
        "__has_include of a macro",
        "-imacros in one word",
        "incbin of a macro",
        "assembly by macros",
    ],
)
def test_a_header_of_nobodys_is_named_with_its_include(
    tmp_path: Path, files: dict[str, str], options: tuple[str, ...], said: str
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/link").symlink_to("../elsewhere")
    result = compiled(tmp_path, files, *options)
    where, _, header = said.format(tmp_path / "elsewhere").partition(": ")
    assert result.status is ActionStatus.FAILED
    first = result.output[0]
    assert first.startswith(where)
    assert f" {header}" in first.replace("(which is", "")
    assert any("'include' of the section in build.toml" in line for line in result.output)
    assert not (tmp_path / "project/.kernel-builder/a.o").exists()


def test_an_absolute_include_is_named(tmp_path: Path) -> None:
    away = tmp_path / "elsewhere/x.h"
    result = compiled(tmp_path, {"src/a.cpp": f'#include "{away}"\n', "../elsewhere/x.h": PLANTED})
    assert result.output[0] == f"src/a.cpp:1: error: this includes {away}"


def test_an_option_of_the_section_is_told(tmp_path: Path) -> None:
    files = {
        "src/a.cpp": "#include <x.h>\n#include <y.h>\n",
        "../elsewhere/x.h": "#include <z.h>",
        "../elsewhere/z.h": "",
    }
    result = compiled(tmp_path, {**files, "../elsewhere/y.h": ""}, f"-I{tmp_path}/elsewhere")
    assert [line.partition(" error: ")[0] for line in result.output[:2]] == ["src/a.cpp:1:", "src/a.cpp:2:"]
    assert f"found in {tmp_path}/elsewhere, which an option names" in result.output[0]
    assert "and these include 1 more" in result.output


def test_what_the_assembler_reads_of_the_project_is_declared(tmp_path: Path) -> None:
    name = tmp_path / "project/data/x.bin"
    files = {"src/a.cpp": f'asm(".incbin \\"{name}\\"");\n// .incbin "/etc/passwd"\n'}
    result = compiled(tmp_path, {**files, "data/x.bin": "1", "src/a.h": ""})
    assert result.status is ActionStatus.DONE, result.output
    files = {"src/a.cpp": f'#define F "{name}"\nasm(".incbin \\"" F "\\"");\n'}
    result = compiled(tmp_path, files)
    assert result.status is ActionStatus.DONE, result.output
    assert not [path for path in (tmp_path / "project/.kernel-builder").rglob("*") if ".read" in path.name]


def test_headers_of_the_site_are_nobodys_whatever_they_are_called(tmp_path: Path) -> None:
    tool = Tool(name="c++", path=CXX, digest="1", headers=(SITE / "c++/14",), shared=(SITE, Path("/usr/include")))
    plan = plan_of(tmp_path, replace(compiling(tmp_path), tools=(tool,)))
    declared = Declared(plan.actions[0], plan.places)
    assert declared.whose("/usr/include/stdio.h") is Whose.SYSTEM
    assert declared.whose(f"{SITE}/stdio.h") is Whose.NOBODY
    assert declared.whose(f"{SITE}/c++/14/vector") is Whose.SYSTEM  # a compiler that lies there brings its own


def test_what_is_declared_is_read_and_what_is_installed_goes_from_the_list(tmp_path: Path) -> None:
    names = ("vector", "stdio.h", "sys/stat.h", "t.h", "p.h", "linux/if.h")
    text = "".join(f"#include <{name}>\n" for name in names)
    files = {"src/a.cpp": text, "include/p.h": "", "../torch/t.h": "", "src/c.h": ""}
    result = compiled(tmp_path, files, f"-I{tmp_path}/torch")
    assert result.status is ActionStatus.DONE, result.output
    project = tmp_path / "project"
    depfile = project / ".kernel-builder/a.d"
    assert headers(depfile) == (f"{project}/src/a.cpp", f"{project}/include/p.h")
    noted = system_headers(depfile)
    assert {"vector", "stdio.h", "stat.h", "if.h"} <= {Path(path).name for path in noted}
    assert not [path for path in noted if not path.startswith("/usr/") or "/../" in path]


def test_variables_bring_no_header(tmp_path: Path) -> None:
    files = {"src/a.cpp": "#include <x.h>\n", "../elsewhere/x.h": PLANTED}
    for name in ("CPATH", "CPLUS_INCLUDE_PATH"):
        result = compiled(tmp_path, files, variables={name: str(tmp_path / "elsewhere")})
        assert any("x.h: No such file" in line for line in result.output)
        own, shared = header_folders(CXX, {**os.environ, name: str(tmp_path / "elsewhere")}, Family.GCC)
        assert tmp_path / "elsewhere" not in (*own, *shared)


def test_a_cache_does_not_hide_it(tmp_path: Path) -> None:
    """What was compiled before a header was put there is not taken for what is compiled with it."""
    cache = ActionCache(tmp_path / "cache")
    files = {"src/a.cpp": "#if __has_include(<x.h>)\nint a;\n#endif\n"}
    for expected in (ActionStatus.DONE, ActionStatus.RECALLED):
        assert compiled(tmp_path, files, cache=cache).status is expected
        shutil.rmtree(tmp_path / "project/.kernel-builder")
    for _ in range(2):
        result = compiled(tmp_path, {**files, "../elsewhere/system/x.h": ""}, cache=cache)
        assert result.status is ActionStatus.FAILED
        assert result.output[0] == f"src/a.cpp:1: error: __has_include finds {tmp_path}/elsewhere/system/x.h"


def test_what_links_of_the_c_library_lead_to_is_its_own(tmp_path: Path) -> None:
    """As on Debian 13, where files of ``asm`` are links, and g++ writes where they lead; no other link is as good."""
    system, kept = tmp_path / "elsewhere" / "system", tmp_path / "k"
    write(kept, {"settled.h": PLANTED, "other.h": PLANTED})
    for folder, name in (("asm", "settled.h"), ("acme", "other.h")):
        (system / folder).mkdir(parents=True)
        (system / folder / name).symlink_to(kept / name)
    assert compiled(tmp_path, {"src/a.cpp": "#include <asm/settled.h>\n"}).status is ActionStatus.DONE
    result = compiled(tmp_path, {"src/a.cpp": "#include <acme/other.h>\n"})
    assert result.status is ActionStatus.FAILED
    assert "error: this includes" in result.output[0]


def test_headers_of_the_c_library_are_told_from_those_of_others() -> None:
    for name in ("stdio.h", "bits/types.h", "sys/stat.h", "linux/if.h", "features.h", "c++/14/vector", "netinet/in.h"):
        assert is_of_c_library(name), name
    for name in ("zlib.h", "openssl/ssl.h", "python3.11/Python.h", "boost/any.hpp", "stdio", "eigen3/Eigen/Core"):
        assert not is_of_c_library(name), name
