"""Ranks whose supervisor is not ours: an earlier command started them, or our supervisor died.

They are known by process id and start time, kept in `attempt<N>/ranks.json`; how they ended is in
`attempt<N>/exits.json`, which their supervisor writes even when its command is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from sweeper.launch.job_end import TERM_TO_KILL_S
from sweeper.record import now as utc_now

RANKS_FILE = "ranks.json"
EXITS_FILE = "exits.json"

# How long the note of the supervisor may come after the last rank's end.
_NOTE_S = 2.0
# Start times come from a clock that may be set; two processes never share a number this closely.
_SAME_START_S = 1.0


def is_alive(pid: int, started: float) -> bool:
    """Whether this very process lives: numbers are used again, start times are not."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) < _SAME_START_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


@dataclass
class Leftover:
    """One job that runs without a supervisor of ours."""

    job: str
    ranks: list[dict[str, Any]]  # rank, pid, started
    gpus: Sequence[str] = ()
    attempt_dir: Path | None = None
    _gone_at: float | None = field(default=None, repr=False)
    _kill_at: float | None = field(default=None, repr=False)

    @staticmethod
    def info(job: str, gpus: Sequence[str]) -> dict[str, Any]:
        """What the supervisor keeps beside the process ids."""
        return {
            "job": job,
            "gpus": list(gpus),
            "host": socket.gethostname(),
            "started_at": utc_now(),
        }

    @classmethod
    def read(cls, attempt_dir: Path) -> Leftover | None:
        """What was started in this attempt on this machine, alive or not; None if nothing was."""
        noted = _read(attempt_dir / RANKS_FILE)
        if noted is None or noted.get("host") != socket.gethostname():
            return None
        return cls(noted["job"], noted["ranks"], noted["gpus"], attempt_dir)

    @property
    def alive(self) -> list[int]:
        return [r["pid"] for r in self.ranks if is_alive(r["pid"], r["started"])]

    def exits(self) -> dict[str, Any] | None:
        """`reason` and `exits` as the supervisor noted them."""
        noted = _read(self.attempt_dir / EXITS_FILE) if self.attempt_dir else None
        return noted if noted and {"reason", "exits"} <= noted.keys() else None

    def ended(self) -> dict[str, Any] | None:
        """None while a rank lives; then `reason` and `exits`, with code None if it is unknown."""
        if self.alive:
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._signal(signal.SIGKILL)
            return None
        if (noted := self.exits()) is not None:
            return noted
        if self._gone_at is None:
            self._gone_at = time.monotonic()
        if self.attempt_dir is not None and time.monotonic() - self._gone_at < _NOTE_S:
            return None
        return {"reason": "lost", "exits": unknown_exits(self.ranks)}

    def stop(self, *, now: bool = False) -> None:
        """End its ranks: SIGTERM and, a little later or `now`, SIGKILL."""
        self._signal(signal.SIGKILL if now else signal.SIGTERM)
        self._kill_at = time.monotonic() + (0.0 if now else TERM_TO_KILL_S)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)


def unknown_exits(ranks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"rank": rank["rank"], "code": None, "at": utc_now(), "sent": False, "oom": False}
        for rank in ranks
    ]
