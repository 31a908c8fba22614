"""T5, combined: what precision and checkpointing save together, and whether they interact.

Of each change the saving is shown with and without the other; the combined figure stands beside the
product of the single ones, 1 - (1 - a)(1 - b), which it would be if they did not interact.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis import compare, facts
from analysis.baseline import DEFAULT, Match, has_value, match
from analysis.frame import as_frame
from analysis.study import Floats, Study
from analysis.table import Column, Table
from analysis.tables.common import (
    axis_columns,
    configuration_data,
    fewer_pairs,
    interval_column,
    mark_missing,
    unpaired,
    with_content,
)

AXES = ("precision", "ckpt")

_PARTS = ("precision", "precision_with_ckpt", "ckpt", "ckpt_with_precision", "both", "product")


def _at(values: Floats, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    return np.where(rows >= 0, values[rows], np.nan)


def interactions(study: Study, name: str, old: dict[str, str]) -> pd.DataFrame:
    """One figure of the single changes, of each on top of the other, and of both.

    Args:
        name: `memory_saved`, `time_saved` or `speed`.
        old: the baseline's value of both axes.

    Returns:
        One row per configuration, in percent: `_PARTS`, and the interval of `both`.
    """
    by_precision = match(study, {"precision": old["precision"]})
    by_ckpt = match(study, {"ckpt": old["ckpt"]})
    both = match(study, old)
    of_precision = compare.percent(study, by_precision, name)
    of_ckpt = compare.percent(study, by_ckpt, name)
    single_precision = _at(of_precision, by_ckpt.candidate)
    single_ckpt = _at(of_ckpt, by_precision.candidate)
    sign = -1.0 if compare.FIGURES[name].saved else 1.0
    ratio = (1 + sign * single_precision / 100) * (1 + sign * single_ckpt / 100)
    ends = compare.interval(study, both, name)
    return pd.DataFrame(
        {
            "precision": single_precision,
            "precision_with_ckpt": of_precision,
            "ckpt": single_ckpt,
            "ckpt_with_precision": of_ckpt,
            "both": compare.percent(study, both, name),
            "both_low": ends[:, 0],
            "both_high": ends[:, 1],
            "product": 100 * sign * (ratio - 1),
        }
    ).add_prefix(f"{name}_")


def _columns(study: Study, rows: list[int]) -> tuple[tuple[Column, ...], list[str]]:
    headers = {
        "precision": "precision\nalone",
        "precision_with_ckpt": "prec. on\ntop of\nckpt",
        "ckpt": "ckpt\nalone",
        "ckpt_with_precision": "ckpt on\ntop of\nprec.",
        "both": "both",
        "product": "product",
    }
    columns, constant = axis_columns(study, without=AXES, rows=rows)
    columns += [Column(f"axis.{axis}", axis) for axis in AXES]
    for name, short in (("memory_saved", "memory:\n"), ("speed", "speed:\n")):
        for part in _PARTS:
            optional = part in ("precision_with_ckpt", "ckpt_with_precision")
            columns.append(
                Column(
                    f"{name}_{part}_percent",
                    short + headers[part],
                    "change",
                    shown=f"{name}_{part}_shown",
                    decimals=1,
                    drop=(2 if name == "speed" else 1) if optional else 0,
                )
            )
            if part == "both":
                columns.append(interval_column(f"{name}_both", f"{short}both", 3))
    columns.append(Column("faster", "faster\nthan\nbase"))
    columns.append(Column("notes", "note", shown="marks", missing=""))
    return tuple(columns), constant


def _faster(frame: pd.DataFrame) -> list[str | None]:
    """Whether both together are faster than neither; where there are repeats, by the interval."""
    speed, low, high = (frame[f"speed_both{end}_percent"] for end in ("", "_low", "_high"))
    words: list[str | None] = []
    for value, least, most in zip(speed, low, high, strict=True):
        if value != value:
            words.append(None)
        elif least <= 0 <= most:
            words.append("not clear")
        else:
            words.append("yes" if value > 0 else "no")
    return words


def _rows(study: Study, old: dict[str, str]) -> list[int]:
    changed = np.ones(len(study.configurations), dtype=np.bool_)
    for name in AXES:
        axis = study.axis(name)
        assert axis is not None
        changed &= ~has_value(study, axis, old[name])
    return np.flatnonzero(changed).tolist()


def build(study: Study) -> Table | None:
    """One row per configuration with both changes; None where not both axes vary."""
    if any(study.axis(name) is None for name in AXES):
        return None
    old = {name: study.question.baseline.get(name, DEFAULT[name]) for name in AXES}
    rows = _rows(study, old)
    if not rows:
        return None
    frame = as_frame(configuration_data(study))
    names = ("memory_saved", "time_saved", "speed")
    parts = [interactions(study, name, old).add_suffix("_percent") for name in names]
    frame = pd.concat([frame, *parts], axis=1)
    mark_missing(frame, [f"{name}_{part}" for name in names for part in _PARTS])
    frame["faster"] = _faster(frame)
    found: Match = match(study, old)
    notes = facts.Notes(len(study.configurations))
    facts.endings(study, notes, rows)
    rows = unpaired(study, found, rows, notes)
    fewer_pairs(study, found, notes, set(rows))
    frame["notes"], frame["marks"] = notes.texts(), notes.marks()
    columns, constant = _columns(study, rows)
    told = ["Faster: not clear where the 95 % interval of the speed contains 0."]
    if frame["speed_both_low_percent"].iloc[rows].isna().all():
        told = []
    frame = frame.iloc[rows].reset_index(drop=True)
    return Table(
        name="combined",
        title="T5 Precision and checkpointing combined",
        frame=frame,
        columns=with_content(columns, frame),
        facts=(
            f"Against precision={old['precision']} ckpt={old['ckpt']}, all else equal. Product: "
            "what both would give if neither changed the effect of the other.",
            *told,
            compare.DIRECTIONS,
            facts.machine(study),
            facts.memory(study),
            *constant,
        ),
        notes=notes.lines(),
    )
