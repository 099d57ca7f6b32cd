"""Ctrl-C where no command runs yet, and in what pip and build call: one line or none, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

PRESSED = "os.kill(os.getpid(), signal.SIGINT), time.sleep(5), print('went on')"


def _python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import os, signal, time\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environ}, check=False)


def test_before_the_program_is_ready(tmp_path: Path) -> None:
    """Python itself would show where it was with its imports."""
    (tmp_path / "click.py").write_text(f"import os, signal, time\n{PRESSED}\n")
    ended = _python("from kernel_builder.__main__ import main; main()", PYTHONPATH=str(tmp_path))
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_stays_ignored_where_the_shell_said_so(tmp_path: Path) -> None:
    """As for ``kernel-builder build &`` in a script."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(7)\n")
    code = "signal.signal(signal.SIGINT, signal.SIG_IGN); from kernel_builder.__main__ import main; main()"
    assert _python(code, PYTHONPATH=str(tmp_path)).returncode == 7


def test_in_the_build_backend() -> None:
    code = f"from kernel_builder.cli import pep517; pep517.source_distribution_of = lambda *_: ({PRESSED})"
    ended = _python(f"{code}; pep517.build_sdist('nowhere')")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")
