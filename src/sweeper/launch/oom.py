"""Telling the kernel's out-of-memory killer from any other SIGKILL."""

from __future__ import annotations

import re
from pathlib import Path


def _own_group(root: Path, controller: str) -> Path | None:
    """The directory of this process's control group; v2 has an empty controller name."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            inside = root / controller / path.lstrip("/")
            # In a container the path is the host's; its own group is then the root.
            return inside if inside.exists() else root / controller
    return None


def kills(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Processes the kernel has killed for want of memory, as far as can be seen from here.

    The control group's count where there is one, otherwise the whole machine's.
    """
    for controller, file in (("", "memory.events"), ("memory", "memory.oom_control")):
        group = _own_group(root, controller)
        if group is not None and (count := _count(group / file)) is not None:
            return count
    return _count(Path("/proc/vmstat")) or 0


def _count(path: Path) -> int | None:
    try:
        found = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


class OomWatch:
    """Each kill is credited to one process."""

    def __init__(self) -> None:
        self._seen = kills()

    def was_it(self) -> bool:
        """Whether the kernel has killed since the last call."""
        count, seen = kills(), self._seen
        self._seen = count
        return count > seen
