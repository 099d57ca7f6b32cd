"""Where the time of a real build went: ``build --timing`` and ``timing``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import CPU, ProjectMaker, Tool
from kernel_builder.engine.timeline import read_timeline

SOURCES = {
    "a.c": '#include "part.h"\nint a(int x) { return x + part; }\n',
    "b.c": "int b(int x) { return x; }\n",
    "part.h": "static int part = 1;\n",
}


@pytest.fixture
def built(tool: Tool, make_project: ProjectMaker) -> Path:
    root = make_project("timed", SOURCES)
    done = tool("build", root, "--variant", CPU, "--no-load", "--timing")
    assert done.code == 0, done.stderr
    assert f"page: {root}/.kernel-builder/timing/timing.html" in done.stdout
    assert "critical path: " in done.stdout
    return root


def test_a_build_writes_page_and_trace(built: Path, tool: Tool, tmp_path: Path) -> None:
    folder = built / ".kernel-builder" / "timing"
    recorded = read_timeline(built / ".kernel-builder")
    trace: Any = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
    timed = [event["args"]["id"] for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] != "stage"]
    assert sorted(timed) == sorted(span.id for span in recorded.spans)
    assert [stage.stage for stage in recorded.stages] == ["prepare", "install and load"]
    (link,) = [span for span in recorded.spans if span.kind == "link"]
    assert {f"{CPU}:compile:a.c", f"{CPU}:compile:b.c"} <= set(link.needs)
    page = (folder / "timing.html").read_text(encoding="utf-8")
    assert "timed: where the time went" in page

    # The last build can be asked about later, elsewhere, and headers are not measured twice.
    asked = tool("timing", built, "-o", tmp_path / "there")
    assert asked.code == 0, asked.stderr
    assert "measuring" not in asked.stderr
    assert (tmp_path / "there" / "timing.html").read_text(encoding="utf-8") == page
    figures: Any = tool("timing", built, "--json").json
    assert figures["headers-remark"] is None
    (text,) = [text for text in figures["headers"] if text["source"] == "a.c"]
    assert {share["name"]: share["size"] for share in text["families"]}["the project"] > len(SOURCES["part.h"])
    assert [share for share in text["includes"] if share["name"] == '#include "part.h"']
    assert figures["critical-path"][-1]["id"].startswith(f"{CPU}:")
    assert tool("timing", built, "--json", "--no-headers").json["headers"] == []

    # Nothing to do: the page is still that of the build that compiled.
    again = tool("build", built, "--variant", CPU, "--no-load", "--timing-to", tmp_path / "again")
    assert again.code == 0, again.stderr
    assert (tmp_path / "again" / "timing.html").read_text(encoding="utf-8") == page


def test_without_a_build_there_is_nothing_to_show(tool: Tool, make_project: ProjectMaker) -> None:
    asked = tool("timing", make_project("unbuilt", SOURCES))
    assert asked.code == 2
    assert "has compiled anything yet" in asked.stderr
    assert "run kernel-builder build --timing" in asked.stderr
