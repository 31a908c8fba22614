"""The device a rank computes on, with the limits and the determinism that the config sets."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

import psutil
import torch

from sweeper.config import HardwareConfig
from sweeper.errors import UserError
from sweeper.place import Place

# cuBLAS repeats itself only with workspaces of fixed size; read when its first handle is made.
CUBLAS_VARIABLE, CUBLAS_WORKSPACES = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"

THREADS_VARIABLE = "SWEEPER_THREADS"  # CPU threads per rank, as the launcher divided them


def choose_device(config: HardwareConfig, place: Place) -> torch.device:
    """The rank's device; does not touch it yet.

    Raises:
        UserError: CUDA is asked for where there is none.
    """
    kind = config.device
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "hardware.device", "cuda is not available here", "use hardware.device=auto or cpu"
        )
    return torch.device(kind, place.local_rank) if kind == "cuda" else torch.device("cpu")


def threads_per_rank(config: HardwareConfig, place: Place) -> int:
    """As configured, else as the launcher divided the cores, else an equal share of them."""
    if config.threads is not None:
        return config.threads
    if THREADS_VARIABLE in os.environ:
        return int(os.environ[THREADS_VARIABLE])
    return max(1, len(os.sched_getaffinity(0)) // place.ranks_per_node)


@contextlib.contextmanager
def limited(config: HardwareConfig, place: Place, device: torch.device) -> Iterator[None]:
    """Threads and memory limit as configured while the block lasts; as before afterwards.

    The memory limit is the allocator's on CUDA. On the CPU it is on top of what the process has by
    now, through RLIMIT_DATA: allocations beyond it fail as they do where memory is short.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(threads_per_rank(config, place))
    limit = memory_limit_bytes(config)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if limit is not None:
        if device.type == "cuda":
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)
        else:
            used = psutil.Process().memory_info().data
            resource.setrlimit(resource.RLIMIT_DATA, (used + limit, before[1]))
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        resource.setrlimit(resource.RLIMIT_DATA, before)
        if limit is not None and device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0, device)


@contextlib.contextmanager
def reproducible(repro: str) -> Iterator[None]:
    """With `strict`, torch uses deterministic algorithms alone while the block lasts.

    Enter it before anything computes on CUDA. An operation that has no deterministic algorithm then
    raises, and says so; its run fails rather than being repeatable in name only. torch also fills
    memory that is taken without being set, so that a read of it would show.

    Args:
        repro: `fast` leaves everything as it is.
    """
    if repro != "strict":
        yield
        return
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, cudnn.deterministic
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    workspaces = os.environ.get(CUBLAS_VARIABLE)
    if workspaces not in (":4096:8", ":16:8"):  # the two that are deterministic
        os.environ[CUBLAS_VARIABLE] = CUBLAS_WORKSPACES
    torch.use_deterministic_algorithms(True)
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        enabled, cudnn.benchmark, cudnn.deterministic = before
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        if workspaces is None:
            del os.environ[CUBLAS_VARIABLE]
        else:
            os.environ[CUBLAS_VARIABLE] = workspaces


def memory_limit_bytes(config: HardwareConfig) -> int | None:
    limit = config.memory_limit_gib
    return None if limit is None else round(limit * 2**30)
