"""What users install: sdist and wheel are the same each time, and work where nothing else of the project is."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from conftest import ROOT, once, shared_folder
from kernel_builder import __version__

pytestmark = [pytest.mark.slow]

DEPENDENCIES = os.pathsep.join(place for place in sys.path if place.endswith(("site-packages", "dist-packages")))
"""Where the dependencies are, but not this package: its editable installation is behind a .pth file."""
PACKED = ("src", "pyproject.toml", "README.md", "LICENSE", ".gitignore")


def _run(*command: str | Path, **more: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories ``1`` and ``2`` with what two builds of copies in different places made."""
    for module in ("build", "hatchling"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed; the extra 'dev' has it")

    def make(folder: Path) -> None:
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PACKED],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for number in ("1", "2"):
            copy = folder / f"copy-{number}" / ("deeper" * int(number))
            for name in filter(None, names.split("\0")):
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / name, copy / name)
            command: list[str | Path] = [
                sys.executable,
                "-m",
                "build",
                "--no-isolation",
                "--outdir",
                folder / number,
                copy,
            ]
            _run(*command, SOURCE_DATE_EPOCH="1700000000")

    return once(shared_folder(tmp_path_factory) / "distribution", make)


def test_two_builds_give_the_same_bytes(built: Path) -> None:
    digests = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (built / number).iterdir()}
        for number in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert sorted(Path(name).suffix for name in digests[0]) == [".gz", ".whl"]
    with tarfile.open(next((built / "1").glob("*.tar.gz"))) as archive:
        assert any(name.endswith("/src/kernel_builder/data/support.toml") for name in archive.getnames())


def test_the_wheel_works_where_nothing_else_of_the_project_is(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "clean")
    python = tmp_path / "clean" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    _run(*pip, "install", "--quiet", "--no-deps", "--no-index", next((built / "1").glob("*.whl")))
    environment = {"PYTHONPATH": DEPENDENCIES, "KERNEL_BUILDER_CACHE": str(tmp_path / "store")}
    where = _run(python, "-c", "import kernel_builder; print(kernel_builder.__file__)", **environment)
    assert where.startswith(str(tmp_path / "clean"))
    tool = tmp_path / "clean" / "bin" / "kernel-builder"
    assert _run(tool, "--version", **environment).split()[-1] == __version__
    _run(tool, "init", tmp_path / "my-kernel", **environment)
    assert "is valid" in _run(tool, "check-config", tmp_path / "my-kernel", **environment)
    assert "KB103" in _run(tool, "explain", "KB103", **environment)
    assert "torch213-cxx11-cpu" in _run(tool, "list-variants", tmp_path / "my-kernel", **environment)


def test_the_install_script_installs_and_removes(built: Path, tmp_path: Path) -> None:
    """Without uv and pipx; packages that it depends on are those of the tests."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("date", "grep", "ln", "mkdir", "readlink", "rm"):
        (tools / name).symlink_to(shutil.which(name) or "")
    (tools / "python3").symlink_to(sys.executable)
    environment = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": DEPENDENCIES,
        "KERNEL_BUILDER_REQUIREMENT": str(next((built / "1").glob("*.whl"))),
    }
    script = ROOT / "install.sh"
    link = tmp_path / ".local" / "bin" / "kernel-builder"
    _run("/bin/sh", script, **environment)
    first = link.resolve()
    assert _run(link, "--version", PYTHONPATH=DEPENDENCIES).split()[-1] == __version__
    assert [path.name for path in (tmp_path / "data" / "kernel-builder-venv").iterdir()] == [first.parts[-3]]
    _run("/bin/sh", script, "--uninstall", **environment)
    assert not link.exists()
    assert not list((tmp_path / "data").iterdir())
