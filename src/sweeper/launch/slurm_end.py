"""How a run ended that left no record: from its tasks' notes and the scheduler's word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweeper.failure import read_failures
from sweeper.launch import finish
from sweeper.launch.attempt import Attempt
from sweeper.launch.slurm_states import JobState
from sweeper.launch.slurm_stop import read_stop
from sweeper.place import log_files
from sweeper.record import Failure, Record, Status, now


def read_exits(attempt_dir: Path) -> list[dict[str, Any]]:
    """What the tasks noted of their ranks' ends."""
    found = []
    for path in sorted(attempt_dir.glob("exit.rank*.json")):
        try:
            found.append(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError):
            continue
    return found


def record_of(attempt: Attempt, state: JobState, stopped: str | None, job_log: Path) -> Record:
    """The record to write for the attempt.

    Args:
        attempt: that has ended.
        state: of its job.
        stopped: why this command ended it, if it did; an earlier one may have, or the job itself.
        job_log: what srun and the tasks wrote outside the ranks.
    """
    exits = read_exits(attempt.dir)
    stopped = stopped or read_stop(attempt.dir)
    if stopped is not None:
        return finish.make_record(attempt, stopped, exits)
    if state.state in ("TIMEOUT", "DEADLINE"):
        return finish.make_record(attempt, "timeout", exits)
    if state.state == "CANCELLED":
        return finish.make_record(attempt, "cancelled", exits)
    if any(end["code"] != 0 for end in exits) or read_failures(attempt.dir):
        return finish.make_record(attempt, "exited", exits)
    if len(exits) == attempt.run.resources.world_size:
        return finish.make_record(attempt, "exited", exits)
    status, failure = _unseen(attempt, state)
    failure.log_tail = finish.tail(job_log) or None
    errors = log_files(attempt.dir, 0)[1]
    if errors.exists():
        failure.log = str(errors.relative_to(attempt.run.run_dir))
        failure.log_tail = finish.tail(errors) or failure.log_tail
    return finish.end_record(attempt, status, failure)


def _unseen(attempt: Attempt, state: JobState) -> tuple[Status, Failure]:
    """The end of ranks whose tasks did not live to note it."""

    def because(kind: str, message: str) -> Failure:
        return Failure(type=kind, message=message, at=now())

    where = f" on {state.nodes}" if state.nodes else ""
    if state.state == "OUT_OF_MEMORY":
        return Status.OOM, because("OutOfMemory", f"Slurm ended the job{where}: out of memory")
    if state.state in ("NODE_FAIL", "BOOT_FAIL"):
        return Status.KILLED, because("NodeFail", f"the node failed{where}")
    if state.state == "PREEMPTED":
        return Status.KILLED, because("Preempted", "another job took its place")
    if state.state == "GONE":
        if not attempt.dir.exists():
            message = "the job left the queue before it started"
            return Status.CANCELLED, because("Cancelled", message)
        return Status.KILLED, because("Lost", "Slurm has no trace of the job, and nobody saw how")
    if not attempt.dir.exists():
        message = f"the job ended as {state.state}{where} before the run started"
        return Status.FAILED, because("JobFailed", message)
    return Status.KILLED, because("Lost", f"the job ended as {state.state}{where} without a word")
