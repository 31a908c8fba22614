"""What several tables have in common."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from analysis import compare, facts
from analysis.baseline import Match
from analysis.study import CONTEXT, Study
from analysis.table import Column


def axis_columns(study: Study, without: Collection[str] = ()) -> list[Column]:
    """The axes but for those `without`, and whatever of the context varies."""
    columns = [] if study.axes else [Column("label", "run")]
    for axis in study.axes:
        if axis.name in without:
            continue
        missing = "–" if axis.name == axis.column else "null"
        columns.append(Column(f"axis.{axis.name}", axis.name, missing=missing))
    varying = [c for c in CONTEXT if study.configurations[c].nunique(dropna=False) > 1]
    return columns + [Column(name, name) for name in varying]


def configuration_data(study: Study) -> dict[str, Any]:
    """The axes, context, status and counts of every configuration, as columns of a table."""
    rows = study.configurations
    data: dict[str, Any] = {name: rows[name].to_numpy() for name in rows.columns}
    data["label"] = study.labels()
    return data


def interval_column(name: str, drop: int) -> Column:
    """The interval of a figure of `compare.effects`."""
    return Column(
        f"{name}_low_percent",
        "95 %\ninterval",
        "change",
        upper=f"{name}_high_percent",
        scale=name,
        drop=drop,
        decimals=1,
    )


def percent_column(name: str, header: str, drop: int = 0, decimals: int = 1) -> Column:
    """A figure of `compare.effects`."""
    return Column(
        f"{name}_percent",
        header,
        "change",
        shown=f"{name}_shown",
        scale=name,
        drop=drop,
        decimals=decimals,
    )


def mark_missing(frame: pd.DataFrame, names: Collection[str]) -> None:
    """Say n/a where a run completed but has nothing to be compared with."""
    for name in names:
        absent = frame[f"{name}_percent"].isna() & (frame["completed"] > 0)
        frame[f"{name}_shown"] = np.where(absent, "n/a", None)


def unpaired(study: Study, found: Match, rows: Collection[int], notes: facts.Notes) -> None:
    """Remarks on what could not be paired, and on what only fits with the change."""
    facts.reasons(found, notes, (row for row in rows if study.configurations["completed"].iat[row]))
    labels = study.labels()
    for row in set(compare.fits_only(study, found)) & set(rows):
        other = labels[found.candidate[row]]
        notes.add(row, f"a finding: it fits only so; {other} ran out of memory")


def pairs_fact(frame: pd.DataFrame) -> str:
    """How many repeats an interval is over."""
    most = int(np.nan_to_num(frame["pairs"].max())) if len(frame) else 0
    if most < 2:
        return "One pair of runs each (n=1): no intervals; repeat=3 or more gives them."
    return f"95 % intervals: paired bootstrap over repeats (n up to {most}), not over steps."
