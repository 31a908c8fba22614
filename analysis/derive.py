"""The columns that `analysis.frame` promises beside the record's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.columns import Problem
from analysis.frame import column, first_of, translate
from analysis.schema import kinds

# Versions that must agree. The commit is not among them: somebody may commit while a sweep runs,
# and most commits do not touch what is measured; where it differs the tables say so.
SOFTWARE = ("python", "torch", "cuda", "cudnn", "nccl", "driver", "sweeper")

# Peaks that count as the headline, in order of preference, and the kind of memory each counts.
MEASURED_PEAKS = (
    ("memory.warm.peak_allocated_bytes", "allocated"),
    ("memory.warm.peak_tensor_bytes", "live tensors"),
)
IMPORTED_PEAKS = (
    *MEASURED_PEAKS,
    ("memory.warm.peak_reserved_bytes", "reserved"),
    ("memory.warm.peak_device_bytes", "device"),
)

# What no run has none of: a figure of 0 there was not measured.
_POSITIVE = (
    "time.step_time_s",
    "time.step_time_q1_s",
    "time.step_time_q3_s",
    "time.samples_per_s",
    *(f"numerics.{name}" for name in ("global_batch", "micro_batch", "accumulation", "parameters")),
    *(f"hardware.{name}" for name in ("world_size", "nodes", "cpu_count", "device_memory_bytes")),
    *(name for name in kinds() if ".peak_" in name and name.endswith("_bytes")),
)
# Parts of a whole may be 0; what is left over after them may also be less.
_NOT_NEGATIVE = tuple(
    name
    for name in kinds()
    if ".parts." in name and name not in ("memory.parts.remainder_bytes", "time.parts.rest_s")
)


def without_impossible(frame: pd.DataFrame, problems: list[Problem]) -> pd.DataFrame:
    """Figures that cannot be, such as a step that took no time, as not measured; each is reported.

    A ratio with such a figure would be infinite or mean nothing.
    """
    replaced: dict[str, Any] = {}
    for names, least in ((_POSITIVE, "above 0"), (_NOT_NEGATIVE, "0 or more")):
        for name in names:
            values = frame[name].to_numpy(dtype=np.float64)
            wrong = values <= 0 if least == "above 0" else values < 0
            if not wrong.any():
                continue
            for row in np.flatnonzero(wrong).tolist():
                message = f"{name} is {values[row]:g}, not {least}; taken as not measured"
                problems.append(Problem(str(frame["where"].iloc[row]), message))
            replaced[name] = np.where(wrong, np.nan, values)
    return frame.assign(**replaced) if replaced else frame


def _whole(value: Any) -> Any:
    """1.0 and "1" as 1; anything else as it is."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    return int(number) if number.is_integer() else value


def _last_name(target: Any) -> str:
    return str(target).rsplit(".", 1)[-1]


def _on_off(value: Any) -> str:
    return {True: "on", False: "off", "true": "on", "false": "off"}.get(value, str(value))


def _axes(frame: pd.DataFrame) -> dict[str, pd.Series[Any]]:
    return {
        "precision": first_of(
            column(frame, "choices.precision"),
            column(frame, "config.precision.name"),
            column(frame, "numerics.precision"),
        ),
        "ckpt": translate(
            first_of(column(frame, "choices.ckpt"), column(frame, "config.ckpt.enabled")), _on_off
        ),
        "accum": translate(
            first_of(column(frame, "config.accum.steps"), column(frame, "numerics.accumulation")),
            _whole,
        ),
        "gpus": translate(
            first_of(column(frame, "config.gpus.count"), column(frame, "hardware.world_size")),
            _whole,
        ),
        "model": first_of(
            column(frame, "choices.model"),
            translate(column(frame, "config.model._target_"), _last_name),
        ),
        "data": first_of(
            column(frame, "choices.data"),
            translate(column(frame, "config.data._target_"), _last_name),
        ),
        "seed": translate(column(frame, "config.seed"), _whole),
    }


def _number(series: pd.Series[Any]) -> pd.Series[float]:
    return pd.to_numeric(series, errors="coerce").astype("float64")


def _positive(series: pd.Series[float]) -> pd.Series[float]:
    """Without what no batch and no rate can be: 0, negative, infinite."""
    return series.where((series > 0) & (series < np.inf))


def _batches(frame: pd.DataFrame, axes: dict[str, pd.Series[Any]]) -> dict[str, pd.Series[float]]:
    """From what ran; for a run that never ran, from its config (micro x accumulation x gpus)."""
    gpus, accum = _number(axes["gpus"]), _number(axes["accum"])
    per_gpu = _number(column(frame, "config.batch.per_gpu"))
    planned = (per_gpu * gpus).fillna(_number(column(frame, "config.batch.size")))
    whole = frame["numerics.global_batch"].fillna(_positive(planned))
    share = _positive(whole / (gpus * accum))
    return {"global_batch": whole, "micro_batch": frame["numerics.micro_batch"].fillna(share)}


def _speeds(frame: pd.DataFrame, batch: pd.Series[float]) -> dict[str, pd.Series[float]]:
    """Step time and throughput are one figure; where a source gives one, the other follows."""
    time, rate = frame["time.step_time_s"], frame["time.samples_per_s"]
    return {
        "time.step_time_s": time.fillna(_positive(batch / rate)),
        "time.samples_per_s": rate.fillna(_positive(batch / time)),
    }


def _peaks(frame: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[Any]]:
    imported = frame["source"].to_numpy() == "imported"
    size = np.full(len(frame), np.nan)
    kind = np.full(len(frame), None, dtype=object)
    for name, label in IMPORTED_PEAKS:
        values = frame[name].to_numpy()
        usable = np.isnan(size) & ~np.isnan(values)
        if (name, label) not in MEASURED_PEAKS:
            usable &= imported
        size[usable], kind[usable] = values[usable], label
    stated = column(frame, "config.import.memory_kind").to_numpy()
    known = ~pd.isna(stated) & ~np.isnan(size)
    kind[known] = stated[known]
    return pd.Series(size, index=frame.index), pd.Series(kind, index=frame.index, dtype=object)


def _joined(frame: pd.DataFrame, names: Sequence[str], labels: Sequence[str]) -> pd.Series[Any]:
    """The distinct combinations of some columns as text; None where none of them is known."""
    codes = np.zeros(len(frame), dtype=np.int64)
    for name in names:
        found, distinct = pd.factorize(frame[name].to_numpy(dtype=object))
        codes, _ = pd.factorize(codes * (len(distinct) + 1) + found + 1)
    text = []
    for row in np.unique(codes, return_index=True)[1]:
        values = [frame[name].iloc[row] for name in names]
        pairs = zip(labels, values, strict=True)
        text.append(" ".join(f"{k} {v}".strip() for k, v in pairs if not pd.isna(v)) or None)
    return pd.Series(np.array([*text, None], dtype=object)[codes], index=frame.index, dtype=object)


def _machine(frame: pd.DataFrame) -> pd.Series[Any]:
    on_cpu = frame["hardware.device"].to_numpy() == "cpu"
    cores = translate(frame["hardware.cpu_count"], lambda n: f"({int(n)} cores)")
    name = first_of(frame["hardware.cpu_name"], frame["hardware.device_name"])
    cpu_name = _joined(frame.assign(name=name, cores=cores), ("name", "cores"), ("CPU", ""))
    return frame["hardware.device_name"].where(~on_cpu, cpu_name)


def _same_in_sweep(frame: pd.DataFrame, series: pd.Series[Any]) -> pd.Series[Any]:
    """Fill in for runs that never got to say: what all other runs of their sweep have in common."""
    missing = series.isna()
    if not missing.any():
        return series
    grouped = series.groupby(frame["sweep"], sort=False)
    common = grouped.transform("first").where(grouped.transform("nunique") == 1, None)
    return series.where(~missing, common)


def _reason(frame: pd.DataFrame) -> pd.Series[Any]:
    """One line for each run that did not complete."""
    reason = np.full(len(frame), None, dtype=object)
    message, phase = frame["error.message"].to_numpy(), frame["phase"].to_numpy()
    for i in np.flatnonzero((frame["status"] != "completed").to_numpy()):
        first_line = str(message[i] or "").strip().split("\n", 1)[0]
        where = f"in {phase[i]}" if phase[i] not in (None, "done") else ""
        reason[i] = first_line or where or "no reason recorded"
    return pd.Series(reason, index=frame.index, dtype=object)


def derive(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the columns that the module's docstring names."""
    axes = _axes(frame)
    peak, kind = _peaks(frame)
    added: dict[str, pd.Series[Any]] = {
        **axes,
        **_batches(frame, axes),
        "repeat": frame["repeat"].fillna(0.0),
        "source": frame["source"].fillna("measured"),
        "peak_bytes": peak,
        "peak_kind": kind,
        "machine": _same_in_sweep(frame, _machine(frame)),
        "software": _same_in_sweep(
            frame, _joined(frame, [f"software.{s}" for s in SOFTWARE], SOFTWARE)
        ),
        "reason": _reason(frame),
    }
    added.update(_speeds(frame, added["global_batch"]))
    kept = frame.drop(columns=[name for name in added if name in frame.columns])
    return pd.concat([kept, pd.DataFrame(added)], axis=1)
