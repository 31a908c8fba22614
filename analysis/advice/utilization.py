"""A device that is not busy: what the parts of the step say about the cause."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from analysis.advice.advice import (
    Advice,
    configurations,
    duration,
    evidence,
    named,
    percent,
    rate,
    run_id,
)
from analysis.advice.batch_axes import BATCH_AXES, micro_batches
from analysis.advice.neighbours import Neighbour, neighbours, settings
from analysis.study import Floats, Study

RULE = "low utilisation"

# Percent of the time in which a well used device is busy, at least.
BUSY = 70.0

# Shares of a step from which a part counts as a cause.
DATA_WAIT = 0.10
MOSTLY = 0.50
COMMUNICATION = 0.20

# Each is compared with all others; more of them say nothing new.
MOST_ROWS = 100

# Gain in throughput from which a batch counts as too small.
GAIN = 0.10

Mask = npt.NDArray[np.bool_]


def share(study: Study, part: str) -> Floats:
    """For each configuration, the share of a mean step that a part takes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return study.mean(f"time.parts.{part}_s") / study.mean("time.step_time_mean_s")


def _completed(study: Study) -> Mask:
    return np.asarray(study.configurations["completed"].to_numpy() > 0, dtype=np.bool_)


def _host_bound(study: Study) -> Mask:
    runs = study.configurations["run"].to_numpy()
    return study.frame["time.host_bound"].iloc[runs].eq(True).to_numpy(dtype=np.bool_)


def _busy(study: Study, row: int) -> str:
    percent = study.mean("utilization.gpu_percent")[row]
    return f"device busy {percent:.0f} % of the time, " if percent == percent else ""


def _by_share(study: Study, part: str, least: float, among: Mask) -> list[int]:
    """Rows in which a part takes too much, the worst first."""
    shares = share(study, part)
    rows = np.flatnonzero(among & (np.nan_to_num(shares) >= least))
    worst: list[int] = rows[np.argsort(-shares[rows])].tolist()
    return worst


def _share_line(study: Study, part: str, row: int) -> str:
    seconds, step = study.mean(f"time.parts.{part}_s"), study.mean("time.step_time_mean_s")
    return (
        f"{named(study, row)}: {_busy(study, row)}{part.replace('_', ' ')} "
        f"{duration(seconds[row])} of {duration(step[row])} a step "
        f"({percent(seconds[row] / step[row])})"
    )


def _without_wait(study: Study, row: int) -> str:
    """The bound: `without the wait a step would take 7.11 ms, at most 11 % faster`."""
    wait, step = study.mean("time.parts.data_wait_s")[row], study.mean("time.step_time_mean_s")[row]
    left = float(step - wait)
    if left <= 0:
        return "a step is nothing but the wait"
    return (
        f"without the wait a step would take {duration(left)}, "
        f"at most {percent(step / left - 1)} faster"
    )


def _waiting(study: Study, rows: list[int]) -> list[Advice]:
    """What waits for most of its time apart from what waits for a part of it."""
    shares = share(study, "data_wait")
    mostly = [row for row in rows if shares[row] > MOSTLY]
    partly = [row for row in rows if shares[row] <= MOSTLY]
    remedy = "Prepare the data beforehand or load it with more workers"

    def line(row: int) -> str:
        return f"{_share_line(study, 'data_wait', row)}; {_without_wait(study, row)}"

    bound = f"{_without_wait(study, partly[0])}" if partly else ""
    if len(partly) > 1:
        bound += f", in {study.labels()[partly[0]]}, which waits the longest part of a step"
    return [
        *_advice(
            study,
            f"The device waits for data most of the time in {configurations(len(mostly))}.",
            f"{remedy}; a faster device or lower precision cannot help before that.",
            mostly,
            line,
        ),
        *_advice(
            study,
            f"The device waits for data in {configurations(len(partly))}.",
            f"{remedy}: {bound}.",
            partly,
            line,
        ),
    ]


def _host_line(study: Study, row: int) -> str:
    step, host = study.mean("time.step_time_s"), study.mean("time.host_step_time_s")
    return (
        f"{named(study, row)}: {_busy(study, row)}{duration(step[row])} a step by the device's "
        f"clock, {duration(host[row])} by the host's"
    )


def larger_batches(study: Study, row: int) -> list[tuple[Neighbour, float]]:
    """Completed neighbours with a larger micro-batch, and their gain in throughput."""
    micro, speed = micro_batches(study), study.mean("time.samples_per_s")
    done = _completed(study)
    found = []
    for near in neighbours(study, row):
        axis = near.axes[0]
        if axis.name in BATCH_AXES and done[near.row] and micro[near.row] > micro[row]:
            gain = speed[near.row] / speed[row] - 1
            if gain == gain:
                found.append((near, float(gain)))
    return sorted(found, key=lambda item: -item[1])


def _small_batches(study: Study, among: Mask) -> dict[int, tuple[Neighbour, float]]:
    """Rows that a larger batch would speed up, the largest gain first."""
    busy = study.mean("utilization.gpu_percent")
    rows = np.flatnonzero(among)
    rows = rows[np.argsort(busy[rows], kind="stable")][:MOST_ROWS]
    best = {row: larger_batches(study, row)[:1] for row in rows.tolist()}
    gains = {row: found[0] for row, found in best.items() if found and found[0][1] >= GAIN}
    return dict(sorted(gains.items(), key=lambda item: -item[1][1]))


def _batch_line(study: Study, row: int, larger: tuple[Neighbour, float]) -> str:
    speed, (near, gain) = study.mean("time.samples_per_s"), larger
    return (
        f"{named(study, row)}: {_busy(study, row)}{rate(speed[row])}; with "
        f"{settings(study, near)} {rate(speed[near.row])}, {percent(gain, signed=True)} "
        f"(run {run_id(study, near.row)})"
    )


def _advice(
    study: Study, finding: str, action: str, rows: list[int], line: Callable[[int], str]
) -> list[Advice]:
    if not rows:
        return []
    runs = tuple(run_id(study, row) for row in rows)
    return [Advice(RULE, finding, action, evidence(rows, line), runs)]


def advise(study: Study) -> list[Advice]:
    """One piece of advice for each cause.

    Waiting for data and for the host show in the parts of the step; the other causes are looked for
    only where the device's utilisation was measured and is low.
    """
    done = _completed(study)
    busy = study.mean("utilization.gpu_percent")
    low = done & (busy < BUSY)
    unknown = done & np.isnan(busy)
    waiting = _by_share(study, "data_wait", DATA_WAIT, low | unknown)
    talking = _by_share(study, "communication", COMMUNICATION, low)
    hosted = np.flatnonzero((low | unknown) & _host_bound(study)).tolist()
    small = _small_batches(study, low)
    return [
        *_waiting(study, waiting),
        *_advice(
            study,
            f"The host cannot keep the device busy in {configurations(len(hosted))}.",
            "Give the device more to do at a time: a larger batch per device, or compiled code.",
            hosted,
            lambda row: _host_line(study, row),
        ),
        *_advice(
            study,
            f"The device is idle while gradients are exchanged in {configurations(len(talking))}.",
            "Exchange less often (accumulation) or compute more between exchanges (a larger batch "
            "per device).",
            talking,
            lambda row: _share_line(study, "communication", row),
        ),
        *_advice(
            study,
            "The batch is too small to fill the device.",
            "Raise it: the larger batches below are faster.",
            list(small),
            lambda row: _batch_line(study, row, small[row]),
        ),
    ]
