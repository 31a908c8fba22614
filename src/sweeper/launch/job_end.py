"""How the ranks of one job end: together, and in bounded time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from sweeper.launch.processes import STACK_SIGNAL
from sweeper.place import JOB_VARIABLE
from sweeper.record import now as utc_now
from sweeper.record import write_atomic

# After a rank has failed, the others may still say why themselves.
OWN_END_S = 2.0
# From SIGTERM to SIGKILL.
TERM_TO_KILL_S = 3.0
# At the time limit: from the request for Python stacks to SIGTERM.
STACKS_S = 0.5
# Rank 0 has ended well: how long others may take to close down.
LINGER_S = 25.0


@dataclass
class JobEnd:
    """Follows one job's ranks and ends those that outlive it."""

    job: str
    timeout_s: float | None = None
    attempt_dir: Path | None = None
    reason: str = "exited"  # exited, rank (one failed), timeout, or what a cancel gave
    exits: list[dict[str, Any]] = field(default_factory=list)
    _ranks: dict[int, int] = field(default_factory=dict)  # pid -> rank, while it lives
    _due: list[tuple[float, signal.Signals]] = field(default_factory=list)
    _signalled: set[int] = field(default_factory=set)
    _deadline: float | None = None

    def __post_init__(self) -> None:
        if self.timeout_s is not None:
            self._deadline = time.monotonic() + self.timeout_s

    def add(self, rank: int, pid: int) -> None:
        self._ranks[pid] = rank

    def not_started(self, rank: int, code: int) -> None:
        """Note a rank that could not be forked; the others end at once."""
        self.exits.append(
            {"rank": rank, "code": code, "at": utc_now(), "sent": False, "oom": False}
        )
        self.end("rank", now=True)

    @property
    def over(self) -> bool:
        return not self._ranks

    @property
    def next_due(self) -> float | None:
        """When `act` has something to do, by the monotonic clock."""
        times = [at for at, _ in self._due]
        if self._deadline is not None and self.reason == "exited":
            times.append(self._deadline)
        return min(times, default=None)

    def was_killed(self, pid: int) -> bool:
        """Whether a signal from here ended it."""
        return pid in self._signalled

    def end(self, reason: str, *, now: bool = False) -> None:
        """End all ranks: SIGTERM and, a little later or `now`, SIGKILL.

        For `timeout` and `hang` they are asked for their Python stacks first.
        """
        if self.reason == "exited":
            self.reason = reason
        term = time.monotonic()
        if reason in ("timeout", "hang"):
            self._send(STACK_SIGNAL, to_group=False)
            term += STACKS_S
        kill = term if now else term + TERM_TO_KILL_S
        self._schedule((term, signal.SIGTERM), (kill, signal.SIGKILL))

    def act(self, at: float) -> None:
        """Send what is due."""
        if self._deadline is not None and at >= self._deadline and self.reason == "exited":
            self.end("timeout")
        for due in [item for item in self._due if item[0] <= at]:
            self._due.remove(due)
            self._send(due[1])

    def rank_ended(self, pid: int, code: int, *, oom: bool) -> None:
        """Note how a rank ended (a negative code is a signal); the others follow it."""
        rank = self._ranks.pop(pid)
        self.exits.append(
            {
                "rank": rank,
                "code": code,
                "at": utc_now(),
                "sent": pid in self._signalled,
                "oom": oom,
            }
        )
        at = time.monotonic()
        if self.over:
            if self.reason != "exited" or code != 0:
                end_stragglers(self.job)
        elif code != 0 and self.reason == "exited":
            self.reason = "rank"
            term = at + OWN_END_S
            self._schedule((term, signal.SIGTERM), (term + TERM_TO_KILL_S, signal.SIGKILL))
        elif rank == 0:
            term = at + LINGER_S
            self._schedule((term, signal.SIGTERM), (term + TERM_TO_KILL_S, signal.SIGKILL))

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Leave a note in the attempt's directory, for a later command."""
        if self.attempt_dir is not None:
            # A full disk must not end the process that follows the ranks.
            with contextlib.suppress(OSError):
                write_atomic(self.attempt_dir / name, json.dumps(content, indent=1) + "\n")

    def _schedule(self, *due: tuple[float, signal.Signals]) -> None:
        self._due.extend(due)

    def _send(self, number: signal.Signals, *, to_group: bool = True) -> None:
        for pid in self._ranks:
            if number is not STACK_SIGNAL:
                self._signalled.add(pid)
            try:
                (os.killpg if to_group else os.kill)(pid, number)
            except ProcessLookupError:  # its group does not exist yet
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


def end_stragglers(job: str) -> None:
    """Kill what a failed job left running in sessions of its own, found by its environment."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(JOB_VARIABLE) == job:
                process.kill()
        except (psutil.Error, OSError):
            continue
