"""``install.sh`` on machines that lack something: one message with what to do, and nothing of the user's is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import ROOT

SCRIPT = ROOT / "install.sh"
PROGRAMS = ("cat", "date", "grep", "ln", "mkdir", "readlink", "rm")
OLD_PYTHON = '[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1'
NO_VENV = f'case "$*" in *venv*) echo "ensurepip is not available" >&2; exit 1 ;; esac\nexec {sys.executable} "$@"'

pytestmark = pytest.mark.skipif(os.name != "posix", reason="it is a script for sh")


@dataclass(frozen=True)
class Machine:
    """A home, and programs: nothing else is on PATH."""

    root: Path

    @property
    def command(self) -> Path:
        return self.root / "home" / ".local" / "bin" / "kernel-builder"

    def program(self, name: str, text: str) -> None:
        (self.root / "tools" / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (self.root / "tools" / name).chmod(0o755)

    def run(self, *words: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
        environ = {"PATH": str(self.root / "tools"), "HOME": str(self.root / "home"), **environment}
        return subprocess.run(
            ["/bin/sh", SCRIPT, *words],
            env={name: value for name, value in environ.items() if value is not None},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "tools").mkdir()
    (tmp_path / "home").mkdir()
    for name in PROGRAMS:
        (tmp_path / "tools" / name).symlink_to(shutil.which(name) or "")
    return Machine(tmp_path)


def _errors(completed: subprocess.CompletedProcess[str]) -> list[str]:
    assert completed.returncode == 1
    assert completed.stdout == ""
    assert "  hint: " in completed.stderr
    return [line for line in completed.stderr.splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize(
    ("python", "environment", "message"),
    [
        (None, {}, "Python 3.11 or newer is needed"),
        (OLD_PYTHON, {}, "Python 3.11 or newer is needed; python3 is Python 3.9.2"),
        (NO_VENV, {}, "python3 cannot make a virtual environment"),
        (None, {"HOME": None}, "HOME is not set, so there is no place to install to"),
        (NO_VENV, {"HOME": "/proc/nowhere"}, "/proc/nowhere/.local/share/kernel-builder-venv cannot be written to"),
    ],
)
def test_what_is_missing_is_said_once(
    machine: Machine, python: str | None, environment: dict[str, str | None], message: str
) -> None:
    if python is not None:
        machine.program("python3", python)
    assert _errors(machine.run(**environment)) == [f"error: {message}"]
    assert not list((machine.root / "home").rglob("*python*"))


@pytest.mark.parametrize("words", [("--uninstall",), ("--upgrade",)])
def test_what_it_cannot_do_is_refused(machine: Machine, words: tuple[str, ...]) -> None:
    assert len(_errors(machine.run(*words))) == 1


def test_a_command_of_somebody_else_stays(machine: Machine) -> None:
    machine.program("python3", NO_VENV)
    machine.command.parent.mkdir(parents=True)
    machine.command.write_text("mine", encoding="utf-8")
    assert "already exists, and this script did not install it" in _errors(machine.run())[0]
    (machine.root / "home" / ".local" / "share" / "kernel-builder-venv").mkdir(parents=True)
    assert machine.run("--uninstall").returncode == 0
    assert machine.command.read_text(encoding="utf-8") == "mine"


VENV = """[ "$2" = venv ] || exit 0
mkdir -p "$3/bin"
printf '#!/bin/sh\\nexit %s\\n' "$([ -e {root}/broken ] && echo 1 || echo 0)" > "$3/bin/python"
printf '#!/bin/sh\\necho kernel-builder, version 9\\n' > "$3/bin/kernel-builder"
{chmod} 755 "$3"/bin/*"""


def test_the_old_environment_stays_until_the_new_one_is_whole(machine: Machine) -> None:
    """Python is a stand-in; tests/integration/test_distribution.py installs with a real one."""
    machine.program("python3", VENV.format(root=machine.root, chmod=shutil.which("chmod")))
    data = machine.root / "home" / ".local" / "share" / "kernel-builder-venv"
    assert machine.run().returncode == 0
    first = machine.command.resolve()
    (machine.root / "broken").touch()
    assert _errors(machine.run()) == ["error: pip could not install kernel-builder"]
    assert machine.command.resolve() == first
    (machine.root / "broken").unlink()
    machine.program("pipx", "exit 0")  # whatever else is there by now: it is updated in the way it was installed
    assert machine.run().returncode == 0
    second = machine.command.resolve()
    assert second != first
    assert list(data.iterdir()) == [second.parent.parent]
    assert machine.run("--uninstall").returncode == 0
    assert not machine.command.is_symlink()
    assert not data.exists()


INSTALLED = "mkdir -p {bin}; printf '#!/bin/sh\\necho kernel-builder, version 9\\n' > {bin}/kernel-builder"
UV = """case "$*" in
  "tool list") cat {state} 2>/dev/null || true ;;
  "tool dir --bin") echo {bin} ;;
  "tool install "*) [ ! -e {root}/broken ] || exit 1; {installed}; "{chmod}" 755 {bin}/kernel-builder
    echo "kernel-builder v9" > {state} ;;
  "tool uninstall "*) rm -f {state} {bin}/kernel-builder ;;
esac"""
PIPX = """case "$*" in
  "list --short") cat {state} 2>/dev/null || true ;;
  "environment --value PIPX_BIN_DIR") echo {bin} ;;
  "install "*) [ ! -e {root}/broken ] || exit 1; {installed}; "{chmod}" 755 {bin}/kernel-builder
    echo "kernel-builder 9" > {state} ;;
  "uninstall "*) rm -f {state} {bin}/kernel-builder ;;
esac"""


@pytest.mark.parametrize(("name", "text"), [("uv", UV), ("pipx", PIPX)])
def test_it_is_installed_updated_and_removed_with_what_is_there(machine: Machine, name: str, text: str) -> None:
    """uv and pipx are stand-ins that keep a list; which of their commands are used is what is tested."""
    place = machine.root / "bin"
    installed = INSTALLED.format(bin=place)
    words = {"root": machine.root, "bin": place, "state": machine.root / "state", "chmod": shutil.which("chmod")}
    machine.program(name, text.format(installed=installed, **words))
    machine.program("python3", f'exec {sys.executable} "$@"')
    first = machine.run()
    assert first.returncode == 0, first.stderr
    assert f"note: {place} is not on PATH" in first.stderr
    assert "installed kernel-builder, version 9; next: kernel-builder doctor\n" in first.stderr
    again = machine.run(PATH=f"{place}{os.pathsep}{machine.root / 'tools'}")
    assert again.returncode == 0, again.stderr
    assert "note:" not in again.stderr
    machine.program("kernel-builder", "exit 0")
    assert "comes first on PATH, so that is what runs" in machine.run().stderr
    (machine.root / "broken").touch()
    assert _errors(machine.run()) == [f"error: {name} could not install kernel-builder"]
    assert machine.run("--uninstall").returncode == 0
    assert not (place / "kernel-builder").exists()
    assert len(_errors(machine.run("--uninstall"))) == 1
