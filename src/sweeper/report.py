"""What a run tells the outside: its state while it lives, its record in the end, its tracker.

Every rank has one; on ranks other than 0 it keeps its figures and writes nothing.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict

from sweeper.config import Config
from sweeper.failure import ENDED_FILE, describe, earlier_attempts, write_failure
from sweeper.fence import Superseded, check_newest
from sweeper.heartbeat import Heartbeat
from sweeper.measure.memory import held_bytes
from sweeper.measure.sampler import UtilizationSample
from sweeper.place import Place
from sweeper.preemption import PREEMPT_SIGNAL, Preempted
from sweeper.record import (
    DRAFT_FILE,
    Failure,
    Record,
    Status,
    dump,
    now,
    read_identity,
    write_atomic,
    write_record,
)
from sweeper.series import StepRow, write_steps, write_utilization
from sweeper.tracking.factory import make_tracker
from sweeper.tracking.summary import summary_of


class Report:
    """Use it as a context around the whole run; an exception that leaves it is described.

    A run of one rank that fails writes its own record. Of several ranks any may be the first to
    fail, so each only describes its own failure, and the launcher makes the record from the draft.

    Attributes:
        record: filled in as the run goes on.
        rows: the per-step series.
        utilization: how busy the devices were over time.
    """

    def __init__(self, config: Config, place: Place) -> None:
        self.place = place
        self.writes = place.rank == 0
        self.rows: Sequence[StepRow] = ()
        self.utilization: Sequence[UtilizationSample] = ()
        self.record = Record(
            identity=read_identity(place.run_dir),
            status=Status.FAILED,  # until the end is known
            phase="setup",
            attempt=place.attempt,
            attempts=earlier_attempts(place.run_dir, place.attempt),
            started_at=now(),
            config=asdict(config),
        )
        self._config = config
        self._started_s = time.perf_counter()
        self._heartbeat = Heartbeat(place, config.train.steps, held_bytes)
        self.tracker = make_tracker(config.tracker, self.record.warnings, place.rank)

    def __enter__(self) -> Report:
        self._heartbeat.__enter__()
        if self.writes:
            # Its process must not be ended by a warning that is the run's; it inherits the mask.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {PREEMPT_SIGNAL})
            try:
                self.tracker.start(self.record.identity, self.record.config, self.place.run_dir)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._finish(Status.COMPLETED)
            elif isinstance(error, Preempted):
                self._pause(error)
            elif isinstance(error, Superseded):
                raise error
            else:
                self._fail(error)
        except Superseded as superseded:
            self.tracker.give_up(str(superseded))  # what it mirrors is the newer attempt's now
            raise
        finally:
            self._heartbeat.__exit__()

    def phase(self, name: str) -> None:
        """The run enters a phase: setup, warmup, measure, evaluate, save."""
        self.record.phase = name
        self._heartbeat.phase(name)

    def progress(
        self,
        *,
        step: int | None = None,
        loss: float | None = None,
        step_time_s: float | None = None,
    ) -> None:
        """For the live view; costs a few assignments."""
        state = self._heartbeat.state
        state.step = state.step if step is None else step
        state.loss = state.loss if loss is None else loss
        state.step_time_s = state.step_time_s if step_time_s is None else step_time_s

    def elapsed_s(self) -> float:
        """Seconds since the run's code began; the start of its process is not in it."""
        return time.perf_counter() - self._started_s

    def save_draft(self) -> None:
        """Keep what is known by now, for the record of a run that does not live to write it."""
        if self.writes:
            write_atomic(self.place.attempt_dir / DRAFT_FILE, dump(self.record))

    def _finish(self, status: Status) -> None:
        record = self.record
        record.status = status
        record.finished_at = now()
        record.time.run_s = self.elapsed_s()
        record.hardware.shares_node_with = self.place.neighbours()
        if not self.writes:
            return
        check_newest(self.place)
        if self.rows:
            write_steps(self.place.run_dir, self.rows)
            write_utilization(self.place.run_dir, self.utilization)
            self._mirror()
        self.tracker.summary(summary_of(record))
        self.tracker.finish(status)
        write_record(self.place.run_dir, record)

    def _pause(self, error: Preempted) -> None:
        """The attempt has ended, the run has not: its record stays open for the next attempt."""
        if not self.writes:
            return
        self._heartbeat.ends_as = "queued"
        record = self.record
        record.status = Status.KILLED
        record.error = Failure(type=type(error).__name__, message=str(error), at=now())
        record.finished_at = now()
        record.time.run_s = self.elapsed_s()
        record.hardware.shares_node_with = self.place.neighbours()
        write_atomic(self.place.attempt_dir / ENDED_FILE, dump(record))
        self.tracker.finish(Status.KILLED)

    def _fail(self, error: BaseException) -> None:
        status, failure = describe(error, self.place.rank)
        log = self.place.log_files()[1]
        failure.log = str(log.relative_to(self.place.run_dir)) if log.exists() else None
        write_failure(self.place.attempt_dir, failure)
        self.record.error = failure
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        if self.place.world_size == 1 and not stopped:
            self._finish(status)
            return
        with contextlib.suppress(OSError):
            self.save_draft()
            if self.writes and self.rows:
                write_steps(self.place.run_dir, self.rows)
        self.tracker.finish(Status.CANCELLED if stopped else status)

    def _mirror(self) -> None:
        for row in self.rows:
            values = {
                "train/loss": row.loss,
                "train/lr": row.lr,
                "perf/step_time_s": row.step_time_s,
            }
            known = {name: value for name, value in values.items() if value is not None}
            self.tracker.log(row.step, {"train/step": float(row.step), **known})
