"""Hosts that are no Linux: what is Python alone works there, and what is compiled is refused by name."""

from __future__ import annotations

import ast
import ctypes
import errno
import json
import ntpath
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import kernel_builder
from conftest import ProjectMaker
from kernel_builder.artifact import variant as variants
from kernel_builder.errors import MachineError
from kernel_builder.events import Recorder
from kernel_builder.signals import ENDING
from kernel_builder.store.cache import Store
from kernel_builder.store.parts import KeptParts
from kernel_builder.store.uses import Uses, guard, in_use
from kernel_builder.toolchain.host import build_machine
from kernel_builder.variants.names import Platform
from kernel_builder.walking import relative_to
from without_posix import FUNCTIONS, MODULES, NEEDED_BY_LIBRARIES, SIGNALS

PROGRAM = Path(__file__).parents[1] / "without_posix.py"
NOARCH = """\
[general]
name = "py-only"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]

[torch-noarch]
"""
PACKAGE = '"""Twice."""\n\nfrom ._ops import ops\n\n__all__ = ["twice"]\n\n\ndef twice(x):\n    return x + x\n'


def on_windows(root: Path, *commands: list[str]) -> list[tuple[int, str]]:
    environ = {**os.environ, "KERNEL_BUILDER_CACHE": str(root / "store")}
    command = [sys.executable, "-B", str(PROGRAM), json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, cwd=root)
    assert done.returncode == 0, done.stderr
    return [(code, text) for code, text in json.loads(done.stdout.splitlines()[-1])]


RUN_ON_POSIX = (
    "engine/processes.py",  # starts compilers
    "environments/",  # runs tests and benchmarks of kernels that are loaded
    "load/",  # loads kernels
)
"""Modules that run what is compiled, which is refused on Windows before."""


def posix_only(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """``(line, name)`` of what only POSIX systems have, where nothing asks first whether this one has it."""
    guarded = {
        node.args[1].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"hasattr", "getattr"}
        if len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr not in guarded:
            of_system = node.value.id == "os" and node.attr in FUNCTIONS | NEEDED_BY_LIBRARIES
            if of_system or (node.value.id == "signal" and node.attr in SIGNALS):
                yield node.lineno, f"{node.value.id}.{node.attr}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from ((node.lineno, f"import {name}") for name in names if name in MODULES)
        if isinstance(node, ast.keyword) and node.arg in {"dir_fd", "src_dir_fd", "dst_dir_fd", "preexec_fn"}:
            yield node.value.lineno, f"{node.arg}="


def test_what_only_posix_has_is_asked_for_first_where_nothing_compiled_runs() -> None:
    package = Path(kernel_builder.__file__).parent
    found = [
        f"{path.relative_to(package).as_posix()}:{line}: {name}"
        for path in sorted(package.rglob("*.py"))
        if not path.relative_to(package).as_posix().startswith(RUN_ON_POSIX)
        for line, name in posix_only(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_what_counts_as_asking_first() -> None:
    text = """\
import fcntl, os
os.getloadavg()
os.statvfs("/") if hasattr(os, "statvfs") else None
os.open("a", getattr(os, "O_CLOEXEC", 0) | os.O_NONBLOCK)
os.open("a", os.O_RDONLY, dir_fd=3)
signal.SIGKILL, signal.SIGINT
"""
    assert sorted(posix_only(ast.parse(text))) == [
        (1, "import fcntl"),
        (2, "os.getloadavg"),
        (4, "os.O_NONBLOCK"),
        (5, "dir_fd="),
        (6, "signal.SIGKILL"),
    ]


DEPENDING = """\
[general]
name = "with-headers"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]
src = []

[kernel.a]
backend = "cuda"
depends = []
src = ["a.cu"]
"""


def test_sources_are_read_as_they_are_on_windows(make_project: ProjectMaker) -> None:
    """Headers of libraries are looked for in sources; lines end as editors on Windows end them."""
    files = {"a.cu": "#include <cutlass/cutlass.h>\r\nint a;\x1a\r\n"}
    root = make_project("with-headers", files, toml=DEPENDING.replace("\n", "\r\n"))
    ((code, text),) = on_windows(root, ["check-config", str(root)])
    assert code == 3, text
    assert "build.toml:13:11: error: kernel.a.depends: line 1 of 'a.cu' includes cutlass/cutlass.h" in text


@pytest.mark.parametrize(
    ("path", "relative"),
    [
        (r"C:\Users\me\k\csrc\a.cu", "csrc/a.cu"),
        (r"C:\Users\me\k", ""),
        (r"C:\Users\me\shared\a.h", "../shared/a.h"),
        (r"c:\users\ME\k\A.cu", "A.cu"),
        (r"D:\shared\a.h", "D:/shared/a.h"),
    ],
)
def test_paths_are_written_with_slashes_on_windows(path: str, relative: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ``build.toml``, ``metadata.json``, and what an id is made of."""
    monkeypatch.setattr("kernel_builder.walking.os", SimpleNamespace(path=ntpath, sep="\\"))
    assert relative_to(path, r"C:\Users\me\k") == relative


def test_parts_of_downloads_are_kept_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in FUNCTIONS:
        monkeypatch.delattr(os, name, raising=False)
    data = bytes(range(256)) * 40

    class Reader:
        size = len(data)
        asked = 0

        def read(self, start: int, stop: int) -> Iterator[bytes]:
            self.asked += 1
            yield data[start:stop]

    file = tmp_path / "a.part"
    reader = Reader()
    assert b"".join(KeptParts(reader, file).read(100, 9000)) == data[100:9000]
    assert file.read_bytes() == bytes(100) + data[100:9000]
    assert b"".join(KeptParts(reader, file).read(200, 300)) == data[200:300]
    assert reader.asked == 1


def test_a_full_disk_is_told_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    for name in FUNCTIONS:
        monkeypatch.delattr(os, name, raising=False)
    store = Store(tmp_path, Recorder())
    full = pytest.raises(MachineError, match=r"the disk is full: cannot write .*/a \(.* free\)")
    with full, store.machine_errors():
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "a"))


def test_what_is_python_alone_is_configured_planned_built_and_checked(make_project: ProjectMaker) -> None:
    root = make_project("py-only", {"torch-ext/py_only/__init__.py": PACKAGE}, toml=NOARCH)
    made = root / "made"
    commands = [
        ["check-config", str(root)],
        ["list-variants", str(root)],
        ["build", str(root), "--no-load", "--output", str(root / "out")],
        ["check", str(root / "out")],
        ["toolchain", "gc"],
        ["init", str(made), "--name", "me/scale"],
        ["check-config", str(made)],
        ["list-variants", str(made), "--set", "all"],
        ["build", str(made), "--variant", "torch29-cu128-x86_64-windows", "--dry-run"],
    ]
    answers = on_windows(root, *commands)
    for words, (code, text) in zip(commands[:-1], answers, strict=False):
        assert code == 0, (words, text)
        assert "Traceback" not in text, (words, text)
    assert answers[1][1].split() == ["torch-cpu", "torch-cuda"]
    assert (root / "out" / "torch-cpu" / "metadata.json").is_file()
    assert "No errors, no warnings in 2 variants" in answers[3][1]
    assert "cannot compile for Windows" in answers[7][1]
    code, text = answers[-1]
    assert code != 0
    assert "cannot compile for Windows" in text


@pytest.mark.parametrize(
    ("machine", "system", "name"),
    [
        ("AMD64", "Windows", "x86_64-windows"),
        ("ARM64", "Windows", "aarch64-windows"),
        ("arm64", "Darwin", "aarch64-darwin"),
        ("aarch64", "Linux", "aarch64-linux"),
    ],
)
def test_platforms_are_known_by_the_names_that_systems_give_them(
    machine: str, system: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "system", lambda: system)
    assert str(Platform.current()) == name
    assert build_machine() == name.partition("-")[0]


def test_signals_are_those_of_the_system() -> None:
    assert [number.name for number in ENDING][:2] == ["SIGINT", "SIGTERM"]


def test_who_uses_an_entry_is_known_by_a_lock_that_every_system_has(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kernel_builder.store.uses import Uses\n"
        "uses = Uses(Path(sys.argv[1])); uses.add('torch-2.13.0-abc'); print('ready', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        own = Uses(tmp_path)
        own.add("cuda-13.0-def")
        with guard(tmp_path):
            assert in_use(tmp_path) == {"torch-2.13.0-abc", "cuda-13.0-def"}
        own.release()
        other.kill()
        other.wait()
    with guard(tmp_path):
        assert in_use(tmp_path) == frozenset()
    assert list((tmp_path / "uses").iterdir()) == []


def test_a_stage_belongs_to_a_process_that_runs_wherever_processes_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    for number in (os.getpid(), gone.pid):
        (tmp_path / f".torch-cpu-{number}-x.new").mkdir()
    # There is no /proc on macOS, nor on Windows.
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path, **how: path.parts[1:2] != ("proc",) and exists(path, **how))
    variants.recover(tmp_path, ("torch-cpu",))
    assert [path.name for path in tmp_path.iterdir()] == [f".torch-cpu-{os.getpid()}-x.new"]


def test_a_variant_replaces_an_older_one_where_directories_cannot_be_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_library_without_a_name(*_: object, **__: object) -> None:
        raise TypeError("Windows has no library without a name")

    monkeypatch.setattr(ctypes, "CDLL", no_library_without_a_name)
    for folder, text in (("torch-cpu", "old"), ("stage", "new")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "metadata.json").write_text(text)
    assert variants.publish(tmp_path / "stage", tmp_path, "torch-cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["torch-cpu"]
    assert (tmp_path / "torch-cpu" / "metadata.json").read_text() == "new"
