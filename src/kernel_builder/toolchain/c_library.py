"""Which headers are the C library's and the kernel's, in directories that they share with what else is installed."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).parent.parent / "data" / "c_headers.toml"


@cache
def _known() -> tuple[frozenset[str], frozenset[str]]:
    """Names of directories, and of files without their ending."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return frozenset(table["folders"]), frozenset(table["files"])


SITE = Path("/usr/local/include")
"""Where compilers look for whatever somebody put there, before they look for the C library."""


def is_of_c_library(path: str) -> bool:
    """Whether ``path``, relative to a directory of system headers, is the C library's, the kernel's or a g++'s."""
    folders, files = _known()
    first, below, _ = path.partition("/")
    return first in folders if below else first.endswith(".h") and first.removesuffix(".h") in files


@cache
def behind_links(folder: str) -> frozenset[str]:
    """Real paths of what the C library and the kernel have in ``folder``, which has system headers, as links to files.

    Debian 13 keeps the kernel's headers of all machines in one place, with links in each ``asm``, and g++ names the
    file behind a link where that is shorter (``-fcanonical-system-headers``).
    """
    found: set[str] = set()
    waiting = [folder]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            below = os.path.relpath(entry.path, folder)
            if entry.is_dir(follow_symlinks=False):
                # g++ knows its own directories itself.
                if is_of_c_library(f"{below}/") and below != "c++":
                    waiting.append(entry.path)
            elif entry.is_symlink() and is_of_c_library(below):
                found.add(os.path.realpath(entry.path))
    return frozenset(found)
