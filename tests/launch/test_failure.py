"""What an exception says about how a run ended, and which of several ranks began it."""

from __future__ import annotations

import pytest

from sweeper.errors import DivergedError
from sweeper.failure import bytes_requested, culprit, describe, is_secondary, read_failures
from sweeper.failure import write_failure as write
from sweeper.record import Failure, Status


@pytest.mark.parametrize(
    ("message", "size"),
    [
        ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total ...", 20 * 2**20),
        ("CUDA out of memory. Tried to allocate 1.50 GiB.", 3 * 2**29),
        (
            "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 4000000000000 bytes. Error code 12",
            4_000_000_000_000,
        ),
        ("DefaultCPUAllocator: not enough memory: you tried to allocate 16 bytes.", 16),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None),
        ("CUDA error: out of memory", None),
        ("NCCL error: unhandled cuda error. Last error: Cuda failure 2 'out of memory'", None),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", None),
    ],
)
def test_out_of_memory_in_the_words_of_each_library(message: str, size: int | None) -> None:
    status, failure = describe(RuntimeError(message), rank=3)
    assert status is Status.OOM
    assert failure.bytes_requested == size
    assert failure.rank == 3


def test_real_allocators_are_understood() -> None:
    import torch

    with pytest.raises(RuntimeError) as error:
        torch.empty(10**15)
    status, failure = describe(error.value)
    assert status is Status.OOM
    assert failure.bytes_requested == 4 * 10**15


def test_python_and_numpy_running_out_count_too() -> None:
    import numpy as np

    with pytest.raises(MemoryError) as error:
        np.ones(10**15)
    assert describe(error.value)[0] is Status.OOM
    assert describe(MemoryError())[0] is Status.OOM


def test_a_cause_counts_even_if_it_was_wrapped() -> None:
    error = ValueError("wrapper")
    error.__cause__ = MemoryError("no room")
    status, failure = describe(error)
    assert (status, failure.type, failure.message) == (Status.OOM, "MemoryError", "no room")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DivergedError("nan at step 3"), Status.DIVERGED),
        (ValueError("the memory of an elephant"), Status.FAILED),
        (RuntimeError("expected 2 arguments"), Status.FAILED),
    ],
)
def test_other_errors(error: Exception, status: Status) -> None:
    assert describe(error)[0] is status


def test_bytes_are_read_only_where_they_are_told() -> None:
    assert bytes_requested("could not allocate anything") is None
    assert bytes_requested("Unable to allocate 7.28 TiB for an array") == round(7.28 * 2**40)


@pytest.mark.parametrize(
    "message",
    [
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:1",
        "Connection reset by peer",
        "NCCL communicator was aborted on rank 0.",
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)",
        "Timed out waiting 1800000ms for recv operation to complete",
        "ncclRemoteError: A call failed possibly due to a network error",
    ],
)
def test_consequences_are_told_from_causes(message: str) -> None:
    assert is_secondary(Failure(type="RuntimeError", message=message))


def test_the_earliest_cause_is_the_culprit() -> None:
    peer = Failure(
        type="RuntimeError", message="Connection closed by peer", at="2025-01-01T00:00:01"
    )
    cause = Failure(type="ValueError", message="wrong", at="2025-01-01T00:00:02")
    later = Failure(type="KeyError", message="'x'", at="2025-01-01T00:00:03")
    assert culprit([later, peer, cause]) is cause
    assert culprit([peer]) is peer
    with pytest.raises(ValueError, match="no failures"):
        culprit([])


def test_the_first_word_of_a_rank_counts(tmp_path) -> None:
    write(tmp_path, Failure(type="A", message="first", rank=1))
    write(tmp_path, Failure(type="B", message="second", rank=1))
    (tmp_path / "failure.rank2.json").write_text("{")
    assert [(f.rank, f.message) for f in read_failures(tmp_path)] == [(1, "first")]
