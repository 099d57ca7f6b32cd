"""``check`` of a source tree says what is wrong with ``build.toml``, and with the tree that it describes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.project.inputs import follow_links
from kernel_trees import compiled_toml, findings, source, write

COMPILED = compiled_toml("torch-ext/torch_binding.cpp", "main/main.cpp", section="main")
BROKEN = {
    "no TOML": ("[general\n", 1),
    "an unknown edition": ('[general]\nname = "my-kernel"\nversion = 1\nedition = 99\nlicense = "MIT"\n', 4),
    "no name": ('[general]\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n[torch-noarch]\n', 1),
    "a wrong type": (COMPILED.replace("version = 1", 'version = "one"'), 3),
    "a file that is missing": (COMPILED.replace("main/main.cpp", "main/gone.cpp"), 14),
    "not UTF-8": (COMPILED.encode().replace(b"MIT", b"MIT\xff"), 5),
}


def compiled(root: Path, toml: str | bytes = COMPILED) -> Path:
    files: dict[str, str | bytes] = {
        "build.toml": toml,
        "torch-ext/torch_binding.cpp": "\n",
        "main/main.cpp": "int a;\n",
    }
    return write(source(root, {"part.py": "x = 1\n"}), files)


@pytest.mark.parametrize(("toml", "line"), BROKEN.values(), ids=BROKEN)
def test_mistakes_are_told_with_their_place(tmp_path: Path, toml: str | bytes, line: int) -> None:
    found = findings(compiled(tmp_path, toml), "KB400")
    assert found
    assert {entry.path for entry in found} == {str(tmp_path / "build.toml")}
    assert line in {entry.line for entry in found}
    assert all(entry.severity.value == "error" and entry.message for entry in found)


def test_a_directory_is_no_build_toml(tmp_path: Path) -> None:
    root = compiled(tmp_path)
    assert findings(root, "KB400", follow_links=follow_links) == []
    (root / "build.toml").write_bytes(b"#" * (5 << 20))
    (found,) = findings(root, "KB400")
    assert "the limit for build.toml" in found.message


OUTSIDE = {
    "a Python file": ("torch-ext/my_kernel/more.py", "more.py"),
    "a file of Python below": ("torch-ext/my_kernel/sub/more.py", "more.py"),
    "a folder of Python": ("torch-ext/my_kernel/folder", ""),
    "a data file of the package": ("torch-ext/my_kernel/table.bin", "more.py"),
    "a header": ("main/more.h", "more.h"),
    "a header at the top": ("more.h", "more.h"),
}


@pytest.mark.parametrize(("path", "target"), OUTSIDE.values(), ids=OUTSIDE)
def test_links_out_of_the_project_are_refused_wherever_they_are(tmp_path: Path, path: str, target: str) -> None:
    write(tmp_path / "elsewhere", {"more.py": "y = 1\n", "more.h": "int b;\n"})
    root = compiled(tmp_path / "kernel")
    (root / "main/main.cpp").write_text('#include "more.h"\n#include "../more.h"\n')
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).symlink_to(tmp_path / "elsewhere" / target)
    (found,) = findings(root, "KB400", follow_links=follow_links)
    assert "leads out of the project" in found.message
    assert Path(path).name in f"{found.path} {found.message}"


def test_links_inside_the_project_pass(tmp_path: Path) -> None:
    root = compiled(tmp_path)
    (root / "main/more.h").symlink_to("main.cpp")
    (root / "torch-ext/my_kernel/other.py").symlink_to("part.py")
    assert findings(root, "KB400", follow_links=follow_links) == []
