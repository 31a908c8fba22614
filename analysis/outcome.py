"""What the runs of one machine say about one claim.

A range speaks of every configuration, not of their mean: the mean of unlike configurations depends
on which of them were run, and deviations in both directions cancel in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.axes import Codes, combine
from analysis.baseline import context_codes
from analysis.claims import Claim, Scope
from analysis.study import Floats, Study

Verdict = Literal["holds", "does not hold", "not tested"]


@dataclass(frozen=True)
class Outcome:
    """What the runs of one machine say about one claim.

    Attributes:
        value: mean over configurations; NaN where not tested.
        low, high: its interval over repeats; NaN for fewer than 2 of them.
        least, most: smallest and largest of a configuration.
        pairs: pairs of runs, or runs where the claim compares none.
        configurations: how many the mean is over.
        inside: how many of them lie in the claim's range; of what fits, how many fit; of a trend,
            how many steps grew. None where it is not counted.
        remark: why it was not tested, or what else one should know.
    """

    claim: Claim
    verdict: Verdict
    machine: str = ""
    value: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    least: float = float("nan")
    most: float = float("nan")
    pairs: int = 0
    configurations: int = 0
    inside: int | None = None
    remark: str = ""


def untested(claim: Claim, remark: str) -> list[Outcome]:
    return [Outcome(claim, "not tested", remark=remark)]


def machines(study: Study, rows: Codes) -> Iterator[tuple[str, Codes]]:
    """Rows by machine and by source; estimates and imported figures are named as such."""
    group = combine([context_codes(study, name)[rows] for name in ("machine", "source")], len(rows))
    named = []
    for number in range(int(group.max(initial=-1)) + 1):
        here = rows[group == number]
        first = study.configurations.iloc[int(here[0])]
        source = "" if first["source"] == "measured" else f" ({first['source']})"
        name = "not recorded" if pd.isna(first["machine"]) else first["machine"]
        named.append((f"{name}{source}", here))
    yield from sorted(named, key=lambda pair: pair[0])


def _inside(claim: Claim, values: Floats) -> npt.NDArray[np.bool_]:
    """Which values lie in the claim's range, ends included; those that are not finite do not."""
    margin = 1e-9 * np.maximum(1.0, np.abs(values))
    inside = np.isfinite(values)
    if claim.low is not None:
        inside &= values >= claim.low - margin
    if claim.high is not None:
        inside &= values <= claim.high + margin
    return np.asarray(inside, dtype=np.bool_)


def within(claim: Claim, value: float) -> bool:
    """Whether one value does."""
    return bool(_inside(claim, np.array([value]))[0])


def judged_by_value(claim: Claim, outcome: Outcome) -> Outcome:
    """The verdict where the value itself is a share of the configurations."""
    verdict: Verdict = "holds" if within(claim, outcome.value) else "does not hold"
    return replace(outcome, verdict=verdict)


def judged(claim: Claim, outcome: Outcome, values: Floats, ends: Floats | None = None) -> Outcome:
    """The verdict where each configuration is held against the range.

    A configuration outside of the range counts as within where its own interval reaches it, as long
    as the mean lies in the range: repeats then do not tell it apart from one inside.

    Args:
        outcome: with the mean and its interval.
        values: of each configuration.
        ends: configurations x 2, its interval over repeats; NaN where it has none.
    """
    inside = _inside(claim, values)
    reaches = ~inside & _overlap(claim, ends) if ends is not None else np.zeros_like(inside)
    in_doubt = int(reaches.sum()) if within(claim, outcome.value) else 0
    count, needed = int(inside.sum()), _NEEDED[claim.scope](len(values))
    verdict: Verdict = "holds" if count + in_doubt >= needed else "does not hold"
    remarks = []
    if count < len(values) > 1:
        remarks.append(f"{count:,} of {len(values):,} configurations lie in the range")
        if in_doubt:
            remarks.append(f"{in_doubt:,} more within their intervals")
    crossing = [end for end in (outcome.low, outcome.high) if end == end]
    if any(within(claim, end) != within(claim, outcome.value) for end in crossing):
        remarks.append("the interval crosses the range's end")
    remark = "; ".join([*remarks, outcome.remark] if outcome.remark else remarks)
    return replace(outcome, verdict=verdict, inside=count, remark=remark)


def _overlap(claim: Claim, ends: Floats) -> npt.NDArray[np.bool_]:
    """Whether an interval has a value in the range; one that is NaN has none."""
    low = -np.inf if claim.low is None else claim.low
    high = np.inf if claim.high is None else claim.high
    return np.logical_and(ends[:, 1] >= low, ends[:, 0] <= high)


_NEEDED: dict[Scope, Callable[[int], int]] = {
    "all": lambda count: count,
    "most": lambda count: count // 2 + 1,
    "some": lambda _: 1,
}
