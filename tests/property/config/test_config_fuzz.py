"""A short run of scripts/fuzz_config.py; long ones are made by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "fuzz_config.py"


def test_mutated_files_neither_crash_nor_hang_the_reader() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--count", "400", "--seconds", "60"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("400 inputs")
