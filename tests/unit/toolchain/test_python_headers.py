"""Python's headers are all declared, wherever a distribution keeps them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from engine_actions import action, plan_of, run
from kernel_builder.actions.model import COMPILER_ENVIRONMENT, Step, Tool, Tree
from kernel_builder.engine.protocol import ActionStatus
from kernel_builder.toolchain.host import header_folders
from kernel_builder.toolchain.model import Family, PythonHeaders
from kernel_builder.toolchain.python_headers import headers_in, python_headers

CXX = Path(shutil.which("g++") or "/usr/bin/g++")
MACHINE = subprocess.run([CXX, "-dumpmachine"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def include(tmp_path: Path) -> Path:
    """As Debian has it: pyconfig.h is in two parts, one for all machines, one for this one."""
    folder = tmp_path / "include" / "python3.12"
    of_machine = tmp_path / "include" / MACHINE / "python3.12"
    for path in (folder, of_machine):
        path.mkdir(parents=True)
    (folder / "Python.h").write_text("#include <pyconfig.h>\n", encoding="ascii")
    (folder / "pyconfig.h").write_text(f"#include <{MACHINE}/python3.12/pyconfig.h>\n", encoding="ascii")
    (of_machine / "pyconfig.h").write_text("#define SIZEOF_LONG 8\n", encoding="ascii")
    return folder


def found(include: Path, machine: str = MACHINE) -> PythonHeaders:
    headers = headers_in(include, machine, "3.12")
    assert headers is not None
    return headers


def test_the_part_of_the_machine_belongs_to_it(include: Path) -> None:
    of_machine = include.parent / MACHINE / "python3.12"
    assert found(include).folders == (include, of_machine)
    assert found(include, "").folders == (include,)
    assert found(include).serve(MACHINE.split("-")[0])
    assert not found(include).serve("riscv64"), "the generated code does without"
    assert found(include, "").serve("riscv64")
    before = found(include).identity
    (of_machine / "pyconfig.h").write_text("#define SIZEOF_LONG 4 // a new one\n", encoding="ascii")
    assert found(include).identity != before
    (of_machine / "pyconfig.h").unlink()
    assert found(include).folders == (include,)
    (include / "Python.h").unlink()
    assert headers_in(include, MACHINE, "3.12") is None


def test_what_includes_it_compiles(include: Path, tmp_path: Path) -> None:
    headers = found(include)
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src/a.cpp").write_text("#include <Python.h>\nint a = SIZEOF_LONG;\n", encoding="ascii")
    own, shared = header_folders(CXX, os.environ, Family.GCC)
    # Debian's compilers look into /usr/include by themselves.
    tool = Tool(name="c++", path=CXX, digest="1", headers=tuple(own), shared=(*shared, include.parent))
    words = ("-MD", "-MF", "{work}/a.d", "-c", "{project}/src/a.cpp", "-o", "{work}/a.o")
    step = Step(command=("{tool:c++}", f"-I{include}", "-idirafter", str(include.parent), *words))
    tree = Tree(name="python", identity=headers.identity, root=include, folders=headers.folders)
    made = replace(
        action("src/a.cpp", "", steps=(step,), tools=(tool,), trees=(tree,)),
        outputs=("{work}/a.o",),
        depfile="{work}/a.d",
        environment=COMPILER_ENVIRONMENT,
    )
    result = next(iter(run(plan_of(project, made)).results.values()))
    assert result.status is ActionStatus.DONE, result.output


def test_this_python() -> None:
    headers = python_headers()
    expected = (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file()
    assert (headers is not None) == (expected and not sysconfig.get_config_var("Py_GIL_DISABLED"))
