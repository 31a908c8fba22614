"""Where the time of a step goes, per model and configuration."""

from __future__ import annotations

import numpy as np

from analysis import facts
from analysis.frame import as_frame
from analysis.study import Study
from analysis.table import Column, Table
from analysis.tables.common import axis_columns, configuration_data, status_column

# Parts that add up to the mean step time.
PARTS = ("data_wait", "forward", "backward", "communication", "optimizer", "rest")

_HEADERS = {
    "data_wait": "data\nwait",
    "communication": "commu-\nnication",
    "optimizer": "opti-\nmizer",
}


def build(study: Study) -> Table | None:
    """One row per configuration; None where no run that completed measured its parts."""
    frame = as_frame(configuration_data(study))
    for part in PARTS:
        frame[f"{part}_s"] = study.mean(f"time.parts.{part}_s")
    frame["step_time_mean_s"] = study.mean("time.step_time_mean_s")
    for name in ("mfu", "hfu"):
        frame[f"{name}_percent"] = 100 * study.mean(f"time.{name}")
    parts = [f"{part}_s" for part in PARTS]
    known = frame[parts].notna().any(axis=1)
    done = frame["completed"] > 0
    if not (known & done).any():
        return None
    rows = np.flatnonzero((known | ~done).to_numpy()).tolist()
    total = frame[parts].sum(axis=1, min_count=1)
    frame["step_time_mean_s"] = frame["step_time_mean_s"].fillna(total)
    notes = facts.Notes(len(frame))
    facts.endings(study, notes, rows)
    facts.flags(study, notes)
    frame["notes"], frame["marks"] = notes.texts(), notes.marks()
    frame = frame.iloc[rows].reset_index(drop=True)
    columns, constant = axis_columns(study, rows=rows)
    columns.append(status_column(study, rows))
    columns.append(Column("step_time_mean_s", "step", "seconds", scale="step"))
    for part in PARTS:
        if frame[f"{part}_s"].notna().any():
            columns.append(Column(f"{part}_s", _HEADERS.get(part, part), "seconds", scale="step"))
    told = []
    for name, counts in (("mfu", "useful"), ("hfu", "executed")):
        if frame[f"{name}_percent"].notna().any():
            columns.append(Column(f"{name}_percent", name.upper(), "share", drop=2))
            told.append(f"{name.upper()}: {counts} FLOPs in percent of the device's peak.")
    if notes.lines():
        columns.append(Column("notes", "note", shown="marks", missing=""))
    return Table(
        name="step_time",
        title="Step time by part",
        frame=frame,
        columns=tuple(columns),
        facts=(
            "Means over the measured steps; the parts add up to the step. Communication is what is "
            "left to wait for after the last gradient. The slowest rank governs.",
            *told,
            facts.machine(study),
            *constant,
        ),
        notes=notes.lines(),
    )
