"""How many compilers this machine can run at once: its processors, and the memory that is really free.

Both are asked of the control group as well as of the machine, because in a container the machine's figures are those
of its host (case T19).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Processors (at least 1) and available memory in bytes."""

    processors: int
    memory: int


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one action needs: ``memory`` in bytes, and how many processors it can make use of by itself."""

    memory: int
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class Budget:
    """``jobs`` actions at once, those that can use several processors with ``threads`` each.

    ``pools`` says how many of those that need so many bytes may run at once, where that is fewer than ``jobs``.
    ``per_variant`` is how many of one variant's; then there are no such pools. ``reason`` says what limits the jobs.
    """

    jobs: int
    threads: int
    pools: Mapping[int, int]
    reason: str
    per_variant: int | None = None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


def _groups(root: Path, membership: str, controller: str) -> list[Path]:
    """Directories of this process's control group and its parents, innermost first, for cgroup v2 and v1."""
    found: list[Path] = []
    for line in membership.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            base = root
        elif controller in controllers.split(","):
            base = root / controllers if (root / controllers).is_dir() else root / controller
        else:
            continue
        group = base / path.lstrip("/")
        while True:
            found.append(group)
            if group == base or base not in group.parents:
                break
            group = group.parent
    return found


def _group_memory(root: Path, membership: str) -> int | None:
    """Bytes that may still be used before a control group's limit; what caches hold can be reclaimed and counts."""
    free: list[int] = []
    for group in _groups(root, membership, "memory"):
        for limit_name, usage_name, cache_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, usage = _read(group / limit_name), _read(group / usage_name)
            if limit is None or usage is None or not limit.isdigit() or int(limit) >= 1 << 60:
                continue
            cached = 0
            for line in (_read(group / "memory.stat") or "").splitlines():
                name, _, value = line.partition(" ")
                if name == cache_name:
                    cached = int(value)
            free.append(max(0, int(limit) - int(usage) + cached))
    return min(free, default=None)


def _group_processors(root: Path, membership: str) -> int | None:
    """Whole processors that a control group's quota amounts to."""
    found: list[float] = []
    for group in _groups(root, membership, "cpu"):
        quota = (_read(group / "cpu.max") or "").split()
        if len(quota) == 2 and quota[0].isdigit():
            found.append(int(quota[0]) / int(quota[1]))
        old, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
        if old is not None and period is not None and int(old) > 0:
            found.append(int(old) / int(period))
    return max(1, math.ceil(min(found))) if found else None


def _machine_memory(meminfo: str) -> int:
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return 2 << 30  # kernels before 3.14 do not say; a careful guess


def measure(proc: Path = Path("/proc"), cgroup: Path = _CGROUP) -> Resources:
    """What is free now. ``proc`` and ``cgroup`` are the file systems to ask."""
    membership = _read(proc / "self" / "cgroup") or ""
    processors = len(os.sched_getaffinity(0))
    limit = _group_processors(cgroup, membership)
    memory = _machine_memory(_read(proc / "meminfo") or "")
    group = _group_memory(cgroup, membership)
    return Resources(
        processors=min(processors, limit) if limit else processors,
        memory=memory if group is None else min(memory, group),
    )


def plan_jobs(
    resources: Resources,
    needs: Sequence[Need],
    *,
    asked: int | None,
    cores: int | None = None,
    variants: int | None = None,
) -> Budget:
    """How many actions to run at once, so that any mix of them fits into memory.

    ``needs`` has one entry per action. The threads of an action count as jobs: when there are fewer actions with
    threads than jobs, the jobs are given to their threads instead. ``asked`` is ``--jobs``; it overrides the rest.
    ``cores`` is how many of one variant may run at once, and ``variants`` how many variants: together they are asked
    for as well; ``cores`` alone is what at least may run, if there is only one variant.
    """
    if cores is not None:
        hungriest = max((need.memory for need in needs), default=1)
        alike = min(resources.processors, max(1, resources.memory // max(1, hungriest)))
        at_once = max(cores, alike) if variants is None else cores * variants
        budget = plan_jobs(resources, needs, asked=at_once)
        return replace(budget, per_variant=max(1, cores // budget.threads), reason="--cores")
    sizes = sorted({need.memory for need in needs}, reverse=True)
    if asked is not None:
        jobs, reason = asked, "--jobs"
    else:
        by_memory = max(1, resources.memory // max(1, min(sizes, default=1)))
        jobs = min(resources.processors, by_memory)
        reason = (
            "processors" if resources.processors <= by_memory else f"{resources.memory / 2**30:.1f} GiB free memory"
        )
    pools: Mapping[int, int] = {}
    if asked is None and sizes:
        jobs, pools = _shared(sizes, jobs, resources.memory, largest=[need.memory for need in needs].count(sizes[0]))
    threaded = [need for need in needs if need.threads > 1]
    at_once = min([jobs, *(pools.get(need.memory, jobs) for need in threaded)])
    threads = 1
    if 0 < len(threaded) < at_once:
        threads = max(1, min(at_once // len(threaded), max(need.threads for need in threaded)))
    return Budget(jobs=max(1, jobs // threads), threads=threads, pools=pools, reason=reason)


def _shared(sizes: Sequence[int], most: int, memory: int, *, largest: int) -> tuple[int, Mapping[int, int]]:
    """How many jobs, and their pools: the most jobs that leave room for as many of the hungriest actions, of which
    there are ``largest``, as would run if all were like them. Those take longest.
    """
    alike = min(max(1, memory // max(1, sizes[0])), most)
    for jobs in range(most, alike, -1):
        pools = _pools(sizes, jobs, memory)
        if pools.get(sizes[0], jobs) >= min(largest, alike):
            return jobs, pools
    return alike, _pools(sizes, alike, memory)


def _pools(sizes: Sequence[int], jobs: int, memory: int) -> dict[int, int]:
    """Of each size, the largest first, as many as leave room for the next smaller one in all other jobs; at least one.

    Sizes of which every job may run one have no pool.
    """
    pools: dict[int, int] = {}
    left, places = memory, jobs
    for size, smaller in zip(sizes, [*sizes[1:], 0], strict=True):
        fitting = [count for count in range(1, places + 1) if count * size + (places - count) * smaller <= left]
        depth = max(fitting, default=1)
        if depth < places:
            pools[size] = depth
        left, places = max(0, left - depth * size), max(1, places - depth)
    return pools
