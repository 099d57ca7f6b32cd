"""What all tests share: a store for the session, the command line as users run it, and small projects."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kernel_libraries import Workshop

# How fast a busy machine makes examples says nothing about what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

ROOT = Path(__file__).parent.parent
PROJECTS = Path(__file__).parent / "projects"
CPU = "torch213-cxx11-cpu-x86_64-linux"

BUILD_TOML = """\
[general]
name = "{name}"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = []

[kernel.main]
backend = "cpu"
depends = ["torch"]
src = [{sources}]
"""


@dataclass(frozen=True)
class Result:
    """What a run of the command line left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, object]:
        """stdout as JSON."""
        value: dict[str, object] = json.loads(self.stdout)
        return value

    def variant(self, name: str = CPU) -> dict[str, object]:
        """The entry of one variant in the JSON result of ``build``."""
        variants = self.json["variants"]
        assert isinstance(variants, list)
        (found,) = [entry for entry in variants if entry["name"] == name]
        assert isinstance(found, dict)
        return found

    def compiled(self, name: str = CPU) -> list[str]:
        """Sources that were compiled for a variant, sorted."""
        found = self.variant(name)["compiled"]
        assert isinstance(found, list)
        return sorted(found)


@dataclass
class Tool:
    """Runs ``kernel-builder`` in a process of its own, with the session's store."""

    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start it and return at once."""
        return subprocess.Popen(
            [sys.executable, "-m", "kernel_builder", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=self.environment,
        )

    def __call__(self, *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Result:
        """Run it to its end."""
        completed = subprocess.run(
            [sys.executable, "-m", "kernel_builder", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            env={**self.environment, **(env or {})},
            timeout=1800,
        )
        assert "Traceback" not in completed.stderr, completed.stderr
        return Result(completed.returncode, completed.stdout, completed.stderr)


@pytest.fixture(scope="session")
def session_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of this test session. ``KERNEL_BUILDER_TEST_CACHE`` names one that is kept between sessions."""
    kept = os.environ.get("KERNEL_BUILDER_TEST_CACHE")
    return Path(kept) if kept else tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def tool(session_store: Path) -> Tool:
    """The command line."""
    return Tool({**os.environ, "KERNEL_BUILDER_CACHE": str(session_store), "PYTHONDONTWRITEBYTECODE": "1"})


@pytest.fixture(scope="session")
def init_project(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``init`` writes, committed, with its CPU variant built for the torch here. Not to be changed."""
    parent = tmp_path_factory.mktemp("init")
    written = tool("init", "--name", "me/my-scale", cwd=parent)
    assert written.code == 0, written.stderr
    root = parent / "my-scale"
    commit(root)
    built = tool("build", root, "--local", "--backend", "cpu")
    assert built.code == 0, built.stderr
    return root


ProjectMaker = Callable[..., Path]


@pytest.fixture
def make_project(tmp_path: Path) -> ProjectMaker:
    """Make a project of plain files: ``make_project("name", {"a.cpp": "..."}, toml="...")``.

    Without ``toml`` every C++ source is in one cpu section. A package is added. Sources need no torch, so they compile
    at once.
    """

    def make(name: str, files: Mapping[str, str], *, toml: str | None = None, directory: str | None = None) -> Path:
        root = tmp_path / (directory or name)
        sources = ", ".join(f'"{path}"' for path in files if path.endswith((".cpp", ".c", ".h")))
        contents = {
            "build.toml": toml or BUILD_TOML.format(name=name, sources=sources),
            f"torch-ext/{name.replace('-', '_')}/__init__.py": "from . import _ops\n",
            **files,
        }
        for path, text in contents.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return root

    return make


def commit(root: Path, message: str = "state") -> str:
    """Commit everything in ``root``, making a repository of it first; returns the commit."""
    environment = {
        **os.environ,
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@example.invalid",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@example.invalid",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True, env=environment
        ).stdout.strip()

    if not (root / ".git").exists():
        git("init", "-q")
        (root / ".gitignore").write_text("build/\n.kernel-builder/\n", encoding="utf-8")
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", message)
    return git("rev-parse", "HEAD")


def copy_project(source: Path, target: Path) -> Path:
    """Copy a project without what builds left in it."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("build", ".kernel-builder", "__pycache__"))
    return target


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Makes tiny real libraries."""
    if shutil.which("g++") is None:
        pytest.skip("this machine has no g++")
    return Workshop(tmp_path_factory.mktemp("libraries"))
