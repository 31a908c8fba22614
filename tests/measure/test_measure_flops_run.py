"""FLOPs of real models and runs: the published figures of DiT, and what a record says."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from commands import SMALL, Train, records

from sweeper.measure.flops import FlopsMeter, count_flops
from sweeper.measure.step_memory import measure_step
from sweeper.models.dit import DiT
from sweeper.record import Time

# width, blocks, heads; forward pass for 256x256 images, 10^9 multiply-adds
# (Peebles & Xie, "Scalable Diffusion Models with Transformers", 2023, table 4)
PUBLISHED = {
    "S/2": (384, 12, 6, 6.06),
    "B/2": (768, 12, 12, 23.01),
    "L/2": (1024, 24, 16, 80.71),
    "XL/2": (1152, 28, 16, 118.64),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_flops_of_dit(name: str) -> None:
    width, depth, heads, billions = PUBLISHED[name]
    with torch.device("meta"):  # shapes alone; no memory, no arithmetic
        model = DiT(32, 2, 4, width, depth, heads)
        batch = torch.empty(3, 4, 32, 32), torch.empty(3), torch.zeros(3, dtype=torch.int64)
        flops = count_flops(lambda: model(*batch))
    assert flops.executed / 3 / 2 / 1e9 == pytest.approx(billions, rel=1e-3)
    assert flops.recomputed == 0


def test_a_run_records_its_flops(train: Train, tmp_path: Path) -> None:
    done = train("-m", "ckpt=off,on", "accum=1,2", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    found = records(tmp_path)
    assert len(found) == 4
    useful = {record.time.flops_per_step for record in found}
    assert len(useful) == 1  # neither checkpointing nor accumulation changes the mathematics
    for record in found:
        time = record.time
        assert time.flops_per_step is not None
        assert time.hardware_flops_per_step is not None
        assert (time.mfu, time.hfu) == (None, None)  # a CPU's peak is not known
        more = time.hardware_flops_per_step / time.flops_per_step
        # Fused attention computes its scores again in any case.
        assert (1.2 < more < 1.34) if record.identity.choices["ckpt"] == "on" else (more < 1.05)


def test_flops_of_ranks_add_up(train: Train, tmp_path: Path) -> None:
    done = train("-m", "gpus=1,2", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    one, two = (record.time.flops_per_step for record in records(tmp_path))
    assert one == two  # of the same global batch


def test_counting_flops_does_not_change_the_peak_of_memory() -> None:
    """Both are counted on the same step."""
    peaks = []
    for counted in (False, True):
        torch.manual_seed(0)
        model = DiT(8, 2, 1, 48, 2, 3, num_classes=10)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        batch = torch.randn(16, 1, 8, 8), torch.arange(16), torch.arange(16) % 10

        def step(model=model, optimizer=optimizer, batch=batch) -> None:  # type: ignore[no-untyped-def]  # all bound
            model(*batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        step()
        work = functools.partial(FlopsMeter().count, step) if counted else step
        peak_bytes, parts = measure_step(work, lambda m=model: {"parameters": list(m.parameters())})
        peaks.append((peak_bytes, parts.activations_bytes, parts.gradients_bytes))
    assert peaks[0] == peaks[1]


def test_without_the_counted_step_there_are_none(train: Train, tmp_path: Path) -> None:
    done = train("measure.memory=false", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records(tmp_path)
    assert (record.time.flops_per_step, record.time.mfu) == (None, None)
    assert record.time.measured_steps == 4  # of 6, 2 of which warm up


def test_shares_of_a_known_peak() -> None:
    meter = FlopsMeter()
    model = torch.nn.Linear(10, 20)
    meter.count(lambda: model(torch.randn(4, 10)).sum().backward())
    time = meter.complete(Time(step_time_s=1e-6), "NVIDIA A100-SXM4-80GB", "tf32")
    assert time.mfu == time.hfu == pytest.approx(3200 / 1e-6 / 156e12)
    unknown = meter.complete(Time(step_time_s=1e-6), "a GPU nobody lists", "tf32")
    assert unknown.flops_per_step == 3200
    assert unknown.mfu is None
    assert FlopsMeter().complete(Time(step_time_s=1.0), "NVIDIA H200", "tf32") == Time(
        step_time_s=1.0
    )
