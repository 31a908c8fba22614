"""Testing claims: what the runs say about each, machine by machine.

A claim's value is the mean over configurations; repeats of a configuration and of its baseline make
pairs. Its interval comes from drawing repeats with replacement, the same draw for all
configurations (they ran interleaved and drift together). The verdict is over the configurations:
`analysis.outcome` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from analysis.axes import Codes, combine
from analysis.baseline import Match, Pairs, match, pairs
from analysis.bootstrap import LEVEL, draws, grouped_intervals, quantiles
from analysis.capacity import fits, trend
from analysis.claims import Claim, Shape
from analysis.evidence import CHANGES, RUN_FIGURES, Mask, select
from analysis.outcome import Outcome, judged, judged_by_value, machines, untested
from analysis.parity import judge
from analysis.scaling import Scaling, curves, gpu_counts, share_cores
from analysis.study import Floats, Study
from sweeper.errors import UserError

_NONE = (float("nan"), float("nan"))
_ZERO = "the baseline's figure is 0"
_TURNS = "more processes than cores"


def _measured(
    claim: Claim, machine: str, values: Floats, pairs: int, ends: tuple[float, float] = _NONE
) -> Outcome:
    """The mean over configurations, to be judged."""
    return Outcome(
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


def _intervals(own: Floats, base: Floats, claim: Claim, gpus: Floats) -> Floats:
    """Of each configuration, the interval over its pairs; NaN for fewer than 2. Arguments alike."""
    place, repeat = np.nonzero(~np.isnan(own))
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = grouped_intervals(place, own[place, repeat], base[place, repeat], len(own))
        return np.sort(CHANGES[claim.metric].of_ratio(ends, gpus[:, None]), axis=1)


def _matched(study: Study, claim: Claim) -> tuple[Match, Mask]:
    """Every configuration with its baseline, and those that may be compared with it."""
    kinds: dict[str, Scaling] = {"efficiency_percent": "strong", "weak_efficiency_percent": "weak"}
    if claim.metric in kinds:
        found = curves(study, kinds[claim.metric])
        return found.found, found.curve >= 0
    match_of = match(study, {key: str(value) for key, value in claim.baseline.items()})
    return match_of, np.ones(len(study.configurations), dtype=np.bool_)


def _taking_turns(study: Study, claim: Claim, found: Match, gpus: Floats) -> Mask:
    """Where times show how processes share cores instead of how they scale."""
    if not CHANGES[claim.metric].column.startswith("time."):
        return np.zeros(len(gpus), dtype=np.bool_)
    shared = share_cores(study)
    differs = (found.base >= 0) & (gpus != gpus[found.base])
    return np.asarray(differs & (shared | shared[found.base]), dtype=np.bool_)


def _change(study: Study, claim: Claim) -> list[Outcome]:
    chosen = select(study, {**claim.where, **claim.variant})
    select(study, claim.baseline)  # every key must be known
    found, usable = _matched(study, claim)
    wanted = chosen & ~found.is_base
    if claim.metric == "parity_percent":
        return _parity(study, claim, found, wanted)
    paired = pairs(study, found, CHANGES[claim.metric].column)
    rows = np.unique(paired.configuration[(wanted & usable)[paired.configuration]])
    if not len(rows):
        return untested(claim, _no_pairs(study, found, wanted))
    gpus = gpu_counts(study)
    turns = _taking_turns(study, claim, found, gpus)
    outcomes = []
    for machine, here in machines(study, rows):
        alone, shared = here[~turns[here]], int(turns[here].sum())
        own, base, values = _repeats(study, claim, paired, alone, gpus)
        finite = np.isfinite(values)
        left_out = {_TURNS: shared, _ZERO: int((~finite).sum())}
        reasons = [reason for reason, number in left_out.items() if number]
        if not finite.any():
            outcomes.append(Outcome(claim, "not tested", machine, remark="; ".join(reasons)))
            continue
        own, base, values = own[finite], base[finite], values[finite]
        count, of = int((~np.isnan(own)).sum()), gpus[alone[finite]]
        mean = _measured(claim, machine, values, count, _interval(own, base, claim, of))
        told = "; ".join(f"{left_out[reason]:,} left out: {reason}" for reason in reasons)
        ends = _intervals(own, base, claim, of)
        outcomes.append(judged(claim, replace(mean, remark=told), values, ends))
    return outcomes


def _repeats(
    study: Study, claim: Claim, paired: Pairs, rows: Codes, gpus: Floats
) -> tuple[Floats, Floats, Floats]:
    """The figures of some configurations and of their baselines, and the metric of each.

    Returns:
        Two of configurations x repeats, NaN where one lacks a repeat, and one of configurations,
        not finite where the baseline's figure is 0.
    """
    mask = np.isin(paired.configuration, rows)
    place = np.searchsorted(rows, paired.configuration[mask])
    repeat = combine([study.unit[paired.run[mask]]], int(mask.sum()))
    shape = (len(rows), int(repeat.max(initial=-1)) + 1)
    own, base = np.full(shape, np.nan), np.full(shape, np.nan)
    own[place, repeat], base[place, repeat] = paired.own[mask], paired.base[mask]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nansum(own, axis=1) / np.nansum(base, axis=1)
    return own, base, CHANGES[claim.metric].of_ratio(ratio, gpus[rows])


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
        measured = replace(_measured(claim, machine, 100 * same, count), inside=int(same.sum()))
        outcomes.append(judged_by_value(claim, measured))
    return outcomes


def _figure(study: Study, claim: Claim) -> list[Outcome]:
    values = RUN_FIGURES[claim.metric](study)
    done = study.configurations["completed"].to_numpy() > 0
    chosen = select(study, claim.where) & done
    rows = np.flatnonzero(chosen & np.isfinite(values))
    if not len(rows):
        return untested(claim, "the runs did not measure it" if chosen.any() else "no such run")
    outcomes = []
    for machine, here in machines(study, rows):
        runs = int(study.configurations["completed"].iloc[here].sum())
        measured = _measured(claim, machine, values[here], runs)
        outcomes.append(judged(claim, measured, values[here]))
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
