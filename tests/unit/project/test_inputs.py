"""Which files a build reads is known before it compiles, whatever they are called and wherever they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.config.reader import load_project
from kernel_builder.errors import ConfigError
from kernel_builder.project.inputs import BuildInputs, build_inputs, sources_of

TOML = """\
[general]
name = "k2"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = []

[kernel.main]
backend = "cpu"
depends = ["torch"]
src = ["src/k.cpp"]
include = ["include"]
cxx-flags = [{flags}]
"""
Maker = Callable[..., Path]


@pytest.fixture
def kernel(make_project: ProjectMaker) -> Maker:
    """Makes a kernel of one source: ``kernel(text, {path: text of other files}, flags)``."""

    def make(source: str, files: dict[str, str] | None = None, flags: str = "", directory: str = "k") -> Path:
        contents = {"src/k.cpp": source, "include/always.h": "", **(files or {})}
        return make_project("k2", contents, toml=TOML.format(flags=flags), directory=directory)

    return make


def inputs_of(root: Path) -> BuildInputs:
    return build_inputs(load_project(root)[0])


NAMING = {
    "no suffix": ('#include "tables"', "include/tables"),
    "angle brackets": ("#include <tables.tpp>", "include/tables.tpp"),
    "beside the source": ('#include "tables.x"', "src/tables.x"),
    "by a path": ('#include "../gen/tables.txt"', "gen/tables.txt"),
    "blanks": ('  #  include  "tables"', "include/tables"),
    "a comment in between": ('#include /* all */ "tables"', "include/tables"),
    "a continued line": ('#include \\\n "tables"', "include/tables"),
    "digraph": ('%:include "tables"', "include/tables"),
    "after a URL in a string": ('const char* url = "https://x"; const char* file = "tables";', "data/tables"),
    "a macro that holds the name": ('#define FILE_ "tables"\n#include FILE_', "include/tables"),
    "a macro that makes a string": ("#define S_(x) #x\n#define S(x) S_(x)\n#include S(tables)", "include/tables"),
    "a macro that makes a path": ("#define S(x) #x\n#include S(gen/tables)", "include/gen/tables"),
    "parts of a name": ("#define C(a, b) S(a##b)\n#include C(tab, les.cuh)", "include/tables.cuh"),
    "asked for": ('#if __has_include("tables")\n#endif', "include/tables"),
    "embedded": ("const char t[] = {\n#embed <tables.bin>\n};", "include/tables.bin"),
    "assembled": (r'asm(".section .rodata\n\t.incbin \"tables.bin\"\n");', "data/tables.bin"),
    "assembled by a macro": ("INCBIN(Tables, data/tables.bin);", "data/tables.bin"),
    "in a raw string": ('asm(R"(\n  // table\n  .incbin "tables.bin"\n)");', "data/tables.bin"),
    "a name with a blank": ('#include "my tables"', "include/my tables"),
    "a name with odd letters": ('#define N "tä,=b"', "include/tä,=b"),
    "hidden": ('#include "../.gen/tables"', ".gen/tables"),
    "hidden, by a macro": ('#define FILE_ "tables"', ".gen/tables"),
    "in a folder called build": ('#include "build/tables"', "include/build/tables"),
    "in the folder of variants": ('#include "../build/tables"', "build/tables"),
}


@pytest.mark.parametrize(("source", "path"), NAMING.values(), ids=NAMING)
def test_what_a_source_names_counts(kernel: Maker, source: str, path: str) -> None:
    root = kernel(f"{source}\n", {path: "1, 2, 3\n"})
    before = inputs_of(root)
    assert set(before.named) - {"include/always.h"} == {path}
    (root / path).write_text("1, 2, 4\n", encoding="utf-8")
    assert inputs_of(root).digest != before.digest


@pytest.mark.parametrize(
    "flags",
    ['"-DTABLES=\\"data/tables\\""', '"-include", "tables"', '"-DTABLES=tables"'],
)
def test_what_a_flag_names_counts(kernel: Maker, flags: str) -> None:
    assert inputs_of(kernel("int k;\n", {"data/tables": ""}, flags)).named == ("data/tables",)


def test_a_file_that_only_another_one_names_counts(kernel: Maker) -> None:
    files = {"include/one": '#include "two"\n', "include/two": '#define DATA "three"\n', "data/three": "", "four": ""}
    assert inputs_of(kernel('#include "one"\n', files)).named == ("data/three", "include/one", "include/two")


def test_unrelated_files_do_not_change_the_digest(kernel: Maker) -> None:
    text = '// see README.md, and tests/test_k.py\n/* or\n LICENSE */\n#include "always.h"\n'
    root = kernel(text)
    before = inputs_of(root)
    others = [
        "README.md",
        "LICENSE",
        "tests/test_k.py",
        "tests/native.cpp",
        "docs/always.md",
        "old.h",
        ".vscode/x.json",
    ]
    for path in others:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("words\n", encoding="utf-8")
    assert inputs_of(root) == before


def test_a_name_means_the_file_where_compilers_look(kernel: Maker) -> None:
    root = kernel('#include "always.h"\n', {"backup/include/always.h": "old\n"})
    assert inputs_of(root).named == ("include/always.h",)


def test_the_digest_is_the_same_wherever_the_project_is(kernel: Maker) -> None:
    roots = [kernel('#include "cur/x"\n', {"v/x": "1"}, directory=name) for name in ("one", "other place")]
    for root in roots:
        (root / "include/cur").symlink_to(root / "v")  # an absolute link, which stays inside
    first, second = map(inputs_of, roots)
    assert first == second
    assert first.links == (("include/cur", "v"),)


def test_contents_behind_links_count_and_so_does_where_links_lead(kernel: Maker) -> None:
    files = {"v1/x": "1\n", "v2/x": "2\n", ".store/y": "3\n"}
    root = kernel('#include "cur/x"\n#include "y"\n', files)
    (root / "include/cur").symlink_to("../v1")
    (root / "include/y").symlink_to("step")
    (root / "include/step").symlink_to("../.store/y")
    found = {inputs_of(root).digest}
    assert {"v1/x", "include/y"} <= set(inputs_of(root).named)
    for path in ("v1/x", ".store/y"):
        (root / path).write_text("4\n", encoding="utf-8")
        found.add(inputs_of(root).digest)
    (root / "v2/x").write_text("4\n", encoding="utf-8")
    (root / "include/cur").unlink()
    (root / "include/cur").symlink_to("../v2")
    found.add(inputs_of(root).digest)
    assert len(found) == 4


def test_links_in_circles_end(kernel: Maker) -> None:
    root = kernel('#include "self/always.h"\n')
    (root / "include/self").symlink_to(".")
    (root / "include/up").symlink_to("../..")
    (root / "include/a").symlink_to("b")
    (root / "include/b").symlink_to("a")
    (root / "include/up").unlink()
    assert inputs_of(root).named == ("include/always.h",)


def test_a_pipe_is_not_read(kernel: Maker) -> None:
    root = kernel('#include "tables"\n')
    os.mkfifo(root / "include/tables")
    assert inputs_of(root).named == ()


@pytest.mark.parametrize("source", [r'asm(".incbin \"t.bin\"");', "#pragma GCC system_header"])
def test_what_no_dependency_file_will_list_is_known(kernel: Maker, source: str) -> None:
    assert not inputs_of(kernel(f"{source}\n", {"t.bin": ""})).is_listed
    assert inputs_of(kernel('#include "always.h"\n', directory="plain")).is_listed


def test_links_at_the_projects_top_count_when_a_source_goes_through_them(kernel: Maker, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.h").touch()
    root = kernel('#include "../vendor/x.h"\n#include "../one.h"\n')
    for name in ("vendor", "result", "data"):
        (root / name).symlink_to(outside)
    (root / "one.h").symlink_to("../outside/x.h")
    with pytest.raises(ConfigError) as caught:
        inputs_of(root)
    said = [diagnostic.message for diagnostic in caught.value.diagnostics]
    assert said == [
        "'one.h' is a link that leads out of the project, to '../outside/x.h'",
        f"'vendor' is a link that leads out of the project, to '{outside}'",
    ]
    (root / "src/k.cpp").write_text("int data, result;\n", encoding="ascii")
    assert inputs_of(root).named == ()


def test_what_metadata_records_changes_with_every_input_and_with_nothing_else(kernel: Maker) -> None:
    root = kernel('#include "always.h"\n', {"torch-ext/k2/__init__.py": ""})
    project = load_project(root)[0]
    records = [sources_of(project)]
    for path in ("src/k.cpp", "include/always.h", "torch-ext/k2/__init__.py", "build.toml", "torch-ext/k2/new.py"):
        os.utime(root / "src/k.cpp")
        (root / "README.md").write_text(path, encoding="utf-8")
        assert sources_of(project) == records[-1]
        with (root / path).open("a", encoding="utf-8") as file:
            file.write("[torch.nothing]\n" if path == "build.toml" else "\n")
        records.append(sources_of(project))
    assert len({str(record) for record in records}) == len(records)
    (root / "src/k.cpp").unlink()
    assert sources_of(project) is None


def rewritten(toml: str) -> dict[str, str]:
    """Other texts of the same file."""
    general, rest = toml.split("\n\n", 1)
    section = 'backend = "cpu"\ndepends = ["torch"]'
    return {
        "a comment at the end": f"{toml}# words\n",
        "comments in between": toml.replace("\n\n", "\n# words\n\n").replace("version = 1", "version = 1  # one"),
        "other blanks": toml.replace(" = ", "=").replace("\n\n", "\n\n\n"),
        "other quotes": toml.replace('"k2"', "'k2'"),
        "other line ends": toml.replace("\n", "\r\n"),
        "a list in lines": toml.replace('["src/k.cpp"]', '[\n  "src/k.cpp",\n]'),
        "keys in another order": toml.replace(section, 'depends = ["torch"]\nbackend = "cpu"'),
        "tables in another order": f"{rest}\n{general}\n",
        "a table in a line": general.replace("[general]\n", "general.").replace("\n", "\ngeneral.") + f"\n{rest}",
    }


@pytest.mark.parametrize("how", rewritten(TOML))
def test_build_toml_counts_by_what_it_says(kernel: Maker, how: str) -> None:
    root = kernel('#include "always.h"\n')
    before = (root / "build.toml").read_text(encoding="utf-8")
    digest = inputs_of(root).digest
    changed = rewritten(before)[how]
    assert changed != before
    (root / "build.toml").write_bytes(changed.encode())
    assert inputs_of(root).digest == digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version = 1", "version = 2"),
        ('"Apache-2.0"', '"MIT"'),
        ("cxx-flags = []", 'cxx-flags = ["-O1"]'),
        ("[kernel.main]", "[kernel.other]"),
        ('["src/k.cpp"]', '["src/k.cpp", "src/k.cpp"]'),
        ("[torch]", '[torch]\nminver = "2.8"'),
    ],
)
def test_build_toml_counts_where_it_says_something_else(kernel: Maker, old: str, new: str) -> None:
    root = kernel('#include "always.h"\n')
    before, digest = (root / "build.toml").read_text(encoding="utf-8"), inputs_of(root).digest
    assert old in before
    (root / "build.toml").write_text(before.replace(old, new), encoding="utf-8")
    assert inputs_of(root).digest != digest


def test_sections_count_in_their_order(kernel: Maker) -> None:
    root = kernel('#include "always.h"\n')
    head = TOML.split("[kernel.main]", maxsplit=1)[0]
    one, two = (f'[kernel.{name}]\nbackend = "cpu"\ndepends = ["torch"]\nsrc = ["src/k.cpp"]\n' for name in "ab")
    digests = []
    for text in (head + one + two, head + two + one):
        (root / "build.toml").write_text(text, encoding="utf-8")
        digests.append(inputs_of(root).digest)
    assert digests[0] != digests[1]


def test_build_toml_counts_by_its_bytes_where_a_source_reads_it(kernel: Maker) -> None:
    root = kernel('const char text[] = {\n#embed "../build.toml"\n};\n')
    digest = inputs_of(root).digest
    with (root / "build.toml").open("a", encoding="utf-8") as file:
        file.write("# words\n")
    assert inputs_of(root).digest != digest
