"""The README's commands, run as a new user runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, room_to_build

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.long, pytest.mark.torch]

BLOCKS: list[str] = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def block(beginning: str) -> str:
    """The README's block of commands with that beginning."""
    (found,) = [text for text in BLOCKS if text.startswith(beginning)]
    return found


def bare(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user who has just logged in, with nothing of ours but what pip is told on this machine.

    What pip has fetched before is not fetched again: torch may be gigabytes.
    """
    (home / ".config" / "pip").mkdir(parents=True)
    configuration = Path.home() / ".config" / "pip" / "pip.conf"
    if configuration.is_file():
        shutil.copy(configuration, home / ".config" / "pip")
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "LANG"}
    kept.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    kept["CUDA_VISIBLE_DEVICES"] = ""
    return {**kept, "HOME": str(home), "PATH": os.environ["PATH"], **more}


def test_the_quick_start_computes_the_right_answer_on_a_bare_machine(tmp_path: Path) -> None:
    """The command for a clone, in a clean copy, with a new home and an empty store."""
    clone = tmp_path / "clone"
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    quick_start = block("./scripts/quickstart")
    environment = bare(tmp_path / "home")
    with room_to_build():
        completed = subprocess.run(
            quick_start, shell=True, cwd=clone, env=environment, capture_output=True, text=True, check=False
        )
    assert completed.returncode == 0, completed.stderr + completed.stdout
    lines = completed.stdout.splitlines()
    (summary,) = [line for line in lines if line.startswith("torch213-cxx11-cpu-x86_64-linux")]
    assert "built" in summary
    assert "loaded" in summary
    answers = {
        line.split(":", 1)[0]: re.findall(r"\[.*\]", line) for line in lines if line.startswith(("kernel:", "torch:"))
    }
    assert answers["kernel"] == answers["torch"]
    assert answers["kernel"]
    assert re.search(r"; [0-9.]+ MiB fetched;", completed.stdout)
    fetched = re.findall(r"; ([0-9.]+) MiB fetched;", completed.stdout)
    assert 0 < float(fetched[0]) <= 25


def test_the_second_command_is_the_one_that_ci_runs() -> None:
    assert block("./scripts/test").strip() == "./scripts/test"
    assert "exec ./scripts/test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_tutorial_works_word_for_word(tmp_path: Path, session_store: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed in this environment")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, target in (("kernel-builder", "-m kernel_builder"), ("python", "")):
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {target} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    environment = bare(
        tmp_path / "home",
        PATH=f"{tools}{os.pathsep}{os.environ['PATH']}",
        KERNEL_BUILDER_CACHE=str(session_store),
        PYTHONPATH=str(ROOT / "src"),
    )
    with room_to_build():
        completed = subprocess.run(
            f"set -e\n{block('kernel-builder init ')}",
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert completed.returncode == 0, completed.stderr + completed.stdout
    assert "kernel:" in completed.stdout
