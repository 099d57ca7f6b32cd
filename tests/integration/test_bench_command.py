"""``bench`` with the real client, on a kernel of Python alone: nothing is compiled."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from conftest import Result, Tool, commit

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.xdist_group("bench command")]

TOML = """\
[general]
name = "double-it"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
"""
KERNEL = """\
import torch


def double(x, out):
    return torch.add(x, x, out=out)
"""
SLOW = """\
import time

import torch


def double(x, out):
    time.sleep(0.002)
    return torch.add(x, x, out=out)
"""
BENCHMARK = """\
import torch
from kernels.benchmark import Benchmark

print("what a script prints is no answer")


class Doubling(Benchmark):
    seed = 1

    def setup(self):
        self._prepare(64)

    def _prepare(self, size):
        self.x = torch.randn(size)
        self.out = torch.empty_like(self.x)
        self.bytes_moved = 2 * self.x.nbytes

    def benchmark_float_64(self):
        self.kernel.double(self.x, self.out)

    def verify_float_64(self):
        return self.x * 2

    def setup_float_1024(self):
        self._prepare(1024)

    benchmark_float_1024 = benchmark_float_64
    verify_float_1024 = verify_float_64

    def benchmark_unchecked(self):
        self.kernel.double(self.x, self.out)
"""
VARIANT = "torch-cpu"
QUICK = ("--rounds", "6", "--quiet", "--json")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bench") / "double-it"
    write(root, KERNEL, BENCHMARK)
    (root / "build.toml").write_text(TOML, encoding="utf-8")
    return root


def write(root: Path, kernel: str, benchmark: str) -> None:
    for path, text in {"torch-ext/double_it/__init__.py": kernel, "benchmarks/benchmark_it.py": benchmark}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def workloads(result: Result) -> dict[str, dict[str, Any]]:
    assert result.code == 0, result.stderr
    [variant] = cast("list[dict[str, Any]]", result.json["variants"])
    return {one["workload"]: one for one in variant["workloads"]}


def test_it_is_measured_against_torch(tool: Tool, project: Path) -> None:
    write(project, KERNEL, BENCHMARK)
    result = tool.apart("bench", project, *QUICK, "--against", "torch")
    found = workloads(result)
    assert list(found) == ["Doubling.float_64", "Doubling.float_1024", "Doubling.unchecked"]
    one = found["Doubling.float_1024"]
    assert (one["size"], one["bytes-moved"]) == (1024, 8192)
    ours, theirs = one["sides"]
    assert (ours["verified"], ours["difference"], len(ours["rounds"]), len(theirs["rounds"])) == (True, 0.0, 6, 6)
    assert ours["least"] <= ours["q1"] <= ours["median"] <= ours["q3"] <= ours["most"]
    assert ours["bytes-per-second"] == pytest.approx(8192 / ours["median"])
    assert one["ratio"]["low"] <= one["ratio"]["value"] <= one["ratio"]["high"]
    alone = found["Doubling.unchecked"]  # torch has nothing to set against it
    assert (alone["sides"][0]["verified"], alone["sides"][1], alone["ratio"]) == (None, None, None)
    assert "no verify method" in alone["problem"]
    [variant] = cast("list[dict[str, Any]]", result.json["variants"])
    assert variant["machine"]["threads"] >= 1
    assert any("threads" in remark for remark in variant["remarks"])


def test_a_revision_that_was_slower_and_nothing_of_it_stays(tool: Tool, project: Path) -> None:
    write(project, SLOW, BENCHMARK)
    commit(project, "slow")
    write(project, KERNEL, BENCHMARK)
    found = workloads(tool.apart("bench", project, *QUICK, "--against", "HEAD", "--workload", "float_64"))
    ratio = found["Doubling.float_64"]["ratio"]
    assert ratio["high"] < 0.5
    assert ratio["verdict"] == "faster"
    listed = subprocess.run(["git", "-C", project, "worktree", "list"], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1
    # The other way round: built elsewhere, and taken as it lies there.
    write(project, SLOW, BENCHMARK)
    elsewhere = project.parent / "elsewhere"
    assert tool.apart("build", project, "--output", elsewhere, "--variant", VARIANT, "--no-load").code == 0
    write(project, KERNEL, BENCHMARK)
    found = workloads(tool.apart("bench", project, *QUICK, "--against", elsewhere, "--workload", "*_64"))
    assert found["Doubling.float_64"]["ratio"]["verdict"] == "faster"


def test_what_is_wrong_is_told_before_anything_is_measured(tool: Tool, project: Path) -> None:
    write(project, KERNEL.replace("x, x, out", "x, 1, out"), BENCHMARK)
    wrong = tool.apart("bench", project, "--against", "torch")
    assert wrong.code == 1
    assert "nothing was measured" in wrong.stderr
    assert wrong.stderr.count("of here is wrong: it differs by") == 2  # all of them, not the first
    assert "measuring" not in wrong.stderr


def test_the_other_side_may_lack_a_workload(tool: Tool, project: Path) -> None:
    write(project, KERNEL, BENCHMARK)
    commit(project, "before")
    write(
        project,
        KERNEL + "\n\ndef triple(x, out):\n    return torch.mul(x, 3, out=out)\n",
        BENCHMARK
        + """
    def benchmark_triple(self):
        self.kernel.triple(self.x, self.out)
""",
    )
    found = workloads(tool.apart("bench", project, *QUICK, "--against", "HEAD", "--workload", "triple"))
    assert found["Doubling.triple"]["sides"][1] is None
    assert "has no attribute 'triple'" in found["Doubling.triple"]["problem"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--against", "no-such-thing"), 2, "is neither 'torch', nor a directory, nor a git revision"),
        (("--workload", "nothing"), 2, "no workload matches nothing"),
        (("--against", "benchmarks"), 2, "is neither a project nor a directory of built variants"),
    ],
)
def test_what_cannot_be_measured(options: tuple[str, ...], code: int, said: str, tool: Tool, project: Path) -> None:
    write(project, KERNEL, BENCHMARK)
    result = tool.apart("bench", *options, cwd=project)
    assert result.code == code, result.stderr
    assert said in " ".join(result.stderr.split())


def test_a_project_without_benchmarks_and_json_of_a_refusal(tool: Tool, project: Path) -> None:
    (project / "benchmarks" / "benchmark_it.py").unlink()
    result = tool.apart("bench", project, "--json")
    assert result.code == 3
    assert "there is nothing to measure" in json.dumps(result.json)
