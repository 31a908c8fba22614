"""Where the runs of a sweep are, read from their files alone."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sweeper.launch.leftover import is_alive
from sweeper.record import (
    IDENTITY_FILE,
    RECORD_FILE,
    Record,
    RecordError,
    State,
    read_identity,
    read_record,
    read_state,
)


@dataclass
class Progress:
    """One run."""

    label: str
    status: str  # of its record; else queued, running, or lost (its process has gone)
    state: State | None = None
    record: Record | None = None
    started_at: str | None = None
    run_dir: Path | None = None

    @property
    def time_left_s(self) -> float | None:
        """Seconds to the last step at the present pace; None where it is not known."""
        state = self.state
        if state is None or state.step is None or not state.total_steps or not state.step_time_s:
            return None
        return max(0, state.total_steps - state.step) * state.step_time_s

    @property
    def took_s(self) -> float | None:
        record = self.record
        if record is None or record.started_at is None or record.finished_at is None:
            return None
        return seconds_between(record.started_at, record.finished_at)


def seconds_between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def age_s(moment: str) -> float:
    """Seconds since a moment written by `record.now`."""
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()


def read_progress(run_dir: Path, label: str | None = None) -> Progress:
    """Read one run; a file that cannot be read counts as not there yet."""
    state = record = None
    with contextlib.suppress(FileNotFoundError, RecordError):
        record = read_record(run_dir / RECORD_FILE)
    with contextlib.suppress(RecordError):
        state = read_state(run_dir)
    if label is None:
        label = run_dir.name
        with contextlib.suppress(FileNotFoundError, RecordError):
            identity = read_identity(run_dir)
            repeat = f" #{identity.repeat}" if identity.repeat else ""
            label = (identity.variant or identity.run_id) + repeat
    if record is not None:
        status = record.status.value
    else:
        status = state.state if state else "queued"
        if status == "finished" or (status == "running" and state and _is_gone(state)):
            status = "lost"
    return Progress(label, status, state, record, run_dir=run_dir)


def _is_gone(state: State) -> bool:
    if state.pid is None or state.pid_started is None or state.host != socket.gethostname():
        return False
    return not is_alive(state.pid, state.pid_started)


def read_sweep(sweep_dir: Path) -> list[Progress]:
    """All runs of a sweep directory, by name."""
    found = sorted(path.parent for path in sweep_dir.glob(f"*/{IDENTITY_FILE}"))
    if not found:  # runs of an application that keeps no records itself: the latest command's
        sessions = sorted(path.parent.parent for path in sweep_dir.glob(".sweeper/*/*/run.json"))
        if sessions:
            found = sorted(path.parent for path in sessions[-1].glob(f"*/{IDENTITY_FILE}"))
    return [read_progress(run_dir) for run_dir in found]


def counts(sweep: Iterable[Progress]) -> str:
    """`3 completed, 1 oom, 2 running` in a fixed order."""
    order = ("completed", "oom", "skipped", "diverged", "failed", "timeout", "killed", "cancelled")
    number = Counter(run.status for run in sweep)
    names = [*order, *sorted(set(number) - set(order))]
    return ", ".join(f"{number[name]} {name}" for name in names if number[name]) or "no runs"


def sweep_time_left_s(sweep: Iterable[Progress], parallel: int) -> float | None:
    """Seconds until all have ended: what runs at its own pace, what waits at the mean of the
    completed."""
    runs = list(sweep)
    took = [run.took_s for run in runs if run.took_s is not None and run.status == "completed"]
    queued = sum(run.status == "queued" for run in runs)
    left = [run.time_left_s for run in runs if run.status in ("running", "starting")]
    if queued and not took:
        return None
    mean = sum(took) / len(took) if took else 0.0
    if any(value is None for value in left) and not took:
        return None
    running = max((value if value is not None else mean for value in left), default=0.0)
    return running + queued * mean / max(1, parallel)
