"""A backend that nobody has: a row of the table is all that reading and describing its projects takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from made_up import package_with_toy

PROJECT = """\
[general]
name = "ab"
version = 1
edition = 5
license = "mit"
backends = ["toy"]
[general.toy]
maxver = "1.0"
[torch]
[kernel.a]
backend = "toy"
depends = []
src = ["a.toy"]
toy-chips = ["t1", "t3"]
toy-minver = "2.0"
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of kernel-builder that knows the backend."""
    return package_with_toy(tmp_path_factory.mktemp("toy"))[0]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A kernel for it."""
    (tmp_path / "torch-ext" / "ab").mkdir(parents=True)
    (tmp_path / "torch-ext" / "ab" / "__init__.py").touch()
    (tmp_path / "a.toy").touch()
    (tmp_path / "build.toml").write_text(PROJECT)
    return tmp_path


def run(package: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernel_builder", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(package)},
    )


def test_its_projects_are_read(package: Path, project: Path) -> None:
    done = run(package, "check-config", project)
    assert done.returncode == 0, done.stderr
    assert "ab version 1, for toy" in done.stdout + done.stderr
    assert "this section is never built: general.toy.maxver allows no Toy newer than 1.0" in done.stdout + done.stderr


def test_their_mistakes_are_told_in_its_words(package: Path, project: Path) -> None:
    (project / "build.toml").write_text(PROJECT.replace('"t3"', '"8.0"').replace('["toy"]', '["plaything"]'))
    done = run(package, "check-config", project)
    assert done.returncode != 0
    assert "'8.0' is not a Toy chip" in done.stdout + done.stderr
    assert "did you mean 'toy'?" in done.stdout + done.stderr


def test_its_flags_that_choose_architectures_are_for_its_key(package: Path, project: Path) -> None:
    (project / "build.toml").write_text(PROJECT + 'toy-flags = ["-chip=t2", "-lfoo"]\n')
    done = run(package, "check-config", project)
    assert done.returncode == 3
    assert 'toy-chips = ["t2"]' in done.stderr
    assert "kernel.a.toy-flags[1]: '-lfoo' names a library to link" in done.stderr


def test_its_variants_are_listed(package: Path, project: Path) -> None:
    done = run(package, "list-variants", project, "--all-platforms")
    assert done.returncode == 0, done.stderr
    assert "torch213-cxx11-toy10-x86_64-linux" in done.stdout.split()


def test_it_is_in_the_schema(package: Path) -> None:
    schema = json.loads(run(package, "schema").stdout)
    assert "toy" in schema["properties"]["general"]["properties"]
    (section,) = (
        one
        for one in schema["properties"]["kernel"]["additionalProperties"]["oneOf"]
        if one["properties"]["backend"] == {"const": "toy"}
    )
    assert section["properties"]["toy-chips"]["items"] == {"type": "string", "pattern": "^t[0-9]$"}
    assert "cuda-flags" not in section["properties"]
