"""What is to be compared, and what the words of a question mean among some runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.axes import USUAL, Axis, equal, rank, resolve, text
from sweeper.errors import UserError

# What must agree before two runs are compared, beside every axis that is not the one compared.
CONTEXT = ("source", "machine", "software")

# What a run and its baseline may differ in where somebody asks for it.
MIXABLE = (*CONTEXT, "batch")

# Values named where a baseline has one that no run has.
_MOST_VALUES = 12


@dataclass(frozen=True)
class Question:
    """What is to be compared.

    Attributes:
        baseline: key -> value as typed; completes or replaces the default baseline.
        by: keys to show as axes although they do not vary, or would be folded (`seed`).
        mix: which of MIXABLE may differ between a run and its baseline; `batch` is the global one.
    """

    baseline: Mapping[str, str] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    mix: frozenset[str] = frozenset()


def names_batch(key: str) -> bool:
    """Whether a key sets the number of samples of a step."""
    return key in ("batch", "global_batch") or key.startswith("batch.")


def _option(frame: pd.DataFrame, axis: Axis, value: str) -> tuple[str, str]:
    """The axis as the tables name it: `precision.name=amp` is precision=amp, where it says as much.

    A key below a group is the group's option where exactly the runs of one option have that value.
    """
    group = axis.name.split(".", 1)[0]
    if group not in USUAL or group == axis.name:
        return axis.name, value
    having = frame[axis.column].map(lambda found: equal(found, value))
    options = frame[group][having].unique()
    if len(options) == 1 and bool(frame[group].eq(options[0]).eq(having).all()):
        return group, text(options[0])
    return axis.name, value


def _checked(frame: pd.DataFrame, key: str, axis: Axis, value: str) -> None:
    values: list[Any] = sorted(frame[axis.column].unique(), key=rank)
    if any(equal(found, value) for found in values):
        return
    shown = ", ".join(text(found) for found in values[:_MOST_VALUES])
    more = f" and {len(values) - _MOST_VALUES:,} more" if len(values) > _MOST_VALUES else ""
    raise UserError(f"{key}={value}", "no run has this value", f"use one of {shown}{more}")


def normalized(baseline: Mapping[str, str], frame: pd.DataFrame) -> dict[str, str]:
    """The stated baseline by the names of the axes: `gpus.count=4` is gpus=4.

    Args:
        frame: one row per run; where it has none, nothing is checked.

    Raises:
        UserError: no run has such a key or such a value, or two keys say different things.
    """
    if not len(frame):
        return dict(baseline)
    found: dict[str, str] = {}
    for key, value in baseline.items():
        axis = resolve(frame, key)
        _checked(frame, key, axis, value)
        name, option = _option(frame, axis, value)
        if found.setdefault(name, option) != option:
            raise UserError(f"{key}={value}", f"is also given as {found[name]}", "state it once")
    return found
