"""The one frame that every table is a function of: a row is a run.

Columns
    Fields of the record under their dotted path, units in the name: `time.step_time_s`,
    `memory.warm.peak_tensor_bytes`, `loss.validation_last`, `error.message`. Fields of the identity
    have no prefix: `sweep`, `run_id`, `config_id`, `repeat`, `variant`, `overrides`, `command`.
    Config keys and choices are `config.<dotted key>` and `choices.<group>`; lists are compact
    JSON text, so that every value can be compared and grouped.
    Numbers of the schema are float64 and NaN where not measured; everything else is an object and
    None where absent. A config key that is null and one that is absent are both None.

Added by `analysis.derive`
    precision, ckpt, accum, gpus, model, data   the usual axes under one name, whatever set them
    global_batch, micro_batch, seed, repeat
    peak_bytes, peak_kind    the headline peak of the steady state, and what was counted
    machine, software        what must agree before two runs are compared
    reason                   one line: why a run did not complete
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.columns import Chunk, Coded, Encoded, distinct_key
from analysis.schema import kinds


def _join_coded(parts: list[tuple[int, Encoded | None]]) -> npt.NDArray[np.object_]:
    key = distinct_key([v for _, p in parts if isinstance(p, Coded) for v in p.values])
    index: dict[Any, int] = {}
    values: list[Any] = []
    codes = []
    for length, part in parts:
        if not isinstance(part, Coded):
            codes.append(np.full(length, -1, dtype=np.int32))
            continue
        renumber = np.full(len(part.values) + 1, -1, dtype=np.int32)
        for i, value in enumerate(part.values):
            renumber[i] = index.setdefault(value if key is None else key(value), len(index))
            if len(index) > len(values):
                values.append(value)
        codes.append(renumber[part.codes])
    pool = np.empty(len(values) + 1, dtype=object)
    pool[:-1] = values
    return pool[np.concatenate(codes)]


def join(chunks: Sequence[Chunk]) -> pd.DataFrame:
    """The chunks' columns as one frame, before anything is derived from them."""
    names = {name: None for chunk in chunks for name in chunk.columns}
    numeric = {name for name, kind in kinds().items() if kind in ("number", "integer")}
    data: dict[str, Any] = {}
    for name in names:
        parts = [(chunk.length, chunk.columns.get(name)) for chunk in chunks]
        if name in numeric:
            data[name] = np.concatenate([p for _, p in parts if isinstance(p, np.ndarray)])
        else:
            data[name] = pd.Series(_join_coded(parts), dtype=object)
    return pd.DataFrame(data)


def as_frame(data: Mapping[str, Any]) -> pd.DataFrame:
    """Columns as a frame that keeps None where it stands: pandas would make it NaN among texts."""
    kept = {}
    for name, values in data.items():
        if isinstance(values, list) or getattr(values, "dtype", None) == np.dtype(object):
            values = pd.Series(np.asarray(values, dtype=object), dtype=object)
        kept[name] = values
    return pd.DataFrame(kept)


def column(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    """The column, or one of None where no run has it."""
    if name in frame.columns:
        return frame[name]
    return pd.Series([None] * len(frame), index=frame.index, dtype=object)


def first_of(*columns: pd.Series[Any]) -> pd.Series[Any]:
    """Row by row the first value that is present."""
    values = columns[0].astype(object).to_numpy(copy=True)
    for other in columns[1:]:
        missing = pd.isna(values)
        if not missing.any():
            break
        values[missing] = other.astype(object).to_numpy()[missing]
    values[pd.isna(values)] = None
    return pd.Series(values, index=columns[0].index, dtype=object)


def translate(series: pd.Series[Any], function: Any) -> pd.Series[Any]:
    """Apply `function` to each distinct value once; None stays None."""
    codes, distinct = pd.factorize(series.to_numpy(dtype=object))
    pool = np.empty(len(distinct) + 1, dtype=object)
    pool[:-1] = [function(v) for v in distinct]
    return pd.Series(pool[codes], index=series.index, dtype=object)
