"""``--help`` and ``--version`` answer at once: nothing heavy is imported for them."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_nothing_heavy_is_imported(option: str) -> None:
    code = f"import sys\nfrom kernel_builder.cli import run\nrun([{option!r}])\nprint(*sys.modules)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(completed.stdout.split())
    heavy = {"rich", "requests", "pypi_simple", "jinja2", "tomlkit", "packaging", "abi3info", "filelock", "pydantic"}
    assert not imported & heavy
    assert not {name for name in imported if name.startswith("kernel_builder.") and ".cli" not in name} - {
        "kernel_builder.errors",
        "kernel_builder.signals",
    }
