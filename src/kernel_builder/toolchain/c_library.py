"""Which headers are the C library's and the kernel's, in directories that they share with what else is installed."""

from __future__ import annotations

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
