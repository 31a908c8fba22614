"""The figures that a claim can be about, and the configurations that it speaks of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.axes import equal, resolve, text
from analysis.baseline import axis_values
from analysis.frame import translate
from analysis.study import Floats, Study
from sweeper.errors import UserError

Mask = npt.NDArray[np.bool_]


class Change(NamedTuple):
    """A figure of a pair: the column compared, and what becomes of the ratio new / old.

    Of `time.samples_per_s` the ratio is that of the rates, computed from times.
    """

    column: str
    of_ratio: Callable[[Floats, Floats], Floats]  # ratios, GPUs of the variant


CHANGES: dict[str, Change] = {
    "memory_saved_percent": Change("peak_bytes", lambda r, _: 100 * (1 - r)),
    "time_saved_percent": Change("time.step_time_s", lambda r, _: 100 * (1 - r)),
    "speed_percent": Change("time.samples_per_s", lambda r, _: 100 * (r - 1)),
    "speed_up": Change("time.samples_per_s", lambda r, _: r),
    "efficiency_percent": Change("time.samples_per_s", lambda r, gpus: 100 * r / gpus),
    "weak_efficiency_percent": Change("time.samples_per_s", lambda r, gpus: 100 * r / gpus),
    "train_loss_percent": Change("loss.train_last", lambda r, _: 100 * (r - 1)),
    "validation_loss_percent": Change("loss.validation_last", lambda r, _: 100 * (r - 1)),
    "parity_percent": Change("", lambda r, _: 100 * r),
}


def _ratio(above: Floats, below: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / below, np.nan)


def used_bytes(study: Study) -> Floats:
    """For each configuration, what it held of the device; where unknown, of the allocator."""
    device = study.mean("memory.warm.peak_device_bytes")
    return np.where(np.isnan(device), study.mean("memory.warm.peak_reserved_bytes"), device)


def _formula(study: Study) -> Floats:
    parts = ("parameters", "gradients", "optimizer", "activations")
    return sum(
        (study.mean(f"memory.parts.{part}_bytes") for part in parts),
        start=np.zeros(len(study.configurations)),
    )


def _largest_other(study: Study) -> Floats:
    """For each configuration, the largest part of its memory that is no activations, bytes."""
    parts = ("parameters", "gradients", "optimizer", "ema", "buckets", "data")
    sizes = [study.mean(f"memory.parts.{part}_bytes") for part in parts]
    return np.asarray(np.fmax.reduce(sizes), dtype=np.float64)


RUN_FIGURES: dict[str, Callable[[Study], Floats]] = {
    "peak_bytes": lambda s: s.mean("peak_bytes"),
    "used_bytes": used_bytes,
    "activations_bytes": lambda s: s.mean("memory.parts.activations_bytes"),
    "activations_over_parameters": lambda s: _ratio(
        s.mean("memory.parts.activations_bytes"), s.mean("memory.parts.parameters_bytes")
    ),
    "activations_over_largest_other": lambda s: _ratio(
        s.mean("memory.parts.activations_bytes"), _largest_other(s)
    ),
    "peak_over_formula": lambda s: s.mean("memory.peak_over_formula"),
    "used_over_formula": lambda s: _ratio(used_bytes(s), _formula(s)),
    "step_time_s": lambda s: s.mean("time.step_time_s"),
    "samples_per_s": lambda s: s.mean("time.samples_per_s"),
    "train_loss": lambda s: s.mean("loss.train_last"),
    "validation_loss": lambda s: s.mean("loss.validation_last"),
    "gpu_percent": lambda s: s.mean("utilization.gpu_percent"),
}

# Keys of `where` that are no config keys -> columns of the frame.
_PLAIN = {
    **{key: key for key in ("machine", "source", "global_batch", "micro_batch", "software")},
    "parameters": "numerics.parameters",
}

# Of `where`: a list of conditions of which one suffices.
ANY_OF = "any_of"

_SIDES = re.compile(r"\d+(?:x\d+)+")


def values_of(study: Study, key: str) -> pd.Series[Any]:
    """A key's value for each configuration.

    Raises:
        UserError: no run has such a key.
    """
    if key in _PLAIN:
        rows = study.configurations["run"].to_numpy()
        return study.frame[_PLAIN[key]].iloc[rows].reset_index(drop=True)
    return axis_values(study, resolve(study.frame, key))


def numbers_of(study: Study, key: str) -> Floats:
    """A key's value for each configuration as a number; NaN where it is none.

    A size in words counts by its side: `256x256 image` is 256, `video 16x512x512` is 512.

    Raises:
        UserError: no run has such a key.
    """

    def side(value: Any) -> float:
        sides = _SIDES.search(value) if isinstance(value, str) else None
        found = sides[0].rsplit("x", 1)[-1] if sides else value
        try:
            return float(found)
        except (TypeError, ValueError):
            return float("nan")

    return translate(values_of(study, key), side).to_numpy(dtype=np.float64)


def as_number(end: Any) -> float | None:
    """An end of a range; None where it is no number. YAML reads 1.4e8 as text."""
    try:
        return None if isinstance(end, bool) else float(end)
    except (TypeError, ValueError, OverflowError):
        return None


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_fits(value, one) for one in wanted)
    if isinstance(wanted, bool):  # YAML reads on and off so
        return equal(value, "on" if wanted else "off") or equal(value, text(wanted))
    if not isinstance(wanted, Mapping):
        return equal(value, text(wanted))
    for sign, end in wanted.items():
        if sign == "contains":
            if str(end).lower() not in text(value).lower():
                return False
        elif sign in ("at_least", "at_most"):
            limit = as_number(end)
            if limit is None:
                raise UserError(str(end), "is not a number", f"give {sign} one")
            try:
                found = float(value)
            except (TypeError, ValueError):
                return False
            if not (found >= limit if sign == "at_least" else found <= limit):
                return False
        else:
            raise UserError(str(sign), "is no condition", "use at_least, at_most or contains")
    return True


def select(study: Study, conditions: Mapping[str, Any]) -> Mask:
    """The configurations that meet every condition.

    Args:
        conditions: key -> a value, a list of values, or `at_least`, `at_most`, `contains`; ANY_OF
            -> a list of such conditions.

    Raises:
        UserError: no run has one of the keys; of ANY_OF, a key of each.
    """
    chosen = np.ones(len(study.configurations), dtype=np.bool_)
    for key, wanted in conditions.items():
        if key == ANY_OF:
            chosen &= _any_of(study, wanted)
            continue
        found, distinct = pd.factorize(values_of(study, key).to_numpy(dtype=object))
        meeting = [_fits(value, wanted) for value in distinct] + [_fits(None, wanted)]
        chosen &= np.array(meeting, dtype=np.bool_)[found]  # -1, absent, is the last
    return chosen


def _any_of(study: Study, conditions: Any) -> Mask:
    """The configurations that meet one of several conditions; one with an unknown key is passed."""
    if not isinstance(conditions, list) or not all(isinstance(c, Mapping) for c in conditions):
        raise UserError(ANY_OF, "is no list of conditions", "give it a list of keys and values")
    chosen, unknown = np.zeros(len(study.configurations), dtype=np.bool_), []
    for one in conditions:
        try:
            for key in one:
                values_of(study, key)
        except UserError as error:
            unknown.append(error)
        else:
            chosen |= select(study, one)
    if unknown and len(unknown) == len(conditions):
        raise unknown[0]
    return chosen
