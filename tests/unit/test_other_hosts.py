"""Hosts that are no Linux: what is Python alone works there, and what is compiled is refused by name."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.artifact import variant as variants
from kernel_builder.signals import ENDING
from kernel_builder.store.uses import Uses, guard, in_use
from kernel_builder.toolchain.host import build_machine
from kernel_builder.variants.names import Platform

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
