"""Processes that run a kernel's code: they end, with all that they started."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.load import process as child_process
from kernel_builder.load.process import ChildResult, run_child, scratch

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to another parent")

ENVIRON = {"PATH": os.defpath}


def run(code: str, *, cwd: Path, seconds: float = 30) -> ChildResult:
    return run_child([sys.executable, "-I", "-S", "-c", code], environ=ENVIRON, cwd=cwd, seconds=seconds)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_code_and_output(tmp_path: Path) -> None:
    code = "import os, sys; print('to', os.getcwd()); print('words', file=sys.stderr); sys.exit(3)"
    assert run(code, cwd=tmp_path) == ChildResult(code=3, stdout=f"to {tmp_path}\n", stderr="words\n")
    assert run("import os; os.abort()", cwd=tmp_path).code == -signal.SIGABRT
    with pytest.raises(OSError, match="No such file"):
        run_child(["/no/such/program"], environ=ENVIRON, cwd=tmp_path, seconds=5)


@linux
def test_the_end_of_a_child_is_told_and_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr("subprocess.time.sleep", naps.append)
    assert run("import time; time.sleep(0.2)", cwd=tmp_path).code == 0
    assert naps == []


def test_where_nothing_tells_of_an_end_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert run("import time, sys; time.sleep(0.2); sys.exit(4)", cwd=tmp_path).code == 4
    assert run("import time; time.sleep(60)", cwd=tmp_path, seconds=0.5).stopped == "did not respond within 0.5 s"


LEFT = {
    "in the same group": "subprocess.Popen(sleep)",
    "in a session of its own": "subprocess.Popen(sleep, start_new_session=True)",
    "that keeps no output": "subprocess.Popen(sleep, start_new_session=True, stdout=-3, stderr=-3)",
    "as a daemon": "(os.fork() and os._exit(0), os.setsid(), os.fork() and os._exit(0), os.execvp('sleep', sleep))",
    "without its environment": "subprocess.Popen(sleep, start_new_session=True, env={})",
}


@linux
@pytest.mark.parametrize("how", LEFT)
def test_what_a_child_leaves_behind_is_killed_and_not_waited_for(tmp_path: Path, how: str) -> None:
    # The child tells the process by the length of its sleep, which is not used otherwise.
    length = f"{3600 + os.getpid() % 1000}.{time.monotonic_ns() % 10**9:09}"
    code = f"""
import os, subprocess, time
sleep = ["sleep", {length!r}]
if os.fork() == 0:
    {LEFT[how]}
    os._exit(0)
time.sleep(0.3)
print("answer", flush=True)
os._exit(0)
"""
    started = time.monotonic()
    assert run(code, cwd=tmp_path) == ChildResult(code=0, stdout="answer\n", stderr="")
    assert time.monotonic() - started < 20
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(length.encode() in command for command in commands)


@linux
def test_one_that_takes_too_long_is_stopped_with_its_children(tmp_path: Path) -> None:
    code = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(subprocess.Popen(["sleep", "3600"], start_new_session=True).pid, flush=True)
time.sleep(3600)
"""
    ended = run(code, cwd=tmp_path, seconds=1)
    assert ended.stopped == "did not respond within 1 s"
    assert not is_running(int(ended.stdout))


def test_one_that_writes_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_MOST_OUTPUT", 1 << 20)
    ended = run("while True: print('x' * 10000)", cwd=tmp_path)
    assert ended.stopped == "wrote more than 1 MiB"
    assert len(ended.stdout) == 1 << 20


@linux
def test_the_child_ends_when_this_program_is_killed(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from kernel_builder.load.process import run_child
run_child(["sh", "-c", "echo $$ > {tmp_path}/pid; sleep 3600"], environ={ENVIRON!r}, cwd=Path({str(tmp_path)!r}),
          seconds=3600)
"""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    deadline = time.monotonic() + 30
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text(encoding="ascii").strip():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    inner = int((tmp_path / "pid").read_text(encoding="ascii"))
    assert is_running(inner)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while is_running(inner):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_interrupt_stops_the_child(tmp_path: Path) -> None:
    timer = threading.Timer(1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run("import time; time.sleep(3600)", cwd=tmp_path)
    assert time.monotonic() - started < 20


def test_an_interrupt_while_a_directory_is_removed_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    remove, places = shutil.rmtree, list[Path]()

    def interrupted(path: str, **options: Any) -> None:
        if not places:
            places.append(Path(path))
            raise KeyboardInterrupt
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), scratch() as directory:
        (directory / "file").write_text("", encoding="ascii")
    assert [place.exists() for place in places] == [False]
