"""Comparing ways of doing the same work: in turns, in one process, in a random order.

The load of a machine drifts and jumps, so times of two programs that run one after the other say
little. Here every round does one block of each, close together, and only ratios within a round are
used: their median over the rounds, with an interval from the bootstrap over rounds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
DRAWS = 4000


@dataclass(frozen=True)
class Ratio:
    """A ratio and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


def alternate(
    arms: Mapping[str, Callable[[], float]], rounds: int, seed: int
) -> dict[str, list[float]]:
    """Do one block of every arm in each round, in an order drawn anew each time.

    Args:
        arms: name -> does one block, returns its seconds a step.
        rounds: how often.
        seed: of the orders.

    Returns:
        name -> seconds a step, one for each round.
    """
    order = random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name in order.sample(list(arms), len(arms)):
            times[name].append(arms[name]())
    return times


def ratio(own: Sequence[float], base: Sequence[float], seed: int = 0) -> Ratio:
    """The median over rounds of own / base. Of a single round the interval is that one value."""
    ratios = np.asarray(own, dtype=np.float64) / np.asarray(base, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(len(ratios), size=(DRAWS, len(ratios)))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(np.median(ratios[draws], axis=1), [tail, 1 - tail])
    return Ratio(float(np.median(ratios)), float(low), float(high))


def load_line() -> str:
    """What else the machine did: to be printed beside any time."""
    one, five, _ = os.getloadavg()
    return f"load average {one:.1f} (1 min), {five:.1f} (5 min) on {os.cpu_count()} cores"
