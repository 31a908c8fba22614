"""Statistics of a measured window, and of several ranks' windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt

from sweeper.record import StepParts, Time

Floats = npt.NDArray[np.float64]

# A window is steady if its step time changes by no more than this, by halves and by trend.
STEADY_WITHIN = 0.05
# Fewer steps than this cannot show a drift.
STEADY_STEPS = 8
# Two-sided 5 % level of the normal distribution.
_Z = 1.96
# The two clocks of a window agree within this.
CLOCKS_WITHIN = 0.02
# Of a step: what the device has left to do when the host has issued the last one.
DRAINED_WITHIN = 0.05
# Ranks this close to the slowest take the same time: they wait for each other in every step.
RANKS_WITHIN = 0.02
_PAIRS_STEPS = 1000  # all pairs of up to this many steps are compared; longer windows are thinned


@dataclass(frozen=True)
class StepTime:
    """One step as timed.

    Attributes:
        step_time_s: the sum of the parts.
        parts: seconds in each part; None where the step reported no such phase.
        measured: inside the measured window.
        regular: like the other steps; a smaller last batch is not.
    """

    step_time_s: float
    parts: StepParts = field(default_factory=StepParts)
    measured: bool = True
    regular: bool = True


def per_second(units_per_step: int, step_time_s: float) -> float:
    """Throughput, where `units_per_step` counts all ranks and all micro-batches of a step."""
    return units_per_step / step_time_s


def projected_s(first_s: float, first_steps: int, step_time_s: float, steps: int) -> float:
    """Seconds for `steps` steps of which the first `first_steps` took `first_s` in all.

    The slow first steps are counted once and never extrapolated.
    """
    return first_s + max(0, steps - first_steps) * step_time_s


def summarize(
    steps: Sequence[StepTime],
    *,
    global_batch: int,
    clock: str = "host",
    wall_s: float | None = None,
    drain_s: float | None = None,
) -> Time:
    """Statistics over the measured, regular steps.

    Args:
        steps: all steps of the run so far, in order.
        global_batch: samples of one step over all ranks.
        clock: the clock's name for the record.
        wall_s: the window by the host's clock, from the synchronised start to the synchronised
            end, irregular steps included.
        drain_s: how long the device went on after the host had issued the last step.
    """
    measured = [s for s in steps if s.measured]
    kept = [s for s in measured if s.regular]
    before = next((i for i, s in enumerate(steps) if s.measured), len(steps))
    result = Time(clock=clock, warmup_steps=before, measured_steps=len(kept))
    if not kept:
        return result
    times = np.array([s.step_time_s for s in kept], dtype=np.float64)
    result.step_time_s = float(np.median(times))
    if len(times) > 1:  # one step has no spread
        result.step_time_q1_s, result.step_time_q3_s = map(float, np.quantile(times, [0.25, 0.75]))
    result.parts = _mean_parts([s.parts for s in kept])
    # The mean of sums is the sum of means; taken from the parts, they add up to it exactly.
    means = [getattr(result.parts, f.name) for f in fields(StepParts)]
    known = [m for m in means if m is not None]
    result.step_time_mean_s = math.fsum(known) if known else float(np.mean(times))
    result.samples_per_s = per_second(global_batch, result.step_time_s)
    if wall_s is not None:
        result.host_step_time_s = wall_s / len(measured)
        if clock != "host":
            device_s = math.fsum(s.step_time_s for s in measured)
            apart = abs(wall_s / device_s - 1) > CLOCKS_WITHIN
            # Events do not see the device idle between two kernels. But a host that is ahead leaves
            # the device work to finish; one that is behind leaves it next to none.
            behind = drain_s is not None and drain_s < DRAINED_WITHIN * result.step_time_s
            result.host_bound = apart or behind
    _steadiness(times, result)
    return result


def combine_ranks(times: Sequence[Time]) -> Time:
    """One Time for a run from its ranks' Times, in any order.

    The slowest rank governs, by median step time; the fastest is kept beside it. Ranks that wait
    for each other in every step take the same time to within noise; of those within 2 % of the
    slowest, the mean and its parts are those of the rank that waits least for the others, because
    it is the one the others wait for. FLOPs are added, and MFU is against the slowest rank.
    """
    timed = [t for t in times if t.step_time_s is not None]
    if not timed:
        return replace(times[0])
    slowest = max(timed, key=_step_time_s)
    near = [t for t in timed if _step_time_s(t) >= (1 - RANKS_WITHIN) * _step_time_s(slowest)]
    waits = [t.parts.communication_s for t in near]
    leader = slowest
    if None not in waits:
        leader = min(near, key=lambda t: t.parts.communication_s or 0.0)
    result = replace(slowest, parts=replace(leader.parts))
    result.step_time_mean_s = leader.step_time_mean_s
    result.step_time_fastest_rank_s = min(map(_step_time_s, timed))
    result.host_bound = _any([t.host_bound for t in timed])
    unsteady = _any([None if t.steady is None else not t.steady for t in timed])
    result.steady = None if unsteady is None else not unsteady
    for name in ("compile_s", "setup_s", "training_s", "evaluation_s", "run_s"):
        values = [v for t in times if (v := getattr(t, name)) is not None]
        setattr(result, name, max(values, default=None))
    for flops, share in (("flops_per_step", "mfu"), ("hardware_flops_per_step", "hfu")):
        counts = [getattr(t, flops) for t in timed]
        shares = [getattr(t, share) for t in timed]
        setattr(result, flops, None if None in counts else math.fsum(counts))
        whole = None
        if None not in shares:
            # A rank's share x its step time is the time the work needs at the device's peak.
            at_peak_s = math.fsum(s * _step_time_s(t) for s, t in zip(shares, timed, strict=True))
            whole = at_peak_s / len(timed) / _step_time_s(slowest)
        setattr(result, share, whole)
    return result


def _step_time_s(time: Time) -> float:
    assert time.step_time_s is not None
    return time.step_time_s


def _any(values: Sequence[bool | None]) -> bool | None:
    """True if one is; None if none is and one is not known."""
    if True in values:
        return True
    return None if None in values else False


def _mean_parts(parts: Sequence[StepParts]) -> StepParts:
    """Means over the steps; a part that no step reported is None, one that some did counts as 0."""
    result = StepParts()
    for item in fields(StepParts):
        values = [getattr(p, item.name) for p in parts]
        if any(v is not None for v in values):
            setattr(result, item.name, math.fsum(v or 0.0 for v in values) / len(values))
    return result


def _steadiness(times: Floats, result: Time) -> None:
    """Fill in the change over the window, and whether it is steady.

    Steady: True if neither the halves' medians nor the trend over the whole window differ by more
    than 5 %. False if one does and the trend stands out of the noise (Mann-Kendall test, 5 %
    level). None if one does but noise explains it, or with fewer than 8 steps: the window cannot
    tell. The slope is Theil and Sen's: the median of the slopes of all pairs of steps.
    """
    n = len(times)
    if n < 2:
        return
    # An odd number leaves the middle step out, so that the halves are of one size.
    halves = float(np.median(times[-(n // 2) :]) / np.median(times[: n // 2]))
    thinned, stride = _thin(times)
    first, second = np.triu_indices(len(thinned), k=1)
    change = thinned[second] - thinned[first]
    slope = float(np.median(change / ((second - first) * stride)) / np.median(times))
    result.second_half_over_first = halves
    result.slope_per_step = slope
    if n < STEADY_STEPS:
        return
    if abs(halves - 1) <= STEADY_WITHIN and abs(slope) * (n - 1) <= STEADY_WITHIN:
        result.steady = True
    elif abs(_trend_z(thinned, change)) > _Z:
        result.steady = False


def _thin(times: Floats) -> tuple[Floats, int]:
    """The times, or the medians of consecutive blocks of them; and the steps per value."""
    block = math.ceil(len(times) / _PAIRS_STEPS)
    if block == 1:
        return times, 1
    whole = len(times) // block
    return np.median(times[: whole * block].reshape(whole, block), axis=1), block


def _trend_z(times: Floats, change: Floats) -> float:
    """Mann-Kendall statistic, normal under no trend; Kendall, Rank Correlation Methods, 1975."""
    n = len(times)
    score = float(np.sign(change).sum())
    _, ties = np.unique(times, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if variance <= 0 or score == 0:
        return 0.0
    return float((score - math.copysign(1, score)) / math.sqrt(variance))
