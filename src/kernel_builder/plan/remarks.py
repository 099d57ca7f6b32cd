"""What planning has to tell people, once each however many variants say it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Remarks:
    """Warnings and notes, in the order they came."""

    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Add a warning."""
        if text not in self.warnings:
            self.warnings.append(text)

    def note(self, text: str) -> None:
        """Add a note."""
        if text not in self.notes:
            self.notes.append(text)
