"""The series of a run as CSV files in its directory: one row a step, one row a sample."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sweeper.measure.sampler import UtilizationSample
from sweeper.record import STEPS_FILE, write_atomic

UTILIZATION_FILE = "utilization.csv"


@dataclass(frozen=True)
class StepRow:
    """One step; a value that was not taken is None and an empty cell in the file."""

    step: int
    loss: float | None  # mean over the global batch, before the update
    lr: float | None
    step_time_s: float | None  # on rank 0
    measured: bool  # inside the measured window
    grad_norm: float | None = None  # before clipping; only where it is clipped
    skipped: bool | None = None  # fp16: the update was left out because of an overflow


def write_steps(run_dir: Path, rows: Sequence[StepRow]) -> None:
    """`steps.csv`."""
    _write(run_dir / STEPS_FILE, StepRow, rows)


def write_utilization(run_dir: Path, samples: Sequence[UtilizationSample]) -> None:
    """`utilization.csv`: of the run's last attempt, the mean over its ranks."""
    _write(run_dir / UTILIZATION_FILE, UtilizationSample, samples)


def _write(path: Path, kind: type, rows: Sequence[Any]) -> None:
    text = io.StringIO()
    names = [item.name for item in fields(kind)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow([int(v) if isinstance(v, bool) else v for v in values])
    write_atomic(path, text.getvalue())
