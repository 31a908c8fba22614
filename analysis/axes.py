"""Which keys vary between runs.

A config group (`precision=fp32,amp`) is one axis, however many keys its options set. A key that
differs for another reason (`batch.size=32,64`, `precision.compute=float16` under one option) is an
axis of its own. A key that only repeats the value of another one (`data.size: ${model.input_size}`)
is none, unless somebody typed it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sweeper.errors import UserError, nearest

# The usual axes, in the order in which a table shows them; `derive` gives each its column.
USUAL = ("model", "data", "precision", "ckpt", "accum", "gpus")

# Not part of what is measured (the same list keeps them out of the config id).
IGNORED = ("tracker", "sweep", "repeat", "rerun", "mode", "train.minutes", "import")

# How the values of an axis are ordered, where neither numbers nor the alphabet do it.
_ORDER = ("off", "fp32", "tf32", "amp", "amp_bf16", "amp_fp16", "bf16", "fp16", "fp8", "on")

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Axis:
    """One thing that varies: its short name and the frame column that holds its value."""

    name: str
    column: str


def text(value: Any) -> str:
    """A config value as one types it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def equal(value: Any, wanted: str) -> bool:
    """Whether a config value is what was typed: `1` is 1 and 1.0."""
    if text(value) == wanted:
        return True
    try:
        return not isinstance(value, bool) and float(value) == float(wanted)
    except (TypeError, ValueError):
        return False


def rank(value: Any) -> tuple[int, float, str]:
    """Sorts the values of an axis: numbers by size, known words from plain to elaborate."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float(value), ""
    shown = text(value)
    place = _ORDER.index(shown) if shown in _ORDER else len(_ORDER)
    return 1, float(place), shown


def codes(column: pd.Series[Any]) -> Codes:
    """Numbers that are equal where the values are; None is a value like any other."""
    values = column.to_numpy()
    found, _ = pd.factorize(values, use_na_sentinel=True)
    return found.astype(np.int64) + 1


def combine(parts: Iterable[Codes], length: int) -> Codes:
    """One code for each distinct combination, counted from 0 without gaps."""
    total = np.zeros(length, dtype=np.int64)
    for part in parts:
        total, _ = pd.factorize(total * (int(part.max(initial=0)) + 1) + part)
    return total


def _varies(column: pd.Series[Any]) -> bool:
    values = column.to_numpy()
    if len(values) < 2:
        return False
    first = values[0]
    differs = values != first if first is not None else ~pd.isna(values)
    return bool(np.any(differs))


def _count(part: Codes) -> int:
    return len(np.unique(part))


def _follows(column: pd.Series[Any], from_codes: Codes) -> bool:
    """Whether equal codes always mean equal values."""
    both = combine((from_codes, codes(column)), len(column))
    return _count(both) == _count(from_codes)


def _ignored(key: str) -> bool:
    return any(key == name or key.startswith(name + ".") for name in IGNORED) or key.startswith(
        "hydra"
    )


def _typed(frame: pd.DataFrame) -> set[str]:
    """Keys that somebody typed for some run."""
    keys: set[str] = set()
    for overrides in frame["overrides"].dropna().unique():
        for override in json.loads(overrides):
            keys.add(str(override).split("=", 1)[0].lstrip("+~"))
    return keys


def _groups(frame: pd.DataFrame) -> list[Axis]:
    chosen = [c.removeprefix("choices.") for c in frame.columns if c.startswith("choices.")]
    others = sorted(g for g in chosen if g not in USUAL and not _ignored(g))
    axes = [Axis(name, name) for name in USUAL]
    axes += [Axis(name, f"choices.{name}") for name in others]
    return [axis for axis in axes if _varies(frame[axis.column])]


def find_axes(frame: pd.DataFrame, by: Sequence[str] = ()) -> list[Axis]:
    """The axes of these runs: groups first, then single keys, `seed` last.

    Args:
        frame: one row per run.
        by: keys to show first, in this order, whether they vary or not.

    Raises:
        UserError: no run has a key of `by`.
    """
    groups = _groups(frame)
    chosen = {axis.name: codes(frame[axis.column]) for axis in groups}
    # Canonical columns of these groups already are axes, under the group's name.
    canonical = {f"config.{key}" for key in ("accum.steps", "gpus.count")}
    typed = _typed(frame)
    keys: list[Axis] = []
    values: list[npt.NDArray[np.object_]] = []  # of all varying keys so far
    for column in frame.columns:
        key = column.removeprefix("config.")
        if not column.startswith("config.") or _ignored(key) or not _varies(frame[column]):
            continue
        own = frame[column].to_numpy(dtype=object)
        group = key.split(".", 1)[0]
        covered = group in chosen and _follows(frame[column], chosen[group])
        repeats = any(np.array_equal(own, other) for other in values)
        values.append(own)
        if column not in canonical and (key in typed or not (covered or repeats)):
            keys.append(Axis(key, "seed" if key == "seed" else column))
    keys.sort(key=lambda axis: (axis.name == "seed", axis.name))
    found = [*groups, *keys]
    first = [resolve(frame, key) for key in by]
    return [*first, *(axis for axis in found if axis not in first)]


def resolve(frame: pd.DataFrame, key: str) -> Axis:
    """The axis of a key as one types it: `precision`, `batch.size`, `optim`.

    Raises:
        UserError: no run has such a key.
    """
    key = {"accum.steps": "accum", "gpus.count": "gpus"}.get(key, key)
    for column in (key, f"choices.{key}", f"config.{key}"):
        if column in frame.columns and (column != key or key in (*USUAL, "seed", "global_batch")):
            return Axis(key, column)
    names = [c.split(".", 1)[1] for c in frame.columns if c.startswith(("config.", "choices."))]
    near = nearest(key, [*USUAL, *names])
    raise UserError(key, "no run has such a key", f"did you mean {near}?" if near else "name a key")


def label(values: dict[str, Any]) -> str:
    """`precision=amp ckpt=on`."""
    return " ".join(f"{name}={text(value)}" for name, value in values.items())
