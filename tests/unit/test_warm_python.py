"""Commands of Python that tests fork from one process behave as those that are started."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from warm_python import WarmPython


@pytest.fixture(scope="module")
def python() -> Iterator[WarmPython]:
    with WarmPython("fractions") as found:
        yield found


def test_code_modules_and_files_run_where_and_as_they_are_told(python: WarmPython, tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), os.environ['GIVEN'], *sys.argv, 'fractions' in sys.modules)"
    (tmp_path / "program.py").write_text(f"import beside\n{code}\n", encoding="ascii")
    (tmp_path / "beside.py").write_text(code, encoding="ascii")
    environ = {**os.environ, "GIVEN": "here"}
    told = {
        words[0]: python.run([*words, "one"], cwd=tmp_path, environ=environ)
        for words in (["-c", code], ["-m", "beside"], ["program.py"])
    }
    assert {done.stderr for done in told.values()} == {""}
    assert told["-c"].stdout == f"{tmp_path} here -c one True\n"
    assert told["-m"].stdout == f"{tmp_path} here {tmp_path / 'beside.py'} one True\n"
    assert told["program.py"].stdout == f"{tmp_path} here program.py one True\n" * 2
    gone = python.run(["-c", "import os; print(os.environ.get('GIVEN'))"], cwd=tmp_path, environ=os.environ)
    assert gone.stdout == "None\n"


@pytest.mark.parametrize(
    ("code", "ended", "words"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('told')", 1, "told\n"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_how_a_command_ends_is_told(python: WarmPython, tmp_path: Path, code: str, ended: int, words: str) -> None:
    done = python.run(["-c", code], cwd=tmp_path, environ=os.environ)
    assert done.returncode == ended
    assert words in done.stderr
