"""The benches' statistics, on times that are known."""

from __future__ import annotations

import random

import pytest

from bench.pairs import Seconds, alternate, compare, ratio


def test_the_ratio_survives_a_machine_that_slows_down_tenfold() -> None:
    noise = random.Random(0)
    drift = [1 + 9 * i / 200 for i in range(200)]
    base = [d * noise.uniform(0.95, 1.05) for d in drift]
    own = [1.02 * d * noise.uniform(0.95, 1.05) for d in drift]
    found = ratio(own, base)
    assert found.low < 1.02 < found.high
    assert found.value == pytest.approx(1.02, abs=0.01)
    assert found.high - found.low < 0.03


def test_one_round_has_no_width() -> None:
    found = ratio([3.0], [2.0])
    assert (found.value, found.low, found.high) == (1.5, 1.5, 1.5)


def test_every_round_does_every_way_once_in_an_order_of_its_own() -> None:
    done: list[str] = []

    def arm(name: str, wall: float) -> Seconds:
        done.append(name)
        return Seconds(wall=wall, cpu=wall / 2)

    arms = {"a": lambda: arm("a", 3.0), "b": lambda: arm("b", 2.0), "c": lambda: arm("c", 1.0)}
    times = alternate(arms, 40, seed=0)
    rounds = [tuple(done[i : i + 3]) for i in range(0, len(done), 3)]
    assert all(set(order) == {"a", "b", "c"} for order in rounds)
    assert len(set(rounds)) == 6  # all orders come up
    assert compare(times, "a", "b", "wall").value == 1.5
    assert compare(times, "a", "b", "cpu").value == 1.5
    again: list[str] = list(done)
    done.clear()
    alternate(arms, 40, seed=0)
    assert done == again
