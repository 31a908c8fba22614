"""Testing claims: what the runs say about each, machine by machine.

A claim's value is the mean over configurations; repeats of a configuration and of its baseline make
pairs. The interval comes from drawing repeats with replacement, the same draw for all
configurations (they ran interleaved and drift together). The value decides; an interval that
reaches beyond the range is said to do so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from analysis.axes import combine
from analysis.baseline import Match, match, pairs
from analysis.bootstrap import LEVEL, draws, quantiles
from analysis.capacity import fits, trend
from analysis.claims import Claim, Shape
from analysis.evidence import CHANGES, RUN_FIGURES, Mask, select, values_of
from analysis.outcome import Outcome, judged, machines, untested
from analysis.parity import judge
from analysis.scaling import curves
from analysis.study import Floats, Study
from sweeper.errors import UserError

_NONE = (float("nan"), float("nan"))


def _outcome(
    claim: Claim, machine: str, values: Floats, pairs: int, ends: tuple[float, float] = _NONE
) -> Outcome:
    """The mean over configurations, judged."""
    measured = Outcome(
        claim,
        "not tested",
        machine,
        value=float(values.mean()),
        low=ends[0],
        high=ends[1],
        least=float(values.min()),
        most=float(values.max()),
        pairs=pairs,
        configurations=len(values),
    )
    return judged(claim, measured)


def _interval(own: Floats, base: Floats, claim: Claim, gpus: Floats) -> tuple[float, float]:
    """Interval of the mean over configurations.

    Args:
        own, base: configurations x repeats, NaN where a configuration lacks a repeat.
    """
    if own.shape[1] < 2:
        return _NONE
    counts, weights = draws(own.shape[1], len(own))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (np.nan_to_num(own) @ counts.T) / (np.nan_to_num(base) @ counts.T)
    values = CHANGES[claim.metric].of_ratio(ratio, gpus[:, None])
    some = np.isfinite(values).any(axis=0)
    means = np.nanmean(np.where(np.isfinite(values), values, np.nan)[:, some], axis=0)
    tail = (1 - LEVEL) / 2
    ends = quantiles(means[None], weights[some] / weights[some].sum(), (tail, 1 - tail))[0]
    return float(ends[0]), float(ends[1])


def _matched(study: Study, claim: Claim) -> Match:
    if claim.metric == "efficiency_percent":
        return curves(study, "strong").found
    if claim.metric == "weak_efficiency_percent":
        return curves(study, "weak").found
    return match(study, {key: str(value) for key, value in claim.baseline.items()})


def _change(study: Study, claim: Claim) -> list[Outcome]:
    chosen = select(study, {**claim.where, **claim.variant})
    select(study, claim.baseline)  # every key must be known
    found = _matched(study, claim)
    if claim.metric == "parity_percent":
        return _parity(study, claim, found, chosen & ~found.is_base)
    paired = pairs(study, found, CHANGES[claim.metric].column)
    unit = study.unit[paired.run]
    wanted = chosen & ~found.is_base
    rows = np.unique(paired.configuration[wanted[paired.configuration]])
    if not len(rows):
        return untested(claim, _no_pairs(study, found, wanted))
    gpus = np.array([float(v or 1) for v in values_of(study, "gpus")], dtype=np.float64)
    outcomes = []
    for machine, here in machines(study, rows):
        mask = np.isin(paired.configuration, here)
        place = np.searchsorted(here, paired.configuration[mask])
        repeat = combine([unit[mask]], int(mask.sum()))
        shape = (len(here), int(repeat.max()) + 1)
        own, base = np.full(shape, np.nan), np.full(shape, np.nan)
        own[place, repeat], base[place, repeat] = paired.own[mask], paired.base[mask]
        ratio = np.nansum(own, axis=1) / np.nansum(base, axis=1)
        values = CHANGES[claim.metric].of_ratio(ratio, gpus[here])
        ends = _interval(own, base, claim, gpus[here])
        outcomes.append(_outcome(claim, machine, values, int(mask.sum()), ends))
    return outcomes


def _no_pairs(study: Study, found: Match, wanted: Mask) -> str:
    if not wanted.any():
        return "no run is of this kind"
    if (found.base[wanted] >= 0).any():
        return "the runs did not measure it"
    return min(found.reason[i] for i in np.flatnonzero(wanted).tolist())


def _parity(study: Study, claim: Claim, found: Match, wanted: Mask) -> list[Outcome]:
    """The share of configurations whose losses are those of the baseline, in percent."""
    words = judge(study, found)["parity"].to_numpy()
    rows = np.array([i for i in np.flatnonzero(wanted).tolist() if words[i]], dtype=np.int64)
    if not len(rows):
        return untested(claim, _no_pairs(study, found, wanted))
    outcomes = []
    for machine, here in machines(study, rows):
        same = np.array([words[i] != "different" for i in here.tolist()], dtype=np.float64)
        count = int((found.base_run[np.isin(study.configuration, here)] >= 0).sum())
        outcomes.append(_outcome(claim, machine, 100 * same, count))
    return outcomes


def _figure(study: Study, claim: Claim) -> list[Outcome]:
    values = RUN_FIGURES[claim.metric](study)
    done = study.configurations["completed"].to_numpy() > 0
    chosen = select(study, claim.where) & done
    rows = np.flatnonzero(chosen & ~np.isnan(values))
    if not len(rows):
        return untested(claim, "the runs did not measure it" if chosen.any() else "no such run")
    outcomes = []
    for machine, here in machines(study, rows):
        runs = int(study.configurations["completed"].iloc[here].sum())
        outcomes.append(_outcome(claim, machine, values[here], runs))
    return outcomes


_SHAPES: dict[Shape, Callable[[Study, Claim], list[Outcome]]] = {
    "change": _change,
    "figure": _figure,
    "fits": fits,
    "trend": trend,
}


def test(study: Study, claims: Sequence[Claim]) -> list[Outcome]:
    """Test every claim: one outcome for each machine, or one that says why there is none."""
    outcomes: list[Outcome] = []
    for claim in claims:
        if not len(study.configurations):
            outcomes += untested(claim, "there are no runs")
            continue
        try:
            outcomes += _SHAPES[claim.shape](study, claim)
        except UserError as error:
            outcomes += untested(claim, f"{error.key}: {error.problem}")
    return outcomes
