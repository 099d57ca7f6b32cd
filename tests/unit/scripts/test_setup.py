"""What ``scripts/setup.sh`` says before it fetches anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT

PIP = """\
#!/bin/sh
case "$*" in
  *"pip index versions"*"$EXTRA torch") echo "Available versions: $VERSIONS" ;;
  *importlib.metadata*) [ "$INSTALLED" = yes ] ;;
  *) exit 9 ;;
esac
"""


def announced(tmp_path: Path, versions: str, *, installed: bool = False, index: str = "", system: str = "Linux") -> str:
    """What is said where the package index has these versions of torch."""
    for name, text in {"python": PIP, "uname": f"#!/bin/sh\necho {system}\n"}.items():
        (tmp_path / name).write_text(text, encoding="ascii")
        (tmp_path / name).chmod(0o755)
    options = f"--extra-index-url {index}" if index else ""
    script = f'root=$1; . "$root"/scripts/setup.sh; python=$2; announce {options}'
    completed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script, "-", ROOT, tmp_path / "python"],
        env={
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "VERSIONS": versions,
            "INSTALLED": "yes" if installed else "",
            "EXTRA": options,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stderr


@pytest.mark.parametrize("index", ["", "https://cpu.example.invalid/whl"])
def test_the_small_build_is_announced_where_an_index_has_it(tmp_path: Path, index: str) -> None:
    said = announced(tmp_path, "2.14.0, 2.13.0+cpu, 2.13.0, 2.12.0", index=index)
    assert "torch 2.13.0+cpu, the build for CPUs (about 200 MB)" in said


def test_gigabytes_are_announced_with_what_makes_them_fewer(tmp_path: Path) -> None:
    said = announced(tmp_path, "2.14.0+cpu, 2.13.0, 2.12.0")
    assert "about 2.8 GB" in said
    assert "KERNEL_BUILDER_TORCH_INDEX" in said
    assert "2.8 GB" not in announced(tmp_path, "2.13.0", system="Darwin")


def test_what_is_installed_is_not_announced(tmp_path: Path) -> None:
    assert "GB" not in announced(tmp_path, "2.13.0", installed=True)
