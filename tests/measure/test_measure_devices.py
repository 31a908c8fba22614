"""The device query, and which device is meant by which name."""

import io
import os
import subprocess
import sys

import pytest
from measure_fake_nvml import GIB, FakeGpu, FakeNvml
from rich.console import Console

from sweeper.devices import show
from sweeper.machine import nvml as nv
from sweeper.machine.nvml import handle_of, used_by, visible


def shown(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible_devices: str | None) -> str:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # for the launcher's own look
    if visible_devices is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible_devices)
    out = io.StringIO()
    show(Console(file=out, width=160), nvml)
    assert nvml.open_sessions == 0
    return out.getvalue()


def test_gpus_with_links_processes_and_what_runs_would_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    me = os.getpid()
    nvml = FakeNvml(
        FakeGpu(0, processes=[(me, 9 * GIB), (2**30, None)], nvlinks=["0000:01:00.0"] * 4),
        FakeGpu(1, used=0, gpu_percent=0, nvlinks=["0000:00:00.0"] * 4),
        FakeGpu(2),
    )
    text = shown(nvml, monkeypatch, "1,2")
    assert text.count("NVIDIA A100-SXM4-80GB") == 3
    for expected in ("10.0", "80.0", "85", "61", "310", "power cap", "4 x16", "570.86.10"):
        assert expected in text
    assert text.count("NVLink x4") == 2  # 0-1 and 1-0
    assert "PCIe, across CPUs" in text
    assert str(me) in text
    assert "9.0" in text
    assert "Runs use: 1, 2 (CUDA_VISIBLE_DEVICES=1,2)" in text
    assert "usable cores" in text


def test_gpus_behind_a_switch_reach_each_other_by_all_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = FakeNvml(*[FakeGpu(i, nvlinks=[None] * 18) for i in range(2)])
    assert shown(nvml, monkeypatch, None).count("NVLink x18") == 2


def test_what_a_driver_does_not_say_is_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(FakeGpu(0))
    nvml.broken = {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    }
    text = shown(nvml, monkeypatch, None)
    assert "NVIDIA A100-SXM4-80GB" in text
    assert text.count("?") == 7


def test_a_machine_without_a_gpu_is_no_error() -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", "sweeper.devices"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usable cores" in done.stdout
    assert "GiB memory" in done.stdout


def test_no_driver_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(FakeNvml(driver=False), monkeypatch, None)
    assert "No GPU: no NVIDIA driver answers. Runs use the CPU" in text


@pytest.fixture
def four() -> FakeNvml:
    return FakeNvml(*[FakeGpu(i) for i in range(4)])


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        (" 3 , 1 ", [3, 1]),
        ("GPU-20000000-aaaa,GPU-1", [2, 1]),  # a whole UUID, and the beginning of one
        ("1,7,0", [1]),  # as in CUDA, the first wrong entry ends the list
        ("-1", []),
        ("", []),
    ],
)
def test_visible_devices(four: FakeNvml, tokens: str | None, expected: list[int]) -> None:
    environ = {} if tokens is None else {"CUDA_VISIBLE_DEVICES": tokens}
    assert [gpu.index for gpu in visible(four, environ)] == expected


def test_a_mig_instance_is_found_by_its_uuid(four: FakeNvml) -> None:
    four.mig["MIG-7"] = FakeGpu(9, name="MIG 1g.10gb")
    (found,) = visible(four, {"CUDA_VISIBLE_DEVICES": "MIG-7"})
    assert found.index == 9


def test_an_index_means_nothing_where_gpus_differ_and_the_order_is_not_the_bus() -> None:
    nvml = FakeNvml(FakeGpu(0, name="A"), FakeGpu(1, name="B"))
    assert visible(nvml, {"CUDA_VISIBLE_DEVICES": "1"}) == []
    in_order = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [gpu.index for gpu in visible(nvml, in_order)] == [1]
    by_uuid = {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    assert [gpu.index for gpu in visible(nvml, by_uuid)] == [1]
    # What CUDA itself says the device is settles it.
    handle = handle_of(nvml, 0, {"CUDA_VISIBLE_DEVICES": "1"}, uuid="10000000-aaaa")
    assert handle is nvml.gpus[1]


def test_a_ranks_device_is_found_through_what_is_visible(four: FakeNvml) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "3,1"}
    assert handle_of(four, 1, environ) is four.gpus[1]
    assert handle_of(four, 1, environ, uuid="20000000-aaaa") is four.gpus[2]
    assert handle_of(four, 1, environ, uuid="unknown to NVML") is four.gpus[1]
    assert handle_of(four, 2, environ) is None
    four.broken.add("nvmlDeviceGetCount")
    assert handle_of(four, 0, environ) is None


def test_memory_of_one_process(four: FakeNvml) -> None:
    four.gpus[0].processes = [(10, 5), (11, 7), (12, None)]
    assert used_by(four, four.gpus[0], 11) == 7
    assert used_by(four, four.gpus[0], 12) is None
    assert used_by(four, four.gpus[0], 13) is None
    assert nv.throttle_reasons(four, four.gpus[0]) == ["power cap"]
