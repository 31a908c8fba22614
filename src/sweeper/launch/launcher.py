"""Launching a sweep: settle what is left of earlier commands, run the rest, record every end."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sweeper.errors import UserError
from sweeper.launch import finish
from sweeper.launch.attempt import Attempt, write_plan
from sweeper.launch.backend import Backend, Ended
from sweeper.launch.errors import Cancelled, Detached
from sweeper.launch.hang import HangWatch
from sweeper.launch.interrupts import Interrupts
from sweeper.launch.leftover import unknown_exits
from sweeper.launch.lock import SweepLock
from sweeper.launch.runs import Run
from sweeper.launch.settings import Settings
from sweeper.launch.view import View
from sweeper.record import RECORD_FILE, Record, RecordError, read_record

TICK_S = 1.0

# Of a disk that is full or has become read-only.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@dataclass
class Outcome:
    """What became of one run."""

    run: Run
    record: Record
    attempt: Attempt | None = None  # None: an earlier command's record stands


class Task(Protocol):
    """What each rank of an attempt calls."""

    def function(self, attempt: Attempt) -> Callable[[], Any]: ...


def launch(
    runs: Sequence[Run],
    *,
    task: Task,
    backend: Backend,
    settings: Settings,
    view: View,
    home: Path,
    planned_at: float,
) -> list[Outcome]:
    """Run a sweep; returns when every run has ended.

    Args:
        runs: what the application planned.
        task: what a rank does.
        backend: where it does it.
        settings: of the sweep.
        view: what the person sees.
        home: directory that holds the lock.
        planned_at: when the application looked at the records, seconds since the epoch.

    Returns:
        One outcome for each run, in their order.

    Raises:
        UserError: another command works on the sweep, and nothing is started; or nothing more can
            be written.
        Cancelled: the person stopped it. What ran is recorded as cancelled, the rest is queued.
        Detached: the runs are the cluster's now, as asked.
    """
    if settings.detach and not backend.detaches:
        raise UserError(
            "hydra.launcher.detach",
            "this launcher has no cluster to leave the runs to",
            "use hydra/launcher=slurm, or run the command in tmux or nohup",
        )
    try:
        with SweepLock(home):
            return _Sweep(runs, task, backend, settings, view, planned_at).run()
    except OSError as error:
        if error.errno not in _DISK:
            raise
        raise UserError(
            "hydra.sweep.dir",
            f"{home} cannot be written any more: {error.strerror}",
            "make room and give the same command again; runs that have started go on",
        ) from error


class _Sweep:
    def __init__(
        self,
        runs: Sequence[Run],
        task: Task,
        backend: Backend,
        settings: Settings,
        view: View,
        planned_at: float,
    ) -> None:
        self._runs = runs
        self._task = task
        self._backend = backend
        self._settings = settings
        self._view = view
        self._planned_at = planned_at
        self._outcomes: dict[int, Outcome] = {}  # by id of the run
        self._hangs: dict[int, HangWatch] = {}  # by id of the attempt

    def run(self) -> list[Outcome]:
        self._view.begin(len(self._runs), sum(run.keep for run in self._runs))
        waiting = self._settle()
        with Interrupts(active=not self._backend.in_process) as interrupts, self._view:
            for attempt in self._in_order(waiting):
                self._backend.submit(attempt, self._task.function(attempt))
            if self._settings.detach:
                self._backend.flush()
                for ended in self._backend.poll(0.0):  # what the cluster has refused at once
                    self._finish(ended)
                raise Detached()
            self._follow(interrupts)
        if interrupts.count or self._backend.interrupted:
            raise Cancelled()
        return [self._outcomes[id(run)] for run in self._runs]

    def _settle(self) -> list[Attempt]:
        """Sort the runs into kept, skipped, still running and waiting; returns the last."""
        waiting = []
        for run in self._runs:
            if run.keep or self._just_recorded(run):
                self._outcomes[id(run)] = Outcome(run, read_record(run.run_dir / RECORD_FILE))
                continue
            attempt = self._backend.next_attempt(run)
            if attempt.leftover is not None or attempt.job is not None:
                self._backend.adopt(attempt)
                self._view.note(f"{run.label} is still running; following it")
                continue
            if attempt.number > 0:
                finish.record_lost(Attempt(run, attempt.number - 1))
            write_plan(attempt)
            reason = run.skip or self._backend.why_never(run.resources)
            if reason is not None:
                self._done(Outcome(run, finish.skip(attempt, reason), attempt))
            else:
                waiting.append(attempt)
        return waiting

    def _just_recorded(self, run: Run) -> bool:
        """Another command may have finished it between the plan and our lock."""
        with contextlib.suppress(FileNotFoundError):
            path = run.run_dir / RECORD_FILE
            if path.stat().st_mtime > self._planned_at:
                with contextlib.suppress(RecordError):
                    read_record(path)
                    return True
        return False

    def _in_order(self, waiting: list[Attempt]) -> list[Attempt]:
        if self._settings.order == "given":
            return waiting

        def cost(attempt: Attempt) -> tuple[int, float]:
            run = attempt.run
            return run.identity.repeat, run.cost or run.resources.world_size

        return sorted(waiting, key=cost)  # stable: equals stay as given

    def _follow(self, interrupts: Interrupts) -> None:
        stopping = 0
        while self._backend.pending or self._backend.running:
            if interrupts.count > stopping:
                stopping = interrupts.count
                self._stop_all(now=stopping > 1)
            for ended in self._backend.poll(TICK_S):
                self._finish(ended)
            if self._backend.interrupted:
                self._stop_all(now=True)
            self._end_the_hung()
            self._view.tick(self._backend.running, len(self._backend.pending))
        for ended in self._backend.poll(0.0):
            self._finish(ended)

    def _stop_all(self, *, now: bool) -> None:
        running = list(self._backend.running)
        if not now:
            self._view.note(f"stopping {len(running)} running; again to stop at once")
        for attempt in list(self._backend.pending):
            self._backend.stop(attempt, "cancelled")
        for attempt in running:
            self._backend.stop(attempt, "cancelled", now=now)

    def _end_the_hung(self) -> None:
        for attempt in self._backend.running:
            limit = attempt.run.resources.hang_timeout_min
            if limit is None or not attempt.run.writes_record:
                continue
            if id(attempt) not in self._hangs:
                self._hangs[id(attempt)] = HangWatch(attempt.run.run_dir, limit)
            if self._hangs[id(attempt)].hangs():
                self._backend.stop(attempt, "hang")

    def _finish(self, ended: Ended) -> None:
        exits = ended.exits
        if not exits and ended.attempt.leftover is not None:
            exits = unknown_exits(ended.attempt.leftover.ranks)
        record = finish.finish(ended.attempt, ended.reason, exits)
        self._done(Outcome(ended.attempt.run, record, ended.attempt))

    def _done(self, outcome: Outcome) -> None:
        self._outcomes[id(outcome.run)] = outcome
        self._view.ended(outcome.run, outcome.record)


def job_folder(home: Path) -> Path:
    """For submitit's files of this command; `remove_job_folder` when all runs have ended."""
    return home / f".jobs-{os.getpid()}"


def remove_job_folder(home: Path) -> None:
    """Ours, and those of commands that were killed."""
    for folder in home.glob(".jobs-*"):
        shutil.rmtree(folder, ignore_errors=True)
