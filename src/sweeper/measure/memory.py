"""Memory of a run: peaks of its two phases, its parts, and one figure for several ranks.

The phases: cold, from the start to the end of warm-up, decides whether a run fits; warm, the window
after it, is the steady state. Peaks are reset between them and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import psutil
import pynvml
import torch

from sweeper.machine import nvml as nv
from sweeper.measure.live import LiveBytes, Persistent
from sweeper.record import Memory, MemoryParts, MemoryPeaks

# The plain formula of a training's memory.
_FORMULA = ("parameters", "gradients", "optimizer", "activations")

_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


class MemoryMeter:
    """Takes the peaks of one rank: `start`, `end_warmup`, `end_window`, then `result`.

    Args:
        device: cpu or cuda; on CUDA the process's current device unless it has an index.
        nvml: the pynvml module.
    """

    def __init__(self, device: torch.device | str, nvml: Any = pynvml) -> None:
        self._device = torch.device(device)
        self._nvml = nvml
        self._rss_was_reset = False
        self._phase: Literal["cold", "warm", "over"] | None = None
        self._stats: dict[str, int] = {}
        self._memory = Memory(
            allocator_settings=next(filter(None, map(os.environ.get, _SETTINGS)), None)
        )

    def start(self) -> None:
        """Before the first training step.

        The model is on the device by then, and what an evaluation before left in the allocator's
        cache is given back: it would count as held.
        """
        if self._device.type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]  # torch has no type for it
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
            self._stats = dict(torch.cuda.memory_stats(self._device))
        self._phase = "cold"
        self._reset()

    def end_warmup(self) -> None:
        self._memory.cold = self._peaks()
        self._phase = "warm"
        self._reset()

    def end_window(self) -> None:
        self._memory.warm = self._peaks()
        self._phase = "over"
        if self._device.type != "cuda":
            return
        stats = torch.cuda.memory_stats(self._device)
        for name, key in (("retries", "num_alloc_retries"), ("ooms", "num_ooms")):
            count = stats.get(key, 0) - self._stats.get(key, 0)
            setattr(self._memory, f"allocator_{name}", count)

    def interrupted(self, memory: Memory) -> None:
        """After an error in a phase: add to `memory` the peaks that the phase has come to."""
        if self._phase == "cold":
            memory.cold = self._peaks()
        elif self._phase is not None:
            memory.cold = self._memory.cold
            memory.warm = self._peaks() if self._phase == "warm" else self._memory.warm

    def result(self, step: tuple[int, MemoryParts] | None = None) -> Memory:
        """What was measured so far.

        Args:
            step: what `measure_step` found, or `known_parts`. On CUDA its parts are set beside the
                allocator's peak: the remainder takes up rounding, workspaces of kernels, and any
                difference between that step and the window.
        """
        memory = replace(self._memory, warm=replace(self._memory.warm))
        if step is None:
            return memory
        peak_bytes, parts = step
        memory.parts = replace(parts)
        if self._device.type == "cpu":
            memory.warm.peak_tensor_bytes = peak_bytes
        headline = memory.warm.headline_bytes
        if headline is None:
            return memory
        memory.parts.remainder_bytes = (parts.remainder_bytes or 0) + headline - peak_bytes
        terms = [getattr(parts, f"{name}_bytes") for name in _FORMULA]
        if None not in terms and sum(terms):
            memory.peak_over_formula = headline / sum(terms)
        if self._device.type == "cuda":
            reserved = memory.warm.peak_reserved_bytes
            memory.parts.allocator_reserve_bytes = None if reserved is None else reserved - headline
            memory.parts.context_bytes = self._context_bytes()
        return memory

    def _reset(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        self._rss_was_reset = reset_peak_rss()

    def _peaks(self) -> MemoryPeaks:
        peaks = MemoryPeaks(peak_rss_bytes=peak_rss() if self._rss_was_reset else None)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            stats = torch.cuda.memory_stats(self._device)
            for kind in ("allocated", "active", "reserved"):
                setattr(peaks, f"peak_{kind}_bytes", stats.get(f"{kind}_bytes.all.peak"))
            # Read at the phase's end, not sampled. The allocator gives cached blocks back to the
            # device where memory runs short: what it holds less now than at its peak was held then.
            now_bytes = self._device_bytes()
            if now_bytes is not None and peaks.peak_reserved_bytes is not None:
                given_back = peaks.peak_reserved_bytes - torch.cuda.memory_reserved(self._device)
                peaks.peak_device_bytes = now_bytes + max(0, given_back)
        return peaks

    def _device_bytes(self) -> int | None:
        index = self._device.index
        index = torch.cuda.current_device() if index is None else index
        uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
        with nv.session(self._nvml) as nvml:
            if nvml is None:
                return None
            handle = nv.handle_of(nvml, index, os.environ, None if uuid is None else str(uuid))
            return None if handle is None else nv.used_by(nvml, handle, os.getpid())

    def _context_bytes(self) -> int | None:
        used = self._device_bytes()
        return None if used is None else used - torch.cuda.memory_reserved(self._device)


def known_parts(persistent: Persistent, device_type: str = "cuda") -> tuple[int, MemoryParts]:
    """The parts that can be told without running a step.

    Gradients and activations come and go within a step, so they are not known; the peak's rest is
    the remainder.

    Args:
        persistent: the tensors that exist now, by component.
        device_type: cpu or cuda; tensors elsewhere are not counted.

    Returns:
        The bytes of all parts, and the parts.
    """
    live = LiveBytes(device_type)
    live.tag({name: tensors for name, tensors in persistent.items() if name != "gradients"})
    sizes = live.peak()
    parts = MemoryParts(**{f"{name}_bytes": size for name, size in sizes.items()})
    parts.gradients_bytes = parts.activations_bytes = None
    return sum(sizes.values()), parts


def combine_ranks(ranks: Sequence[Memory]) -> Memory:
    """One Memory for a run: for every peak the maximum over its ranks, never a sum.

    Parts, and the ratio to their formula, are those of the rank with the highest warm peak.
    """
    peaks = [(rank.warm.headline_bytes, rank) for rank in ranks]
    known = [(peak, rank) for peak, rank in peaks if peak is not None]
    highest = max(known, key=lambda item: item[0])[1] if known else ranks[0]
    result = replace(highest, parts=replace(highest.parts))
    result.cold = _maximum([rank.cold for rank in ranks])
    result.warm = _maximum([rank.warm for rank in ranks])
    result.min_rank_peak_bytes = min((peak for peak, _ in known), default=None)
    for name in ("allocator_retries", "allocator_ooms"):
        counts = [count for rank in ranks if (count := getattr(rank, name)) is not None]
        setattr(result, name, max(counts, default=None))
    return result


def _maximum(peaks: Sequence[MemoryPeaks]) -> MemoryPeaks:
    result = MemoryPeaks()
    for item in fields(MemoryPeaks):
        values = [value for p in peaks if (value := getattr(p, item.name)) is not None]
        setattr(result, item.name, max(values, default=None))
    return result


def held_bytes() -> int | None:
    """What this process holds by now, for a person who watches: the peak on its CUDA device, or its
    resident set where it has touched none."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has no type for it
        return torch.cuda.max_memory_allocated()
    return int(psutil.Process().memory_info().rss)


def reset_peak_rss() -> bool:
    """Set the resident set's high-water mark of this process to its present size.

    Returns:
        Whether the system allows it; Linux with `/proc/self/clear_refs` does.
    """
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # 5: the high-water mark alone
        return True
    return False


def peak_rss() -> int | None:
    """Bytes of the resident set's high-water mark since its last reset; None without `/proc`."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None
