"""This machine's GPUs and cores, as far as this process may use them. CUDA is never touched.

A GPU is named by its token in CUDA_VISIBLE_DEVICES (an index, or a GPU or MIG UUID), which is
handed on as it is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeper.machine.cores import usable_cores
from sweeper.machine.nvml import session

ORDER = "CUDA_DEVICE_ORDER"
VISIBLE = "CUDA_VISIBLE_DEVICES"
BUSY_CHECK_S = 5.0  # a look at what computes on the GPUs is good for this long


@dataclass(frozen=True)
class Node:
    """What one machine offers."""

    gpus: tuple[str, ...]  # tokens; empty on a machine without GPUs
    cores: tuple[int, ...]

    @classmethod
    def here(cls, environ: Mapping[str, str] = os.environ) -> Node:
        return cls(gpus=tuple(visible_gpus(environ)), cores=_usable_cores())


def _usable_cores() -> tuple[int, ...]:
    """The cores this process may run on; fewer where its container has a smaller quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
    else:
        cores = list(range(os.cpu_count() or 1))
    return tuple(cores[: usable_cores()])


def _mig_devices(nvml: Any, handle: Any) -> list[Any]:
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
    except nvml.NVMLError:  # a GPU that knows no MIG
        return []
    parts = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(nvml.NVMLError):
            parts.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
    return parts


def _handles(nvml: Any) -> dict[str, Any]:
    """Token -> NVML handle, for all devices of the machine in PCI order."""
    handles: dict[str, Any] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        parts = _mig_devices(nvml, handle)
        if parts:
            handles.update({str(nvml.nvmlDeviceGetUUID(part)): part for part in parts})
        else:
            handles[str(index)] = handle
    return handles


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Tokens of the GPUs this process may use.

    CUDA_VISIBLE_DEVICES where it is set, up to the first token that names no device, as CUDA reads
    it; otherwise all GPUs that NVML lists, in PCI order.
    """
    with session() as nvml:
        known = _handles(nvml) if nvml else {}
    listed = environ.get(VISIBLE)
    if listed is None:
        return list(known)
    tokens: list[str] = []
    for token in (part.strip() for part in listed.split(",")):
        is_index = token.isdigit() and (not known or int(token) < len(known))
        if not is_index and not token.startswith(("GPU-", "MIG-")):
            break
        tokens.append(token)
    return tokens


def device_variables(tokens: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    """What shows a run exactly these devices.

    Indices taken from NVML mean something to CUDA only in PCI order; indices from the person's own
    CUDA_VISIBLE_DEVICES keep the order they were meant in.
    """
    variables = {VISIBLE: ",".join(tokens)}
    if tokens and VISIBLE not in environ:
        variables[ORDER] = "PCI_BUS_ID"
    return variables


def computing_processes(tokens: Sequence[str], environ: Mapping[str, str]) -> dict[str, set[int]]:
    """Token -> ids of the processes that compute on it, for the tokens NVML can tell apart."""
    found: dict[str, set[int]] = {}
    with session() as nvml:
        if nvml is None:
            return found
        handles = _handles(nvml)
        by_uuid = {str(nvml.nvmlDeviceGetUUID(handle)): handle for handle in handles.values()}
        names = {str(nvml.nvmlDeviceGetName(handle)) for handle in handles.values()}
        in_pci_order = VISIBLE not in environ or environ.get(ORDER) == "PCI_BUS_ID"
        for token in tokens:
            if token.isdigit():
                # CUDA's own order is by speed: it equals NVML's where all GPUs are alike.
                handle = handles.get(token) if in_pci_order or len(names) == 1 else None
            else:
                handle = next((h for uuid, h in by_uuid.items() if uuid.startswith(token)), None)
            if handle is not None:
                with contextlib.suppress(nvml.NVMLError):
                    running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                    found[token] = {int(process.pid) for process in running}
    return found


class BusyGpus:
    """Which of the GPUs others compute on.

    Args:
        gpus: tokens to look at; none = nothing is ever busy.
        look: returns token -> ids of computing processes.
    """

    def __init__(
        self,
        gpus: Sequence[str],
        look: Callable[
            [Sequence[str], Mapping[str, str]], dict[str, set[int]]
        ] = computing_processes,
    ) -> None:
        self.found: dict[str, str] = {}
        self._gpus = gpus
        self._look = look
        self._looked_at = float("-inf")

    def tokens(self, leased: Collection[str], own: Collection[int]) -> dict[str, str]:
        """Token -> process ids, as text, of others.

        Args:
            leased: GPUs that our runs hold: whatever computes there belongs to them.
            own: ids of our ranks, some of which may have only just ended.
        """
        if self._gpus and time.monotonic() - self._looked_at >= BUSY_CHECK_S:
            self._looked_at = time.monotonic()
            self.found = {
                gpu: ", ".join(map(str, sorted(others)))
                for gpu, pids in self._look(self._gpus, os.environ).items()
                if gpu not in leased and (others := pids - set(own))
            }
        return self.found
