"""The record of a run that could not write it: from what its ranks left, and how they ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweeper.failure import ENDED_FILE, culprit, earlier_attempts, read_failures, status_of
from sweeper.launch.attempt import Attempt, set_aside
from sweeper.launch.leftover import RANKS_FILE, Leftover, unknown_exits
from sweeper.launch.processes import CANNOT_WRITE, NOT_STARTED
from sweeper.place import log_files
from sweeper.record import (
    DRAFT_FILE,
    RECORD_FILE,
    Failure,
    Hardware,
    Record,
    RecordError,
    Status,
    dump,
    now,
    read_record,
    read_state,
    write_atomic,
    write_record,
)

TAIL_LINES = 20

# Parts of a record that the run's draft knows better than the launcher.
_DRAFTED = ("memory", "time", "loss", "numerics", "hardware", "utilization", "software", "warnings")

# Signals by which someone ends a process; the others are faults of the process itself.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def finish(attempt: Attempt, reason: str, exits: Sequence[dict[str, Any]]) -> Record:
    """The run's record: the one it wrote itself, or else one made here. Ends its state.

    Args:
        attempt: that has ended.
        reason: `exited`, `rank`, `timeout`, `hang`, `cancelled` or `lost`.
        exits: `rank`, `code` (negative = signal, None = unknown), `at`, `sent` (by the launcher),
            `oom`, of each rank that was started.
    """
    run_dir = attempt.run.run_dir
    try:
        if not (run_dir / RECORD_FILE).exists():
            write_record(run_dir, make_record(attempt, reason, exits))
        attempt.write_state("finished")
    except OSError as error:  # the runs go on; this one has no record, and is run again
        message = f"{run_dir} cannot be written: {error.strerror}"
        return _record(attempt, Status.FAILED, Failure(type="OSError", message=message, at=now()))
    try:
        return read_record(run_dir / RECORD_FILE)
    except RecordError as error:  # the run's own, and it stays
        failure = Failure(type="RecordError", message=str(error), at=now())
        return _record(attempt, Status.FAILED, failure)


def skip(attempt: Attempt, reason: str) -> Record:
    """Record that the run is not run at all, and why."""
    failure = Failure(type="Skipped", message=reason, at=now())
    record = _record(attempt, Status.SKIPPED, failure)
    run_dir = attempt.run.run_dir
    write_record(run_dir, record)
    attempt.write_state("finished")
    return record


def end_record(attempt: Attempt, status: Status, failure: Failure) -> Record:
    """The record of an attempt whose end is known; nothing is written."""
    record = _record(attempt, status, failure)
    with contextlib.suppress(OSError, ValueError, KeyError):
        record.started_at = json.loads((attempt.dir / RANKS_FILE).read_text())["started_at"]
    return record


def record_lost(attempt: Attempt) -> None:
    """Record an attempt that died unrecorded together with its command, in its own directory."""
    kept = attempt.dir / ENDED_FILE
    if kept.exists() or not (attempt.dir / RANKS_FILE).exists():
        return
    leftover = Leftover.read(attempt.dir)
    noted = leftover.exits() if leftover is not None else None
    end = noted or {"reason": "lost", "exits": unknown_exits(leftover.ranks if leftover else [])}
    write_atomic(kept, dump(make_record(attempt, end["reason"], end["exits"])))
    set_aside(attempt)


def make_record(attempt: Attempt, reason: str, exits: Sequence[dict[str, Any]]) -> Record:
    status, failure = verdict(attempt, reason, exits)
    if failure is not None:
        rank = failure.rank or 0
        errors = log_files(attempt.dir, rank)[1]
        if errors.exists():
            failure.log = str(errors.relative_to(attempt.run.run_dir))
            failure.log_tail = tail(errors)
    record = _record(attempt, status, failure)
    with contextlib.suppress(OSError, ValueError):
        record.started_at = json.loads((attempt.dir / RANKS_FILE).read_text())["started_at"]
    return record


def verdict(
    attempt: Attempt, reason: str, exits: Sequence[dict[str, Any]]
) -> tuple[Status, Failure | None]:
    """How the attempt ended, and why."""
    if reason == "cancelled":
        return Status.CANCELLED, Failure(type="Cancelled", message="cancelled", at=now())
    if reason in ("timeout", "hang"):
        limits = attempt.run.resources
        minutes = limits.timeout_min if reason == "timeout" else limits.hang_timeout_min
        what = "time limit of" if reason == "timeout" else "no new step or phase for"
        stacks = "\n".join(
            f"rank {rank}:\n{text}"
            for rank in range(limits.world_size)
            if (text := _stacks(log_files(attempt.dir, rank)[1]))
        )
        return Status.TIMEOUT, Failure(
            type="Timeout", message=f"{what} {minutes:g} min", traceback=stacks or None, at=now()
        )
    failures = read_failures(attempt.dir)
    told = {failure.rank for failure in failures}
    by_signal: dict[int, dict[str, Any]] = {}
    for end in exits:
        if end["code"] not in (0, None) and not end["sent"] and end["rank"] not in told:
            by_signal[end["rank"]] = end
            failures.append(_from_exit(end))
    if failures:
        failure = culprit(failures)
        end = by_signal.get(failure.rank if failure.rank is not None else -1, {})
        return _status_of_end(end) if end else status_of(failure), failure
    if any(end["code"] is None for end in exits) or not exits:
        message = "ended without a record, and nobody saw how"
        return Status.KILLED, Failure(type="Lost", message=message, at=now())
    if not attempt.run.writes_record:
        return Status.COMPLETED, None
    message = "ended without a record, with exit code 0"
    return Status.FAILED, Failure(type="NoRecord", message=message, exit_code=0, at=now())


def _from_exit(end: dict[str, Any]) -> Failure:
    code = end["code"]
    failure = Failure(type="Exit", message="", rank=end["rank"], at=end["at"])
    if code < 0:
        failure.signal = signal.Signals(-code).name
        failure.type = failure.signal
        by = "the kernel, out of memory" if end["oom"] else failure.signal
        failure.message = f"rank {end['rank']} was ended by {by}"
    elif code == NOT_STARTED:
        failure.message = f"rank {end['rank']} could not be started"
        failure.exit_code = code
    elif code == CANNOT_WRITE:
        failure.message = f"rank {end['rank']} failed and could not write why: is the disk full?"
        failure.exit_code = code
    else:
        failure.message = f"rank {end['rank']} exited with code {code}"
        failure.exit_code = code
    return failure


def _status_of_end(end: dict[str, Any]) -> Status:
    if end["oom"]:
        return Status.OOM
    return Status.KILLED if -end["code"] in _FROM_OUTSIDE else Status.FAILED


def _record(attempt: Attempt, status: Status, failure: Failure | None) -> Record:
    run, run_dir = attempt.run, attempt.run.run_dir
    state = None
    with contextlib.suppress(RecordError):
        state = read_state(run_dir)
    done = status is Status.COMPLETED
    record = Record(
        identity=run.identity,
        attempt=attempt.number,
        attempts=earlier_attempts(run_dir, attempt.number),
        status=status,
        phase="done" if done else state.phase if state else None,
        error=failure,
        finished_at=now(),
        config=run.plain,
        hardware=Hardware(
            world_size=run.resources.world_size,
            nodes=run.resources.nodes,
            hosts=[socket.gethostname()],
            cpu_count=os.cpu_count(),
        ),
    )
    # What the run itself knew when it last kept it.
    with contextlib.suppress(FileNotFoundError, RecordError):
        draft = read_record(attempt.dir / DRAFT_FILE)
        for name in _DRAFTED:
            setattr(record, name, getattr(draft, name))
    record.hardware.shares_node_with = attempt.place().neighbours()
    return record


def _stacks(errors: Path) -> str:
    """What the rank last wrote when it was asked for its Python stacks."""
    text = tail(errors, lines=400)
    start = re.search(r"^(Current thread|Thread) 0x", text, re.MULTILINE)
    return text[start.start() :] if start else ""


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a file, or nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
