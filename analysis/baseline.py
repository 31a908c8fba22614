"""Which configuration each one is compared with, and why some are compared with none.

The baseline of a configuration has the baseline's values on the axes that the baseline names, and
the same value on every other axis and the same global batch, on the same machine, with the same
software. Another one never takes its place: where it is missing or did not complete, there is no
comparison, and the reason is kept.

What is compared are means. Repeats that ran are pairs: the n-th of a configuration and the n-th of
its baseline, and the means are over the repeats that both completed. Imported rows of one
configuration have no order to pair them by: all rows of the one are compared with all of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.axes import Axis, Codes, codes, combine, equal, resolve, text
from analysis.question import names_batch
from analysis.reasons import reasons
from analysis.repeats import base_runs, imported, without_pairs
from analysis.study import CONTEXT, Floats, Study

DEFAULT = {"precision": "fp32", "ckpt": "off", "accum": "1", "gpus": "1"}


@dataclass(frozen=True)
class Match:
    """Every configuration and run with the one it is compared with.

    Attributes:
        values: axis -> value as typed; where every baseline lies.
        throughout: axes of the default baseline that do not vary and have another value everywhere.
        candidate: for each configuration, the row of its baseline, completed or not; -1 where there
            is none.
        base: the same, but -1 also where the baseline did not complete.
        reason: for each configuration, why there is none; "" where there is one.
        base_run: for each run, the row of the baseline's run of the same repeat; -1 where there is
            none, one of the two did not complete, or the runs are imported and make no pairs.
        everywhere: why nothing can be compared at all, or "".
        made: column -> its pairs, once they were asked for.
    """

    values: Mapping[str, str]
    throughout: Mapping[str, str]
    candidate: Codes
    base: Codes
    reason: list[str]
    base_run: Codes
    everywhere: str = ""
    made: dict[str, Pairs] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_base(self) -> npt.NDArray[np.bool_]:
        """For each configuration, whether it is a baseline itself."""
        return np.asarray(self.base == np.arange(len(self.base)), dtype=np.bool_)


def find(study: Study) -> Match:
    """Match against the baseline that the study's question states, or the default one."""
    stated = dict(study.question.baseline)
    # A stated ckpt.blocks takes the place of ckpt=off.
    below = {key.split(".", 1)[0] for key in stated if "." in key}
    values = {**{key: value for key, value in DEFAULT.items() if key not in below}, **stated}
    throughout: dict[str, str] = {}
    for key in DEFAULT:
        column = study.frame[resolve(study.frame, key).column]
        if key in values and key not in stated and study.axis(key) is None:
            found = column.iloc[0] if len(column) else None
            if not equal(found, values[key]):
                del values[key]
                if found is not None:
                    throughout[key] = text(found)
    if study.axes and not any(study.axis(resolve(study.frame, key).name) for key in values):
        return _nothing(study, values, throughout)
    return match(study, values, throughout)


def _nothing(study: Study, values: Mapping[str, str], throughout: Mapping[str, str]) -> Match:
    """No axis of the baseline varies: there is nothing that it could be told apart by."""
    none = np.full(len(study.configurations), -1, dtype=np.int64)
    first = study.axes[0].name if study.axes else None
    hint = f"; state one: --baseline {first}=..." if first else ""
    reason = f"none of {', '.join(DEFAULT)} varies{hint}"
    runs = np.full(len(study.frame), -1, dtype=np.int64)
    return Match(values, throughout, none, none, [reason] * len(none), runs, everywhere=reason)


def match(
    study: Study,
    values: Mapping[str, str],
    throughout: Mapping[str, str] | None = None,
    agree: Sequence[Codes] | None = None,
) -> Match:
    """Match every configuration with the one that has `values` and agrees in all else.

    Args:
        values: axis -> value as typed.
        agree: what must be equal beside the context, one code per configuration each; None: every
            axis that `values` does not name, and the global batch, unless `values` names a key of
            the batch that varies.
    """
    if agree is not None or throughout:
        return _match(study, values, throughout, agree)
    key = ("match", *values.items())
    return study.remembered(key, lambda: _match(study, values, throughout, agree))


def _match(
    study: Study,
    values: Mapping[str, str],
    throughout: Mapping[str, str] | None,
    agree: Sequence[Codes] | None,
) -> Match:
    count = len(study.configurations)
    named = [resolve(study.frame, key) for key in values]
    is_base = np.ones(count, dtype=np.bool_)
    for axis, wanted in zip(named, values.values(), strict=True):
        is_base &= has_value(study, axis, wanted)
    rest = list(agree) if agree is not None else others(study, named)
    context = {name: context_codes(study, name) for name in CONTEXT}
    if agree is None and not any(_asks_for_batches(study, axis) for axis in named):
        context["batch"] = context_codes(study, "global_batch")
    base = _lookup(combine([*rest, *context.values()], count), is_base)
    if study.question.mix:
        context = {n: part for n, part in context.items() if n not in study.question.mix}
        mixed = _lookup(combine([*rest, *context.values()], count), is_base)
        base = np.where(base >= 0, base, mixed)
    loose = _lookup(combine(rest, count), is_base)
    base_run = base_runs(study, base)
    unpaired = without_pairs(study, base, base_run)
    reason = reasons(study, values, base, loose, context, unpaired)
    usable = np.where([not r for r in reason], base, -1)
    return Match(values, throughout or {}, base, usable, reason, base_run)


def _asks_for_batches(study: Study, axis: Axis) -> bool:
    """Whether naming the axis asks to compare one batch with another: a key that varies does."""
    return names_batch(axis.name) and len(np.unique(axis_codes(study, axis))) > 1


def others(study: Study, named: Sequence[Axis]) -> list[Codes]:
    """Codes of every axis that is not one of `named`."""
    columns = {axis.column for axis in named}
    return [axis_codes(study, a) for a in study.axes if a.column not in columns]


def axis_codes(study: Study, axis: Axis) -> Codes:
    """`codes` of an axis, for each configuration."""
    return study.remembered(("codes", axis), lambda: codes(axis_values(study, axis)))


def context_codes(study: Study, name: str) -> Codes:
    """`codes` of the source, machine, software or global batch, for each configuration."""
    return study.remembered(("codes", name), lambda: codes(study.configurations[name]))


def axis_values(study: Study, axis: Axis) -> pd.Series[Any]:
    """An axis of the study, or a key that does not vary, for each configuration."""
    if f"axis.{axis.name}" in study.configurations:
        return study.configurations[f"axis.{axis.name}"]
    rows = study.configurations["run"].to_numpy()
    return study.frame[axis.column].iloc[rows].reset_index(drop=True)


def has_value(study: Study, axis: Axis, wanted: str) -> npt.NDArray[np.bool_]:
    """For each configuration, whether it has the value, given as typed."""
    column = axis_values(study, axis)
    found = {value for value in column.unique() if equal(value, wanted)}
    return column.isin(found).to_numpy(dtype=np.bool_)


def _lookup(group: Codes, is_base: npt.NDArray[np.bool_]) -> Codes:
    """For each configuration, the first baseline of its group; -1 where the group has none."""
    table = np.full(int(group.max(initial=-1)) + 1, -1, dtype=np.int64)
    rows = np.flatnonzero(is_base)[::-1]
    table[group[rows]] = rows
    return table[group]


@dataclass(frozen=True)
class Pairs:
    """The figures that are compared, one entry for each pair of runs.

    Of imported configurations there is one entry each: the means over all their rows.

    Attributes:
        run: the row of the run; of imported ones the first row of the configuration.
        configuration: its configuration.
        own, base: the figure and that of the baseline.
    """

    run: Codes
    configuration: Codes
    own: Floats
    base: Floats


def pairs(study: Study, found: Match, column: str) -> Pairs:
    """The pairs in which both runs measured `column`.

    Rates become times for the same work, so that times and rates give the same comparison. Peaks of
    different kinds of memory make no pair.
    """
    if column not in found.made:
        found.made[column] = _pairs(study, found, column)
    return found.made[column]


def _pairs(study: Study, found: Match, column: str) -> Pairs:
    values = study.frame[column].to_numpy(dtype=np.float64)
    own, base = values.copy(), np.where(found.base_run >= 0, values[found.base_run], np.nan)
    if column == "peak_bytes":
        kind = study.remembered("peak kinds", lambda: codes(study.frame["peak_kind"]))
        own[kind != kind[found.base_run]] = np.nan
    run = np.flatnonzero(~np.isnan(own) & ~np.isnan(base))
    made = Pairs(run, study.configuration[run], own[run], base[run])
    rows = np.flatnonzero(imported(study, found.base))
    if len(rows):
        made = _joined(made, _pairs_of_means(study, found, column, rows))
    if column == "time.samples_per_s":
        with np.errstate(divide="ignore"):
            return Pairs(made.run, made.configuration, 1.0 / made.base, 1.0 / made.own)
    return made


def _pairs_of_means(study: Study, found: Match, column: str, rows: Codes) -> Pairs:
    """One entry for each of these configurations: the means over all rows of each side."""
    means = [study.mean(column)]
    if column == "peak_bytes":
        means = list(study.means_by_kind().values())
    own, base = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for mean in means:
        both = np.isnan(own) & ~np.isnan(mean[rows]) & ~np.isnan(mean[found.base[rows]])
        own[both], base[both] = mean[rows][both], mean[found.base[rows]][both]
    known = ~np.isnan(own)
    first = np.searchsorted(study.configuration, rows[known])
    return Pairs(first.astype(np.int64), rows[known], own[known], base[known])


def _joined(one: Pairs, other: Pairs) -> Pairs:
    return Pairs(
        np.concatenate([one.run, other.run]),
        np.concatenate([one.configuration, other.configuration]),
        np.concatenate([one.own, other.own]),
        np.concatenate([one.base, other.base]),
    )


def means(study: Study, paired: Pairs) -> tuple[Floats, Floats]:
    """For each configuration, the means over its pairs: its own and its baseline's; NaN without."""
    count = len(study.configurations)
    number = np.bincount(paired.configuration, minlength=count)
    with np.errstate(divide="ignore", invalid="ignore"):
        own, base = (
            np.bincount(paired.configuration, values, minlength=count) / number
            for values in (paired.own, paired.base)
        )
    return np.asarray(own, dtype=np.float64), np.asarray(base, dtype=np.float64)


def change(study: Study, found: Match, column: str) -> Floats:
    """For each configuration, its value over its baseline's, minus 1; NaN where not both exist.

    The ratio is that of the means over the repeats that both have, of imported rows over all.
    """
    own, base = means(study, pairs(study, found, column))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = own / base
    ratio[~np.isfinite(ratio)] = np.nan
    return np.asarray(ratio - 1.0, dtype=np.float64)
