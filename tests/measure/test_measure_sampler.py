"""Utilisation beside a run, and that no trouble of the driver reaches it."""

import os
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from measure_fake_nvml import FakeGpu, FakeNvml

from sweeper.measure import sampler as sampler_module
from sweeper.measure.sampler import (
    UtilizationSample,
    UtilizationSampler,
    combine_ranks,
    combine_series,
)
from sweeper.record import Utilization


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="10000000-aaaa")
    )
    return FakeNvml(FakeGpu(0), FakeGpu(1, gpu_percent=40))


def sample_until(sampler: UtilizationSampler, least: int) -> Utilization:
    """One window, kept open until the thread has taken `least` samples."""
    sampler.open_window()
    for _ in range(1000):
        samples = sampler._samples
        if samples is not None and samples.count >= least:
            break
        time.sleep(0.01)
    return sampler.close_window()


def test_the_ranks_own_device_is_sampled(nvml: FakeNvml) -> None:
    with UtilizationSampler("cuda", 0, period_s=0.005, nvml=nvml) as sampler:
        result = sample_until(sampler, 3)
    assert result.gpu_percent == 40  # GPU 1, by the UUID that CUDA gives
    assert result.gpu_memory_percent == 12.5
    assert result.power_w == 310
    assert result.temperature_c == 61
    assert result.sm_clock_mhz == 1410
    assert result.throttle_reasons == ["power cap"]
    assert result.samples is not None
    assert result.samples >= 3
    assert nvml.open_sessions == 0


def test_only_the_window_counts(nvml: FakeNvml) -> None:
    with UtilizationSampler("cuda", 0, period_s=0.005, nvml=nvml) as sampler:
        sample_until(sampler, 2)
        nvml.gpus[1].gpu_percent = 90
        time.sleep(0.05)  # the sample under way
        assert sample_until(sampler, 2).gpu_percent == 90


def test_what_a_driver_does_not_say_is_null(nvml: FakeNvml) -> None:
    nvml.broken = {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetCurrentClocksThrottleReasons"}
    with UtilizationSampler("cuda", 0, period_s=0.005, nvml=nvml) as sampler:
        result = sample_until(sampler, 2)
    assert result.power_w is None
    assert result.throttle_reasons == []
    assert result.gpu_percent == 40


@pytest.mark.parametrize("trouble", ["no driver", "no such device"])
def test_trouble_leaves_the_figures_null(nvml: FakeNvml, trouble: str) -> None:
    if trouble == "no driver":
        nvml.driver = False
    else:
        nvml.gpus = []
    with UtilizationSampler("cuda", 0, period_s=0.005, nvml=nvml) as sampler:
        sampler.open_window()
        time.sleep(0.05)
        result = sampler.close_window()
    assert result.gpu_percent is None
    assert result.samples == 0
    assert nvml.open_sessions == 0


def test_cpu_load_is_exact_over_the_window() -> None:
    with UtilizationSampler("cpu") as sampler:
        sampler.open_window()
        busy_until = time.monotonic() + 0.5
        while time.monotonic() < busy_until:
            pass
        busy = sampler.close_window()
        sampler.open_window()
        assert sampler.close_window().cpu_percent is None  # too short to say
    assert busy.cpu_percent is not None
    # One core was busy all the time, of all that this process may use; others may be too.
    assert 50 / len(os.sched_getaffinity(0)) < busy.cpu_percent <= 100
    assert busy.gpu_percent is None
    assert busy.samples is None


def test_the_series_covers_the_window_and_what_is_outside(nvml: FakeNvml) -> None:
    with UtilizationSampler("cuda", 0, period_s=0.2, nvml=nvml) as sampler:
        time.sleep(0.5)
        nvml.gpus[1].gpu_percent = 90
        time.sleep(0.5)
    assert not any(thread.name == "utilization" for thread in threading.enumerate())
    series = sampler.series
    assert len(series) >= 2
    assert [series[0].gpu_percent, series[-1].gpu_percent] == [40, 90]
    elapsed_s = [sample.elapsed_s for sample in series]
    assert elapsed_s == sorted(elapsed_s)
    assert elapsed_s[0] >= 0.2
    assert all(0 <= (sample.cpu_percent or 0) <= 100 for sample in series)


def test_without_a_gpu_the_series_is_the_processors() -> None:
    with UtilizationSampler("cpu", period_s=0.25) as sampler:
        busy_until = time.monotonic() + 0.8
        while time.monotonic() < busy_until:
            pass
    assert {sample.gpu_percent for sample in sampler.series} == {None}
    loads = [sample.cpu_percent for sample in sampler.series if sample.cpu_percent is not None]
    assert max(loads) > 50 / len(os.sched_getaffinity(0))


def test_a_long_run_keeps_few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "MOST_SAMPLES", 8)
    with UtilizationSampler("cpu", period_s=0.005) as sampler:
        time.sleep(1.0)
    assert 2 <= len(sampler.series) <= 8


def test_series_of_several_ranks_are_averaged_sample_by_sample() -> None:
    first = [UtilizationSample(1.0, 40, 50.0), UtilizationSample(2.0, 60, None)]
    second = [UtilizationSample(1.2, 80, 70.0), UtilizationSample(2.2, None, None)]
    longer = [*second, UtilizationSample(3.0, 9, 9.0)]
    assert combine_series([first, longer]) == [
        UtilizationSample(1.1, 60, 60.0),
        UtilizationSample(2.1, 60, None),
    ]
    assert combine_series([[], []]) == []


def test_ranks_together() -> None:
    result = combine_ranks(
        [
            Utilization(
                gpu_percent=80, temperature_c=60, throttle_reasons=["power cap"], samples=4
            ),
            Utilization(gpu_percent=90, temperature_c=70, samples=5),
        ]
    )
    assert (result.gpu_percent, result.temperature_c, result.samples) == (85, 70, 9)
    assert result.throttle_reasons == ["power cap"]
    assert result.power_w is None
