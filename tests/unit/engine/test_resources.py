"""Case T19 (a) to (c): jobs follow processors, memory and control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_builder.engine.resources import Need, Resources, measure, plan_jobs

GIB = 1 << 30


def system(root: Path, *, available: int, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    proc, cgroup = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {available // 1024} kB\n", encoding="ascii")
    (proc / "self" / "cgroup").write_text(membership, encoding="ascii")
    for path, text in files.items():
        target = cgroup / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="ascii")
    cgroup.mkdir(exist_ok=True)
    return proc, cgroup


def test_a_machine_without_limits(tmp_path: Path) -> None:
    found = measure(*system(tmp_path, available=9 * GIB, membership="0::/\n", files={}))
    assert found == Resources(processors=len(os.sched_getaffinity(0)), memory=9 * GIB)


def test_the_tightest_group_counts_and_caches_are_free(tmp_path: Path) -> None:
    found = measure(
        *system(
            tmp_path,
            available=64 * GIB,
            membership="0::/outer/inner\n",
            files={
                "outer/memory.max": str(6 * GIB),
                "outer/memory.current": str(3 * GIB),
                "outer/memory.stat": f"anon 1\ninactive_file {GIB}\n",
                "outer/inner/memory.max": "max",
                "outer/inner/memory.current": str(GIB),
                "outer/cpu.max": "150000 100000",
            },
        )
    )
    assert found.memory == 4 * GIB
    assert found.processors == min(2, len(os.sched_getaffinity(0)))


def test_version_1_groups(tmp_path: Path) -> None:
    found = measure(
        *system(
            tmp_path,
            available=64 * GIB,
            membership="5:memory:/box\n4:cpu,cpuacct:/box\n",
            files={
                "memory/box/memory.limit_in_bytes": str(4 * GIB),
                "memory/box/memory.usage_in_bytes": str(GIB),
                "cpu,cpuacct/box/cpu.cfs_quota_us": "100000",
                "cpu,cpuacct/box/cpu.cfs_period_us": "100000",
            },
        )
    )
    assert found == Resources(processors=1, memory=3 * GIB)


@pytest.mark.parametrize(
    ("processors", "memory", "largest", "nvcc", "archs", "asked", "expected"),
    [
        (64, 4 * GIB, int(2.8 * GIB), 5, 10, None, (1, 1)),
        (64, 1 * GIB, int(2.8 * GIB), 5, 10, None, (1, 1)),
        (8, 64 * GIB, 2 * GIB, 20, 10, None, (8, 1)),
        (8, 64 * GIB, 2 * GIB, 1, 10, None, (1, 8)),
        (8, 64 * GIB, 2 * GIB, 2, 3, None, (2, 3)),
        (8, 64 * GIB, 2 * GIB, 0, 1, None, (8, 1)),
        (8, 64 * GIB, 2 * GIB, 20, 10, 1, (1, 1)),
        (2, 1 * GIB, 2 * GIB, 20, 10, 6, (6, 1)),
    ],
)
def test_jobs(
    processors: int, memory: int, largest: int, nvcc: int, archs: int, asked: int | None, expected: tuple[int, int]
) -> None:
    needs = [Need(memory=largest, threads=archs)] * nvcc or [Need(memory=largest)]
    budget = plan_jobs(Resources(processors=processors, memory=memory), needs, asked=asked)
    assert (budget.jobs, budget.threads) == expected
    assert budget.jobs * budget.threads <= max(1, asked or processors)


def test_light_actions_fill_what_heavy_ones_leave() -> None:
    """One count of jobs from the hungriest action would leave processors idle; pools do not."""
    heavy, light = Need(memory=3 * GIB), Need(memory=GIB // 2)
    budget = plan_jobs(Resources(processors=8, memory=10 * GIB), [heavy] * 4 + [light] * 20, asked=None)
    assert budget.jobs == 5
    assert budget.pools == {heavy.memory: 3}
    few = plan_jobs(Resources(processors=8, memory=10 * GIB), [heavy] * 2 + [light] * 20, asked=None)
    assert (few.jobs, few.pools) == (8, {heavy.memory: 2})


@pytest.mark.parametrize("processors", [2, 4, 8, 16, 64])
@pytest.mark.parametrize("memory", [6 * GIB, 8 * GIB, 16 * GIB])
@pytest.mark.parametrize("counts", [(10, 10, 2), (1, 10, 2), (4, 4, 1), (0, 10, 1)])
def test_as_many_hungry_actions_run_as_if_all_were_like_them(
    processors: int, memory: int, counts: tuple[int, int, int]
) -> None:
    sizes = (int(2.8 * GIB), int(1.5 * GIB), GIB // 2)
    needs = [Need(memory=size) for size, count in zip(sizes, counts, strict=True) for _ in range(count)]
    budget = plan_jobs(Resources(processors=processors, memory=memory), needs, asked=None)
    largest = needs[0].memory
    at_once = min(budget.pools.get(largest, budget.jobs), budget.jobs)
    assert at_once >= min(sum(need.memory == largest for need in needs), processors, memory // largest)


@pytest.mark.parametrize("processors", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("memory", [4 * GIB, 9 * GIB, 33 * GIB])
def test_any_mix_fits_into_memory(processors: int, memory: int) -> None:
    sizes = [int(2.8 * GIB), int(1.5 * GIB), GIB // 2]
    budget = plan_jobs(
        Resources(processors=processors, memory=memory), [Need(memory=size) for size in sizes], asked=None
    )
    worst, places = 0, budget.jobs
    for size in sizes:
        count = min(budget.pools.get(size, budget.jobs), places)
        worst, places = worst + count * size, places - count
    smallest_possible = min(sum(sizes[: budget.jobs]), sum(sizes))  # one of each may always run
    assert worst <= max(memory, smallest_possible)


def test_the_users_own_number_of_jobs_is_not_limited() -> None:
    budget = plan_jobs(Resources(processors=2, memory=GIB), [Need(memory=3 * GIB)] * 9, asked=6)
    assert (budget.jobs, budget.pools) == (6, {})
