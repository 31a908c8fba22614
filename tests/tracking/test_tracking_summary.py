"""A record as a flat summary, and back."""

from __future__ import annotations

import json
import math

import pytest

from sweeper.record import (
    Failure,
    Identity,
    Loss,
    Memory,
    MemoryParts,
    MemoryPeaks,
    Record,
    RecordError,
    Status,
    StepParts,
    Time,
    to_plain,
)
from sweeper.tracking.summary import record_of, summary_of


@pytest.fixture
def record(identity: Identity) -> Record:
    return Record(
        identity=identity,
        status=Status.OOM,
        phase="warmup",
        attempt=1,
        error=Failure(type="OutOfMemoryError", message="asked for 2.00 GiB", rank=3),
        config={"train": {"max_grad_norm": None}, "tags": ["a", 1, True]},
        memory=Memory(
            cold=MemoryPeaks(peak_allocated_bytes=5 * 2**20, peak_tensor_bytes=1),
            warm=MemoryPeaks(peak_tensor_bytes=3 * 2**19, peak_reserved_bytes=2**30),
            parts=MemoryParts(parameters_bytes=2**20),
        ),
        time=Time(step_time_s=0.25, samples_per_s=256.0, parts=StepParts(forward_s=0.1)),
        loss=Loss(train_last=math.nan, validation_last=0.1 + 0.2),
        warnings=["“quoted”, with a\nline break"],
    )


def test_figures_carry_their_units_and_leave_out_what_was_not_measured(record: Record) -> None:
    summary = summary_of(record)
    del summary["record"]
    assert summary == {
        "status": "oom",
        "phase": "warmup",
        "attempt": 1,
        "error": "OutOfMemoryError: asked for 2.00 GiB",
        "memory/peak_mib": 1.5,
        "memory/cold_peak_mib": 5.0,
        "memory/reserved_mib": 1024.0,
        "memory/parameters_mib": 1.0,
        "perf/step_time_ms": 250.0,
        "perf/samples_per_s": 256.0,
        "perf/forward_ms": 100.0,
        "loss/validation": 0.1 + 0.2,
    }


def test_the_record_comes_back_unchanged(record: Record) -> None:
    sent = json.loads(json.dumps(summary_of(record)))
    back = record_of(sent)
    assert to_plain(back) == to_plain(record)
    assert back.status is Status.OOM
    assert back.loss.validation_last == 0.1 + 0.2


@pytest.mark.parametrize("summary", [{}, {"record": 3}, {"record": "{"}, {"record": "[]"}])
def test_a_summary_without_a_record_is_told(summary: dict[str, object]) -> None:
    with pytest.raises(RecordError, match="summary"):
        record_of(summary)
