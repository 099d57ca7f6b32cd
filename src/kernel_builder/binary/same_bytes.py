"""A program: compares files that two ways of compiling made, ``same_bytes.py ONE OTHER``.

Actions run it. It imports nothing of this package, and ends with code 1 and a line that says which file differs.
"""

from __future__ import annotations

import sys
from pathlib import Path


def difference(one: Path, other: Path) -> str | None:
    """What differs, if anything does."""
    return None if one.read_bytes() == other.read_bytes() else f"error: slim headers make another {other.name}"


if __name__ == "__main__":
    sys.exit(difference(*map(Path, sys.argv[1:])))
