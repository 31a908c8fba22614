"""Configurations that differ from one another in few axes, and what a single change costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.axes import Axis, text
from analysis.baseline import change, match
from analysis.study import Study


class Neighbour(NamedTuple):
    """Another configuration on the same machine, or an estimate, and where it differs."""

    row: int
    axes: tuple[Axis, ...]


def value(study: Study, axis: Axis, row: int) -> Any:
    return study.configurations[f"axis.{axis.name}"].iat[row]


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other) or bool(pd.isna(one) and pd.isna(other))


def neighbours(study: Study, row: int, farthest: int = 1) -> list[Neighbour]:
    """Configurations that differ in 1 to `farthest` axes; the nearest first.

    Machine, software and source must agree; an estimate may stand for any machine.
    """
    rows = study.configurations
    count = len(rows)
    differs = np.zeros((count, len(study.axes)), dtype=np.bool_)
    for place, axis in enumerate(study.axes):
        own = value(study, axis, row)
        differs[:, place] = [not _equal(other, own) for other in rows[f"axis.{axis.name}"]]
    same = np.ones(count, dtype=np.bool_)
    for name in ("machine", "software", "source"):
        same &= np.array([_equal(v, rows[name].iat[row]) for v in rows[name]], dtype=np.bool_)
    usable = same | rows["source"].eq("estimate").to_numpy()
    distance = differs.sum(axis=1)
    near = np.flatnonzero(usable & (distance > 0) & (distance <= farthest))
    near = near[np.argsort(distance[near], kind="stable")]
    return [
        Neighbour(r, tuple(study.axes[i] for i in np.flatnonzero(differs[r]).tolist()))
        for r in near.tolist()
    ]


def settings(study: Study, near: Neighbour) -> str:
    """`ckpt=on accum=2`: what one types to get there."""
    return " ".join(f"{a.name}={text(value(study, a, near.row))}" for a in near.axes)


def cost_in_time(study: Study, near: Neighbour, row: int) -> str:
    """What the same single change did to the step time where both runs completed.

    The run that ran out of memory has no step time of its own.
    """
    if len(near.axes) != 1:
        return "what the changes cost together is not known from pairs of runs"
    axis = near.axes[0]
    old, new = value(study, axis, row), value(study, axis, near.row)
    changes = change(study, match(study, {axis.name: text(old)}), "time.step_time_s")
    here = [_equal(v, new) for v in study.configurations[f"axis.{axis.name}"]]
    found = 100 * changes[np.array(here) & ~np.isnan(changes)]
    name = f"{axis.name}={text(old)} to {axis.name}={text(new)}"
    if not len(found):
        return f"no pair of completed runs tells what {name} costs in time"
    if len(found) == 1:
        return f"{name} changed the step time by {found[0]:+.0f} % (1 pair of runs)"
    return (
        f"{name} changed the step time by {found.min():+.0f} to {found.max():+.0f} % "
        f"({len(found)} pairs of runs)"
    )
