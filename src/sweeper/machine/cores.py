"""What of this machine the process may use: cores and memory, within its container's limits."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")


def usable_cores(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """Cores that this process can keep busy: its affinity, cut by a container's quota."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = psutil.cpu_count() or 1
    return _within_quota(cores, proc, cgroup)


def machine_cores(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """Cores of the machine, cut by a container's quota; the same on every rank, however pinned."""
    return _within_quota(psutil.cpu_count() or 1, proc, cgroup)


def _within_quota(cores: int, proc: Path, cgroup: Path) -> int:
    quota = _cpu_quota(proc, cgroup)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def usable_memory_bytes(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """The machine's memory, or less where a container limits it."""
    total = int(psutil.virtual_memory().total)
    limits = [_number(d / "memory.max") for d in _groups(proc, cgroup)]
    limits.append(_number(cgroup / "memory" / "memory.limit_in_bytes"))  # version 1
    return min([total, *(int(limit) for limit in limits if limit is not None)])


def cpu_name(proc: Path = _PROC) -> str | None:
    """The processor's name as its maker writes it, where the system tells it."""
    with suppress(OSError):
        for line in (proc / "cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "cpu model") and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or None


def _cpu_quota(proc: Path, cgroup: Path) -> float | None:
    """Cores' worth of time a container grants, the least over its levels; None without a limit."""
    quotas: list[float] = []
    for directory in _groups(proc, cgroup):
        with suppress(OSError, ValueError):
            quota, period = (directory / "cpu.max").read_text().split()
            quotas.append(float(quota) / float(period))  # "max" is no number: no limit
    allowed = _number(cgroup / "cpu" / "cpu.cfs_quota_us")  # version 1; -1 without a limit
    period_us = _number(cgroup / "cpu" / "cpu.cfs_period_us")
    if allowed is not None and period_us and allowed > 0:
        quotas.append(allowed / period_us)
    return min(quotas, default=None)


def _groups(proc: Path, cgroup: Path) -> Iterator[Path]:
    """The process's control group, version 2, and those above it; limits hold on every level."""
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            if line.startswith("0::"):
                directory = cgroup / line[3:].lstrip("/")
                while directory != cgroup:
                    yield directory
                    directory = directory.parent
    yield cgroup


def _number(path: Path) -> float | None:
    with suppress(OSError, ValueError):
        return float(path.read_text())
    return None
