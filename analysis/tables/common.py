"""What several tables have in common."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import compare, facts
from analysis.axes import label
from analysis.baseline import Match
from analysis.study import CONTEXT, Study
from analysis.table import Column

# Names listed of what could not be paired for one reason.
_MOST_NAMES = 5


def axis_columns(
    study: Study, without: Collection[str] = (), rows: Sequence[int] | None = None
) -> tuple[list[Column], list[str]]:
    """Columns of the axes and of whatever of the context varies, and a line on those that do not.

    Args:
        without: axes that the table shows in its own way.
        rows: configurations that the table shows; None: all.
    """
    shown = study.configurations if rows is None else study.configurations.iloc[list(rows)]
    columns = [] if study.axes else [Column("label", "run")]
    constant = {}
    for axis in study.axes:
        name = f"axis.{axis.name}"
        if axis.name in without:
            continue
        if len(shown) > 1 and shown[name].nunique(dropna=False) == 1:
            constant[axis.name] = shown[name].iat[0]
            continue
        missing = "–" if axis.name == axis.column else "null"
        columns.append(Column(name, axis.name, missing=missing))
    varying = [c for c in CONTEXT if shown[c].nunique(dropna=False) > 1]
    line = [f"All rows: {label(constant)}."] if constant else []
    shown_as = {"software": "software_shown"}
    return columns + [Column(name, name, shown=shown_as.get(name)) for name in varying], line


def with_content(columns: Sequence[Column], frame: pd.DataFrame) -> tuple[Column, ...]:
    """The columns in which some row has something."""
    names = {c: [n for n in (c.name, c.deviation) if n in frame.columns] for c in columns}
    return tuple(c for c in columns if frame[names[c]].notna().to_numpy().any())


def status_column(study: Study, rows: Sequence[int] | None = None) -> Column:
    """How runs ended; where all of them completed, the terminal can do without it."""
    shown = study.configurations if rows is None else study.configurations.iloc[list(rows)]
    all_completed = bool((shown["completed"] == shown["runs"]).all())
    return Column("status", "status", drop=10 if all_completed else 0)


def configuration_data(study: Study) -> dict[str, Any]:
    """The axes, context, status and counts of every configuration, as columns of a table."""
    rows = study.configurations
    data: dict[str, Any] = {name: rows[name].to_numpy() for name in rows.columns}
    data["label"] = study.labels()
    return data


def interval_column(name: str, header: str, drop: int) -> Column:
    """The 95 % interval of a change.

    Args:
        name: the frame has `<name>_low_percent` and `<name>_high_percent`.
    """
    return Column(
        f"{name}_low_percent",
        f"{header}\n95 %\ninterval",
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
        absent = (frame[f"{name}_percent"].isna() & (frame["completed"] > 0)).to_numpy()
        shown = np.full(len(frame), None, dtype=object)
        shown[absent] = "n/a"
        frame[f"{name}_shown"] = shown


def unpaired(study: Study, found: Match, rows: Collection[int], notes: facts.Notes) -> list[int]:
    """Say what could not be paired and why, and what only fits with the change.

    Returns:
        The rows that are worth a line of the table: those with a partner, and those that failed.
    """
    labels = study.labels()
    completed = study.configurations["completed"].to_numpy() > 0
    for row in set(compare.fits_only(study, found)) & set(rows):
        without = labels[found.candidate[row]]
        notes.add(row, f"a finding: it fits only so; {without} ran out of memory")
    kept: list[int] = []
    left: dict[str, list[str]] = {}
    for row in rows:
        if found.base[row] >= 0 or not completed[row] or notes.has(row):
            kept.append(row)
        else:
            left.setdefault(found.reason[row], []).append(labels[row])
    for reason, names in left.items():
        some = ", ".join(names[:_MOST_NAMES])
        more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
        notes.below(f"not paired ({len(names):,}): {reason}: {some}{more}")
    return kept


def fewer_pairs(study: Study, found: Match, notes: facts.Notes, rows: Collection[int]) -> None:
    """Remarks on the rows of which a change is over fewer repeats than completed."""
    count = len(study.configurations)
    number = np.bincount(study.configuration[found.base_run >= 0], minlength=count)
    done, runs = (study.configurations[name].to_numpy() for name in ("completed", "runs"))
    most = np.maximum(done, done[found.base])
    for row in np.flatnonzero((found.base >= 0) & (number > 0) & (number < most)).tolist():
        if row in rows:
            of = max(int(runs[row]), int(runs[found.base[row]]))
            notes.add(row, f"changes are over {number[row]} of {of} repeats")


def pairs_fact(frame: pd.DataFrame) -> str:
    """How many repeats an interval is over."""
    most = int(np.nan_to_num(frame["pairs"].max())) if len(frame) else 0
    if most >= 2:
        return f"95 % intervals: paired bootstrap over repeats (n up to {most}), not over steps."
    if len(frame) and frame["source"].eq("imported").all():
        return "Imported rows make no pairs: means over all rows are compared, without intervals."
    return "One pair of runs each (n=1): no intervals; repeat=3 or more gives them."
