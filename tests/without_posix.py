"""Runs commands as if this were Windows on x86_64: without what only POSIX systems have. Started as a program.

Usage: ``python without_posix.py JSON``: a list of commands, each a list of words. Printed is a list with the code and
the output of each. The libraries that are imported first have forms of their own for Windows.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import io
import json
import os
import platform
import shutil
import signal
import sys

import filelock  # noqa: F401
import platformdirs.unix  # noqa: F401

MODULES = frozenset({"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline"})
FUNCTIONS = frozenset(
    """killpg setsid getsid fork forkpty getuid geteuid getgid getegid getpgid getpgrp setpgid sched_getaffinity
    sched_setaffinity uname getloadavg sysconf chown lchown fchown fchmod mkfifo wait3 wait4 pread pwrite
    posix_fallocate confstr initgroups nice statvfs fstatvfs O_CLOEXEC O_DIRECTORY O_NOFOLLOW""".split()  # noqa: SIM905
)
NEEDED_BY_LIBRARIES = frozenset({"O_NONBLOCK"})
"""What Windows lacks, too, and cannot be taken away here: the forms of libraries for POSIX systems need it."""
SIGNALS = frozenset(
    """SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGCHLD SIGTSTP SIGPIPE SIGALRM SIGWINCH pthread_sigmask alarm setitimer
    siginterrupt sigwait""".split()  # noqa: SIM905
)


class _Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if fullname in MODULES:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def take_away() -> None:
    """Make this process one on Windows, as far as Python code can tell."""
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Absent())
    usage = shutil.disk_usage(os.curdir)  # Windows asks the system otherwise
    vars(shutil).update(disk_usage=lambda _: usage)
    for module, names in ((os, FUNCTIONS), (signal, SIGNALS)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    here = platform.uname_result("Windows", "host", "11", "10.0.22631", "AMD64")
    vars(platform).update(system=lambda: here.system, machine=lambda: here.machine, uname=lambda: here)


def run(words: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what it printed."""
    from kernel_builder.cli import run as answer

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = answer(words)
    return code, output.getvalue()


if __name__ == "__main__":
    take_away()
    sys.stdout.write(json.dumps([run(words) for words in json.loads(sys.argv[1])]) + "\n")
