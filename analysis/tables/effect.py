"""The effect of one change, all else equal: what the tables of single techniques share."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis import compare, facts
from analysis.baseline import DEFAULT, Match, has_value, match
from analysis.frame import as_frame
from analysis.parity import judge
from analysis.study import Study
from analysis.table import Column, Table
from analysis.tables.common import (
    axis_columns,
    configuration_data,
    fewer_pairs,
    interval_column,
    mark_missing,
    pairs_fact,
    percent_column,
    status_column,
    unpaired,
    with_content,
)


def effect_frame(study: Study, found: Match) -> pd.DataFrame:
    """`compare.effects` beside the figures that are compared, and those of the baseline."""
    frame = as_frame(configuration_data(study))
    frame = pd.concat([frame, compare.effects(study, found)], axis=1)
    for name, column in (("peak_bytes", "peak_bytes"), ("step_time_s", "time.step_time_s")):
        frame[name], frame[f"base_{name}"] = compare.figures(study, found, column)
    return pd.concat([frame, judge(study, found)], axis=1)


_CANNOT_BE_EQUAL = {
    "rng": "losses cannot be equal: modules draw random numbers of their own (dropout)",
    "batch": "losses cannot be equal: a norm looks at the whole batch (BatchNorm)",
}


def _explain_parity(study: Study, frame: pd.DataFrame, rows: list[int], notes: facts.Notes) -> None:
    kinds = study.frame["numerics.parity"].to_numpy()[study.configurations["run"].to_numpy()]
    words = frame["parity"].to_numpy()
    for row in rows:
        if words[row] == "different" and kinds[row] in _CANNOT_BE_EQUAL:
            notes.add(row, _CANNOT_BE_EQUAL[kinds[row]])


def _columns(
    study: Study, axis: str, old: str, rows: list[int], *, intervals: bool
) -> tuple[tuple[Column, ...], list[str]]:
    axes, constant = axis_columns(study, without=(axis,), rows=rows)
    columns = [*axes, Column(f"axis.{axis}", axis), status_column(study, rows)]
    if (study.configurations["runs"].iloc[rows] > 1).any():
        columns.append(Column("pairs", "pairs", "count"))
    columns += [
        Column("base_peak_bytes", f"memory\n{old}", "bytes", scale="memory", drop=3),
        Column("peak_bytes", "memory", "bytes", scale="memory", drop=2),
        percent_column("memory_saved", "memory\nsaved"),
    ]
    columns += [interval_column("memory_saved", "memory", 1)] if intervals else []
    columns += [
        Column("base_step_time_s", f"step\ntime\n{old}", "seconds", scale="time", drop=5),
        Column("step_time_s", "step\ntime", "seconds", scale="time", drop=4),
        percent_column("time_saved", "time\nsaved"),
    ]
    columns += [interval_column("time_saved", "time", 9)] if intervals else []
    columns += [percent_column("speed", "speed")]
    columns += [interval_column("speed", "speed", 1)] if intervals else []
    columns += [percent_column("train_loss", "train\nloss", 7, 2)]
    columns += [interval_column("train_loss", "train", 12)] if intervals else []
    columns += [percent_column("validation_loss", "valid.\nloss", 6, 2)]
    columns += [interval_column("validation_loss", "valid.", 11)] if intervals else []
    columns += [
        Column("parity", "loss\nparity"),
        Column("parity_difference", "largest\ndifference", "difference", drop=8),
        Column("notes", "note", shown="marks", missing=""),
    ]
    return tuple(columns), constant


def build_effect(study: Study, axis: str, *, name: str, title: str) -> Table | None:
    """The effect of `axis` leaving its baseline value; None where it does not vary."""
    varying = study.axis(axis)
    if varying is None:
        return None
    old = study.question.baseline.get(axis, DEFAULT[axis])
    found = match(study, {axis: old})
    changed = np.flatnonzero(~has_value(study, varying, old)).tolist()
    notes = facts.Notes(len(study.configurations))
    facts.endings(study, notes, changed)
    rows = unpaired(study, found, changed, notes)
    fewer_pairs(study, found, notes, set(rows))
    facts.differences(study, found, notes)
    frame = effect_frame(study, found)
    _explain_parity(study, frame, rows, notes)
    frame["notes"], frame["marks"] = notes.texts(), notes.marks()
    mark_missing(frame, compare.FIGURES)
    frame = frame.iloc[rows].reset_index(drop=True)
    intervals = bool((frame["pairs"] > 1).any())
    columns, constant = _columns(study, axis, old, rows, intervals=intervals)
    return Table(
        name=name,
        title=title,
        frame=frame,
        columns=with_content(columns, frame),
        facts=(
            f"Each row against the run with {axis}={old} that agrees in all else.",
            compare.DIRECTIONS,
            pairs_fact(frame),
            facts.machine(study),
            facts.memory(study),
            *constant,
        ),
        notes=notes.lines(),
    )
