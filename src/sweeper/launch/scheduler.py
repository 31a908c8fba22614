"""The local queue: jobs wait for free slots, start, and are followed to their end.

Nothing here polls: `advance` sleeps until the supervisor has news. Only runs that an earlier
command left behind, whose supervisor is not ours, are looked at twice a second.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sweeper.launch.devices import BUSY_CHECK_S, BusyGpus
from sweeper.launch.errors import SupervisorError
from sweeper.launch.leftover import Leftover
from sweeper.launch.runs import Resources
from sweeper.launch.slots import Lease, Slots
from sweeper.launch.start import start_message
from sweeper.launch.supervised import SupervisorProcess

LEFTOVER_CHECK_S = 0.5
MOST_LOSSES = 3  # of supervisors, before the sweep is given up


@dataclass(eq=False)
class Work:
    """One job of the queue."""

    job: str  # unique id
    need: Resources
    folder: Path  # submitit's
    log_dir: Path
    attempt_dir: Path | None = None  # where the supervisor leaves its notes for a later command
    # Called when it has its slots, with what it got and the jobs beside it; returns variables.
    on_start: Callable[[Work, Sequence[Work]], Mapping[str, str]] | None = None
    state: Literal["pending", "running", "ended"] = "pending"
    lease: Lease | None = None
    ranks: list[dict[str, Any]] = field(default_factory=list)  # rank, pid, started
    reason: str | None = None  # exited, rank, timeout, lost, or what cancelled it
    exits: list[dict[str, Any]] = field(default_factory=list)
    leftover: Leftover | None = None  # of an earlier command

    @property
    def pids(self) -> set[int]:
        return {rank["pid"] for rank in self.ranks}


class Scheduler:
    """Runs jobs on this machine.

    Args:
        slots: the machine's GPUs and cores.
        new_supervisor: starts a supervisor; called with True for a warm one, False for a cold one.
        note: tells the person something, once.
        busy: which GPUs are used by others.
    """

    def __init__(
        self,
        slots: Slots,
        new_supervisor: Callable[[bool], SupervisorProcess],
        note: Callable[[str], None] = print,
        busy: BusyGpus | None = None,
    ) -> None:
        self.slots = slots
        self.pending: list[Work] = []
        self.running: list[Work] = []
        self._ended: list[Work] = []
        self._new_supervisor = new_supervisor
        self._supervisor: SupervisorProcess | None = None
        self._note = note
        self._noted: set[str] = set()
        self._busy = busy or BusyGpus(slots.node.gpus)
        self._own_pids: set[int] = set()
        self._losses = 0

    @property
    def idle(self) -> bool:
        return not self.pending and not self.running and not self._ended

    def prepare(self) -> None:
        """Start the supervisor ahead of need; it imports while the command composes its runs."""
        if self._supervisor is None:
            self._supervisor = self._new_supervisor(True)

    def close(self) -> None:
        """Let the supervisor go. Jobs that run go on."""
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None

    def add(self, work: Work) -> None:
        """Queue a job. One with a leftover is running already, and takes its slots at once."""
        if work.leftover is not None:
            work.state, work.ranks = "running", work.leftover.ranks
            work.lease = self.slots.hold(work.leftover.gpus)
            self._own_pids |= work.pids
            self.running.append(work)
        else:
            self.pending.append(work)

    def cancel(self, work: Work, reason: str, *, now: bool = False) -> None:
        """End a running job, or take a pending one out of the queue."""
        if work.state == "pending":
            self.pending.remove(work)
            self._end(work, reason, [])
        elif work.leftover is not None:
            work.reason = work.reason or reason
            work.leftover.stop(now=now)
        elif work.state == "running" and self._supervisor is not None:
            with contextlib.suppress(SupervisorError):
                self._supervisor.send(op="cancel", job=work.job, reason=reason, now=now)

    def advance(self, timeout_s: float | None) -> list[Work]:
        """Start what fits, wait for news, and return the jobs that have ended.

        Args:
            timeout_s: the longest wait; None = until there is news.
        """
        self._start_what_fits()
        if self._ended:
            timeout_s = 0.0
        limits = [timeout_s] if timeout_s is not None else []
        if any(work.leftover for work in self.running):
            limits.append(LEFTOVER_CHECK_S)
        if self.pending and self._busy.found:
            limits.append(BUSY_CHECK_S)
        self._listen(min(limits, default=None))
        for work in [work for work in self.running if work.leftover]:
            assert work.leftover is not None
            if (exits := work.leftover.ended()) is not None:
                self._end(work, work.reason or exits["reason"], exits["exits"])
        if not self._ended:  # first the caller records an end, then the next one starts
            self._start_what_fits()
        ended, self._ended = self._ended, []
        return ended

    def _listen(self, timeout_s: float | None) -> None:
        if self._supervisor is None:
            if self.running or self.pending:
                time.sleep(min(timeout_s or LEFTOVER_CHECK_S, LEFTOVER_CHECK_S))
            return
        try:
            messages = self._supervisor.receive(timeout_s)
        except SupervisorError as lost:
            self._lose_supervisor(lost)
            return
        by_id = {work.job: work for work in self.running}
        for message in messages:
            work = by_id[message["job"]]
            if message["event"] == "started":
                work.ranks = message["ranks"]
                self._own_pids |= work.pids
            else:
                self._end(work, message["reason"], message["exits"])

    def _end(self, work: Work, reason: str, exits: list[dict[str, Any]]) -> None:
        if work in self.running:
            self.running.remove(work)
        if work.lease is not None:
            self.slots.give_back(work.lease)
        work.state, work.reason, work.exits = "ended", reason, exits
        self._ended.append(work)

    def _start_what_fits(self) -> None:
        if not self.pending:
            return
        self.prepare()
        assert self._supervisor is not None
        if not self._supervisor.ready:
            return
        for name in self._supervisor.missing:
            self._say(f"cannot import {name} ahead of the runs")
        if self._supervisor.threads > 1:
            self._say("a preloaded module started a thread: runs start cold")
        busy = self._busy.tokens(self.slots.leased_gpus, self._own_pids)
        for token, who in busy.items():
            self._say(
                f"GPU {token} is left alone, process {who} computes on it "
                "(hydra.launcher.use_busy_gpus=true uses it all the same)"
            )
        for work in list(self.pending):
            lease = self.slots.take(work.need, avoid=busy)
            if lease is not None:
                self.pending.remove(work)
                work.state, work.lease = "running", lease
                beside = list(self.running)
                self.running.append(work)
                self._start(work, beside)

    def _start(self, work: Work, beside: Sequence[Work]) -> None:
        assert self._supervisor is not None
        assert work.lease is not None
        variables = work.on_start(work, beside) if work.on_start else {}
        work.log_dir.mkdir(parents=True, exist_ok=True)
        # What a library reads when it is imported must have been there when the supervisor was.
        known = self._supervisor.environ
        warm = self._supervisor.can_fork and all(
            known.get(name) == value for name, value in work.need.env.items()
        )
        message = start_message(
            job=work.job,
            need=work.need,
            lease=work.lease,
            has_gpus=bool(self.slots.node.gpus),
            folder=work.folder,
            log_dir=work.log_dir,
            attempt_dir=work.attempt_dir,
            variables=variables,
            warm=warm,
        )
        with contextlib.suppress(SupervisorError):  # heard of again when listening
            self._supervisor.send(**message)

    def _lose_supervisor(self, lost: SupervisorError) -> None:
        """Go on with a cold one; what the lost one started is followed as a leftover."""
        self._losses += 1
        if self._losses > MOST_LOSSES:
            raise lost
        self._say(f"the process that starts ranks ended ({lost.detail}): the rest starts cold")
        for work in [work for work in self.running if work.leftover is None]:
            leftover = Leftover.read(work.attempt_dir) if work.attempt_dir else None
            if leftover is None or leftover.job != work.job:
                leftover = Leftover(work.job, work.ranks)
            if leftover.ranks:
                work.ranks, work.leftover = leftover.ranks, leftover
            else:
                self._requeue(work)
        self.close()
        self._supervisor = self._new_supervisor(False)

    def _requeue(self, work: Work) -> None:
        assert work.lease is not None
        self.slots.give_back(work.lease)
        self.running.remove(work)
        work.state, work.lease = "pending", None
        self.pending.insert(0, work)

    def _say(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)
