# A plugin of pytest, loaded with `-p kernel_builder_report`; this directory is on PYTHONPATH. Python 3.9 syntax.
"""Knows the marker of quick tests, and notes how tests end, one JSON object a line, for whoever started them."""

from __future__ import annotations

import json
from typing import Any

_MARKER = "kernels_ci: quick tests that together catch most mistakes"


def pytest_addoption(parser: Any) -> None:
    parser.addoption(
        "--kernel-builder-report", metavar="FILE", help="file to write the results of tests to, for kernel-builder"
    )


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", _MARKER)
    path = config.getoption("--kernel-builder-report")
    # Workers of pytest-xdist hand their results to the process that started them.
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(path), "kernel-builder-report")


class _Report:
    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115 (until pytest ends)

    def _note(self, **facts: object) -> None:
        self._file.write(json.dumps(facts) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        # Before it runs: a test that ends the process is known by this.
        self._note(started=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            outcome = "failed" if report.outcome == "failed" else report.outcome
            if hasattr(report, "wasxfail") and outcome != "failed":
                outcome = "skipped" if outcome == "skipped" else "passed"
            text = report.longreprtext if outcome == "failed" else ""
            self._note(test=report.nodeid, outcome=outcome, when=report.when, text=text, seconds=report.duration)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._note(test=report.nodeid, outcome="error", when="collect", text=report.longreprtext, seconds=0.0)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._note(exit=int(exitstatus))
