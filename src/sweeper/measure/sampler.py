"""How busy the device and the processor are while a run trains, and in its measured window.

They are sampled twice a second by a thread that otherwise sleeps. NVML calls let go of the
interpreter lock, and reading the system's counters takes microseconds, so the training thread goes
on beside it; a process of its own would take a core's time to start and memory to live. The
processor's mean over the window is exact: it is taken from the counters at the window's edges, not
from samples.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import pynvml
import torch

from sweeper.machine import nvml as nv
from sweeper.record import Utilization

PERIOD_S = 0.5

# Of one run; where there would be more, every other one is dropped and the pace halved.
MOST_SAMPLES = 7200


@dataclass(frozen=True)
class UtilizationSample:
    """How busy things were since the sample before; None where it is not known."""

    elapsed_s: float  # since sampling began
    gpu_percent: float | None  # share of time in which the rank's device was busy
    cpu_percent: float | None  # of the cores that this process may use


@dataclass
class _Samples:
    """What was read in one window."""

    values: dict[str, list[float]] = field(default_factory=dict)
    reasons: set[str] = field(default_factory=set)
    count: int = 0

    def add(self, name: str, value: float | None) -> None:
        if value is not None:
            self.values.setdefault(name, []).append(value)

    def mean(self, name: str) -> float | None:
        return statistics.fmean(self.values[name]) if name in self.values else None

    def highest(self, name: str) -> float | None:
        return max(self.values[name], default=None) if name in self.values else None


class UtilizationSampler:
    """Samples this rank's own device beside the training; a context manager.

    No error of the library reaches the run: what cannot be read is null in the result.

    Attributes:
        series: the samples so far, the window's and the others.
        paused: while it is set, nothing is sampled.

    Args:
        device: cpu or cuda.
        index: CUDA's number of the device in this process, where `device` has none.
        period_s: seconds between two samples.
        nvml: the pynvml module.
    """

    def __init__(
        self,
        device: torch.device | str,
        index: int = 0,
        period_s: float = PERIOD_S,
        nvml: Any = pynvml,
    ) -> None:
        device = torch.device(device)
        self._on_gpu = device.type == "cuda"
        self._index = index if device.index is None else device.index
        self._period_s = period_s
        self._nvml = nvml
        self._stop = threading.Event()
        self.paused = False
        self._lock = threading.Lock()  # between the thread and the window's edges
        self._samples: _Samples | None = None
        self._thread: threading.Thread | None = None
        self._uuid: str | None = None
        self.series: list[UtilizationSample] = []
        self._started_s = 0.0
        self._cpu_at_sample = (0.0, 0.0)
        self._cpu_at_start: tuple[float, float] | None = None

    def __enter__(self) -> UtilizationSampler:
        if self._on_gpu:
            uuid = getattr(torch.cuda.get_device_properties(self._index), "uuid", None)
            self._uuid = None if uuid is None else str(uuid)
        self._started_s, self._cpu_at_sample = time.perf_counter(), _cpu_times()
        self._thread = threading.Thread(target=self._run, name="utilization", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)  # a driver that hangs must not keep a run from ending

    def open_window(self) -> None:
        self._cpu_at_start = _cpu_times()
        with self._lock:
            self._samples = _Samples()

    def close_window(self) -> Utilization:
        """The means over the window; temperature and memory are its highest values."""
        with self._lock:
            samples, self._samples = self._samples, None
        result = Utilization(cpu_percent=_busy_percent(self._cpu_at_start))
        if samples is None or not self._on_gpu:
            return result
        result.gpu_percent = samples.mean("gpu")
        result.gpu_memory_percent = samples.highest("memory")
        result.power_w = samples.mean("power")
        result.temperature_c = samples.highest("temperature")
        result.sm_clock_mhz = samples.mean("clock")
        result.throttle_reasons = sorted(samples.reasons)
        result.samples = samples.count
        return result

    def _run(self) -> None:
        if not self._on_gpu:
            self._sample_until_stopped(None, None)
            return
        with nv.session(self._nvml) as nvml:
            known = nvml is not None
            handle = nv.handle_of(nvml, self._index, os.environ, self._uuid) if known else None
            self._sample_until_stopped(nvml, handle)

    def _sample_until_stopped(self, nvml: Any, handle: Any) -> None:
        while not self._stop.wait(self._period_s):
            if self.paused:
                continue
            gpu_percent = None if handle is None else self._sample_gpu(nvml, handle)
            cpu_percent, self._cpu_at_sample = _busy_percent(self._cpu_at_sample), _cpu_times()
            elapsed_s = time.perf_counter() - self._started_s
            self.series.append(UtilizationSample(elapsed_s, gpu_percent, cpu_percent))
            if len(self.series) > MOST_SAMPLES:
                self.series, self._period_s = self.series[::2], self._period_s * 2

    def _sample_gpu(self, nvml: Any, handle: Any) -> float | None:
        """Returns the share of time in which the device was busy, percent."""
        rates = nv.ask(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = nv.ask(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        milliwatts = nv.ask(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        celsius = nv.ask(
            nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        )
        clock = nv.ask(nvml, lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        reasons = nv.throttle_reasons(nvml, handle)
        busy = None if rates is None else float(rates.gpu)
        with self._lock:
            samples = self._samples
            if samples is None:  # outside the window
                return busy
            samples.count += 1
            samples.add("gpu", busy)
            samples.add("memory", None if memory is None else 100 * memory.used / memory.total)
            samples.add("power", None if milliwatts is None else milliwatts / 1000)
            samples.add("temperature", celsius)
            samples.add("clock", clock)
            samples.reasons.update(reasons)
        return busy


def combine_ranks(ranks: Sequence[Utilization]) -> Utilization:
    """One Utilization for a run: means over its devices; the highest memory and temperature."""
    result = Utilization()
    for name in ("gpu_percent", "power_w", "sm_clock_mhz", "cpu_percent"):
        values = _known(ranks, name)
        setattr(result, name, statistics.fmean(values) if values else None)
    for name in ("gpu_memory_percent", "temperature_c"):
        setattr(result, name, max(_known(ranks, name), default=None))
    result.throttle_reasons = sorted({r for rank in ranks for r in rank.throttle_reasons})
    counts = [rank.samples for rank in ranks if rank.samples is not None]
    result.samples = sum(counts) if counts else None
    return result


def combine_series(ranks: Sequence[Sequence[UtilizationSample]]) -> list[UtilizationSample]:
    """One series for a run: the means of the ranks' first, second, third ... samples.

    All ranks sample at one pace from nearly one moment on; where one has more than the others,
    those are left out.
    """

    def mean(values: Sequence[float | None]) -> float | None:
        found = [value for value in values if value is not None]
        return statistics.fmean(found) if found else None

    return [
        UtilizationSample(
            statistics.fmean(sample.elapsed_s for sample in samples),
            mean([sample.gpu_percent for sample in samples]),
            mean([sample.cpu_percent for sample in samples]),
        )
        for samples in zip(*ranks, strict=False)
    ]


def _known(ranks: Sequence[Utilization], name: str) -> list[float]:
    return [value for rank in ranks if (value := getattr(rank, name)) is not None]


def _cpu_times() -> tuple[float, float]:
    """Seconds that the cores of this process were busy, and in all, since the machine started."""
    every = psutil.cpu_times(percpu=True)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(every))
    busy_s = total_s = 0.0
    for core in allowed:
        if core < len(every):
            times = every[core]
            # Guest time is part of user time already.
            known = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
            busy_s += known - times.idle - getattr(times, "iowait", 0.0)
            total_s += known
    return busy_s, total_s


def _busy_percent(since: tuple[float, float] | None) -> float | None:
    """How busy this process's cores were since then; None after too short a time to say."""
    if since is None:
        return None
    busy_s, total_s = (end - start for end, start in zip(_cpu_times(), since, strict=True))
    # The system counts in hundredths of a second; a window of a few of them says nothing.
    return min(100.0, max(0.0, 100 * busy_s / total_s)) if total_s >= 0.2 else None
