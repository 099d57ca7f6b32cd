"""The simulation of builds on many workers, against cases that are worked out by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "scale.py"


@pytest.fixture(scope="module")
def scale() -> Any:
    spec = importlib.util.spec_from_file_location("scale_benchmark", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def free(scale: Any, **changes: float) -> Any:
    """Prices at which nothing costs anything, but for those given."""
    values: dict[str, Any] = {"busy": 0, "wait": 0, "kernel": 0, "setup": 0, "bandwidth": 1e12, "cores": 1}
    return scale.Prices(**{**values, **changes})


def compiles(scale: Any, *seconds: float, link: float = 1.0) -> list[Any]:
    """Compiles that take so long, and a link of all of them."""
    jobs = [scale.Job(id=f"c{at}", kind="compile", seconds=one) for at, one in enumerate(seconds)]
    return [*jobs, scale.Job(id="link", kind="link", seconds=link, needs=tuple(job.id for job in jobs))]


@pytest.mark.parametrize(
    ("workers", "seconds"),
    # 4 and 3, 3 and 2, or one after the other, and then the link
    [(1, 13), (2, 7), (4, 5), (256, 5)],
)
def test_list_scheduling(scale: Any, workers: int, seconds: float) -> None:
    assert scale.forecast(compiles(scale, 4, 3, 3, 2), 1, workers, free(scale)).seconds == pytest.approx(seconds)


def test_the_longest_chain_goes_first(scale: Any) -> None:
    jobs = [
        scale.Job(id="short", kind="compile", seconds=2),
        scale.Job(id="head", kind="split", seconds=1),
        scale.Job(id="tail", kind="device", seconds=5, needs=("head",)),
    ]
    assert scale.paths(jobs) == {"short": 2, "head": 6, "tail": 5}
    assert scale.forecast(jobs, 1, 2, free(scale)).seconds == 6


def test_what_ends_a_variant_goes_before_compiles_of_the_next(scale: Any) -> None:
    simulation = scale.Simulation(scale.multiplied(compiles(scale, 1), 2), 1, free(scale))
    assert sorted(simulation._rank, key=simulation._rank.__getitem__) == ["0/link", "1/link", "0/c0", "1/c0"]
    assert simulation.run() == 4


def test_the_build_sends_one_action_at_a_time(scale: Any) -> None:
    # The third of three that take 1 s leaves after 3 * 0.5 s.
    jobs = [scale.Job(id=str(at), kind="compile", seconds=1) for at in range(3)]
    found = scale.forecast(jobs, 1, 3, free(scale, busy=0.5))
    assert (found.seconds, found.client, found.limit) == (2.5, 1.5, "scheduler")
    assert scale.forecast(jobs, 1, 3, free(scale, wait=0.25)).seconds == 1.25


def test_bytes_go_once_to_each_worker(scale: Any) -> None:
    jobs = [scale.Job(id=str(at), kind="compile", seconds=1, makes=10) for at in range(2)]
    jobs.append(scale.Job(id="link", kind="link", seconds=1, needs=("0", "1"), makes=5))
    prices = free(scale, kernel=100, bandwidth=100)
    # One: 1 s for the kernel, each action 1 s, 0.1 s for each object that comes back, 0.05 s for the library.
    alone = scale.forecast(jobs, 1, 1, prices)
    assert (alone.bytes, alone.seconds) == (125, pytest.approx(1 + 3 + 0.1 + 0.1 + 0.05))
    # Two: the kernel twice, and the object of one of them to the other.
    both = scale.forecast(jobs, 1, 2, prices)
    assert both.bytes == 2 * 100 + 2 * 10 + 10 + 5
    # The second kernel arrives at 2 s, its object at 3.1 s; it goes on for 0.1 s, and the library comes back.
    assert both.seconds == pytest.approx(3.1 + 0.1 + 1 + 0.05)


def test_checks_run_where_the_build_does(scale: Any) -> None:
    jobs = [scale.Job(id=str(at), kind="inspect", seconds=1, here=True) for at in range(4)]
    assert scale.forecast(jobs, 1, 256, free(scale, cores=2)).seconds == 2


def test_limits_are_named(scale: Any) -> None:
    jobs = compiles(scale, 8, 8, 8, 8)
    assert scale.forecast(jobs, 8, 2, free(scale)).limit == "workers"
    assert scale.forecast(jobs, 1, 256, free(scale)).limit == "critical path"
    assert scale.forecast(jobs, 32, 256, free(scale, busy=1)).limit == "scheduler"
    assert scale.forecast(jobs, 8, 2, free(scale)).actions == 40


def test_what_a_timeline_says(scale: Any) -> None:
    base = {"kind": "compile", "variant": "v", "worker": "w", "received": 7, "needs": ["gone"]}
    spans = [
        {**base, "id": "a", "begin": 0.0, "end": 3.0, "seconds": 1.0, "sent": 50},
        {**base, "id": "b", "begin": 3.0, "end": 4.5, "seconds": 1.25, "sent": 0, "needs": ["a"]},
        {**base, "id": "c", "begin": 4.5, "end": 5.5, "seconds": 1.0, "sent": 0, "worker": ""},
    ]
    jobs = scale.jobs_of(spans)
    assert [(job.id, job.needs, job.makes, job.here) for job in jobs] == [
        ("a", (), 7, False),
        ("b", ("a",), 7, False),
        ("c", (), 7, True),
    ]
    prices = scale.prices_of(spans, bandwidth=1.0, busy=0.1)
    assert (prices.wait, prices.kernel, prices.setup) == (pytest.approx(0.15), 50, pytest.approx(1.75))
    assert scale.took(spans) == 5.5
    with pytest.raises(ValueError, match="build with --scheduler"):
        scale.jobs_of([{**base, "id": "a", "begin": 0.0, "end": 3.0, "seconds": 1.0, "worker": ""}])


def test_what_workers_took_to_make_ready_is_told_apart_from_what_the_model_misses(scale: Any) -> None:
    base = {"kind": "compile", "variant": "v", "received": 0, "needs": [], "sent": 0}

    def run(ready: float) -> list[dict[str, Any]]:
        """On one worker, two actions of 1 s, the first of which waits until that is ready."""
        first = {**base, "id": "a", "worker": "w", "begin": 0.0, "end": 1 + ready, "seconds": 1.0}
        return [first, {**base, "id": "b", "worker": "w", "begin": 1 + ready, "end": 2 + ready, "seconds": 1.0}]

    jobs = scale.jobs_of(run(1.0))
    prices = scale.prices_of(run(1.0), bandwidth=1e9, busy=0.0)
    check = scale.check_of(jobs, prices, 1, run(3.0))
    assert (check["measured"], check["model"], check["setup"]) == (5.0, pytest.approx(3.0), pytest.approx(3.0))
    assert check["error"] == pytest.approx(-0.4)
    assert check["rest"] == pytest.approx(0.0)


def test_table_and_plot(scale: Any) -> None:
    jobs = compiles(scale, 4, 3)
    forecasts = [scale.forecast(jobs, variants, workers, free(scale)) for variants in (1, 8) for workers in (1, 2)]
    checks = [{"workers": 1.0, "measured": 2.0, "model": 2.5, "error": 0.25, "setup": 0.5, "rest": -0.02}]
    text = scale.table(forecasts, checks, free(scale))
    assert "| 1 | 2 | 3 | 0.0 | 5.0 | 5.0 | 4.0 | 0.0 | critical path |" in text
    assert "| 1 | 2.00 | 2.50 | +25% | 0.5 | -2% |" in text
    assert scale.plot(forecasts).count("<polyline") == 2
