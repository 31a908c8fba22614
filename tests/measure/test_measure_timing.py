"""Statistics of step times with answers known beforehand."""

import math
import random

import pytest

from sweeper.measure.timing import StepTime, combine_ranks, per_second, projected_s, summarize
from sweeper.record import StepParts, Time


def steps(times: list[float], warmup: int = 0) -> list[StepTime]:
    return [StepTime(step_time_s=t, measured=i >= warmup) for i, t in enumerate(times)]


def test_slow_first_step_spoils_neither_mean_nor_projection() -> None:
    # C29b
    times = [10.0] + [1.0] * 9
    result = summarize(steps(times, warmup=1), global_batch=1)
    assert result.step_time_mean_s == 1.0
    assert result.warmup_steps == 1
    assert projected_s(first_s=10.0, first_steps=1, step_time_s=1.0, steps=100) == 109.0


def test_throughput_counts_all_ranks_and_micro_batches() -> None:
    # C33: 8 samples of 2048 tokens a micro-batch, 8 ranks, accumulation 4, 1.0 s a step
    result = summarize(steps([1.0] * 10), global_batch=8 * 8 * 4)
    assert result.samples_per_s == 256
    assert per_second(8 * 2048 * 8 * 4, 1.0) == 524_288


def test_median_and_quartiles() -> None:
    # C42's three step times
    result = summarize(steps([0.100, 0.120, 0.110]), global_batch=1)
    assert result.step_time_s == pytest.approx(0.110)
    assert result.step_time_mean_s == pytest.approx(0.110)
    assert result.step_time_q1_s == pytest.approx(0.105)
    assert result.step_time_q3_s == pytest.approx(0.115)


def test_one_step_has_no_spread() -> None:
    result = summarize(steps([0.1]), global_batch=1)
    assert result.step_time_s == 0.1
    assert result.step_time_q1_s is None
    assert result.step_time_q3_s is None
    assert result.steady is None
    assert result.slope_per_step is None


def test_no_measured_step_gives_no_figures() -> None:
    result = summarize(steps([1.0, 1.0], warmup=2), global_batch=1)
    assert result.measured_steps == 0
    assert result.step_time_s is None
    assert result.samples_per_s is None


def test_a_drift_is_found_and_noise_is_not_called_one() -> None:
    noise = random.Random(0)
    flat = [1 + noise.gauss(0, 0.01) for _ in range(20)]
    drift = [t * (1 + 0.01 * i) for i, t in enumerate(flat)]
    assert summarize(steps(flat), global_batch=1).steady is True
    drifting = summarize(steps(drift), global_batch=1)
    assert drifting.steady is False
    assert drifting.slope_per_step == pytest.approx(0.01 / 1.095, rel=0.1)
    assert drifting.second_half_over_first == pytest.approx(1.145 / 1.045, rel=0.02)


def test_too_noisy_a_window_cannot_tell() -> None:
    times = [1.0, 1.4, 0.9, 1.5, 1.0, 1.3, 1.5, 0.9, 1.5, 1.4]
    result = summarize(steps(times), global_batch=1)
    assert result.second_half_over_first is not None
    assert abs(result.second_half_over_first - 1) > 0.05
    assert result.steady is None


def test_a_too_short_warm_up_is_seen() -> None:
    assert summarize(steps([1.2] * 10 + [1.0] * 10), global_batch=1).steady is False
    # One slow step at the start moves no median.
    assert summarize(steps([3.0] + [1.0] * 19), global_batch=1).steady is True


def test_a_long_window_is_thinned_without_changing_the_answer() -> None:
    noise = random.Random(1)
    long = [(1 + 1e-4 * i) * (1 + noise.gauss(0, 0.02)) for i in range(5000)]
    result = summarize(steps(long), global_batch=1)
    assert result.slope_per_step == pytest.approx(1e-4 / 1.25, rel=0.02)
    assert result.steady is False


def rank(step_s: float, communication_s: float | None = None, **more: float) -> Time:
    parts = StepParts(backward_s=step_s - (communication_s or 0), communication_s=communication_s)
    return Time(step_time_s=step_s, step_time_mean_s=step_s, steady=True, parts=parts, **more)


def test_the_slowest_rank_governs_and_the_fastest_is_kept() -> None:
    result = combine_ranks([rank(1.0), rank(1.5, samples_per_s=64 / 1.5), rank(1.2)])
    assert result.step_time_s == 1.5
    assert result.step_time_fastest_rank_s == 1.0
    assert result.samples_per_s == pytest.approx(64 / 1.5)
    assert result.parts.backward_s == 1.5


def test_among_ranks_in_lock_step_the_parts_are_those_of_the_one_waited_for() -> None:
    waiting, waited_for = rank(1.001, communication_s=0.4), rank(1.0, communication_s=0.01)
    result = combine_ranks([waiting, waited_for])
    assert result.step_time_s == 1.001
    assert result.parts.communication_s == 0.01
    assert result.step_time_mean_s == pytest.approx(
        math.fsum([result.parts.backward_s or 0, result.parts.communication_s or 0])
    )


def test_flops_add_up_over_ranks_and_mfu_is_against_the_slowest() -> None:
    # Two ranks of 1e12 FLOPs a step each, on devices of 2e12 FLOPs a second.
    fast = rank(1.0, flops_per_step=1e12, mfu=0.5)
    slow = rank(2.0, flops_per_step=1e12, mfu=0.25)
    result = combine_ranks([fast, slow])
    assert result.flops_per_step == 2e12
    assert result.mfu == pytest.approx(2e12 / (2.0 * 2 * 2e12))
    assert result.hfu is None


def test_one_unsteady_rank_makes_the_run_unsteady() -> None:
    steady, unsteady, unknown = rank(1.0), rank(1.0), rank(1.0)
    unsteady.steady, unknown.steady = False, None
    assert combine_ranks([steady, unsteady, unknown]).steady is False
    assert combine_ranks([steady, unknown]).steady is None
    assert combine_ranks([steady, steady]).steady is True
