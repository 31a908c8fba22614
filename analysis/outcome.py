"""What the runs of one machine say about one claim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from analysis.axes import Codes, combine
from analysis.baseline import context_codes
from analysis.claims import Claim
from analysis.study import Study

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
        named.append((f"{first['machine'] or 'not recorded'}{source}", here))
    yield from sorted(named, key=lambda pair: pair[0])


def within(claim: Claim, value: float) -> bool:
    margin = 1e-9 * max(1.0, abs(value))
    above = claim.low is None or value >= claim.low - margin
    return above and (claim.high is None or value <= claim.high + margin)


def judged(claim: Claim, outcome: Outcome) -> Outcome:
    verdict: Verdict = "holds" if within(claim, outcome.value) else "does not hold"
    ends = [end for end in (outcome.low, outcome.high) if end == end]
    crosses = any(within(claim, end) != (verdict == "holds") for end in ends)
    remark = "the interval crosses the range's end" if crosses else outcome.remark
    return replace(outcome, verdict=verdict, remark=remark)
