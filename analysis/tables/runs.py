"""The main table: every configuration, what it cost, and how that compares with the baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis import compare, facts
from analysis.baseline import Match, change, find
from analysis.frame import as_frame
from analysis.study import Floats, Study
from analysis.table import Column, Table
from analysis.tables.common import (
    axis_columns,
    fewer_pairs,
    interval_column,
    status_column,
    with_content,
)


def with_change(
    data: dict[str, Any], name: str, values: Floats, ends: Floats, found: Match
) -> None:
    """Add a change in percent, its interval, and the words that stand where there is none."""
    data[f"{name}_vs_baseline_percent"] = 100 * values
    data[f"{name}_vs_baseline_low_percent"] = 100 * ends[:, 0]
    data[f"{name}_vs_baseline_high_percent"] = 100 * ends[:, 1]
    shown = np.full(len(values), None, dtype=object)
    missing = np.array([bool(reason) for reason in found.reason], dtype=np.bool_)
    shown[missing & data["compared"]] = "n/a"
    shown[found.is_base] = "base"
    data[f"{name}_shown"] = shown


def _change(name: str, header: str, drop: int = 0, decimals: int = 1) -> list[Column]:
    """A change and its interval; the interval leaves the terminal before all else."""
    figure = Column(
        f"{name}_vs_baseline_percent",
        f"{header}\nvs\nbase",
        "change",
        shown=f"{name}_shown",
        drop=drop,
        decimals=decimals,
    )
    return [figure, interval_column(f"{name}_vs_baseline", f"{header} vs base", 11)]


# Figure -> (column of the frame, change's name); the table has them all.
_FIGURES = {
    "peak_bytes": ("peak_bytes", "memory"),
    "step_time_s": ("time.step_time_s", "step_time"),
    "samples_per_s": ("time.samples_per_s", "throughput"),
    "train_loss_first": ("loss.train_first", None),
    "train_loss_last": ("loss.train_last", "train_loss"),
    "validation_loss_first": ("loss.validation_first", None),
    "validation_loss_last": ("loss.validation_last", "validation_loss"),
}


def _frame(study: Study, found: Match, notes: facts.Notes) -> pd.DataFrame:
    rows = study.configurations
    completed, runs = rows["completed"].to_numpy(), rows["runs"].to_numpy()
    data: dict[str, Any] = {name: rows[name].to_numpy() for name in rows.columns}
    data["label"] = study.labels()
    data["compared"] = completed > 0
    for name, (column, changed) in _FIGURES.items():
        data[name] = study.mean(column)
        if changed:
            ends = compare.change_interval(study, found, column)
            with_change(data, changed, change(study, found, column), ends, found)
    several = completed > 1
    for name in ("q1", "q3"):
        values = study.mean(f"time.step_time_{name}_s")
        data[f"step_time_{name}_s"] = np.where(several, np.nan, values)
    data["step_time_deviation_s"] = study.deviation("time.step_time_s")
    data["repeats"] = [
        f"{c}/{n}" if c < n else f"{n}" for c, n in zip(completed, runs, strict=True)
    ]
    facts.endings(study, notes)
    facts.flags(study, notes)
    facts.differences(study, found, notes)
    fewer_pairs(study, found, notes, range(len(rows)))
    facts.reasons(found, notes, np.flatnonzero(data["compared"]).tolist())
    data["notes"], data["marks"] = notes.texts(), notes.marks()
    return as_frame(data)


def _columns(study: Study) -> tuple[Column, ...]:
    rows = study.configurations
    kinds = rows["peak_kind"].dropna().unique()
    columns, _ = axis_columns(study)
    columns.append(status_column(study))
    if (rows["runs"] > 1).any():
        columns.append(Column("repeats", "n"))
    columns.append(Column("peak_bytes", "peak\nmemory", "bytes"))
    if len(kinds) > 1:
        columns.append(Column("peak_kind", "kind of\nmemory"))
    columns += [
        *_change("memory", "memory"),
        Column("step_time_s", "step\ntime", "seconds", scale="step"),
        Column(
            "step_time_q1_s",
            "spread",
            "seconds",
            upper="step_time_q3_s",
            deviation="step_time_deviation_s",
            scale="step",
            drop=4,
        ),
        *_change("step_time", "time"),
        Column("samples_per_s", "samples\nper s", "rate", drop=3),
        *_change("throughput", "speed", 7),
        Column("train_loss_first", "first\ntrain\nloss", "loss", drop=8, scale="loss"),
        Column("train_loss_last", "final\ntrain\nloss", "loss", drop=1, scale="loss"),
        *_change("train_loss", "train", 5, 2),
        Column("validation_loss_first", "first\nvalid.\nloss", "loss", drop=9, scale="loss"),
        Column("validation_loss_last", "final\nvalid.\nloss", "loss", drop=2, scale="loss"),
        *_change("validation_loss", "valid.", 6, 2),
        Column("notes", "note", shown="marks", missing=""),
    ]
    return tuple(columns)


def build(study: Study) -> Table | None:
    """One row per configuration; None where there are no runs."""
    if not len(study.configurations):
        return None
    found = find(study)
    notes = facts.Notes(len(study.configurations))
    frame = _frame(study, found, notes)
    return Table(
        name="runs",
        title="Comparison of runs",
        frame=frame,
        columns=with_content(_columns(study), frame),
        facts=(
            facts.baseline(found),
            facts.outcome(study),
            facts.machine(study),
            facts.memory(study),
            facts.repeats(study),
            facts.software(study),
        ),
        notes=notes.lines(),
    )
