"""What this machine has for compilers: its processors, and the memory that is really free.

Both are asked of the control group as well as of the machine, because in a container the machine's figures are those
of its host (case T19).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Processors (at least 1) and available memory in bytes."""

    processors: int
    memory: int


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
    affinity = getattr(os, "sched_getaffinity", None)  # only Linux has it
    processors = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    limit = _group_processors(cgroup, membership)
    memory = _machine_memory(_read(proc / "meminfo") or "")
    group = _group_memory(cgroup, membership)
    return Resources(
        processors=min(processors, limit) if limit else processors,
        memory=memory if group is None else min(memory, group),
    )
