"""Clocks that mark moments without waiting for the device, and read them later."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol

import torch

from sweeper.errors import UserError


class DeviceClock(Protocol):
    """Marks moments in the order in which the device reaches them.

    Work is issued by the host and done by the device later. A mark stands in the device's queue
    like any other work, so the time between two marks is the device's own, however early they were
    issued.
    """

    name: str  # as the record says it: cuda_event or host

    def mark(self) -> Any:
        """A mark at this place of the device's queue; never waits."""

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""

    def elapsed_s(self, start: Any, end: Any) -> float:
        """Seconds between two marks; only after `synchronize`."""

    def recycle(self, marks: Iterable[Any]) -> None:
        """Marks that nobody will read again."""

    def host_s(self) -> float:
        """The host's own monotonic clock, seconds."""


class HostClock:
    """For a CPU: the host is the device, and a call has done its work when it returns."""

    name = "host"
    mark = staticmethod(time.perf_counter)
    host_s = staticmethod(time.perf_counter)

    def synchronize(self) -> None:
        return None

    def elapsed_s(self, start: float, end: float) -> float:
        return end - start

    def recycle(self, marks: Iterable[float]) -> None:
        return None


class CudaClock:
    """CUDA events on the device's current stream; resolution about 0.5 microseconds."""

    name = "cuda_event"
    host_s = staticmethod(time.perf_counter)

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: list[torch.cuda.Event] = []  # creating an event costs more than recording one

    def mark(self) -> torch.cuda.Event:
        event = self._free.pop() if self._free else self._new()
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _new(self) -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's gap

    def synchronize(self) -> None:
        torch.cuda.synchronize(self._device)

    def elapsed_s(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def recycle(self, marks: Iterable[torch.cuda.Event]) -> None:
        self._free.extend(marks)


def device_clock(device: torch.device | str) -> DeviceClock:
    """The clock for `device`.

    Raises:
        UserError: neither cpu nor cuda.
    """
    device = torch.device(device)
    if device.type == "cpu":
        return HostClock()
    if device.type == "cuda":
        return CudaClock(device)
    raise UserError("hardware.device", f"{device.type} cannot be timed", "use cpu or cuda")
