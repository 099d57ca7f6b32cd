"""What is drawn, and what JSON has of it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.environments.measuring import find_plotter, plot
from kernel_builder.errors import MachineError, UsageError
from kernel_builder.measuring.figures import curves, family
from kernel_builder.measuring.results import BenchResult, BenchSide, Measured, WorkloadResult


def measured(time: float) -> Measured:
    return Measured(rounds=((time, time * 1.1), (time * 0.9, time)), calls=3, right=True, difference=0.0)


def workload(title: str, size: int | None, theirs: float | None = 2.0, moved: int | None = 8) -> WorkloadResult:
    other = measured(theirs) if theirs is not None else None
    return WorkloadResult(title=title, size=size, bytes_moved=moved, ours=measured(1.0), theirs=other)


RESULT = BenchResult(
    variant="torch213-cxx11-cpu-x86_64-linux",
    ours=BenchSide(label="here"),
    theirs=BenchSide(label="torch"),
    machine={"name": "a processor", "torch": "2.13.0"},
    workloads=(
        workload("Scale.half_1024", 1024),
        workload("Scale.float_64", 64),
        workload("Scale.half_64", 64, theirs=None),
        workload("Scale.nothing", None),
    ),
)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("B.float32_4096", "float32"),
        ("B.float32_64x128", "float32"),
        ("B.4096", "4096"),
        ("B.small", "small"),
        ("B.half_1k", "half"),
    ],
)
def test_workloads_that_differ_in_size_are_one_family(title: str, name: str) -> None:
    assert family(title) == name


def test_curves_have_sizes_in_order_and_a_side_each() -> None:
    found = curves(RESULT)
    assert [(one.label, [point.size for point in one.points]) for one in found] == [
        ("half, here", [64, 1024]),
        ("half, torch", [1024]),
        ("float, here", [64]),
        ("float, torch", [64]),
    ]
    assert found[0].points[0].bandwidth == pytest.approx(8 / found[0].points[0].median)


def test_json_has_every_sample_and_what_is_not_known_is_null() -> None:
    told = json.loads(json.dumps(RESULT.to_json()))
    first, alone = told["workloads"][0], told["workloads"][2]
    assert first["sides"][0]["rounds"] == [[1.0, 1.1], [0.9, 1.0]]
    assert first["ratio"]["verdict"] == "faster"
    assert first["ratio"]["value"] == pytest.approx(0.5)
    assert (alone["sides"][1], alone["ratio"]) == (None, None)
    assert told["workloads"][3]["size"] is None


def test_one_side_alone_has_no_other() -> None:
    lone: dict[str, Any] = BenchResult(
        variant="v",
        ours=BenchSide(label="here"),
        theirs=None,
        machine={},
        workloads=(workload("B.x_1", 1, theirs=None),),
    ).to_json()
    (only,) = lone["workloads"]
    assert len(only["sides"]) == 1


def test_no_python_has_matplotlib(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n", encoding="ascii")
    python.chmod(0o755)
    with pytest.raises(UsageError, match="--plot needs matplotlib") as caught:
        find_plotter([python, tmp_path / "none"], os.environ)
    assert "kernel-builder[run]" in str(caught.value.hint)


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_figure_is_drawn_the_same_each_time(suffix: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("needs matplotlib, which the extra 'run' brings")
    request = {"title": "a kernel", "below": "small print", "curves": [asdict(one) for one in curves(RESULT)]}
    python = find_plotter([Path(sys.executable)], os.environ)
    files = [tmp_path / f"{number}.{suffix}" for number in range(2)]
    for file in files:
        plot(python, request, file, os.environ)
    one, two = (file.read_bytes() for file in files)
    assert one == two
    assert one.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    if suffix == "svg":
        for text in (b"half, torch", b"elements", b"GB/s", b"small print"):
            assert text in one
    with pytest.raises(MachineError, match="cannot draw"):
        plot(python, request, tmp_path / "figure.docx", os.environ)
