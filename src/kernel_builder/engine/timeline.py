"""What ran when in the last build that ran anything, for people who want to know where time goes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from kernel_builder.files import parse_json

FILE = "timeline.jsonl"


@dataclass(frozen=True, kw_only=True)
class Span:
    """An action that ended. ``begin`` and ``end`` are seconds since the epoch; ``status`` is a word of
    :class:`~kernel_builder.engine.protocol.ActionStatus`. ``seconds`` is what it took when it really ran, which may
    have been in another build; ``memory`` its peak then, in bytes.
    """

    id: str
    kind: str
    variant: str
    source: str
    architecture: str | None
    begin: float
    end: float
    status: str
    seconds: float
    memory: int
    fell_back: str | None = None


class Timeline:
    """Writes the spans of a build, each as it ends; those of the build before go when the first one ends."""

    def __init__(self, work: Path) -> None:
        self._file = work / FILE
        self._begun = False

    def add(self, span: Span) -> None:
        """Note a span."""
        with self._file.open("a" if self._begun else "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(span)) + "\n")
        self._begun = True


def spans_in(work: Path) -> tuple[Span, ...]:
    """The spans of the last build that ran anything, in the order they ended; none where there was none."""
    try:
        lines = (work / FILE).read_text(encoding="utf-8").splitlines()
        return tuple(Span(**parse_json(line)) for line in lines)
    except (OSError, ValueError, TypeError):
        return ()
