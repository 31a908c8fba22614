"""A frame with a question: runs grouped into configurations, ready for every table.

Repeats
    Runs that agree in every axis and ran on the same machine with the same software are repeats of
    one configuration, whichever sweep they belong to. A repeat is the unit of statistics; the steps
    of a run are not. Runs that differ in `seed` alone count as repeats, unless `seed` is all that
    varies, or was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.axes import Axis, Codes, codes, combine, find_axes, rank, text
from analysis.derive import SOFTWARE
from analysis.frame import as_frame
from analysis.load import Loaded
from analysis.question import CONTEXT, Question, normalized

__all__ = ("CONTEXT", "Floats", "Question", "Study")

Floats = npt.NDArray[np.float64]

T = TypeVar("T")


def _ranks(values: npt.NDArray[np.object_]) -> Codes:
    """The place of each value in the order of its axis."""
    found, distinct = pd.factorize(values, use_na_sentinel=False)
    shown = [None if pd.isna(v) else v for v in distinct]
    order = sorted(range(len(shown)), key=lambda i: rank(shown[i]))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[found]


def _differing(rows: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """For each row, `torch 2.13.0`: the values of those columns in which the rows differ."""
    texts = [""] * len(rows)
    for column in columns:
        if rows[column].nunique(dropna=False) > 1:
            name = column.rsplit(".", 1)[-1]
            values = (f"{name} {text(v)}" for v in rows[column].to_numpy(dtype=object))
            texts = [f"{t} {v}".strip() for t, v in zip(texts, values, strict=True)]
    return texts


class Study:
    """Runs and the configurations they are repeats of.

    Attributes:
        question: what is asked, with the baseline's keys by the names of the axes.
        frame: one row per run, in the order of the configurations.
        axes: what varies.
        configuration: for each run, the row of its configuration.
        unit: for each run, the repeat it is; equal units of two configurations make a pair.
        configurations: one row per configuration: `axis.<name>` for each axis, the context,
            `completed` and `runs` (counts), `status`, `reason`, and `run`, the row of the run that
            speaks for it.
    """

    def __init__(self, loaded: Loaded, question: Question | None = None) -> None:
        """Group the runs.

        Raises:
            UserError: the question names a key or a value that no run has.
        """
        self.loaded = loaded
        frame = loaded.frame
        typed = question or Question()
        self.question = replace(typed, baseline=normalized(typed.baseline, frame))
        found = find_axes(frame, self.question.by)
        asked = (*self.question.by, *self.question.baseline)
        self.axes = [a for a in found if a.name != "seed" or "seed" in asked] or found
        keys = [*(a.column for a in self.axes), *CONTEXT]
        group = combine((codes(frame[key]) for key in keys), len(frame))
        firsts = np.unique(group, return_index=True)[1]
        ranks = [_ranks(frame[key].to_numpy(dtype=object)[firsts]) for key in keys]
        order = firsts[np.lexsort(ranks[::-1])]
        place = np.empty(len(firsts), dtype=np.int64)
        place[group[order]] = np.arange(len(firsts))
        repeats = np.lexsort((frame["repeat"].to_numpy(), place[group]))
        self.frame = frame.iloc[repeats].reset_index(drop=True)
        self.configuration: Codes = place[group][repeats]
        self.unit = self._units()
        self.configurations = self._summary()
        self._memo: dict[Hashable, Any] = {}

    def remembered(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` gives, computed once for each key."""
        if key not in self._memo:
            self._memo[key] = compute()
        found: T = self._memo[key]
        return found

    def _units(self) -> Codes:
        """Seed and repeat; the n-th sweep that has both makes an n-th unit of them.

        Imported rows are numbered in their order alone: they make no pairs.
        """
        repeat = codes(self.frame["repeat"])
        repeat[self.frame["source"].eq("imported").to_numpy(dtype=np.bool_)] = 0
        base = combine((codes(self.frame["seed"]), repeat), len(self.frame))
        again = pd.Series(base).groupby([self.configuration, base]).cumcount().to_numpy()
        return combine((base, again.astype(np.int64)), len(self.frame))

    @cached_property
    def completed(self) -> npt.NDArray[np.bool_]:
        """For each run, whether it completed."""
        return self.frame["status"].eq("completed").to_numpy(dtype=np.bool_)

    def _summary(self) -> pd.DataFrame:
        count = int(self.configuration.max(initial=-1)) + 1
        first = np.unique(self.configuration, return_index=True)[1]
        runs = np.bincount(self.configuration, minlength=count)
        done = np.bincount(self.configuration, self.completed, minlength=count).astype(np.int64)
        # The run that speaks for its configuration: the first that completed, else the first.
        speaker = first.copy()
        finished = np.flatnonzero(self.completed)[::-1]
        speaker[self.configuration[finished]] = finished
        rows = self.frame.iloc[speaker]
        data: dict[str, Any] = {f"axis.{a.name}": rows[a.column].to_numpy() for a in self.axes}
        for name in (*CONTEXT, "status", "reason", "peak_kind", "global_batch"):
            data[name] = rows[name].to_numpy()
        data["software_shown"] = _differing(rows, [f"software.{name}" for name in SOFTWARE])
        return as_frame({**data, "completed": done, "runs": runs, "run": speaker})

    @cached_property
    def _speaks(self) -> npt.NDArray[np.bool_]:
        """Runs whose figures count: those that completed, or all where none of theirs did."""
        none = self.configurations["completed"].to_numpy() == 0
        return np.asarray(self.completed | none[self.configuration], dtype=np.bool_)

    def count(self, column: str) -> Codes:
        """For each configuration, how many runs measured `column`."""
        values = self.frame[column].to_numpy(dtype=np.float64)
        usable = self._speaks & ~np.isnan(values)
        return np.bincount(self.configuration[usable], minlength=len(self.configurations))

    def mean(self, column: str) -> Floats:
        """For each configuration, the mean over its repeats; NaN where nothing was measured."""
        values = self.frame[column].to_numpy(dtype=np.float64)
        if column == "time.samples_per_s":
            # Samples over time, so that times and rates give the same comparison.
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(1.0 / self._mean(1.0 / values), dtype=np.float64)
        return self._mean(values)

    def means_by_kind(self) -> dict[str, Floats]:
        """Kind of memory -> for each configuration, the mean of its peaks of that kind."""
        peaks = self.frame["peak_bytes"].to_numpy(dtype=np.float64)
        kinds = self.frame["peak_kind"]
        found = sorted(kinds.dropna().unique())
        return {kind: self._mean(np.where(kinds.eq(kind), peaks, np.nan)) for kind in found}

    def _mean(self, values: Floats) -> Floats:
        usable = self._speaks & ~np.isnan(values)
        n = len(self.configurations)
        total = np.bincount(self.configuration[usable], values[usable], minlength=n)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(
                total / np.bincount(self.configuration[usable], minlength=n), dtype=np.float64
            )

    def deviation(self, column: str) -> Floats:
        """For each configuration, the sample standard deviation over repeats; NaN below 2."""
        values = self.frame[column].to_numpy(dtype=np.float64)
        center = self._mean(values)[self.configuration]
        usable = self._speaks & ~np.isnan(values)
        n = len(self.configurations)
        square = np.bincount(
            self.configuration[usable], (values - center)[usable] ** 2, minlength=n
        )
        count = np.bincount(self.configuration[usable], minlength=n)
        result = np.full(n, np.nan)
        several = count > 1
        result[several] = np.sqrt(square[several] / (count[several] - 1))
        return result

    def axis(self, name: str) -> Axis | None:
        """The axis of this name, or None where it does not vary."""
        return next((a for a in self.axes if a.name == name), None)

    def labels(self) -> list[str]:
        """For each configuration, `precision=amp ckpt=on`."""
        return self.remembered("labels", self._labels)

    def _labels(self) -> list[str]:
        if not self.axes:
            return [str(v) for v in self.frame["variant"].iloc[self.configurations["run"]]]
        parts = []
        for axis in self.axes:
            values = self.configurations[f"axis.{axis.name}"].to_numpy()
            shown = {v: f"{axis.name}={text(v)}" for v in pd.unique(values)}
            parts.append([shown[v] for v in values])
        return [" ".join(row) for row in zip(*parts, strict=True)]
