"""What tells whether files that are used where they lie have changed: their paths, sizes and times."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def tree_identity(files: Iterable[Path], folders: Iterable[Path]) -> str:
    """A digest over ``files``, and everything below ``folders``; what is not there, or leads nowhere, is left out.

    Contents are not read: torch has 10,000 headers, and whoever changes a file changes its time or its size. Links are
    followed.
    """
    lines = [line for file in files for line in _line(str(file))]
    lines += [line for folder in folders for line in _below(str(folder), set())]
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def _line(path: str) -> Iterator[str]:
    try:
        status = os.stat(path)  # noqa: PTH116  (thousands of them: a Path costs more than the call)
    except OSError:
        return
    yield f"{path} {status.st_size} {status.st_mtime_ns}"


def _below(folder: str, seen: set[str]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if real in seen:  # a link to a folder above
        return
    seen.add(real)
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            folder_below = entry.is_dir()
        except OSError:  # a link that leads to itself
            continue
        if folder_below:
            yield from _below(entry.path, seen)
        else:
            yield from _line(entry.path)
