# ruff: noqa: N802 - the methods have the library's names
"""A stand-in for the pynvml module: a machine with GPUs that the test describes."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GIB = 2**30


@dataclass
class FakeGpu:
    index: int
    name: str = "NVIDIA A100-SXM4-80GB"
    uuid: str = ""
    used: int = 10 * GIB
    total: int = 80 * GIB
    gpu_percent: int = 85
    celsius: int = 61
    milliwatts: int = 310_000
    throttle: int = 0x004 | 0x001  # power cap; and idle, which is no reason
    processes: list[tuple[int, int | None]] = field(default_factory=list)
    nvlinks: list[str | None] = field(default_factory=list)  # bus ids; None for a switch

    def __post_init__(self) -> None:
        self.uuid = self.uuid or f"GPU-{self.index}0000000-aaaa"
        self.bus = f"0000:{self.index:02d}:00.0"


class FakeNvml:
    """What is in `broken` raises, as a driver does that knows no answer."""

    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1
    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(self, *gpus: FakeGpu, driver: bool = True) -> None:
        self.gpus, self.driver = list(gpus), driver
        self.broken: set[str] = set()
        self.open_sessions = 0
        self.mig: dict[str, Any] = {}

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "broken"):
            return self._fail
        return object.__getattribute__(self, name)

    def _fail(self, *_: Any) -> Any:
        raise self.NVMLError("not supported")

    def nvmlInit(self) -> None:
        if not self.driver:
            self._fail()
        self.open_sessions += 1

    def nvmlShutdown(self) -> None:
        self.open_sessions -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.10"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return gpu
        return self.mig[uuid] if uuid in self.mig else self._fail()

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        return gpu.name

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(used=gpu.used, total=gpu.total)

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(gpu=gpu.gpu_percent, memory=30)

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:
        return gpu.celsius

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        return gpu.milliwatts

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, clock: int) -> int:
        return 1410

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: FakeGpu) -> int:
        return 4

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: FakeGpu) -> int:
        return 16

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> int:
        return gpu.throttle

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in gpu.processes]

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> tuple[int, int]:
        return (0, 0)

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(busId=gpu.bus)

    def nvmlDeviceGetNvLinkState(self, gpu: FakeGpu, number: int) -> int:
        return 1 if number < len(gpu.nvlinks) else self._fail()

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: FakeGpu, number: int) -> int:
        return 2 if gpu.nvlinks[number] is None else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: FakeGpu, number: int) -> Any:
        return SimpleNamespace(busId=gpu.nvlinks[number])

    def nvmlDeviceGetTopologyCommonAncestor(self, first: FakeGpu, second: FakeGpu) -> int:
        return 50
