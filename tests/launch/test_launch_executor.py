"""The queue as a submitit executor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import submitit
from submitit.core.utils import FailedJobError, UncompletedJobError


def where(value: int) -> tuple[int, int, int, str | None]:
    environment = submitit.JobEnvironment()
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    return value, environment.global_rank, environment.num_tasks, devices


def fail() -> None:
    raise ValueError("no good")


def vanish() -> None:
    os.kill(os.getpid(), 9)


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c")
    found = submitit.AutoExecutor(tmp_path, cluster="slots")
    found.update_parameters(timeout_min=5)
    yield found
    found._executor.scheduler.close()


def test_jobs_have_gpus_of_their_own(executor: Any) -> None:
    executor.update_parameters(gpus_per_node=2)
    large = executor.submit(where, 1)
    executor.update_parameters(gpus_per_node=1)
    small = executor.submit(where, 2)
    waiting = executor.submit(where, 3)
    assert large.results() == [(1, 0, 2, "GPU-a,GPU-b"), (1, 1, 2, "GPU-a,GPU-b")]
    assert small.result() == (2, 0, 1, "GPU-c")
    assert waiting.result()[:3] == (3, 0, 1)
    assert {job.state for job in (large, small, waiting)} == {"COMPLETED"}


def test_a_job_that_raises_and_one_that_vanishes_have_failed(executor: Any) -> None:
    raised, gone = executor.submit(fail), executor.submit(vanish)
    with pytest.raises(FailedJobError, match="no good"):
        raised.result()
    with pytest.raises(UncompletedJobError):
        gone.result()
    assert (raised.state, gone.state) == ("FAILED", "FAILED")


def test_a_job_can_be_cancelled_waiting_or_running(executor: Any) -> None:
    executor.update_parameters(gpus_per_node=3)
    running, waiting = executor.submit(time.sleep, 600), executor.submit(where, 1)
    while running.state == "PENDING":
        running.done()
    waiting.cancel()
    running.cancel()
    running.wait()
    waiting.wait()
    assert (running.state, waiting.state) == ("CANCELLED", "CANCELLED")


def test_a_job_too_large_is_refused(executor: Any) -> None:
    executor.update_parameters(gpus_per_node=8)
    with pytest.raises(ValueError, match="needs 8, has 3 GPUs"):
        executor.submit(where, 1)
