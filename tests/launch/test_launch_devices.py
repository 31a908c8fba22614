"""Which GPUs and cores a command may use."""

from __future__ import annotations

import pytest

from sweeper.launch import devices
from sweeper.launch.devices import BusyGpus, device_variables, visible_gpus


@pytest.mark.parametrize(
    ("listed", "tokens"),
    [
        ("GPU-8932f937,MIG-377e0049", ["GPU-8932f937", "MIG-377e0049"]),
        ("3,1", ["3", "1"]),
        (" 0 , 1 ", ["0", "1"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),  # CUDA stops at the first token that names no device
        ("NoDevFiles", []),
    ],
)
def test_the_visible_devices_are_taken_as_cuda_reads_them(listed: str, tokens: list[str]) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": listed}) == tokens


def test_tokens_are_handed_on_unchanged_and_keep_the_order_they_were_meant_in() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "1,0"}
    assert device_variables(("1",), environ) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert device_variables(("GPU-8932f937", "MIG-377e0049"), environ) == {
        "CUDA_VISIBLE_DEVICES": "GPU-8932f937,MIG-377e0049"
    }
    # Indices of our own counting are NVML's, which are those of CUDA in PCI order only.
    assert device_variables(("1",), {}) == {
        "CUDA_VISIBLE_DEVICES": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert device_variables((), {}) == {"CUDA_VISIBLE_DEVICES": ""}


def test_a_gpu_is_busy_when_others_compute_on_it() -> None:
    busy = BusyGpus(("0", "1", "2"), look=lambda *_: {"0": {11, 12}, "1": {7}, "2": {99}})
    assert busy.tokens(leased={"2"}, own={7}) == {"0": "11, 12"}


def test_a_look_at_the_gpus_is_good_for_a_while() -> None:
    looks = []
    busy = BusyGpus(("0",), look=lambda *_: looks.append(1) or {"0": {11}})
    assert busy.tokens((), ()) == busy.tokens((), ()) == {"0": "11"}
    assert len(looks) == 1


def test_without_gpus_nothing_is_asked() -> None:
    busy = BusyGpus((), look=lambda *_: pytest.fail("asked"))
    assert busy.tokens((), ()) == {}


class FakeNvml:
    """Two whole GPUs and one divided into two parts."""

    NVMLError = RuntimeError
    NVML_DEVICE_MIG_ENABLE = 1

    @staticmethod
    def nvmlDeviceGetCount() -> int:  # noqa: N802  # NVML's names
        return 3

    @staticmethod
    def nvmlDeviceGetHandleByIndex(index: int) -> str:  # noqa: N802
        return f"gpu{index}"

    @staticmethod
    def nvmlDeviceGetMigMode(handle: str) -> list[int]:  # noqa: N802
        return [int(handle == "gpu2"), 0]

    @staticmethod
    def nvmlDeviceGetMaxMigDeviceCount(handle: str) -> int:  # noqa: N802
        return 7

    @staticmethod
    def nvmlDeviceGetMigDeviceHandleByIndex(handle: str, index: int) -> str:  # noqa: N802
        if index > 1:
            raise RuntimeError("not found")
        return f"part{index}"

    @staticmethod
    def nvmlDeviceGetUUID(handle: str) -> str:  # noqa: N802
        return f"{'MIG' if handle.startswith('part') else 'GPU'}-{handle}"


def test_divided_gpus_are_offered_by_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    import contextlib

    monkeypatch.setattr(devices, "session", lambda: contextlib.nullcontext(FakeNvml))
    assert visible_gpus({}) == ["0", "1", "MIG-part0", "MIG-part1"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0,9"}) == ["0"]


def test_a_containers_quota_bounds_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda pid: {7, 3, 5})
    monkeypatch.setattr(devices, "usable_cores", lambda: 2)
    assert devices.Node.here({"CUDA_VISIBLE_DEVICES": ""}).cores == (3, 5)
