"""The process that measures, with a torch and a client that are a few lines each: what it answers, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.environments.measuring import BenchProblemError, BenchProcess
from kernel_builder.errors import BuildError

TORCH = """\
__version__ = "0"
class Tensor:
    def __init__(self, values): self.values, self.shape = list(values), (len(values),)
    dtype, device = "list", type("", (), {"type": "cpu"})
    def numel(self): return len(self.values)
    def to(self, kind): return self
    def double(self): return self
    def __sub__(self, other): return Tensor([a - b for a, b in zip(self.values, other.values)])
    def abs(self): return Tensor([abs(a) for a in self.values])
    def max(self): return max(self.values)
def get_num_threads(): return 3
def manual_seed(seed): pass
def promote_types(one, other): return one
def allclose(one, other, rtol, atol, equal_nan): return all(abs(a) <= atol for a in (one - other).values)
"""
CLIENT = "def get_local_kernel(path, backend=None): return {'path': str(path), 'backend': backend}\n"
BASE = """\
class Benchmark:
    seed = None
    def __init__(self): self.kernel, self.out, self.device = None, None, "cpu"
    def setup(self): pass
"""
SCRIPT = """\
import os
import sys
import torch
from kernels.benchmark import Benchmark
from elsewhere import Imported

print("noise")

class First(Benchmark):
    def setup(self):
        self.out = torch.Tensor([1.0, 2.0])
    def benchmark_b(self): pass
    def verify_b(self): return torch.Tensor([1.0, 2.005])
    def benchmark_a(self): pass
    def verify_a(self): return torch.Tensor([1.0, 2.5])

class Second(First):
    atol = 1.0
    size = 77
    def setup(self):
        super().setup()
        self.bytes_moved = 16
    def verify_shape(self): return torch.Tensor([1.0])
    def benchmark_shape(self): pass
    def benchmark_raises(self):
        raise LookupError("no such thing")
    def benchmark_exits(self):
        sys.exit("enough")
    def benchmark_dies(self):
        os.abort()
    def setup_bad(self):
        self.bytes_moved = "many"
    def benchmark_bad(self): pass
    def benchmark_compares(self): pass
    def verify_compares(self): pass
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    files = {
        "lib/torch.py": TORCH,
        "lib/kernels/__init__.py": CLIENT,
        "lib/kernels/benchmark.py": BASE,
        "elsewhere.py": "from kernels.benchmark import Benchmark\nclass Imported(Benchmark):\n    benchmark_no = 1\n",
        "benchmark_it.py": SCRIPT,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def process(place: Path) -> Iterator[BenchProcess]:
    environ = {**os.environ, "PYTHONPATH": str(place / "lib")}
    with BenchProcess("here", Path(sys.executable), environ=environ, cwd=place, log=place / "log") as process:
        yield process


def load(process: BenchProcess, place: Path, *, reference: bool = False) -> list[str]:
    answer = process.ask(
        "load",
        kernel=str(place),
        backend="cpu",
        host=True,
        device="cpu",
        scripts=[str(place / "benchmark_it.py")],
        reference=reference,
        readings=[sys.executable, "-c", "print('uuid, clock [MHz]'); print('GPU-1, 345 MHz')"],
    )
    assert answer["facts"]["threads"] == 3
    return [one["title"] for one in answer["workloads"]]


def prepared(process: BenchProcess, titles: list[str], title: str) -> Any:
    return process.ask("prepare", workload=titles.index(title))


def test_workloads_are_those_of_the_script_in_its_order(process: BenchProcess, place: Path) -> None:
    titles = load(process, place)
    assert titles[:3] == ["First.b", "First.a", "Second.b"]
    assert not [title for title in titles if title.startswith("Imported")]
    assert "noise" in (place / "log").read_text(encoding="utf-8")


def test_what_was_made_is_compared_as_the_client_does_or_as_the_class_says(process: BenchProcess, place: Path) -> None:
    titles = load(process, place)
    answer = prepared(process, titles, "First.b")
    assert answer["checked"] == {"right": True, "difference": pytest.approx(0.005), "atol": 1e-2, "rtol": 1e-5}
    assert (answer["size"], answer["bytes"]) == (2, None)
    wrong = prepared(process, titles, "First.a")
    assert (wrong["checked"]["right"], wrong["checked"]["difference"]) == (False, 0.5)
    loose = prepared(process, titles, "Second.a")
    assert (loose["checked"]["right"], loose["size"], loose["bytes"]) == (True, 77, 16)
    assert prepared(process, titles, "Second.compares")["checked"] == {"right": True, "difference": None}
    with pytest.raises(BenchProblemError, match=r"shape \(2,\), the reference \(1,\)"):
        prepared(process, titles, "Second.shape")


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("raises", r"LookupError: no such thing \(benchmark_it.py, line \d+\)"),
        ("exits", r"SystemExit: enough \(benchmark_it.py, line \d+\)"),
        ("bad", "self.bytes_moved is 'many'; it must be a positive number"),
    ],
)
def test_what_goes_wrong_is_told_with_its_place_and_the_next_one_works(
    workload: str, said: str, process: BenchProcess, place: Path
) -> None:
    titles = load(process, place)
    with pytest.raises(BenchProblemError, match=said):
        prepared(process, titles, f"Second.{workload}")
    assert prepared(process, titles, "First.b")["checked"]["right"]


def test_one_that_dies_is_told_with_the_signal(process: BenchProcess, place: Path) -> None:
    titles = load(process, place)
    with pytest.raises(BuildError, match="the process that measures here was killed by SIGABRT"):
        prepared(process, titles, "Second.dies")


def test_samples_are_times_of_a_call(process: BenchProcess, place: Path) -> None:
    titles = load(process, place)
    prepared(process, titles, "First.b")
    times = process.ask("measure", calls=5, seconds=0.01)["times"]
    assert 1 <= len(times) <= 50
    assert all(0 < time < 0.01 for time in times)
    assert process.ask("readings")["readings"] == {"uuid": "GPU-1", "clock [MHz]": "345 MHz"}


def test_a_script_that_cannot_be_imported(process: BenchProcess, place: Path) -> None:
    (place / "benchmark_it.py").write_text("import nothing_of_that_name\n", encoding="utf-8")
    with pytest.raises(BenchProblemError, match=r"ModuleNotFoundError.*\(benchmark_it.py, line 1\)"):
        load(process, place)
