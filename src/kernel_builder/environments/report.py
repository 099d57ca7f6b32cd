"""What the plugin in ``inside/`` noted of a run of pytest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class PytestResult:
    """How one test ended: ``passed``, ``failed``, ``skipped``, or ``error`` where it could not be collected.

    ``text`` says why, where it did not pass.
    """

    outcome: str
    text: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PytestReport:
    """How tests ended, by their node ids. ``running`` is the one that ran when the process ended, if any; ``exit`` is
    pytest's exit code, ``None`` where it did not come to its end.
    """

    tests: Mapping[str, PytestResult] = field(default_factory=dict)
    running: str | None = None
    exit: int | None = None

    def count(self, *outcomes: str) -> int:
        """How many tests ended so."""
        return sum(result.outcome in outcomes for result in self.tests.values())

    @property
    def failed(self) -> int:
        """How many failed, or could not be collected."""
        return self.count("failed", "error")

    @property
    def summary(self) -> str:
        """``12 passed, 1 failed``."""
        counts = [(self.count("passed"), "passed"), (self.failed, "failed"), (self.count("skipped"), "skipped")]
        return ", ".join(f"{count} {word}" for count, word in counts if count)


def read_report(file: Path) -> PytestReport:
    """The notes in ``file``; an empty report where there are none. A line that was cut off ends them."""
    tests: dict[str, PytestResult] = {}
    running, code = None, None
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return PytestReport()
    for line in lines:
        try:
            note = json.loads(line)
        except ValueError:
            break
        if "started" in note:
            running = str(note["started"])
        elif "exit" in note:
            running, code = None, int(note["exit"])
        elif "test" in note:
            name, outcome = str(note["test"]), str(note["outcome"])
            before = tests.get(name)
            # A test that passed fails where its fixtures cannot be torn down.
            if before is None or outcome == "failed":
                tests[name] = PytestResult(outcome=outcome, text=str(note["text"]), seconds=float(note["seconds"]))
    return PytestReport(tests=tests, running=running, exit=code)
