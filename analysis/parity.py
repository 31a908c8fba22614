"""Whether the loss still comes out the same: the verdict of `sweeper.parity` on every pair of runs.

Curves are compared step by step where both runs left their steps.csv; otherwise, and where there
are very many pairs, the losses of the record are: first and last, of training and of validation.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.axes import Codes, codes, combine
from analysis.baseline import Match
from analysis.frame import as_frame
from analysis.study import Floats, Study
from sweeper.parity import coarser, compare_losses, tolerance_of
from sweeper.record import STEPS_FILE

# More pairs than this are judged by the losses of their records alone.
MOST_CURVES = 2000

# From best to worst; of several repeats the worst counts.
WORDS = ("exact", "rounding", "different")

_LOSSES = (
    "loss.train_first",
    "loss.train_last",
    "loss.validation_first",
    "loss.validation_last",
)


def read_losses(run_dir: str) -> dict[int, float]:
    """Step -> loss of a run directory; empty where it has no readable steps.csv."""
    losses = {}
    try:
        with Path(run_dir, STEPS_FILE).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row.get("loss"):
                    losses[int(row["step"])] = float(row["loss"])
    except (OSError, ValueError, KeyError, UnicodeDecodeError, csv.Error):
        return {}
    return losses


def _dtype(dtype: str | None, tf32: bool | None) -> str:
    """What limits a run's losses; float32 where it does not say."""
    name = str(dtype or "float32").removeprefix("torch.")
    return "tf32" if name == "float32" and tf32 is True else name


def _limits(first: str, second: str) -> tuple[str, float]:
    """The coarser dtype and the relative difference that it excuses."""
    try:
        dtype = coarser(first, second)
        return dtype, tolerance_of(dtype)
    except ValueError:  # a dtype that it does not know
        return "float32", tolerance_of("float32")


def _tolerances(study: Study, own: Codes, base: Codes) -> tuple[list[str], Floats]:
    """`_limits` of each pair."""
    names = ("numerics.compute_dtype", "numerics.tf32")
    known, tf32 = (study.frame[name].to_numpy() for name in names)
    kind = combine([codes(study.frame[name]) for name in names], len(study.frame))
    pair = combine([kind[own], kind[base]], len(own))
    limits = []
    for i in np.unique(pair, return_index=True)[1].tolist():
        a, b = own[i], base[i]
        limits.append(_limits(_dtype(known[a], tf32[a]), _dtype(known[b], tf32[b])))
    chosen = [limits[p] for p in pair.tolist()]
    return [name for name, _ in chosen], np.array([t for _, t in chosen], dtype=np.float64)


def _record_differences(study: Study, own: Codes, base: Codes) -> Floats:
    """For each pair, the largest relative difference of its records' losses; NaN without any."""
    result = np.full(len(own), np.nan)
    for name in _LOSSES:
        values = study.frame[name].to_numpy(dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.abs(values[own] - values[base]) / np.abs(values[base])
        result = np.fmax(result, np.where(values[own] == values[base], 0.0, relative))
    return result


def _curve_differences(study: Study, own: Codes, base: Codes, dtypes: list[str]) -> Floats:
    """For each pair, the largest relative difference of its curves; NaN where one has none."""
    result = np.full(len(own), np.nan)
    if len(own) > MOST_CURVES:
        return result
    where = study.frame["where"].to_numpy()
    curves: dict[int, dict[int, float]] = {}
    for i, (a, b) in enumerate(zip(own.tolist(), base.tolist(), strict=True)):
        for run in (a, b):
            if run not in curves:
                curves[run] = read_losses(str(where[run]))
        steps = sorted(curves[a].keys() & curves[b].keys())
        if steps:
            found = compare_losses(
                [curves[b][s] for s in steps],
                [curves[a][s] for s in steps],
                compute_dtype=dtypes[i],
            )
            result[i] = found.max_relative_difference
    return result


def judge(study: Study, found: Match) -> pd.DataFrame:
    """The verdict on every configuration against its baseline.

    Returns:
        One row per configuration: `parity` (one of WORDS, None without a pair), and
        `parity_difference`, the largest relative difference of a loss over its repeats.
    """
    own = np.flatnonzero((found.base_run >= 0) & ~found.is_base[study.configuration])
    base = found.base_run[own]
    dtypes, tolerance = _tolerances(study, own, base)
    difference = _curve_differences(study, own, base, dtypes)
    difference = np.where(np.isnan(difference), _record_differences(study, own, base), difference)
    known = ~np.isnan(difference)
    level = np.where(difference == 0, 0, np.where(difference <= tolerance, 1, 2))
    count = len(study.configurations)
    worst: npt.NDArray[Any] = np.full(count, -1)
    largest = np.full(count, np.nan)
    configuration = study.configuration[own]
    np.maximum.at(worst, configuration[known], level[known])
    np.fmax.at(largest, configuration[known], difference[known])
    words = [WORDS[w] if w >= 0 else None for w in worst.tolist()]
    return as_frame({"parity": words, "parity_difference": largest})
