"""Peaks of a run's two phases, and one figure for several ranks."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from measure_fake_nvml import FakeGpu, FakeNvml

from sweeper.measure.memory import (
    MemoryMeter,
    combine_ranks,
    known_parts,
    peak_rss,
    reset_peak_rss,
)
from sweeper.record import Memory, MemoryParts, MemoryPeaks

MIB = 2**20
needs_reset = pytest.mark.skipif(not reset_peak_rss(), reason="peak RSS cannot be reset here")


@needs_reset
def test_every_cell_in_one_process_has_its_own_peak() -> None:
    # C28, by the resident set: cells of 858.3, 381.5, 95.4 and 3.8 MiB, largest first.
    peaks = []
    for n in (15, 10, 5, 1):
        meter = MemoryMeter("cpu")
        meter.start()
        meter.end_warmup()
        torch.ones(1000 * n, 1000 * n)
        meter.end_window()
        peaks.append(meter.result().warm.peak_rss_bytes)
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == 4
    for n, peak in zip((15, 10, 5, 1), peaks, strict=True):
        assert peak >= 4 * (1000 * n) ** 2


@needs_reset
def test_cold_and_warm_peaks_are_apart() -> None:
    meter = MemoryMeter("cpu")
    meter.start()
    torch.ones(100 * MIB // 4)  # only in the warm-up
    meter.end_warmup()
    torch.ones(20 * MIB // 4)
    meter.end_window()
    memory = meter.result()
    cold, warm = memory.cold.peak_rss_bytes, memory.warm.peak_rss_bytes
    assert cold is not None
    assert warm is not None
    assert cold - warm > 60 * MIB


def test_no_figure_where_the_high_water_mark_cannot_be_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: Path, text: str) -> int:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    assert reset_peak_rss() is False
    meter = MemoryMeter("cpu")
    meter.start()
    meter.end_warmup()
    meter.end_window()
    assert meter.result().warm.peak_rss_bytes is None
    assert peak_rss() is not None  # of the whole life of the process: not what was asked


def test_on_a_cpu_the_step_gives_the_headline_and_its_parts() -> None:
    meter = MemoryMeter("cpu")
    meter.start()
    meter.end_warmup()
    meter.end_window()
    parts = MemoryParts(
        parameters_bytes=10,
        gradients_bytes=10,
        optimizer_bytes=20,
        activations_bytes=60,
        data_bytes=5,
        remainder_bytes=5,
    )
    memory = meter.result((110, parts))
    assert memory.warm.headline_bytes == memory.warm.peak_tensor_bytes == 110
    assert memory.cold.peak_tensor_bytes is None  # not measured: null
    assert memory.parts == parts
    assert memory.peak_over_formula == pytest.approx(1.1)
    assert memory.allocator_retries is None


def test_without_a_step_what_comes_and_goes_in_it_is_not_known() -> None:
    weight, gradient = torch.empty(100), torch.empty(100)
    size, parts = known_parts(
        {
            "parameters": [weight, weight[:50]],
            "gradients": [gradient],
            "optimizer": [torch.empty(50)],
        },
        "cpu",
    )
    assert (size, parts.parameters_bytes, parts.optimizer_bytes) == (600, 400, 200)
    assert parts.gradients_bytes is None
    assert parts.activations_bytes is None


def test_without_a_step_the_rest_of_the_peak_is_the_remainder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = FakeCuda(monkeypatch)
    meter = MemoryMeter("cuda", on_the_device(os.getpid()))
    meter.start()
    meter.end_warmup()
    cuda.peak = {"allocated": 2000, "active": 2000, "reserved": 3000}
    meter.end_window()
    memory = meter.result((600, MemoryParts(parameters_bytes=400, optimizer_bytes=200)))
    assert memory.parts.remainder_bytes == 1400
    assert memory.peak_over_formula is None  # two of its terms are not known


def test_memory_that_was_given_back_before_the_end_was_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = FakeCuda(monkeypatch)
    meter = MemoryMeter("cuda", on_the_device(os.getpid()))
    meter.start()
    cuda.peak = {"allocated": 2500, "active": 2600, "reserved": 4200}  # 3000 of them still
    meter.end_warmup()
    assert meter.result().cold.peak_device_bytes == 3500 + 1200


def test_what_a_phase_has_come_to_is_kept_when_it_is_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = FakeCuda(monkeypatch)
    meter, memory = MemoryMeter("cuda", on_the_device(os.getpid())), Memory()
    meter.interrupted(memory)
    assert memory == Memory()  # it had not begun
    meter.start()
    cuda.peak = {"allocated": 2500, "active": 2600, "reserved": 3000}
    meter.interrupted(memory)
    assert memory.cold.peak_allocated_bytes == 2500
    assert memory.warm.headline_bytes is None
    meter.end_warmup()
    cuda.peak = {"allocated": 2700, "active": 2800, "reserved": 3000}
    meter.interrupted(memory)
    assert memory.cold.peak_allocated_bytes == 2500
    assert memory.warm.peak_allocated_bytes == 2700


class FakeCuda:
    """A CUDA allocator whose peak is reset like the real one's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.peak = {"allocated": 0, "active": 0, "reserved": 0}
        self.retries = 7  # of an earlier run in the same process
        for name in ("init", "synchronize", "current_device", "empty_cache"):
            monkeypatch.setattr(torch.cuda, name, lambda *_: 0)
        monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: self.stats())
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: self.reset())
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 3000)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="0-1")
        )

    def reset(self) -> None:
        self.peak = dict.fromkeys(self.peak, 0)

    def stats(self) -> dict[str, int]:
        peaks = {f"{kind}_bytes.all.peak": size for kind, size in self.peak.items()}
        return {**peaks, "num_alloc_retries": self.retries, "num_ooms": 0}


def on_the_device(pid: int) -> FakeNvml:
    return FakeNvml(FakeGpu(0, uuid="GPU-0-1", processes=[(pid, 3500)]))


def test_cuda_peaks_by_phase_with_reserve_and_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    cuda = FakeCuda(monkeypatch)
    meter = MemoryMeter("cuda", on_the_device(os.getpid()))
    meter.start()
    cuda.peak = {"allocated": 2500, "active": 2600, "reserved": 3000}
    cuda.retries += 2
    meter.end_warmup()
    cuda.peak = {"allocated": 2000, "active": 2100, "reserved": 3000}
    meter.end_window()
    live = MemoryParts(parameters_bytes=400, activations_bytes=1500, remainder_bytes=0)
    memory = meter.result((1900, live))
    assert memory.cold.headline_bytes == 2500
    assert memory.warm.headline_bytes == 2000
    assert memory.warm.peak_device_bytes == 3500
    assert memory.parts.remainder_bytes == 100  # rounding and workspaces: 2000 - 1900
    assert memory.parts.allocator_reserve_bytes == 1000
    assert memory.parts.context_bytes == 500
    assert memory.allocator_retries == 2
    assert memory.allocator_ooms == 0
    assert memory.allocator_settings == "expandable_segments:True"


def test_a_process_that_nvml_does_not_see_has_no_device_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FakeCuda(monkeypatch)
    meter = MemoryMeter("cuda", on_the_device(os.getpid() + 1))  # as in a container
    meter.start()
    meter.end_warmup()
    meter.end_window()
    memory = meter.result((0, MemoryParts()))
    assert memory.warm.peak_device_bytes is None
    assert memory.parts.context_bytes is None


def test_ranks_give_their_maximum_never_their_sum() -> None:
    def rank(peak: int, cold: int, retries: int) -> Memory:
        return Memory(
            cold=MemoryPeaks(peak_allocated_bytes=cold),
            warm=MemoryPeaks(peak_allocated_bytes=peak, peak_reserved_bytes=10 * peak),
            parts=MemoryParts(activations_bytes=peak),
            allocator_retries=retries,
        )

    memory = combine_ranks([rank(5, 9, 0), rank(8, 7, 3), rank(6, 8, 1)])
    assert memory.warm.peak_allocated_bytes == 8
    assert memory.warm.peak_reserved_bytes == 80
    assert memory.cold.peak_allocated_bytes == 9
    assert memory.min_rank_peak_bytes == 5
    assert memory.parts.activations_bytes == 8  # of the rank with the peak
    assert memory.allocator_retries == 3
    assert combine_ranks([Memory()]).warm.headline_bytes is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_allocator_peaks() -> None:
    meter = MemoryMeter("cuda")
    meter.start()
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    del x
    meter.end_warmup()
    y = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    del y
    meter.end_window()
    memory = meter.result()
    assert memory.cold.peak_allocated_bytes == 64 * MIB
    assert memory.warm.peak_allocated_bytes == 32 * MIB
