"""Files of the project that no other test runs: scripts, the image, workflows, hooks, and what says its version."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import ROOT
from kernel_builder import __version__
from kernel_builder.cli import COMMANDS
from pages import blocks

SCRIPTS = [
    "install.sh",
    "container/entrypoint",
    "terraform/build-kernel",
    "scripts/quickstart",
    "scripts/test",
    "scripts/setup.sh",
    ".ci/run",
]


def _program(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; the extra 'dev' has it")
    return found


def _passes(*command: str | Path) -> None:
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_sound(script: str) -> None:
    _passes(_program("shellcheck"), "-x", script)


def test_the_image_is_sound() -> None:
    _passes(_program("hadolint"), "Dockerfile")


@pytest.fixture
def workflows(tmp_path: Path) -> list[Path]:
    """Ours, and those that the page about CI shows."""
    page = (ROOT / "docs" / "howto" / "ci.md").read_text(encoding="utf-8")
    shown = [block for block in blocks(page) if (block.title or "").startswith(".github/workflows/")]
    assert shown
    for number, block in enumerate(shown):
        (tmp_path / f"{number}.yml").write_text(block.text, encoding="utf-8")
    return [*(ROOT / ".github" / "workflows").glob("*.yml"), *tmp_path.glob("*.yml")]


def test_workflows_and_the_action_are_what_github_takes(workflows: list[Path]) -> None:
    checker = _program("check-jsonschema")
    _passes(checker, "--builtin-schema", "vendor.github-workflows", *workflows)
    _passes(checker, "--builtin-schema", "vendor.github-actions", "action.yml")
    _passes(checker, "--builtin-schema", "vendor.citation-file-format", "CITATION.cff")


def test_nobody_gets_a_command_or_a_token_into_workflows(workflows: list[Path]) -> None:
    config = ROOT / ".github" / "zizmor.yml"
    _passes(_program("zizmor"), "--offline", "--min-confidence", "medium", "-q", "-c", config, "action.yml", *workflows)
    for path in workflows:
        commands = re.findall(r"^ *- run: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert [command for command in commands if "${{" in command] == [], path


def test_hooks_run_commands_that_there_are() -> None:
    entries = re.findall(
        r"^  entry: kernel-builder (\S+)$", (ROOT / ".pre-commit-hooks.yaml").read_text(), re.MULTILINE
    )
    assert len(entries) == 2
    assert set(entries) <= COMMANDS.keys()


def test_the_version_is_the_same_everywhere() -> None:
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_image_has_what_the_package_is_made_of() -> None:
    """What .dockerignore lets through is what pyproject.toml and the Dockerfile name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    let_through = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    copied = set(re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    words = {word.split("/")[0] for line in copied for word in line.split()}
    assert words == let_through
    assert {"pyproject.toml", project["project"]["readme"], "src"} <= words
    assert json.loads(re.findall(r"^ENTRYPOINT (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0])
