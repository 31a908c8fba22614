"""What the step clock promises, on a device that works behind the host's back and on the CPU."""

import gc
import math
import time
from collections.abc import Iterable
from dataclasses import fields

import pytest
import torch

from sweeper.errors import UserError
from sweeper.measure.clock import StepClock
from sweeper.measure.device_clock import HostClock, device_clock
from sweeper.record import StepParts


class FakeDevice:
    """A device that takes work in order and finishes it later; its time is simulated, seconds."""

    name = "cuda_event"

    def __init__(self) -> None:
        self.host = 100.0
        self.done_at = 0.0
        self.waits = 0

    def launch(self, work_s: float, launch_s: float = 0.03e-3) -> None:
        self.host += launch_s
        self.done_at = max(self.done_at, self.host) + work_s

    def mark(self) -> float:
        return max(self.done_at, self.host)

    def synchronize(self) -> None:
        self.waits += 1
        self.host = max(self.host, self.done_at)

    def elapsed_s(self, start: float, end: float) -> float:
        assert self.host >= end, "read before the device got there"
        return end - start

    def recycle(self, marks: Iterable[float]) -> None:
        return None

    def host_s(self) -> float:
        return self.host


def known(parts: StepParts) -> list[float]:
    values = [getattr(parts, f.name) for f in fields(StepParts)]
    return [v for v in values if v is not None]


def test_the_device_is_timed_and_not_the_launch() -> None:
    # C29a: a launch takes 0.03 ms, the work 1.01 ms.
    device = FakeDevice()
    clock = StepClock("cpu", device)
    clock.open_window()
    for _ in range(100):
        clock.phase("forward")
        device.launch(1.01e-3)
        clock.end_step()
    waits = device.waits
    host_before = device.host
    clock.close_window()
    assert waits == 1  # at the window's opening, never in a step
    assert host_before - 100.0 == pytest.approx(100 * 0.03e-3)  # what a naive clock would report
    result = clock.time(global_batch=8)
    assert result.clock == "cuda_event"
    assert result.step_time_s == pytest.approx(1.01e-3)
    assert result.host_step_time_s == pytest.approx(1.01e-3, rel=0.001)
    assert result.host_bound is False


@pytest.mark.parametrize(("launch_s", "behind"), [(1e-3, True), (0.03e-3, False)])
def test_a_host_that_cannot_keep_the_device_busy_is_flagged(launch_s: float, behind: bool) -> None:
    """Ten kernels a step of 0.1 ms each; events do not see the device idle between them."""
    device = FakeDevice()
    clock = StepClock("cpu", device)
    clock.open_window()
    for _ in range(20):
        clock.phase("forward")
        for _ in range(10):
            device.launch(0.1e-3, launch_s)
        clock.end_step()
    clock.close_window()
    result = clock.time(global_batch=8)
    assert result.host_step_time_s == pytest.approx(result.step_time_s, rel=0.02)
    assert result.host_bound is behind


def test_time_that_the_host_loses_between_steps_is_flagged() -> None:
    device = FakeDevice()
    clock = StepClock("cpu", device)
    clock.open_window()
    for _ in range(10):
        clock.phase("forward")
        device.launch(1e-3)
        clock.end_step()
        device.synchronize()
        device.host += 0.1e-3  # say, formatting a log line
    clock.close_window()
    result = clock.time(global_batch=8)
    assert result.step_time_s == pytest.approx(1.03e-3, rel=0.01)
    assert result.host_step_time_s == pytest.approx(1.13e-3, rel=0.01)
    assert result.host_bound is True


def test_parts_are_attributed_and_add_up_exactly() -> None:
    device = FakeDevice()
    clock = StepClock("cpu", device)
    clock.open_window()
    for step in range(7):
        clock.phase("data")
        device.host += 0.5e-3 + step * 1e-6
        for _micro in range(2):
            clock.phase("forward")
            device.launch(1e-3)
            clock.phase("backward")
            device.launch(2e-3)
        clock.phase("optimizer")
        device.launch(0.25e-3)
        clock.phase("ema")
        device.launch(0.125e-3)
        clock.end_step()
        device.synchronize()
    clock.close_window()
    result = clock.time(global_batch=4)
    assert result.parts.forward_s == pytest.approx(2e-3, rel=0.05)
    assert result.parts.backward_s == pytest.approx(4e-3, rel=0.05)
    assert result.parts.optimizer_s == pytest.approx(0.25e-3, rel=0.05)
    assert result.parts.rest_s == pytest.approx(0.125e-3, rel=0.05)
    assert result.parts.data_wait_s == pytest.approx(0.503e-3, rel=0.05)
    assert result.parts.communication_s is None  # not told apart: null, not zero
    assert math.fsum(known(result.parts)) == result.step_time_mean_s
    for step in clock.steps():
        assert math.fsum(known(step.parts)) == step.step_time_s


def test_the_wait_for_data_belongs_to_the_step() -> None:
    clock = StepClock("cpu")
    clock.open_window()
    clock.phase("data")
    time.sleep(0.02)
    clock.phase("forward")
    clock.end_step()
    clock.close_window()
    (step,) = clock.steps()
    assert step.parts.data_wait_s is not None
    assert step.parts.data_wait_s >= 0.02
    assert step.step_time_s >= 0.02


def test_warm_up_and_irregular_steps_stay_out_of_the_statistics() -> None:
    device = FakeDevice()
    clock = StepClock("cpu", device)

    def step(work_s: float, regular: bool = True) -> None:
        clock.phase("forward")
        device.launch(work_s, launch_s=0.0)
        clock.end_step(regular=regular)

    step(10.0)
    clock.open_window()
    for _ in range(9):
        step(1.0)
    step(0.1, regular=False)  # the last, smaller batch of an epoch
    clock.close_window()
    step(5.0)
    result = clock.time(global_batch=128)
    assert (result.warmup_steps, result.measured_steps) == (1, 9)
    assert result.step_time_s == pytest.approx(1.0)
    assert result.step_time_mean_s == pytest.approx(1.0)
    assert [s.measured for s in clock.steps()] == [False] + [True] * 10 + [False]


def test_garbage_collection_is_off_in_the_window_and_restored() -> None:
    frozen = gc.get_freeze_count()
    clock = StepClock("cpu")
    assert gc.isenabled()
    clock.open_window()
    assert not gc.isenabled()
    clock.close_window()
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
    clock.open_window()
    clock.phase("data")
    clock.abandon()  # after an error inside a step
    assert gc.isenabled()
    clock.open_window()
    clock.close_window()


def test_a_long_training_outside_the_window_does_not_pile_up_marks() -> None:
    device = FakeDevice()
    clock = StepClock("cpu", device)
    for _ in range(640):
        clock.phase("data")
        clock.end_step()
    assert device.waits == 10


def test_misuse_is_an_error() -> None:
    clock = StepClock("cpu")
    with pytest.raises(RuntimeError):
        clock.end_step()
    with pytest.raises(RuntimeError):
        clock.close_window()
    clock.begin_step()
    with pytest.raises(RuntimeError):
        clock.begin_step()
    with pytest.raises(RuntimeError):
        clock.open_window()
    with pytest.raises(UserError, match=r"hardware\.device"):
        device_clock("meta")
    assert isinstance(device_clock("cpu"), HostClock)


def test_recent_step_time_needs_no_wait() -> None:
    device = FakeDevice()
    clock = StepClock("cpu", device)
    assert clock.recent_step_s() is None
    for _ in range(5):
        clock.phase("data")
        device.host += 0.5
        clock.end_step()
    assert clock.recent_step_s() == pytest.approx(0.5)
    assert device.waits == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_events_time_the_device() -> None:
    clock = StepClock("cuda")
    x = torch.randn(4096, 4096, device="cuda")
    for _ in range(3):
        x @ x
    clock.open_window()
    for _ in range(20):
        clock.phase("forward")
        for _ in range(10):
            x @ x
        clock.phase("optimizer")
        x.mul(1.0)
        clock.end_step()
    clock.close_window()
    result = clock.time(global_batch=1)
    assert result.clock == "cuda_event"
    assert result.host_bound is False
    assert result.parts.forward_s is not None
    assert result.parts.optimizer_s is not None
    assert result.parts.forward_s > result.parts.optimizer_s
