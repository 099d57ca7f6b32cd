"""Compares what two ways to compile device code made: ``device_proof.py ONE OTHER [ONE OTHER ...]``, pairs of files.

It is a program of its own, which actions run, and imports nothing of this package. It ends with code 1 and a line that
says what differs. Machine code must be the same, byte for byte. The host's half of a kernel call (``*.stub.c``) must be
the same but for the numbers of temporary variables, which count what was parsed before, and for the lines' origin.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_TEMPORARY = re.compile(r"\b__T\d+\b")
_ORIGIN = re.compile(r"^# \d+ .*$", re.MULTILINE)


def comparable(path: Path) -> bytes:
    """What must be equal of a file."""
    data = path.read_bytes()
    if path.suffix != ".c":
        return data
    numbers: dict[str, str] = {}
    text = _ORIGIN.sub("", data.decode("utf-8", "surrogateescape"))
    text = _TEMPORARY.sub(lambda match: numbers.setdefault(match[0], f"__T{len(numbers)}"), text)
    return text.encode("utf-8", "surrogateescape")


def difference(pairs: list[tuple[Path, Path]]) -> str | None:
    """What differs in one of ``pairs``, if anything does."""
    for one, other in pairs:
        if comparable(one) != comparable(other):
            return f"error: slim headers produce a different {other.name}"
    return None


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]]
    sys.exit(difference(list(zip(paths[::2], paths[1::2], strict=True))))
