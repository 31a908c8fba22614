"""What a change did: savings, speed and loss against the configuration without it, with intervals.

Directions, the same everywhere
    saved %   1 - new / old: positive is less memory, less time
    speed %   new rate / old rate - 1 = old time / new time - 1: positive is faster
    loss %    new / old - 1: positive is a higher loss
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.baseline import Match, change, means, pairs
from analysis.bootstrap import grouped_intervals
from analysis.repeats import imported
from analysis.study import Floats, Study

DIRECTIONS = (
    "Saved is 1 - new/old, speed is old time/new time - 1, loss is new/old - 1; "
    "all in percent: positive is less memory or time, faster, a higher loss."
)


class Figure(NamedTuple):
    """A figure of merit: where it comes from, and whether a ratio below 1 counts as positive."""

    column: str
    saved: bool


FIGURES = {
    "memory_saved": Figure("peak_bytes", saved=True),
    "time_saved": Figure("time.step_time_s", saved=True),
    "speed": Figure("time.samples_per_s", saved=False),
    "train_loss": Figure("loss.train_last", saved=False),
    "validation_loss": Figure("loss.validation_last", saved=False),
}


def percent(study: Study, found: Match, name: str) -> Floats:
    """One figure of every configuration, in percent; NaN where there is no pair."""
    figure = FIGURES[name]
    sign = -1.0 if figure.saved else 1.0
    return np.asarray(100 * sign * change(study, found, figure.column), dtype=np.float64)


def change_interval(study: Study, found: Match, column: str) -> Floats:
    """Interval of `baseline.change` over repeats, configurations x 2; NaN for fewer than 2 pairs.

    A baseline has none of its own: its change is 0 by definition.
    """
    paired = pairs(study, found, column)
    count = len(study.configurations)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = grouped_intervals(paired.configuration, paired.own, paired.base, count) - 1
    ends[found.is_base | ~np.isfinite(ends).all(axis=1)] = np.nan
    return ends


def interval(study: Study, found: Match, name: str) -> Floats:
    """Its interval over repeats, configurations x 2 in percent; NaN for fewer than 2 pairs."""
    figure = FIGURES[name]
    ends = 100 * change_interval(study, found, figure.column)
    return -ends[:, ::-1] if figure.saved else ends


def figures(study: Study, found: Match, column: str) -> tuple[Floats, Floats]:
    """For each configuration, a figure as it is compared: its own, and its baseline's.

    They are means over the pairs, so that the change beside them follows from them; where there is
    no pair, the means over all repeats.
    """
    own, base = means(study, pairs(study, found, column))
    every = study.mean(column)
    of_base = np.where(found.base >= 0, every[found.base], np.nan)
    return np.where(np.isnan(own), every, own), np.where(np.isnan(base), of_base, base)


def effects(study: Study, found: Match) -> pd.DataFrame:
    """Every figure of every configuration against its baseline.

    Returns:
        One row per configuration: `pairs` (NaN where means of imported rows are compared), and for
        each figure `<name>_percent`, `<name>_low_percent` and `<name>_high_percent`.
    """
    count = len(study.configurations)
    number = np.bincount(study.configuration[found.base_run >= 0], minlength=count)
    unpaired = imported(study, found.base) | study.configurations["source"].eq("imported")
    data = {"pairs": np.where(unpaired, np.nan, number)}
    for name in FIGURES:
        data[f"{name}_percent"] = percent(study, found, name)
        ends = interval(study, found, name)
        data[f"{name}_low_percent"], data[f"{name}_high_percent"] = ends[:, 0], ends[:, 1]
    return pd.DataFrame(data)


def fits_only(study: Study, found: Match) -> list[int]:
    """Configurations that completed where their baseline ran out of memory."""
    rows = study.configurations
    done, status = rows["completed"].to_numpy() > 0, rows["status"].to_numpy()
    has = found.candidate >= 0
    return np.flatnonzero(done & has & (status[found.candidate] == "oom")).tolist()
