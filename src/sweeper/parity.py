"""Whether two runs' losses are the same, and how nearly.

Standard library only, so that the analysis can use it.

Losses that should be equal differ by rounding, and training amplifies rounding: each step starts
from weights that differ a little. How much differs from model to model. The tolerance here is the
usual rule that half of the digits survive, the square root of the dtype's epsilon, but never more
than 1 %, because losses further apart are not the same to anyone:

    float64 1.5e-8   float32 3.5e-4   tf32, float16, bfloat16, float8 1e-2

On a small Transformer (AdamW, learning rate 1e-3) accumulation over 4 micro-batches in float32 gave
1.2e-7 after 50 steps and 2.5e-4 after 200; autocast to bfloat16 against float32 gave 1.2e-3 after
200. At learning rate 1e-2 the first pair was 4e-4 apart after 50 steps: a long or restless training
leaves the tolerance by itself, and only its first steps tell a mistake from rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["equal bit for bit", "equal within rounding", "different"]

# Distance from 1 to the next number: 2 to the minus the bits of the fraction.
EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "tf32": 2.0**-10,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}

HIGHEST_TOLERANCE = 0.01


@dataclass(frozen=True)
class Parity:
    """How a variant's losses compare with a baseline's.

    Attributes:
        verdict: in words.
        max_relative_difference: highest of |variant - baseline| / |baseline|; infinite where one of
            the two is not finite, or the baseline is 0 and the variant is not.
        difference: variant - baseline at that step.
        step_of_max: the step, counted from 0; None where all are equal.
        tolerance: the highest relative difference that counts as rounding.
        steps: how many steps were compared.
    """

    verdict: Verdict
    max_relative_difference: float
    difference: float
    step_of_max: int | None
    tolerance: float
    steps: int


def tolerance_of(compute_dtype: str) -> float:
    """The relative difference that rounding in `compute_dtype` may cause.

    Raises:
        ValueError: unknown dtype.
    """
    return min(math.sqrt(_epsilon(compute_dtype)), HIGHEST_TOLERANCE)


def coarser(first: str, second: str) -> str:
    """The dtype with fewer digits: the one that limits a comparison of runs in both."""
    return max(first, second, key=_epsilon)


def compare_losses(
    baseline: Sequence[float],
    variant: Sequence[float],
    *,
    compute_dtype: str,
    tolerance: float | None = None,
) -> Parity:
    """Compare two loss curves step by step.

    Args:
        baseline: one loss a step, of the same samples in the same order as the variant's.
        variant: likewise. Where one is longer, the steps that both have are compared.
        compute_dtype: of matrix products; the coarser of the two runs'.
        tolerance: the relative difference that counts as rounding; None = by `compute_dtype`.

    Raises:
        ValueError: there is no step to compare, or the dtype is unknown.
    """
    pairs = list(zip(baseline, variant, strict=False))
    if not pairs:
        raise ValueError("no step has a loss in both runs")
    if tolerance is None:
        tolerance = tolerance_of(compute_dtype)
    relative = [_relative(b, v) for b, v in pairs]
    step = max(range(len(pairs)), key=relative.__getitem__)
    highest = relative[step]
    verdict: Verdict = "different"
    if highest == 0:
        verdict = "equal bit for bit"
    elif highest <= tolerance:
        verdict = "equal within rounding"
    return Parity(
        verdict=verdict,
        max_relative_difference=highest,
        difference=pairs[step][1] - pairs[step][0],
        step_of_max=None if highest == 0 else step,
        tolerance=tolerance,
        steps=len(pairs),
    )


def _epsilon(dtype: str) -> float:
    name = dtype.removeprefix("torch.")
    if name not in EPSILON:
        raise ValueError(f"unknown dtype {dtype!r}; known are {', '.join(EPSILON)}")
    return EPSILON[name]


def _relative(baseline: float, variant: float) -> float:
    if not (math.isfinite(baseline) and math.isfinite(variant)):
        return math.inf
    if baseline == variant:
        return 0.0
    return abs(variant - baseline) / abs(baseline) if baseline else math.inf
