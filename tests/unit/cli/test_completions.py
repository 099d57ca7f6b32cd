"""Completions of shells, the manual page, and ``--help`` by task."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.cli import COMMANDS, TASKS, run
from kernel_builder.cli.completions import SHELLS
from kernel_builder.errors import ExitCode
from kernel_trees import source


def completed(words: str, incomplete: str, where: Path, monkeypatch: pytest.MonkeyPatch, **environ: str) -> list[str]:
    """What bash is offered behind ``words``."""
    line = f"kernel-builder {words} {incomplete}".split()
    position = len(line) - 1 if incomplete else len(line)
    monkeypatch.chdir(where)
    done = subprocess.run(
        [sys.executable, "-m", "kernel_builder"],
        env={
            "PATH": "/usr/bin:/bin",
            "_KERNEL_BUILDER_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(line),
            "COMP_CWORD": str(position),
            **environ,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        ("", "create", {"create-pyproject"}),
        ("toolchain", "fe", {"fetch"}),
        ("build --variant", "torch-", {"torch-cuda", "torch-rocm"}),
        ("build --variant torch-cuda --variant", "torch-r", {"torch-rocm"}),
        ("build --backend", "cu", {"cuda"}),
        ("init --backends", "", {"all", "cpu", "cuda", "metal", "rocm", "xpu"}),
        ("init --backends cpu", "cu", {"cuda", "cu"}),  # the word itself: it may become a path
        ("init --backends cpu cuda --name", "x", set()),
        ("check --explain", "KB312", {"KB312"}),
        ("build --ignore", "no-al", {"no-all"}),
        ("build --source", "deb", {"debian"}),
        ("build", "--dry", {"--dry-run"}),
    ],
)
def test_values_are_offered(
    words: str, incomplete: str, offered: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = source(tmp_path, {}, backends='"cuda", "rocm"')
    assert set(completed(words, incomplete, root, monkeypatch)) == offered


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        ("environment remove", "", {"torch-2.12-for-cpu-aa", "torch-2.13-for-cpu-bb"}),
        ("environment remove", "torch-2.12", {"torch-2.12-for-cpu-aa"}),
        ("environment remove torch-2.12-for-cpu-aa", "t", {"torch-2.13-for-cpu-bb"}),
    ],
)
def test_environments_are_offered(
    words: str, incomplete: str, offered: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch-2.12-for-cpu-aa", "torch-2.13-for-cpu-bb"):
        (tmp_path / "environments" / name).mkdir(parents=True)
    (tmp_path / "environments" / "a.lock").touch()
    assert set(completed(words, incomplete, tmp_path, monkeypatch, KERNEL_BUILDER_CACHE=str(tmp_path))) == offered


def test_without_environments_nothing_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed("environment remove", "t", tmp_path, monkeypatch, KERNEL_BUILDER_CACHE=str(tmp_path)) == []


def test_a_project_with_mistakes_offers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "build.toml").write_text("[general\n")
    assert completed("build --variant", "t", tmp_path, monkeypatch) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_what_the_shell_takes(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completions", shell]) == ExitCode.OK
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    assert "_KERNEL_BUILDER_COMPLETE" in script.read_text()
    if shell in {"bash", "zsh", "fish"} and shutil.which(shell):
        subprocess.run([shell, "-n", script], check=True)


SHOWN = {
    "bash": """
        . {script}
        COMP_WORDS=(kernel-builder build --backend cu) COMP_CWORD=3
        _kernel_builder_completion kernel-builder
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """,
    "fish": """
        source {script}
        complete -C 'kernel-builder build --backend cu'
    """,
}


@pytest.mark.parametrize("shell", SHOWN)
def test_shells_show_what_is_offered(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    assert run(["completions", shell]) == ExitCode.OK
    script, bin_ = tmp_path / "script", tmp_path / "bin"
    script.write_text(capsys.readouterr().out)
    bin_.mkdir()
    (bin_ / "kernel-builder").write_text(f'#!/bin/sh\nexec {sys.executable} -m kernel_builder "$@"\n')
    (bin_ / "kernel-builder").chmod(0o755)
    done = subprocess.run(
        [program, "-c", SHOWN[shell].format(script=script)],
        env={"PATH": f"{bin_}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["cuda"], done.stderr


def test_the_manual_page_has_every_command_and_is_good_troff(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["man"]) == ExitCode.OK
    page = capsys.readouterr().out
    for name in COMMANDS:
        assert f".SS kernel\\-builder {name.replace('-', chr(92) + '-')}\n" in page
    assert ".B \\-\\-from\\-extension DIR" in page
    for line in page.splitlines():
        assert not line.startswith("'")
        assert not line.startswith(".") or line.split()[0] in {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".nf", ".fi"}


def test_help_shows_every_command_once_by_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(name for names in TASKS.values() for name in names) == sorted(COMMANDS)
    assert run(["--help"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert [line[:-1] for line in out.splitlines() if line[:-1] in TASKS] == list(TASKS)
