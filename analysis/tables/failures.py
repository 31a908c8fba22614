"""Runs that did not complete: how each ended, why, and where its log is."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd

from analysis.frame import as_frame
from analysis.study import Study
from analysis.table import Column, Table


def _below(logs: list[str]) -> str | None:
    """The directory that all of them lie below; None where they are not files of this machine."""
    if not logs or not all(map(os.path.isabs, logs)):
        return None
    return os.path.commonpath([os.path.dirname(os.path.dirname(log)) for log in logs])


def build(study: Study) -> Table | None:
    """One row per run that did not complete; None where all did."""
    rows = np.flatnonzero(~study.completed)
    if not len(rows):
        return None
    labels = study.labels()
    frame = study.frame.iloc[rows]
    data: dict[str, Any] = {
        "label": [labels[int(number)] for number in study.configuration[rows]],
        "repeat": frame["repeat"].to_numpy(),
        "run_id": frame["run_id"].to_numpy(),
        "status": frame["status"].to_numpy(),
        "phase": frame["phase"].to_numpy(),
        "error": frame["error.type"].to_numpy(),
        "reason": frame["reason"].to_numpy(),
        "log": [
            None if pd.isna(log) else f"{where}/{log}"
            for where, log in zip(frame["where"], frame["error.log"], strict=True)
        ],
    }
    told = []
    below = _below([str(log) for log in data["log"] if log is not None])
    if below is not None:
        data["log_shown"] = [log and os.path.relpath(log, below) for log in data["log"]]
        told.append(f"Logs are below {below}.")
    columns = [Column("label", "run"), Column("status", "status"), Column("phase", "phase", drop=2)]
    if study.frame["repeat"].nunique() > 1:
        columns.insert(1, Column("repeat", "repeat", "count"))
    columns += [
        Column("error", "error", drop=1),
        Column("reason", "cause"),
        Column("log", "log", shown=None if below is None else "log_shown"),
    ]
    return Table(
        name="failures",
        title="Runs that did not complete",
        frame=as_frame(data),
        columns=tuple(columns),
        facts=("Out of memory and skipped are results too; the other ends are failures.", *told),
    )
