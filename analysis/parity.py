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

from analysis.axes import Codes
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


def _dtypes(study: Study) -> list[str]:
    """For each run, the dtype that limits its losses; float32 where it does not say."""
    known = study.frame["numerics.compute_dtype"].to_numpy()
    tf32 = study.frame["numerics.tf32"].to_numpy()
    names = []
    for dtype, on in zip(known, tf32, strict=True):
        name = str(dtype or "float32").removeprefix("torch.")
        names.append("tf32" if name == "float32" and on is True else name)
    return names


def _tolerances(study: Study, own: Codes, base: Codes) -> tuple[list[str], Floats]:
    """For each pair, the coarser dtype and the relative difference that it excuses."""
    names = np.array(_dtypes(study), dtype=object)
    pairs = list(zip(names[own], names[base], strict=True))
    chosen: dict[tuple[str, str], tuple[str, float]] = {}
    for pair in set(pairs):
        try:
            dtype = coarser(*pair)
            chosen[pair] = dtype, tolerance_of(dtype)
        except ValueError:  # a dtype that it does not know
            chosen[pair] = "float32", tolerance_of("float32")
    dtypes = [chosen[pair][0] for pair in pairs]
    return dtypes, np.array([chosen[pair][1] for pair in pairs], dtype=np.float64)


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
