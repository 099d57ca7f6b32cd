"""What ran when in the last build that ran anything, for people who want to know where time goes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from kernel_builder.files import parse_json

FILE = "timeline.jsonl"


@dataclass(frozen=True, kw_only=True)
class Span:
    """An action that ended. ``begin`` and ``end`` are seconds since the epoch; ``status`` is a word of
    :class:`~kernel_builder.engine.protocol.ActionStatus`. ``seconds`` is what it took when it really ran, which may
    have been in another build; ``memory`` its peak then, in bytes. ``needs`` are the ids of the actions that make what
    it reads. ``worker`` is the other machine that ran it, ``sent`` and ``received`` are the bytes that went there and
    came from there. ``processor`` are the seconds that processors of this machine spent on its programs in this build.
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
    needs: tuple[str, ...] = ()
    worker: str = ""
    sent: int = 0
    received: int = 0
    processor: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What a build did besides running actions, from ``begin`` to ``end``, in seconds since the epoch."""

    stage: str
    begin: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The last build that ran anything: how many actions could run at once, its spans in the order they ended, and its
    stages.
    """

    jobs: int = 1
    spans: tuple[Span, ...] = ()
    stages: tuple[Stage, ...] = ()


class Timeline:
    """Writes the spans of a build, each as it ends; those of the build before go when the first one ends.

    ``jobs`` is how many actions may run at once.
    """

    def __init__(self, work: Path, jobs: int = 1) -> None:
        self._file, self._jobs = work / FILE, jobs
        self._begun = False

    def add(self, span: Span) -> None:
        """Note a span."""
        if not self._begun:
            self._file.write_text(json.dumps({"jobs": self._jobs}) + "\n", encoding="utf-8")
            self._begun = True
        _append(self._file, [asdict(span)])


def add_stages(work: Path, stages: Iterable[Stage]) -> None:
    """Note the stages of the build whose spans were noted last."""
    _append(work / FILE, map(asdict, stages))


def read_timeline(work: Path) -> Recorded:
    """The last build that ran anything; without spans where there was none, or where the file is damaged."""
    try:
        lines = [parse_json(line) for line in (work / FILE).read_text(encoding="utf-8").splitlines()]
        jobs = max((line["jobs"] for line in lines if "jobs" in line), default=1)
        spans = [Span(**{**line, "needs": tuple(line.get("needs", ()))}) for line in lines if "id" in line]
        stages = [Stage(**line) for line in lines if "stage" in line]
        return Recorded(jobs=jobs, spans=tuple(spans), stages=tuple(stages))
    except (OSError, ValueError, TypeError):
        return Recorded()


def spans_in(work: Path) -> tuple[Span, ...]:
    """The spans of the last build that ran anything, in the order they ended; none where there was none."""
    return read_timeline(work).spans


def _append(file: Path, entries: Iterable[dict[str, object]]) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.writelines(json.dumps(entry) + "\n" for entry in entries)
