"""Starting runs in three ways does the same work in all, and says what each costs."""

from __future__ import annotations

import importlib.util

import pytest
from test_bench_programs import last_line

from bench.dispatch import largest_batch


def test_batches_fit_into_memory() -> None:
    assert 1 <= largest_batch(3) <= 3
    assert largest_batch(10**9) < 10**6


def test_the_three_ways_side_by_side() -> None:
    if importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is None:
        pytest.skip("hydra-submitit-launcher is not installed")
    values = last_line("bench/dispatch.py", "--quick")
    assert values["ours_over_hsl"] > 0
    assert values["ours_over_python"] > 0
    assert values["seconds_per_run"] > 0
