"""T6, scaling with GPUs: speed-up, efficiency, memory per GPU, and what costs the efficiency."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis import facts
from analysis.baseline import change
from analysis.frame import as_frame
from analysis.scaling import Curves, causes, curves, fit_amdahl, serial_share, share_cores
from analysis.study import Study
from analysis.table import Column, Table
from analysis.tables.common import (
    axis_columns,
    configuration_data,
    fewer_pairs,
    status_column,
    with_content,
)

_WITHOUT = ("gpus", "batch.size", "batch.per_gpu")


def _frame(study: Study, found: Curves, notes: facts.Notes) -> pd.DataFrame:
    """Rows of one kind of scaling, curve by curve."""
    data: dict[str, Any] = configuration_data(study)
    done = study.configurations["completed"].to_numpy() > 0
    data |= {
        "scaling": found.kind,
        "gpus": found.gpus,
        "step_time_s": study.mean("time.step_time_s"),
        "samples_per_s": study.mean("time.samples_per_s"),
        "speed_up": found.speed_up,
        "efficiency_percent": 100 * found.efficiency,
        "peak_bytes": study.mean("peak_bytes"),
        "memory_change_percent": 100 * change(study, found.found, "peak_bytes"),
        "serial_share_percent": 100 * serial_share(found),
        "cause": causes(study, found),
    }
    absent = np.full(len(done), None, dtype=object)
    absent[done & np.isnan(found.speed_up)] = "n/a"
    data["shown"] = absent
    data["memory_shown"] = np.where(found.found.is_base, "base", absent)
    rows = np.flatnonzero(found.curve >= 0)
    facts.endings(study, notes, rows.tolist())
    facts.reasons(found.found, notes, (row for row in rows.tolist() if done[row]))
    fewer_pairs(study, found.found, notes, rows.tolist())
    data["notes"], data["marks"] = notes.texts(), notes.marks()
    order = rows[np.lexsort((found.gpus[rows], found.curve[rows]))]
    return as_frame(data).iloc[order]


def _fits(study: Study, found: Curves) -> list[str]:
    """One line for each strong-scaling curve that can be fitted."""
    lines = []
    shared = share_cores(study)
    named = [axis for axis in study.axes if axis.name not in _WITHOUT]
    for curve in np.unique(found.curve[found.curve >= 0]).tolist():
        rows = np.flatnonzero(found.curve == curve)
        fit = fit_amdahl(found, rows, shared)
        if fit is None:
            continue
        first = study.configurations.iloc[int(rows[0])]
        name = " ".join(f"{a.name}={first[f'axis.{a.name}']}" for a in named)
        batch = f"batch {first['global_batch']:.0f}" if first["global_batch"] else ""
        lines.append(f"strong scaling, {name} {batch}: {fit}".replace("  ", " "))
        if len(lines) == facts.MOST_NOTES:
            break
    return lines


def _columns(study: Study, rows: list[int]) -> tuple[tuple[Column, ...], list[str]]:
    axes, constant = axis_columns(study, without=_WITHOUT, rows=rows)
    columns = (
        Column("scaling", "scaling"),
        *axes,
        Column("global_batch", "global\nbatch", "count", drop=2),
        Column("gpus", "gpus", "count"),
        status_column(study, rows),
        Column("step_time_s", "step\ntime", "seconds", drop=1),
        Column("samples_per_s", "samples\nper s", "rate"),
        Column("speed_up", "speed-up", "factor", decimals=2, shown="shown"),
        Column("efficiency_percent", "effi-\nciency", "share", shown="shown"),
        Column("serial_share_percent", "serial\nshare", "share", drop=4),
        Column("peak_bytes", "memory\nper GPU", "bytes"),
        Column("memory_change_percent", "vs\n1 GPU", "change", drop=3, shown="memory_shown"),
        Column("cause", "largest cause of the loss"),
        Column("notes", "note", shown="marks", missing=""),
    )
    return columns, constant


def build(study: Study) -> Table | None:
    """One row per point of a scaling curve; None where the number of GPUs does not vary."""
    if study.axis("gpus") is None:
        return None
    strong, weak = curves(study, "strong"), curves(study, "weak")
    notes = facts.Notes(len(study.configurations))
    parts = [_frame(study, found, notes) for found in (strong, weak)]
    frame = pd.concat(parts)
    if frame.empty:
        return None
    columns, constant = _columns(study, frame.index.unique().tolist())
    return Table(
        name="scaling",
        title="T6 Scaling with GPUs",
        frame=frame.reset_index(drop=True),
        columns=with_content(columns, frame),
        facts=(
            "Against the run on 1 GPU that agrees in all else. Strong: the global batch stays; "
            "weak: the batch per GPU stays.",
            "Speed-up: samples per s over those on 1 GPU; efficiency: speed-up / gpus. "
            "Memory: the largest over the GPUs of a run.",
            facts.machine(study),
            facts.memory(study),
            *constant,
        ),
        notes=(*notes.lines(), *_fits(study, strong)),
    )
