"""Comparing ways of doing the same work: in turns, in one process, in a random order.

The load of a machine drifts and jumps, so times of two programs that run one after the other say
little. Here every round does one block of each, close together, and only ratios within a round are
used: their median over the rounds, with an interval from the bootstrap over rounds.

Two clocks run: the wall's, and the CPU time of all threads of this process. On a busy machine the
second is far steadier. It does not see a thread that waits, and says nothing of a GPU.
"""

from __future__ import annotations

import os
import random
import statistics
import time
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


@dataclass(frozen=True)
class Seconds:
    """Of one step, the mean of a block's."""

    wall: float
    cpu: float


Times = dict[str, list[Seconds]]  # way -> its blocks


def timed(block: Callable[[], object], steps: int, wait: Callable[[], object]) -> Seconds:
    """Do one block.

    Args:
        block: does `steps` steps.
        steps: their number.
        wait: waits until the device has done all it was given.
    """
    wait()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    block()
    wait()
    return Seconds(
        wall=(time.perf_counter() - wall_s) / steps, cpu=(time.process_time() - cpu_s) / steps
    )


def alternate(arms: Mapping[str, Callable[[], Seconds]], rounds: int, seed: int) -> Times:
    """Do one block of every arm in each round, in an order drawn anew each time.

    Args:
        arms: name -> does one block.
        rounds: how often.
        seed: of the orders.

    Returns:
        name -> its blocks, one for each round.
    """
    order = random.Random(seed)
    times: Times = {name: [] for name in arms}
    for _ in range(rounds):
        for name in order.sample(list(arms), len(arms)):
            times[name].append(arms[name]())
    return times


def on_clock(blocks: Sequence[Seconds], clock: str) -> list[float]:
    """The blocks' seconds a step by `wall` or `cpu`."""
    return [getattr(block, clock) for block in blocks]


def compare(times: Times, own: str, base: str, clock: str) -> Ratio:
    """`ratio` of two ways by one clock."""
    return ratio(on_clock(times[own], clock), on_clock(times[base], clock))


def describe(times: Times, base: str) -> str:
    """A line for each way and clock, with its ratio to `base`."""
    lines = []
    for clock in ("wall", "cpu"):
        for name, blocks in times.items():
            values = [1e3 * value for value in on_clock(blocks, clock)]
            lines.append(
                f"{clock} {name}: median {statistics.median(values):.2f} ms a step, fastest block "
                f"{min(values):.2f}, slowest {max(values):.2f}; "
                f"over {base} {compare(times, name, base, clock)}"
            )
    return "\n".join(lines)


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
