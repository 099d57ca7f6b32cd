"""Where the time of a real build went: ``build --timing`` and ``timing``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import CPU, ProjectMaker, Tool, room_to_build
from kernel_builder.engine.timeline import read_timeline

pytestmark = pytest.mark.usefixtures("unloaded")

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
    assert [stage.stage for stage in recorded.stages] == ["prepare", f"install and load {CPU}"]
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("build", "--dry-run", "--timing"), "--dry-run builds nothing"),
        (("timing", "--apply"), "--apply changes what --advise found"),
        (("timing", "--json", "-o", "there"), "write neither"),
        (("timing", "--advise", "-o", "there"), "write neither"),
        (("timing", "--advise", "--no-headers"), "--advise measures no headers"),
        (("timing", "--advise", "--force"), "--force is for --apply"),
        (("timing", "a.c"), "unexpected argument a.c"),
    ],
)
def test_options_that_say_nothing_together_are_refused(
    tool: Tool, make_project: ProjectMaker, arguments: tuple[str, ...], message: str
) -> None:
    asked = tool(*arguments, make_project("refused", SOURCES))
    assert asked.code == 2
    assert message in asked.stderr


# Headers of the project itself, by the names of torch's.
TOYS = {
    "toy/torch/all.h": "#pragma once\n#include <ATen/core/Tensor.h>\n#include <sstream>\n",
    "toy/ATen/core/Tensor.h": "#pragma once\nnamespace at { struct Tensor { int x; }; }\n",
    "toy/torch/torch.h": "#pragma once\n#include <torch/all.h>\nnamespace toy { struct Only {}; }\n",
    "toy/torch/types.h": "#pragma once\n#include <ATen/core/Tensor.h>\n",
    "toy/ATen/ATen.h": "#pragma once\n#include <ATen/core/Tensor.h>\n",
    "small.cpp": "#include <torch/all.h>\nint small(at::Tensor t) { return t.x; }\n",
    "needs.cpp": "#include <torch/torch.h>\nint needs(toy::Only) { return 1; }\n",
    "brought.h": "#include <torch/all.h>\n",
    "brought.cpp": '#include <torch/all.h>\n#include "brought.h"\nint brought(at::Tensor t) { return t.x; }\n',
    "without.cpp": "#include <vector>\nint without() { return 1; }\n",
}


def test_advice_was_tried_and_is_applied_only_when_asked(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("toys", TOYS)
    build = root / "build.toml"
    build.write_text(
        build.read_text(encoding="utf-8").replace('depends = ["torch"]', 'depends = ["torch"]\ninclude = ["toy"]'),
        encoding="utf-8",
    )
    done = tool("build", root, "--variant", CPU, "--no-load")
    assert done.code == 0, done.stderr
    asked = tool("timing", "--advise", root, "--json")
    assert asked.code == 0, asked.stderr
    advice: Any = asked.json
    found = {one["source"]: one for one in advice}
    small = found["small.cpp"]
    assert small["replaced"] == ["torch/all.h"]
    assert small["headers"] == ["ATen/core/Tensor.h"]
    assert small["seconds-after"] < 0.8 * small["seconds-before"]
    assert "-#include <torch/all.h>\n+#include <ATen/core/Tensor.h>\n" in small["patch"]
    needs = found["needs.cpp"]
    assert (needs["patch"], needs["headers"]) == ("", [])
    assert "nothing smaller compiles: " in needs["reason"]
    brought = found["brought.cpp"]
    assert "save little or nothing" in brought["reason"]
    assert "brought.h includes <torch/all.h>" in brought["reason"]
    without = found["without.cpp"]
    assert "none of the headers" in without["reason"]
    assert {name: (root / name).read_text(encoding="utf-8") for name in TOYS} == TOYS
    assert not (root / ".kernel-builder" / "timing" / "trial").exists()

    told = tool("timing", "--advise", "--apply", root, root / "small.cpp")
    assert told.code == 0, told.stderr
    assert "small.cpp compiles with <ATen/core/Tensor.h> in place of <torch/all.h>: " in told.stdout
    assert "changed small.cpp" in told.stderr
    assert (root / "small.cpp").read_text(encoding="utf-8").startswith("#include <ATen/core/Tensor.h>\n")
    wrong = tool("timing", "--advise", root, root / "brought.h")
    assert wrong.code == 2
    assert "the last build compiled no" in wrong.stderr


DEVICE = """\
#include <torch/all.h>
static __global__ void add(int *x, int by) { x[threadIdx.x] += by; }
void small(at::Tensor t, int *x) { add<<<1, 32>>>(x, t.x); }
"""


@pytest.mark.slow
@pytest.mark.network
def test_device_code_is_tried_for_one_architecture(tool: Tool, make_project: ProjectMaker) -> None:
    files = {**{name: text for name, text in TOYS.items() if name.startswith("toy/")}, "k.cu": DEVICE}
    files["toy/torch/all.h"] += "#include <regex>\n"
    toml = """\
[general]
name = "device"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]
[torch]
src = []
[kernel.k]
backend = "cuda"
depends = ["torch"]
cuda-capabilities = ["8.0", "9.0"]
include = ["toy"]
src = ["k.cu"]
"""
    root = make_project("device", files, toml=toml)
    done = tool("build", root, "--variant", "torch213-cxx11-cu130-x86_64-linux", "--no-load")
    assert done.code == 0, done.stderr
    told = tool("timing", "--advise", "--apply", root)
    assert told.code == 0, told.stderr
    assert "k.cu compiles with <ATen/core/Tensor.h> in place of <torch/all.h>: " in told.stdout
    (tried,) = (line for line in told.stdout.splitlines() if "tried for" in line)
    assert len(set(re.findall(r"compute_\w+", tried))) == 1
    assert (root / "k.cu").read_text() == DEVICE.replace("torch/all.h", "ATen/core/Tensor.h")
    assert (root / ".kernel-builder" / "timing" / "before" / "k.cu").read_text() == DEVICE
    assert tool("build", root, "--variant", "torch213-cxx11-cu130-x86_64-linux", "--no-load").code == 0


@pytest.mark.slow
def test_the_headers_of_torch_itself_become_fewer(tool: Tool, make_project: ProjectMaker) -> None:
    source = """\
#include <ATen/ATen.h>
void scale(at::Tensor& x, double by) {
  TORCH_CHECK(x.dim() == 1, "x must have one dimension");
  x.mul_(by);
}
"""
    root = make_project("real", {"scale.cpp": source})
    done = tool("build", root, "--variant", CPU, "--no-load")
    assert done.code == 0, done.stderr
    with room_to_build():
        asked = tool("timing", "--advise", root, "--json")
    assert asked.code == 0, asked.stderr
    advice: Any = asked.json
    (found,) = advice
    assert found["reason"] is None
    assert found["headers"] == ["ATen/core/Tensor.h", "c10/util/Exception.h"]
    assert found["seconds-after"] < 0.8 * found["seconds-before"]
