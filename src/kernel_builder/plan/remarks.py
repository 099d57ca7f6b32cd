"""What planning has to tell people, once for each cause however many variants and sources have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_Parts = dict[str, dict[str, None]]


@dataclass(kw_only=True)
class Remarks:
    """Warnings and notes, in the order in which their causes came.

    A text may have places, ``{variants}``, for what differs from one time to the next: it is told once, with all that
    was given for a place.
    """

    _warnings: dict[str, _Parts] = field(default_factory=dict)
    _notes: dict[str, _Parts] = field(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings."""
        return tuple(_filled(text, parts) for text, parts in self._warnings.items())

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes."""
        return tuple(_filled(text, parts) for text, parts in self._notes.items())

    def warn(self, text: str, **parts: str) -> None:
        """Add a warning."""
        _add(self._warnings, text, parts)

    def note(self, text: str, **parts: str) -> None:
        """Add a note."""
        _add(self._notes, text, parts)


def _add(kept: dict[str, _Parts], text: str, parts: Mapping[str, str]) -> None:
    known = kept.setdefault(text, {})
    for name, part in parts.items():
        known.setdefault(name, {})[part] = None


def _filled(text: str, parts: _Parts) -> str:
    for name, several in parts.items():
        separator = "; " if any(", " in part for part in several) else ", "
        text = text.replace(f"{{{name}}}", separator.join(several))
    return text
