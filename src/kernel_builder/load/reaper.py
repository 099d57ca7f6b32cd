# A program of its own, of the standard library alone: it must start fast.
"""Run a command and leave nothing behind: when it has ended, whatever it started is killed, in sessions of their own or
not.

Usage: ``python -I -S -B reaper.py [--foreground] COMMAND...``. Exits with the command's code, or 128 more than
the signal that it died of.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

FOREGROUND = "--foreground"
"""Before the command: it stays in the group of this process, so that it has the terminal, and Ctrl-C reaches it."""
NOT_STARTED = 127
CANNOT_RUN = "cannot run the command: "
"""The code, and what stands on stderr, when the command cannot be started."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Run ``command``. The exit code."""
    adopt()
    signal.signal(signal.SIGTERM, stop)
    foreground = command[:1] == [FOREGROUND]
    if foreground:
        command = command[1:]
        signal.signal(signal.SIGINT, ignore)
    try:
        # A group of its own, so that one that kills its group does not kill this process.
        with subprocess.Popen(command, process_group=None if foreground else 0) as process:
            try:
                code = process.wait()
            finally:
                kill_all(process)
    except OSError as error:
        os.write(2, f"{CANNOT_RUN}{error.strerror}\n".encode())
        return NOT_STARTED
    return 128 - code if code < 0 else code


def adopt() -> None:
    """Become the parent of every descendant whose own parent ends, and end with the program that started this one."""
    if sys.platform == "linux":
        control = ctypes.CDLL(None).prctl
        control(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        control(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def stop(_number: int, _frame: object) -> None:
    """End in order."""
    raise SystemExit(128 + signal.SIGTERM)


def ignore(_number: int, _frame: object) -> None:
    """Leave it to the command. A handler is not inherited, as ignoring a signal would be."""


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill ``process``, its group, and every process that was left to this one."""
    if not hasattr(os, "killpg"):  # Windows, where a tree of processes is what there is of a group
        kill_tree(process)
        return
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.poll()
    # Children of what is killed become this process's, so it takes as many rounds as there are generations.
    while children := my_children():
        for child in children:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill ``process`` on Windows, with what it started."""
    if process.poll() is None:
        with contextlib.suppress(OSError):
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
        process.kill()


def my_children() -> list[int]:
    """Processes whose parent is this one."""
    here = str(os.getpid()).encode()
    found = []
    with contextlib.suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 (pathlib takes its time)
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                # The name of the program, in parentheses, may hold anything.
                if file.read().rpartition(b")")[2].split()[1] == here:
                    found.append(int(name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
