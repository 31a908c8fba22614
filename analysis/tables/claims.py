"""T10, claims: what is claimed, what was measured, and whether it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis import facts
from analysis.claims import Shape, read_claims
from analysis.frame import as_frame
from analysis.outcome import Outcome
from analysis.study import Study
from analysis.table import Column, Table
from analysis.tables.common import with_content
from analysis.testing import test

_COLUMNS = (
    Column("says", "claim"),
    Column("source", "source", drop=5),
    Column("claimed", "claimed"),
    Column("verdict", "verdict"),
    Column("measured", "measured"),
    Column("interval", "95 % interval", drop=2),
    Column("spread", "over configurations", drop=3),
    Column("configurations", "configu-\nrations", "count"),
    Column("inside", "in\nrange", "count", drop=4),
    Column("pairs", "pairs", "count"),
    Column("machine", "machine"),
    Column("remark", "remark", missing=""),
)


def _shown(outcome: Outcome, value: float) -> str | None:
    """A value with the unit of its claim."""
    if value != value:
        return None
    claim = outcome.claim
    if claim.shape == "fits":
        return f"{value:.2f} GiB"
    if claim.shape == "trend":
        return f"grew in {value:.0f} %"
    return f"{value:.1f} %" if claim.metric.endswith("_percent") else f"{value:.3g}"


def _between(outcome: Outcome, low: float, high: float) -> str | None:
    ends = _shown(outcome, low), _shown(outcome, high)
    return None if None in ends or low == high else f"{ends[0]} to {ends[1]}"


def _counted(outcomes: Sequence[Outcome]) -> str:
    """What the column of counts counts: changes and trends compare runs, the others do not."""
    shapes = {o.claim.shape for o in outcomes if o.pairs}
    found = [name for name, of in _COUNTED.items() if shapes & of]
    return " or ".join(found) or "pairs"


_COUNTED: dict[str, frozenset[Shape]] = {
    "pairs": frozenset({"change", "trend"}),
    "runs": frozenset({"figure", "fits"}),
}


def table_of(outcomes: Sequence[Outcome], study: Study | None = None) -> Table:
    """Outcomes of tested claims as a table.

    Args:
        study: the runs they were tested against, for the line on where these ran.
    """
    counts = {v: sum(o.verdict == v for o in outcomes) for v in ("holds", "does not hold")}
    untested = sum(o.verdict == "not tested" for o in outcomes)
    frame = as_frame(
        {
            "id": [o.claim.id for o in outcomes],
            "says": [o.claim.says for o in outcomes],
            "source": [o.claim.source for o in outcomes],
            "claimed": [o.claim.range_text for o in outcomes],
            "verdict": [o.verdict for o in outcomes],
            "measured": [_shown(o, o.value) for o in outcomes],
            "interval": [_between(o, o.low, o.high) for o in outcomes],
            "spread": [_between(o, o.least, o.most) for o in outcomes],
            "pairs": [float(o.pairs) if o.pairs else None for o in outcomes],
            "configurations": [float(o.configurations) or None for o in outcomes],
            "inside": [None if o.inside is None else float(o.inside) for o in outcomes],
            "machine": [o.machine or None for o in outcomes],
            "remark": [o.remark or None for o in outcomes],
        }
    )
    return Table(
        name="claims",
        title="T10 Claims",
        frame=frame,
        columns=tuple(
            replace(c, header=_counted(outcomes)) if c.name == "pairs" else c
            for c in with_content(_COLUMNS, frame)
        ),
        facts=(
            f"{counts['holds']} hold, {counts['does not hold']} do not hold, "
            f"{untested} not tested; one row for each claim and machine.",
            "Measured: mean over configurations, all else equal. A range holds where every "
            "configuration lies in it, or reaches it within its interval. Interval: paired "
            "bootstrap over repeats; none for one repeat.",
            *([facts.machine(study)] if study is not None else []),
        ),
    )


def build(study: Study) -> Table | None:
    """The documents' claims; None where there are no runs."""
    if not len(study.configurations):
        return None
    return table_of(documents(study), study)


def documents(study: Study) -> list[Outcome]:
    """What has become of the documents' claims; tested once for each study."""
    return study.remembered("documents' claims", lambda: test(study, read_claims()))
