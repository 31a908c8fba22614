"""Intervals of ratios by the paired bootstrap over repeats.

A repeat of a configuration and the same repeat of its baseline are one pair; pairs are drawn with
replacement, and the ratio of the means is taken of each draw. Up to 7 pairs every possible draw is
counted with its weight, so that the interval is exact; with more, a fixed sequence of random draws
is used. One pair has no interval. Few pairs give narrow intervals: the number of pairs belongs
beside them (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13).
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
EXACT_UP_TO = 7
DRAWS = 2000
SEED = 0
MOST_PRODUCTS = 200_000_000


def draws(pairs: int, rows: int = 1) -> tuple[Floats, Floats]:
    """How often each pair is in a draw (draws x pairs), and how likely the draw is.

    Args:
        rows: how many rows of figures they are for; very many get fewer random draws.
    """
    return _draws(pairs, min(DRAWS, max(200, MOST_PRODUCTS // (pairs * rows))))


@lru_cache(maxsize=32)
def _draws(pairs: int, number: int) -> tuple[Floats, Floats]:
    if pairs <= EXACT_UP_TO:
        rows, weights = [], []
        for chosen in itertools.combinations_with_replacement(range(pairs), pairs):
            counts = np.bincount(chosen, minlength=pairs)
            ways = math.factorial(pairs)
            for count in counts.tolist():
                ways //= math.factorial(count)
            rows.append(counts)
            weights.append(ways / pairs**pairs)
        return np.array(rows, dtype=np.float64), np.array(weights)
    generator = np.random.default_rng(SEED)
    counts = generator.multinomial(pairs, [1 / pairs] * pairs, size=number)
    return counts.astype(np.float64), np.full(number, 1 / number)


def quantiles(values: Floats, weights: Floats, levels: tuple[float, float]) -> Floats:
    """Of each row of `values`: the smallest value below which a share of `levels` lies."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    shares = np.cumsum(weights[order], axis=1)
    ends = [np.argmax(shares >= level - 1e-12, axis=1) for level in levels]
    rows = np.arange(len(values))
    return np.stack([ordered[rows, end] for end in ends], axis=1)


def ratio_intervals(own: Floats, base: Floats) -> Floats:
    """Intervals of mean(own) / mean(base), row by row.

    Args:
        own, base: rows x pairs, at least 2 pairs.

    Returns:
        rows x 2: lower and upper end, at the level LEVEL.
    """
    counts, weights = draws(own.shape[1], len(own))
    result = np.empty((len(own), 2))
    block = max(1, 4_000_000 // len(counts))
    tail = (1 - LEVEL) / 2
    for start in range(0, len(own), block):
        rows = slice(start, start + block)
        ratios = (own[rows] @ counts.T) / (base[rows] @ counts.T)
        if weights.min() > tail:  # up to 3 pairs: no draw is rare enough to lie outside
            result[rows, 0], result[rows, 1] = ratios.min(axis=1), ratios.max(axis=1)
            continue
        result[rows] = quantiles(ratios, weights, (tail, 1 - tail))
    return result


def grouped_intervals(
    group: npt.NDArray[np.int64], own: Floats, base: Floats, count: int
) -> Floats:
    """`ratio_intervals` of each group of pairs; NaN for groups of fewer than 2.

    Args:
        group: for each pair, its group in 0..count-1.
        own, base: the figures of each pair.

    Returns:
        count x 2.
    """
    result = np.full((count, 2), np.nan)
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group, minlength=count)
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[sizes > 1]).tolist():
        rows = np.flatnonzero(sizes == size)
        places = order[starts[rows][:, None] + np.arange(size)]
        result[rows] = ratio_intervals(own[places], base[places])
    return result
