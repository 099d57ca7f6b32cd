"""Dotted version numbers as ``build.toml`` writes them, and what a bound means.

Reference: interoperability contract 1.2. The raw text is kept: ``13.0`` never becomes ``13``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

_PATTERN = re.compile(r"[0-9]+(\.[0-9]+)*")


@total_ordering
@dataclass(frozen=True, eq=False)
class Version:
    """A version: dot-separated unsigned integers, compared as numbers. ``13`` equals ``13.0``; ``2.9 < 2.10``."""

    text: str
    parts: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read ``text`` (blanks around it are ignored). Raises ``ValueError`` with a sentence for the user."""
        stripped = text.strip()
        if not stripped.isascii() or _PATTERN.fullmatch(stripped) is None or len(stripped) > 64:
            raise ValueError(f"{text!r} is not a version; use numbers joined by dots, such as '2.10'")
        return cls(stripped, tuple(int(part) for part in stripped.split(".")))

    @property
    def key(self) -> tuple[int, ...]:
        """The parts without trailing zeros: equal versions have equal keys."""
        parts = self.parts
        while parts and parts[-1] == 0:
            parts = parts[:-1]
        return parts

    @property
    def major(self) -> int:
        """First number."""
        return self.parts[0]

    @property
    def minor(self) -> int:
        """Second number, 0 when it is not written."""
        return self.parts[1] if len(self.parts) > 1 else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Version) -> bool:
        return self.key < other.key

    def __str__(self) -> str:
        return self.text

    def is_at_least(self, minimum: Version) -> bool:
        """Whether this version satisfies ``minver = minimum``."""
        return self >= minimum

    def is_at_most(self, maximum: Version) -> bool:
        """Whether this version satisfies ``maxver = maximum``.

        A bound speaks only of the parts it writes, so ``2.12`` admits 2.12.1 and ``13.0`` admits nvcc 13.0.88.
        """
        return self.parts[: len(maximum.parts)] <= maximum.parts or self <= maximum
