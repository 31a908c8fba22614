"""Memory that lies idle, and figures that one should not lean on."""

from __future__ import annotations

import numpy as np

from analysis.advice.advice import (
    Advice,
    configurations,
    evidence,
    named,
    percent,
    rate,
    run_id,
    size,
)
from analysis.advice.limits import limits
from analysis.advice.neighbours import settings
from analysis.advice.utilization import MOST_ROWS, larger_batches
from analysis.evidence import used_bytes
from analysis.study import Study

HEADROOM = "memory left over"
STEADINESS = "unsteady step time"

# A run that holds less than this share of its limit has room for a larger batch.
FULL = 0.8

# Gain in throughput that is worth a change.
GAIN = 0.05


def headroom(study: Study) -> list[Advice]:
    """Runs with memory to spare, where a larger batch that also completed is faster."""
    used, limit = used_bytes(study), limits(study)
    used = np.where(np.isnan(used), study.mean("peak_bytes"), used)
    speed = study.mean("time.samples_per_s")
    done = study.configurations["completed"].to_numpy() > 0
    spare = np.flatnonzero(done & (used < FULL * limit))
    spare = spare[np.argsort(used[spare] / limit[spare], kind="stable")][:MOST_ROWS]
    best = {row: larger_batches(study, row)[:1] for row in spare.tolist()}
    found = [row for row, larger in best.items() if larger and larger[0][1] >= GAIN]

    def line(row: int) -> str:
        near, gain = best[row][0]
        other = near.row
        return (
            f"{named(study, row)}: {size(used[row])} of {size(limit[row])}, {rate(speed[row])}; "
            f"with {settings(study, near)} {size(used[other])}, {rate(speed[other])}, "
            f"{percent(gain, signed=True)} (run {run_id(study, other)})"
        )

    if not found:
        return []
    found.sort(key=lambda row: -best[row][0][1])
    return [
        Advice(
            HEADROOM,
            f"{configurations(len(found))} with more than {percent(1 - FULL)} of the memory unused "
            "could be faster.",
            "Raise the batch towards the memory limit: the larger batches below completed and are "
            "faster.",
            evidence(found, line),
            tuple(run_id(study, row) for row in found),
        )
    ]


def steadiness(study: Study) -> list[Advice]:
    """Runs whose step time still changed while it was measured."""
    runs = study.configurations["run"].to_numpy()
    done = study.configurations["completed"].to_numpy() > 0
    unsteady = study.frame["time.steady"].iloc[runs].eq(False).to_numpy(dtype=np.bool_)
    ratio = study.frame["time.second_half_over_first"].to_numpy(dtype=np.float64)[runs]
    rows = np.flatnonzero(done & unsteady & ~np.isnan(ratio))
    if not len(rows):
        return []
    off = np.abs(ratio - 1)
    rows = rows[np.argsort(-off[rows])]

    def line(row: int) -> str:
        return (
            f"{named(study, row)}: step time {percent(ratio[row] - 1, signed=True)} in the second "
            "half of the window against the first"
        )

    return [
        Advice(
            STEADINESS,
            f"The step time of {configurations(len(rows))} was not steady while it was measured.",
            "Measure longer (measure.warmup_steps, measure.steps), on a machine that does nothing "
            f"else, or repeat; here differences below {percent(off[rows].max())} mean nothing.",
            evidence(rows.tolist(), line),
            tuple(run_id(study, row) for row in rows.tolist()),
        )
    ]


def advise(study: Study) -> list[Advice]:
    return [*headroom(study), *steadiness(study)]
