"""A record as flat figures, for a tracker's run table.

The figures are for the eye. The record itself travels beside them, whole, as one string: a table
built from the tracker is then equal to one built from the files, and a listing of runs brings it
along without a further call for each run.
"""

from __future__ import annotations

import json
from typing import Any

from sweeper.record import Record, RecordError, from_plain, to_plain

RECORD_KEY = "record"

_MIB = 2**20


def _mib(value: int | None) -> float | None:
    return None if value is None else value / _MIB


def _ms(value: float | None) -> float | None:
    return None if value is None else value * 1e3


def summary_of(record: Record) -> dict[str, Any]:
    """The record's main figures by flat name, and the record as JSON under `record`.

    What was not measured is left out. Memory in MiB, times in ms or s as the name says; the peaks
    are of the steady state, `memory/cold_peak_mib` covers the start and the warm-up.
    """
    memory, time, loss = record.memory, record.time, record.loss
    parts, shares = memory.parts, time.parts
    figures: dict[str, Any] = {
        "status": record.status.value,
        "phase": record.phase,
        "attempt": record.attempt,
        "error": record.error and f"{record.error.type}: {record.error.message}",
        "memory/peak_mib": _mib(memory.warm.headline_bytes),
        "memory/cold_peak_mib": _mib(memory.cold.headline_bytes),
        "memory/reserved_mib": _mib(memory.warm.peak_reserved_bytes),
        "memory/device_mib": _mib(memory.warm.peak_device_bytes),
        "memory/parameters_mib": _mib(parts.parameters_bytes),
        "memory/gradients_mib": _mib(parts.gradients_bytes),
        "memory/optimizer_mib": _mib(parts.optimizer_bytes),
        "memory/activations_mib": _mib(parts.activations_bytes),
        "perf/step_time_ms": _ms(time.step_time_s),
        "perf/samples_per_s": time.samples_per_s,
        "perf/data_wait_ms": _ms(shares.data_wait_s),
        "perf/forward_ms": _ms(shares.forward_s),
        "perf/backward_ms": _ms(shares.backward_s),
        "perf/communication_ms": _ms(shares.communication_s),
        "perf/optimizer_ms": _ms(shares.optimizer_s),
        "perf/gpu_percent": record.utilization.gpu_percent,
        "perf/mfu": time.mfu,
        "perf/run_s": time.run_s,
        "loss/train": loss.train_last,
        "loss/train_first": loss.train_first,
        "loss/validation": loss.validation_last,
        "loss/validation_first": loss.validation_first,
    }
    summary = {key: value for key, value in to_plain(figures).items() if value is not None}
    summary[RECORD_KEY] = json.dumps(to_plain(record), separators=(",", ":"), ensure_ascii=False)
    return summary


def record_of(summary: dict[str, Any]) -> Record:
    """The record that `summary_of` put into a summary, unchanged.

    Raises:
        RecordError: there is none, or it cannot be read.
    """
    text = summary.get(RECORD_KEY)
    if not isinstance(text, str):
        raise RecordError(f"the summary has no {RECORD_KEY!r}: the run ended before it was sent")
    try:
        return from_plain(Record, json.loads(text), "summary.record")
    except ValueError as error:
        raise RecordError(f"summary.record: not readable as JSON ({error})") from error
