"""T1, memory by component: what the peak is made of, per model and configuration."""

from __future__ import annotations

import numpy as np

from analysis import facts
from analysis.frame import as_frame
from analysis.study import Study
from analysis.table import Column, Table
from analysis.tables.common import axis_columns, configuration_data, status_column

# Parts that add up to the peak, and what is held beside it.
PARTS = (
    "parameters",
    "gradients",
    "optimizer",
    "ema",
    "buckets",
    "activations",
    "data",
    "remainder",
)
BESIDE = ("allocator_reserve", "context")

_HEADERS = {
    "parameters": "para-\nmeters",
    "gradients": "grad-\nients",
    "optimizer": "opti-\nmizer",
    "activations": "activ-\nations",
    "remainder": "remain-\nder",
    "allocator_reserve": "reserve",
}


def build(study: Study) -> Table | None:
    """One row per configuration; None where no run that completed measured its parts."""
    frame = as_frame(configuration_data(study))
    for part in (*PARTS, *BESIDE):
        frame[f"{part}_bytes"] = study.mean(f"memory.parts.{part}_bytes")
    frame["peak_bytes"] = study.mean("peak_bytes")
    parts = [f"{part}_bytes" for part in PARTS]
    known = frame[parts].notna().any(axis=1)
    done = frame["completed"] > 0
    if not (known & done).any():
        return None
    activations, parameters = frame["activations_bytes"], frame["parameters_bytes"]
    frame["activations_over_parameters"] = activations / parameters.where(parameters > 0)
    frame["peak_over_formula"] = study.mean("memory.peak_over_formula")
    rows = np.flatnonzero((known | ~done).to_numpy()).tolist()
    notes = facts.Notes(len(frame))
    facts.endings(study, notes, rows)
    frame["notes"], frame["marks"] = notes.texts(), notes.marks()
    frame = frame.iloc[rows].reset_index(drop=True)
    measured = [p for p in (*PARTS, *BESIDE) if frame[f"{p}_bytes"].notna().any()]
    columns, constant = axis_columns(study, rows=rows)
    columns.append(status_column(study, rows))
    columns.append(Column("peak_bytes", "peak", "bytes", scale="memory"))
    for part in measured:
        drop = 0 if part in ("parameters", "gradients", "optimizer", "activations") else 3
        columns.append(
            Column(f"{part}_bytes", _HEADERS.get(part, part), "bytes", scale="memory", drop=drop)
        )
    columns.append(Column("activations_over_parameters", "activ./\nparam.", "factor", drop=1))
    if frame["peak_over_formula"].notna().any():
        columns.append(Column("peak_over_formula", "peak/\nformula", "factor", drop=2))
    if notes.lines():
        columns.append(Column("notes", "note", shown="marks", missing=""))
    beside = [p for p in BESIDE if p in measured]
    told = f" {' and '.join(beside)} lie beside it, held but not handed out." if beside else ""
    return Table(
        name="memory",
        title="T1 Memory by component",
        frame=frame,
        columns=tuple(columns),
        facts=(
            f"The parts from parameters to remainder add up to the peak.{told}",
            "Formula: parameters + gradients + optimizer + activations.",
            facts.machine(study),
            facts.memory(study),
            *constant,
        ),
        notes=notes.lines(),
    )
