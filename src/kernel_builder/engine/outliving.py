"""Ends what a process started, and removes its directory, where the process itself was killed and could not.

A program of its own, which waits for its standard input to end: the system closes that when the process is gone,
however it went. Only a process that leaves in order says so first.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernel_builder.engine.processes import end_programs_in

_IN_ORDER = b"in order"


@contextmanager
def outlived(folder: Path, works: str) -> Iterator[None]:
    """Until the block ends, see to it that programs in the directories ``works`` (a pattern below ``folder``) do not
    outlive this process, and that ``folder`` does not. Raises ``OSError`` where no program can be started.
    """
    command = [sys.executable, "-m", __name__, str(folder), works]
    # In a session of its own: what ends this process from a terminal must not end it.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", start_new_session=True)
    try:
        yield
    finally:
        with suppress(OSError):
            process.communicate(_IN_ORDER)


def main(folder: Path, works: str) -> None:
    """Wait, and do it."""
    if sys.stdin.buffer.read() == _IN_ORDER:
        return
    threads = [threading.Thread(target=end_programs_in, args=(work,)) for work in folder.glob(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
