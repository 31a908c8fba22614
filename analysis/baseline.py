"""Which configuration each one is compared with, and why some are compared with none.

The baseline of a configuration has the baseline's values on the axes that the baseline names, and
the same value on every other axis, on the same machine, with the same software. Another one never
takes its place: where it is missing or did not complete, there is no comparison, and the reason is
kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.axes import Axis, Codes, codes, combine, equal, label, resolve, text
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
            none, or one of the two did not complete.
        everywhere: why nothing can be compared at all, or "".
    """

    values: Mapping[str, str]
    throughout: Mapping[str, str]
    candidate: Codes
    base: Codes
    reason: list[str]
    base_run: Codes
    everywhere: str = ""

    @property
    def is_base(self) -> npt.NDArray[np.bool_]:
        """For each configuration, whether it is a baseline itself."""
        return np.asarray(self.base == np.arange(len(self.base)), dtype=np.bool_)


def find(study: Study) -> Match:
    """Match against the baseline that the study's question states, or the default one.

    Raises:
        UserError: the stated baseline has a key that no run has.
    """
    stated = dict(study.question.baseline)
    for key in stated:
        resolve(study.frame, key)
    values = {**DEFAULT, **stated}
    throughout: dict[str, str] = {}
    for key in DEFAULT:
        column = study.frame[resolve(study.frame, key).column]
        if key not in stated and study.axis(key) is None:
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
            axis that `values` does not name.
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
        is_base &= _equals(axis_values(study, axis), wanted)
    rest = list(agree) if agree is not None else others(study, named)
    context = {name: context_codes(study, name) for name in CONTEXT}
    base = _lookup(combine([*rest, *context.values()], count), is_base)
    if study.question.mix:
        kept = [part for name, part in context.items() if name not in study.question.mix]
        base = np.where(base >= 0, base, _lookup(combine([*rest, *kept], count), is_base))
    loose = _lookup(combine(rest, count), is_base)
    reason = _reasons(study, base, loose, values)
    usable = np.where([not r for r in reason], base, -1)
    return Match(values, throughout or {}, base, usable, reason, _base_runs(study, usable))


def others(study: Study, named: Sequence[Axis]) -> list[Codes]:
    """Codes of every axis that is not one of `named`."""
    columns = {axis.column for axis in named}
    return [axis_codes(study, a) for a in study.axes if a.column not in columns]


def axis_codes(study: Study, axis: Axis) -> Codes:
    """`codes` of an axis, for each configuration."""
    return study.remembered(("codes", axis), lambda: codes(axis_values(study, axis)))


def context_codes(study: Study, name: str) -> Codes:
    """`codes` of the source, machine or software, for each configuration."""
    return study.remembered(("codes", name), lambda: codes(study.configurations[name]))


def axis_values(study: Study, axis: Axis) -> pd.Series[Any]:
    """An axis of the study, or a key that does not vary, for each configuration."""
    if f"axis.{axis.name}" in study.configurations:
        return study.configurations[f"axis.{axis.name}"]
    rows = study.configurations["run"].to_numpy()
    return study.frame[axis.column].iloc[rows].reset_index(drop=True)


def _equals(column: pd.Series[Any], wanted: str) -> npt.NDArray[np.bool_]:
    found = {value for value in column.unique() if equal(value, wanted)}
    return column.isin(found).to_numpy(dtype=np.bool_)


def _lookup(group: Codes, is_base: npt.NDArray[np.bool_]) -> Codes:
    """For each configuration, the first baseline of its group; -1 where the group has none."""
    table = np.full(int(group.max(initial=-1)) + 1, -1, dtype=np.int64)
    rows = np.flatnonzero(is_base)[::-1]
    table[group[rows]] = rows
    return table[group]


def _reasons(study: Study, candidate: Codes, loose: Codes, values: Mapping[str, str]) -> list[str]:
    """For each configuration, why it cannot be compared; "" where it can."""
    rows = study.configurations
    done = rows["completed"].to_numpy() > 0
    status, why = rows["status"].to_numpy(), rows["reason"].to_numpy()
    context = {n: rows[n].to_numpy() for n in CONTEXT if n not in study.question.mix}
    missing = f"no run with {label(dict(values))} that agrees in all else"
    reasons = [""] * len(rows)
    for i in np.flatnonzero((candidate < 0) | ~done[candidate]).tolist():
        base, other = candidate[i], loose[i]
        if base >= 0:
            reasons[i] = f"its baseline did not complete ({status[base]}: {why[base]})"
            continue
        reasons[i] = missing
        for name, column in context.items():
            if other >= 0 and column[i] != column[other]:
                reasons[i] = f"the baseline has another {name} ({text(column[other])})"
                break
    return reasons


def _base_runs(study: Study, base: Codes) -> Codes:
    """The pairs: equal repeats of a configuration and of its baseline, both completed."""
    units = int(study.unit.max(initial=0)) + 1
    own = study.configuration * units + study.unit
    index = pd.Index(np.where(study.completed, own, -1 - np.arange(len(own))))
    of_base = base[study.configuration]
    wanted = np.where((of_base >= 0) & study.completed, of_base * units + study.unit, -(2**62))
    return index.get_indexer(pd.Index(wanted)).astype(np.int64)


@dataclass(frozen=True)
class Pairs:
    """The figures of runs and of their baselines, one entry for each pair."""

    run: Codes
    configuration: Codes
    own: Floats
    base: Floats


def pairs(study: Study, found: Match, column: str) -> Pairs:
    """The pairs in which both runs measured `column`.

    Rates become times for the same work, so that times and rates give the same comparison. Peaks of
    different kinds of memory make no pair.
    """
    values = study.frame[column].to_numpy(dtype=np.float64)
    own, base = values.copy(), np.where(found.base_run >= 0, values[found.base_run], np.nan)
    if column == "peak_bytes":
        kind = study.frame["peak_kind"].to_numpy()
        own[kind != kind[found.base_run]] = np.nan
    usable = ~np.isnan(own) & ~np.isnan(base)
    own, base = own[usable], base[usable]
    if column == "time.samples_per_s":
        own, base = 1.0 / base, 1.0 / own
    return Pairs(np.flatnonzero(usable), study.configuration[usable], own, base)


def change(study: Study, found: Match, column: str) -> Floats:
    """For each configuration, its value over its baseline's, minus 1; NaN where not both exist.

    The ratio is that of the means over the repeats that both have.
    """
    paired = pairs(study, found, column)
    count = len(study.configurations)
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.bincount(paired.configuration, paired.own, minlength=count)
        ratio = above / np.bincount(paired.configuration, paired.base, minlength=count)
    ratio[~np.isfinite(ratio)] = np.nan
    return np.asarray(ratio - 1.0, dtype=np.float64)
