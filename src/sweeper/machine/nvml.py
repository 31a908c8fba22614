"""The NVIDIA management library, as far as it is needed; absent or refusing, it answers None.

Every function takes the `pynvml` module as an argument, so that another can stand in for it.
Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")
Handle = Any

# Reasons to lower the clock that say something about a run; idling and fixed clocks do not.
_THROTTLE_REASONS = {
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal (software)",
    0x040: "thermal (hardware)",
    0x080: "power brake",
}


@contextmanager
def session(nvml: Any = pynvml) -> Iterator[Any]:
    """The initialised library, or None where there is no driver."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def ask(nvml: Any, question: Callable[[], T]) -> T | None:
    """The answer, or None where this device or driver does not know it."""
    try:
        return question()
    except (nvml.NVMLError, AttributeError):  # AttributeError: an older library has no such call
        return None


def devices(nvml: Any) -> list[Handle]:
    """All devices of the machine, in order of their PCI bus."""
    return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]


def visible(nvml: Any, environ: Mapping[str, str]) -> list[Handle]:
    """The devices that CUDA would show, in CUDA's order, by `CUDA_VISIBLE_DEVICES`.

    Entries are indices, UUIDs or beginnings of UUIDs (`GPU-...`), or MIG instances (`MIG-...`). As
    in CUDA, the first entry that names no device ends the list. Empty where the order cannot be
    known: indices follow CUDA's own speed order unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`, which only
    matters if the devices differ.
    """
    every = devices(nvml)
    tokens = environ.get("CUDA_VISIBLE_DEVICES")
    by_index = tokens is None or any(t.strip().isdigit() for t in tokens.split(","))
    if by_index and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        names = {nvml.nvmlDeviceGetName(handle) for handle in every}
        if len(names) > 1:
            return []
    if tokens is None:
        return every
    found: list[Handle] = []
    for token in map(str.strip, tokens.split(",")):
        handle = _named(nvml, every, token)
        if handle is None:
            break
        found.append(handle)
    return found


def _named(nvml: Any, every: list[Handle], token: str) -> Handle | None:
    if token.isdigit():
        return every[int(token)] if int(token) < len(every) else None
    if token.startswith("MIG-"):
        return ask(nvml, lambda: nvml.nvmlDeviceGetHandleByUUID(token))
    if token.startswith("GPU-"):
        matches = [h for h in every if nvml.nvmlDeviceGetUUID(h).startswith(token)]
        return matches[0] if len(matches) == 1 else None
    return None


def handle_of(
    nvml: Any, index: int, environ: Mapping[str, str], uuid: str | None = None
) -> Handle | None:
    """The handle of a CUDA device of this process, or None where it cannot be told.

    Args:
        index: CUDA's number of the device in this process.
        environ: the environment the process started with.
        uuid: what CUDA says the device is, without a prefix; it outweighs the environment.
    """
    for prefix in ("GPU-", "MIG-") if uuid else ():
        with suppress(nvml.NVMLError):
            return nvml.nvmlDeviceGetHandleByUUID(f"{prefix}{uuid}")
    shown = ask(nvml, lambda: visible(nvml, environ)) or []
    return shown[index] if index < len(shown) else None


def used_by(nvml: Any, handle: Handle, pid: int) -> int | None:
    """Bytes that a process holds on the device; None if NVML does not see this process.

    Inside a container NVML may list processes by the host's numbers, or not at all.
    """
    for process in ask(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []:
        if process.pid == pid:
            used: int | None = process.usedGpuMemory
            return used
    return None


def throttle_reasons(nvml: Any, handle: Handle) -> list[str]:
    """Why the clocks are lower than they could be, at this moment."""
    bits = ask(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
    return [name for bit, name in _THROTTLE_REASONS.items() if bits & bit]
