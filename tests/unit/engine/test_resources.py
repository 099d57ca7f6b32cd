"""Case T19 (a) to (c): jobs follow processors, memory and control groups."""

from __future__ import annotations

import os
from pathlib import Path

from kernel_builder.engine.resources import Resources, measure

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
