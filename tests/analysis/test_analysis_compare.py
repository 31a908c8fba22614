"""Intervals and effects against calculations by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from analysis_records import plain, record

from analysis import compare
from analysis.baseline import find, match
from analysis.bootstrap import draws, grouped_intervals, ratio_intervals
from analysis.load import from_records
from analysis.study import Question, Study
from sweeper.record import Record


def study(*records: Record, **question: object) -> Study:
    found = from_records([(f"run{i}", plain(r)) for i, r in enumerate(records)])
    return Study(found, Question(**question))  # type: ignore[arg-type]  # tests name its fields


def test_two_pairs_have_the_interval_of_their_three_draws() -> None:
    # Draws: both first (1/4): 1/2; one each (1/2): 3/4; both second (1/4): 1.
    ends = ratio_intervals(np.array([[1.0, 2.0]]), np.array([[2.0, 2.0]]))
    assert ends.tolist() == [[0.5, 1.0]]


def test_every_draw_of_three_pairs_is_counted_with_its_weight() -> None:
    counts, weights = draws(3)
    assert len(counts) == 10
    assert weights.sum() == pytest.approx(1.0)
    assert weights[counts.tolist().index([1, 1, 1])] == pytest.approx(6 / 27)
    assert weights[counts.tolist().index([3, 0, 0])] == pytest.approx(1 / 27)


def test_the_interval_is_that_of_all_27_draws() -> None:
    own, base = np.array([3.0, 4.0, 8.0]), np.array([4.0, 4.0, 5.0])
    ratios = sorted(own[list(draw)].sum() / base[list(draw)].sum() for draw in np.ndindex(3, 3, 3))
    # 2.5 % of 27 draws is 0.675, 97.5 % is 26.325: the first and the last.
    assert ratio_intervals(own[None], base[None]).tolist() == [[ratios[0], ratios[-1]]]


def test_many_pairs_use_a_fixed_sequence_of_draws() -> None:
    generator = np.random.default_rng(1)
    base = generator.normal(10, 1, (1, 40))
    ends = ratio_intervals(base * 0.8, base)
    assert ends == pytest.approx(np.array([[0.8, 0.8]]))
    noisy = base * generator.normal(0.8, 0.05, (1, 40))
    first, again = ratio_intervals(noisy, base), ratio_intervals(noisy, base)
    assert (first == again).all()
    assert first[0, 0] < (noisy.sum() / base.sum()) < first[0, 1]


def test_groups_of_one_pair_have_no_interval() -> None:
    group = np.array([0, 2, 2])
    ends = grouped_intervals(group, np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 2.0]), 3)
    assert np.isnan(ends[0]).all()
    assert np.isnan(ends[1]).all()
    assert ends[2].tolist() == [0.5, 1.0]


def test_effects_are_paired_by_repeat() -> None:
    made = study(
        record("fp32", repeat=0, step_s=0.2, memory_mib=100),
        record("fp32", repeat=1, step_s=0.4, memory_mib=100),
        record("amp", repeat=0, step_s=0.1, memory_mib=60),
        record("amp", repeat=1, step_s=0.3, memory_mib=60),
    )
    effect = compare.effects(made, match(made, {"precision": "fp32"})).iloc[1]
    assert effect["pairs"] == 2
    assert effect["memory_saved_percent"] == pytest.approx(40.0)
    assert effect["memory_saved_low_percent"] == pytest.approx(40.0)
    # Means 0.2 and 0.3: time 1/3 less, speed 1/2 more. Draws: 0.1/0.2, 0.4/0.6, 0.3/0.4.
    assert effect["time_saved_percent"] == pytest.approx(100 / 3)
    assert effect["time_saved_low_percent"] == pytest.approx(25.0)
    assert effect["time_saved_high_percent"] == pytest.approx(50.0)
    assert effect["speed_percent"] == pytest.approx(50.0)
    assert effect["speed_low_percent"] == pytest.approx(100 * (0.4 / 0.3 - 1))
    assert effect["speed_high_percent"] == pytest.approx(100.0)


def test_repeats_of_several_sweeps_are_paired_in_their_order() -> None:
    made = study(
        record("fp32", sweep="a", step_s=0.2),
        record("fp32", sweep="b", step_s=0.4),
        record("amp", sweep="c", step_s=0.1),
    )
    effect = compare.effects(made, match(made, {"precision": "fp32"})).iloc[1]
    assert effect["pairs"] == 1
    assert effect["time_saved_percent"] == pytest.approx(50.0)


def test_a_batch_that_differs_makes_no_pair() -> None:
    made = study(record("fp32", batch=64), record("amp", batch=128))
    assert math.isnan(compare.percent(made, find(made), "speed")[1])


def test_a_run_that_only_fits_with_the_change_is_a_finding() -> None:
    made = study(
        record("fp32", "off", status="oom", memory_mib=None, step_s=None, error="2 GiB"),
        record("fp32", "on"),
    )
    assert compare.fits_only(made, match(made, {"ckpt": "off"})) == [1]
