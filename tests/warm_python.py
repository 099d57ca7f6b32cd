"""A Python process that has imported torch and forks Python programs: each starts in milliseconds instead of seconds.
For tests that run many programs and do not test how Python starts.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self


class WarmPython:
    """Runs commands in forks of one process, while this context is open. ``modules`` are imported there before."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-B", __file__, *self._modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()

    def run(self, words: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """What ``python WORDS...`` gives in ``cwd``: words as of Python's command line, ``-c CODE``, ``-m MODULE`` or a
        file, and what it is told. Variables that Python reads when it starts are those of this process.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            outputs = [Path(folder, name) for name in ("stdout", "stderr")]
            request = [list(words), str(cwd), dict(environ), [str(path) for path in outputs]]
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            code = self._process.stdout.readline()
            assert code, "the Python that commands are forked from has ended"
            stdout, stderr = (path.read_text(encoding="utf-8", errors="replace") for path in outputs)
        return subprocess.CompletedProcess(["python", *words], int(code), stdout, stderr)


def _perform(words: Sequence[str]) -> None:
    """What Python does with the words of its command line."""
    if words[0] == "-c":
        main: Any = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        exec(compile(words[1], "<string>", "exec"), main.__dict__)  # noqa: S102
    elif words[0] == "-m":
        sys.argv, sys.path[0] = list(words[1:]), str(Path.cwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = list(words), str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


def _run(words: Sequence[str], cwd: str, environ: Mapping[str, str], outputs: Sequence[str]) -> int:
    """In the fork; the exit code."""
    for number, name in enumerate((os.devnull, *outputs)):
        handle = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(handle, number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update({"PYTHONDONTWRITEBYTECODE": "1", **environ})  # as -B, for what is started in turn
    code: Any = 0
    try:
        _perform(words)
    except SystemExit as error:
        code = error.code
    except (Exception, KeyboardInterrupt):  # noqa: BLE001
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError):
            stream.flush()
    return code if isinstance(code, int) else int(code is not None)


def _serve(modules: Sequence[str]) -> None:
    """Fork for each line of stdin, and answer with the exit code, negative for a signal."""
    gc.disable()
    for name in modules:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    for line in iter(sys.stdin.buffer.readline, b""):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = _run(*json.loads(line))
            finally:
                os._exit(code & 0xFF)
        _, status = os.waitpid(child, 0)
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    _serve(sys.argv[1:])
