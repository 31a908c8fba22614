"""What there is to run on: `python -m sweeper.devices`.

GPUs with their memory, load, temperature, links and processes, the driver, and which of them the
launcher would give to runs; without a GPU the cores and memory. Nothing is started on a device.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import pynvml
from rich.console import Console
from rich.table import Table

from sweeper.launch.devices import VISIBLE, visible_gpus
from sweeper.machine import nvml as nv
from sweeper.machine.cores import cpu_name, usable_cores, usable_memory_bytes

GIB = 2**30

# How near two GPUs are on PCIe, by NVML's levels.
_PCIE = {
    0: "same board",
    10: "PCIe, one switch",
    20: "PCIe, several switches",
    30: "PCIe, host bridge",
    40: "PCIe, one CPU",
    50: "PCIe, across CPUs",
}
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH


@dataclass
class Gpu:
    """One GPU; None where the driver does not say."""

    index: int
    name: str
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    gpu_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    pcie: str | None = None
    throttle_reasons: list[str] = field(default_factory=list)
    processes: list[tuple[int, int | None]] = field(default_factory=list)  # pid, bytes


def look_at(nvml: Any, handle: Any, index: int) -> Gpu:
    """Ask one device for everything."""

    def ask(name: str, *arguments: Any) -> Any:
        return nv.ask(nvml, lambda: getattr(nvml, name)(handle, *arguments))

    gpu = Gpu(index, name=str(ask("nvmlDeviceGetName")))
    memory = ask("nvmlDeviceGetMemoryInfo")
    if memory is not None:
        gpu.memory_used_bytes, gpu.memory_bytes = memory.used, memory.total
    rates = ask("nvmlDeviceGetUtilizationRates")
    gpu.gpu_percent = None if rates is None else rates.gpu
    gpu.temperature_c = ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
    milliwatts = ask("nvmlDeviceGetPowerUsage")
    gpu.power_w = None if milliwatts is None else milliwatts / 1000
    gpu.sm_clock_mhz = ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)
    generation = ask("nvmlDeviceGetMaxPcieLinkGeneration")
    width = ask("nvmlDeviceGetMaxPcieLinkWidth")
    gpu.pcie = None if generation is None or width is None else f"{generation} x{width}"
    gpu.throttle_reasons = nv.throttle_reasons(nvml, handle)
    running = ask("nvmlDeviceGetComputeRunningProcesses") or []
    gpu.processes = [(process.pid, process.usedGpuMemory) for process in running]
    return gpu


def link(nvml: Any, first: Any, second: Any) -> str:
    """How two GPUs are connected: by so many NVLinks, or by PCIe."""
    ours, theirs = _nvlinks(nvml, first), _nvlinks(nvml, second)
    pci = nv.ask(nvml, lambda: nvml.nvmlDeviceGetPciInfo(second).busId)
    direct = sum(1 for end in ours if end == pci)
    switched = min(ours.count(None), theirs.count(None))  # through a switch each reaches all
    if direct or switched:
        return f"NVLink x{direct or switched}"
    level = nv.ask(nvml, lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(first, second))
    return "?" if level is None else _PCIE.get(level, "?")


def _nvlinks(nvml: Any, handle: Any) -> list[Any]:
    """Per active NVLink the PCI bus of the GPU at its other end, or None for a switch."""
    ends: list[Any] = []
    for number in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, number):
                continue
            kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, number)
            pci = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, number)
        except nvml.NVMLError:  # no such link
            continue
        ends.append(None if kind == _SWITCH else pci.busId)
    return ends


def show(console: Console, nvml: Any = pynvml) -> None:
    """Print everything about this machine's devices."""
    with nv.session(nvml) as library:
        handles = [] if library is None else nv.ask(library, lambda: nv.devices(library)) or []
        if handles:
            _show_gpus(console, library, handles)
        else:
            why = "no NVIDIA driver answers" if library is None else "the driver lists none"
            console.print(f"No GPU: {why}. Runs use the CPU; gpus=2 starts 2 processes on it.")
    memory = f"{usable_memory_bytes() / GIB:.1f} GiB"
    console.print(f"CPU: {cpu_name() or 'unknown'}, {usable_cores()} usable cores, {memory} memory")


def _show_gpus(console: Console, nvml: Any, handles: Sequence[Any]) -> None:
    gpus = [look_at(nvml, handle, index) for index, handle in enumerate(handles)]
    console.print(_gpu_table(gpus))
    if len(gpus) > 1:
        links = Table("link", *(str(gpu.index) for gpu in gpus), title="Links between GPUs")
        for row, first in zip(gpus, handles, strict=True):
            cells = ["" if a is first else link(nvml, first, a) for a in handles]
            links.add_row(str(row.index), *cells)
        console.print(links)
    processes = [(gpu.index, pid, used) for gpu in gpus for pid, used in gpu.processes]
    if processes:
        table = Table("GPU", "pid", "process", "memory, GiB", title="Processes on GPUs")
        for index, pid, used in processes:
            table.add_row(str(index), str(pid), _command(pid), _gib(used))
        console.print(table)
    driver = nv.ask(nvml, nvml.nvmlSystemGetDriverVersion)
    console.print(f"Driver: {driver or 'unknown'}")
    tokens = visible_gpus(os.environ)
    listed = f"{VISIBLE}={os.environ[VISIBLE]}" if VISIBLE in os.environ else f"{VISIBLE} not set"
    use = ", ".join(tokens) if tokens else "none: they run on the CPU"
    console.print(f"Runs use: {use} ({listed})")


def _gpu_table(gpus: Sequence[Gpu]) -> Table:
    table = Table(title="GPUs")
    for heading in ("GPU", "name", "memory used, GiB", "of", "load, %", "°C", "W", "MHz", "PCIe"):
        table.add_column(heading, justify="left" if heading == "name" else "right")
    table.add_column("clocks lowered by")
    for gpu in gpus:
        table.add_row(
            str(gpu.index),
            gpu.name,
            _gib(gpu.memory_used_bytes),
            _gib(gpu.memory_bytes),
            *(_text(v) for v in (gpu.gpu_percent, gpu.temperature_c, gpu.power_w)),
            _text(gpu.sm_clock_mhz),
            gpu.pcie or "?",
            ", ".join(gpu.throttle_reasons),
        )
    return table


def _gib(size: int | None) -> str:
    return "?" if size is None else f"{size / GIB:.1f}"


def _text(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _command(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:  # ended, another user's, or numbered outside this container
        return "?"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sweeper.devices", description=__doc__)
    parser.parse_args(argv)
    show(Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
